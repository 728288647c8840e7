// A fixed array of plain values, zero at first, whose untouched parts cost no memory.
//
// For side tables that are as long as the address range but as full as the memory in use.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <type_traits>

namespace be::memory {

template <typename T>
class ZeroedArray {
  static_assert(std::is_trivial_v<T>);

 public:
  // calloc takes zero pages from the kernel for what is large, and writes nothing.
  // NOLINTNEXTLINE(bugprone-sizeof-expression): T may be a pointer
  explicit ZeroedArray(size_t count) : values_(static_cast<T*>(std::calloc(count, sizeof(T)))) {
    if (values_ == nullptr) throw std::bad_alloc();
  }
  T& operator[](size_t index) { return values_.get()[index]; }
  const T& operator[](size_t index) const { return values_.get()[index]; }

 private:
  struct Free {
    void operator()(T* values) const { std::free(values); }
  };
  std::unique_ptr<T, Free> values_;
};

}  // namespace be::memory
