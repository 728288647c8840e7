// Errors as values: a Status says what failed, why, whom it concerns and what to do.
//
// A Status is one pointer: null means success, so returning one costs a register. A failure
// carries a Code for programs and a sentence for people. No exceptions cross our API and
// nothing a peer, a file or a user can cause aborts the process.
//
// Values: copied and read from any thread.
#pragma once

#include <fmt/format.h>

#include <cassert>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace be {

// What a program can decide on. The numbers travel on the wire (rpc, handshake): never renumber.
enum class Code : uint8_t {
  kOk = 0,
  kInvalidArgument = 1,    // the caller's fault: bad value, impossible configuration
  kNotFound = 2,           // no such table, method, file, host
  kAlreadyExists = 3,      // port in use, table created twice with other properties
  kDeadlineExceeded = 4,   // the call's time is over; it may or may not have been executed
  kCancelled = 5,          // the caller withdrew it
  kUnavailable = 6,        // peer not reachable or connection lost: another try may succeed
  kResourceExhausted = 7,  // a cap or a limit was reached: memory, memlock, queue, descriptors
  kProtocol = 8,           // the peer broke the protocol: malformed, truncated, oversized
  kPermission = 9,         // not allowed: wrong secret, uid, device node
  kDeviceError = 10,       // a verb or a completion failed
  kUnsupported = 11,       // this device, peer or build cannot do it
  kClosed = 12,            // our side was closed or is shutting down
  kDataLoss = 13,          // a checksum or a file's content is wrong
  kInternal = 14,          // our own defect, kept from doing harm
};

std::string_view code_name(Code code);  // "deadline exceeded"; "unknown code" for any other value

class [[nodiscard]] Status {
 public:
  Status() = default;  // success
  Status(Code code, std::string message);

  bool ok() const { return failure_ == nullptr; }
  Code code() const { return failure_ ? failure_->code : Code::kOk; }
  const std::string& message() const;  // empty when ok
  std::string to_string() const;       // "unavailable: connect to 10.0.0.1:9000: refused"

  // The same failure seen from one level up: "<context>: <message>". Ok stays ok.
  Status with_context(std::string_view context) const;

  void ignore() const {}  // says that a failure here is of no consequence

 private:
  struct Failure {
    Code code;
    std::string message;
  };
  std::shared_ptr<const Failure> failure_;
};

inline Status ok_status() { return {}; }

template <typename... Args>
Status error(Code code, fmt::format_string<Args...> format, Args&&... args) {
  return Status(code, fmt::format(format, std::forward<Args>(args)...));
}

// "<what>: <name of errno> (<text>)", with the Code that fits the errno.
Status error_from_errno(int error_number, std::string_view what);
std::string_view errno_name(int error_number);  // "ECONNREFUSED"

// A T or the reason why there is none. value() on a failure is a defect and is asserted.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}         // NOLINT(google-explicit-constructor)
  Result(Status status) : status_(std::move(status)) {  // NOLINT(google-explicit-constructor)
    if (status_.ok()) status_ = Status(Code::kInternal, "a Result was made from an ok Status");
  }

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() & { return checked(), *value_; }
  const T& value() const& { return checked(), *value_; }
  T&& value() && { return checked(), *std::move(value_); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }

 private:
  void checked() const { assert(value_.has_value()); }

  Status status_;
  std::optional<T> value_;
};

}  // namespace be

#define BE_CONCAT_INNER(a, b) a##b
#define BE_CONCAT(a, b) BE_CONCAT_INNER(a, b)

// Leaves the function with the failure, if `expression` is one.
#define BE_RETURN_IF_ERROR(expression)                            \
  do {                                                            \
    if (::be::Status be_status = (expression); !be_status.ok()) { \
      return be_status;                                           \
    }                                                             \
  } while (false)

// `target` = the value of the Result, or leaves the function with its failure.
#define BE_ASSIGN_OR_RETURN(target, expression) \
  BE_ASSIGN_OR_RETURN_INNER(BE_CONCAT(be_result_, __LINE__), target, expression)
#define BE_ASSIGN_OR_RETURN_INNER(result, target, expression) \
  auto result = (expression);                                 \
  if (!result.ok()) return result.status();                   \
  target = std::move(result).value()
