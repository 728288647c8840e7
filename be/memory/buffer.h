// Buffer: the move-only handle to registered memory; whoever holds it owns the bytes.
//
//   [ ... dropped ... | data .............. | ... spare ... ]
//   ^ of the pool     ^ data()  size()      capacity() counts from data()
//
// Ownership moves (blueprint 3): send(Buffer) takes it until the completion; a received Buffer
// belongs to the receiver, who may keep it, hand it to another thread and free it there. The
// view may be narrowed (resize, drop_front) without touching the memory behind it.
//
// 32 bytes; a move is two loads and four stores. A Buffer is used by one thread at a time.
// Freeing is done by the destructor, on any thread.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

#include "be/base/status.h"

namespace be {

class RegisteredPool;

class Buffer {
 public:
  Buffer() = default;  // empty: no memory
  Buffer(Buffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        owner_(std::exchange(other.owner_, nullptr)),
        size_(std::exchange(other.size_, 0)),
        capacity_(std::exchange(other.capacity_, 0)),
        dropped_(std::exchange(other.dropped_, 0)),
        shared_(std::exchange(other.shared_, false)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    if (this != &other) {
      if (owner_ != nullptr) give_back();
      data_ = std::exchange(other.data_, nullptr);
      owner_ = std::exchange(other.owner_, nullptr);
      size_ = std::exchange(other.size_, 0);
      capacity_ = std::exchange(other.capacity_, 0);
      dropped_ = std::exchange(other.dropped_, 0);
      shared_ = std::exchange(other.shared_, false);
    }
    return *this;
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() {
    if (owner_ != nullptr) give_back();
  }

  uint8_t* data() { return data_; }
  const uint8_t* data() const { return data_; }
  size_t size() const { return size_; }
  size_t capacity() const { return capacity_; }  // bytes from data() to the end of the memory
  bool empty() const { return size_ == 0; }
  explicit operator bool() const { return owner_ != nullptr; }
  std::span<uint8_t> bytes() { return {data_, size_}; }
  std::span<const uint8_t> bytes() const { return {data_, size_}; }

  void resize(size_t size) {  // requires size <= capacity()
    assert(size <= capacity_);
    size_ = static_cast<uint32_t>(size);
  }
  void drop_front(size_t count) {  // requires count <= size(); the memory stays owned
    assert(count <= size_);
    data_ += count;
    size_ -= static_cast<uint32_t>(count);
    capacity_ -= static_cast<uint32_t>(count);
    dropped_ += static_cast<uint32_t>(count);
  }

  // A second handle to a part of the same memory (requires offset + length <= size()), which
  // cannot grow beyond that part; the memory returns to its pool when the last handle is gone.
  // From then on neither handle may be written through by convention: shared bytes are
  // immutable (an rpc request shared by its attempts, blueprint 8). The first share allocates a
  // small control block outside the pool.
  Buffer share(size_t offset, size_t length);

  void reset() { *this = Buffer(); }  // gives the memory back now

 private:
  friend class RegisteredPool;
  struct Shared;  // buffer.cc: memory with several handles, or an adopter's

  // `owner`: a memory::PoolCore, or if `shared` a Shared.
  Buffer(uint8_t* data, size_t size, size_t capacity, void* owner, bool shared)
      : data_(data),
        owner_(owner),
        size_(static_cast<uint32_t>(size)),
        capacity_(static_cast<uint32_t>(capacity)),
        shared_(shared) {}

  void give_back();  // requires an owner; leaves none

  uint8_t* data_ = nullptr;
  void* owner_ = nullptr;
  uint32_t size_ = 0;
  uint32_t capacity_ = 0;
  uint32_t dropped_ = 0;  // data_ - dropped_ is what the pool handed out
  bool shared_ = false;
};

// Gather list: what one send() takes. It arrives as one contiguous Buffer:
//
//   header bytes (copied when sent) | parts[0] | parts[1] | ...
//
// The header is for the few bytes that a protocol puts in front (an rpc header): it costs no
// allocation, while the parts are never copied (but for tiny messages, which travel inline).
struct Message {
  static constexpr size_t kMaxParts = 4;
  static constexpr size_t kMaxHeaderBytes = 64;

  Buffer parts[kMaxParts];
  uint8_t count = 0;
  uint8_t header_bytes = 0;
  alignas(8) uint8_t header[kMaxHeaderBytes] = {};

  Message() = default;
  explicit Message(Buffer only) { append(std::move(only)); }
  // Moves what is there and leaves an empty message; most have one part or two.
  Message(Message&& other) noexcept { take(other); }
  Message& operator=(Message&& other) noexcept {
    if (this != &other) {
      for (size_t i = 0; i < count; ++i) parts[i].reset();
      take(other);
    }
    return *this;
  }
  ~Message() = default;

  void append(Buffer part) {  // requires count < kMaxParts; an empty part is dropped
    if (part.empty()) return;
    assert(count < kMaxParts);
    parts[count++] = std::move(part);
  }
  void set_header(const void* bytes, size_t length) {  // requires length <= kMaxHeaderBytes
    assert(length <= kMaxHeaderBytes);
    if (length > 0) std::memcpy(header, bytes, length);
    header_bytes = static_cast<uint8_t>(length);
  }
  size_t bytes() const {  // header + parts
    size_t sum = header_bytes;
    for (size_t i = 0; i < count; ++i) sum += parts[i].size();
    return sum;
  }

 private:
  void take(Message& other) {  // requires empty parts
    count = std::exchange(other.count, 0);
    header_bytes = std::exchange(other.header_bytes, 0);
    for (size_t i = 0; i < count; ++i) parts[i] = std::move(other.parts[i]);
    std::memcpy(header, other.header, kMaxHeaderBytes);
  }
};

}  // namespace be
