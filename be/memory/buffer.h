// Buffer: the move-only handle to registered memory; whoever holds it owns the bytes.
//
//   [ ... headroom ... | data .............. | ... spare ... ]
//   ^ block()            ^ data()  size()      capacity() counts from data()
//
// Ownership moves (blueprint 3): send(Buffer) takes it until the completion; a received Buffer
// belongs to the receiver, who may keep it, hand it to another thread and free it there. The
// view may be narrowed (resize, drop_front) without touching the memory behind it.
//
// A Buffer is used by one thread at a time. Freeing is done by the destructor, on any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "be/base/status.h"

namespace be {

class RegisteredPool;

class Buffer {
 public:
  Buffer() = default;  // empty: no memory
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer();

  uint8_t* data() { return data_; }
  const uint8_t* data() const { return data_; }
  size_t size() const { return size_; }
  size_t capacity() const { return capacity_; }  // bytes from data() to the end of the memory
  bool empty() const { return size_ == 0; }
  explicit operator bool() const { return owner_ != nullptr; }
  std::span<uint8_t> bytes() { return {data_, size_}; }
  std::span<const uint8_t> bytes() const { return {data_, size_}; }

  void resize(size_t size);       // requires size <= capacity()
  void drop_front(size_t count);  // requires count <= size(); the memory stays owned

  // A second handle to a part of the same memory; the memory returns to its pool when the
  // last handle is gone. From then on neither handle may be written through by convention:
  // shared bytes are immutable (an rpc request shared by its attempts, blueprint 8).
  Buffer share(size_t offset, size_t length);

  void reset();  // gives the memory back now

 private:
  friend class RegisteredPool;
  struct Owner;  // who takes the memory back: a pool, or the adopter's callback
  uint8_t* data_ = nullptr;
  size_t size_ = 0;
  size_t capacity_ = 0;
  void* owner_ = nullptr;  // RegisteredPool* or Shared*, tagged: see buffer.cc
  uint8_t* block_ = nullptr;
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
  alignas(8) uint8_t header[kMaxHeaderBytes];

  Message() = default;
  explicit Message(Buffer only) { append(std::move(only)); }
  void append(Buffer part);  // requires count < kMaxParts; an empty part is dropped
  void set_header(const void* bytes, size_t length);  // requires length <= kMaxHeaderBytes
  size_t bytes() const;                               // header + parts
};

}  // namespace be
