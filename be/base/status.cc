#include "be/base/status.h"

#include <cerrno>
#include <cstring>

namespace be {
namespace {

const std::string kNoMessage;

Code code_of_errno(int error_number) {
  switch (error_number) {
    case 0:
      return Code::kInternal;  // a call failed and gave no reason
    case EINVAL:
    case EDOM:
    case ERANGE:
    case ENAMETOOLONG:
    case EISDIR:
    case ENOTDIR:
    case EAFNOSUPPORT:
    case EDESTADDRREQ:
      return Code::kInvalidArgument;
    case ENOENT:
    case ENODEV:
    case ENXIO:
    case ESRCH:
    case EADDRNOTAVAIL:
      return Code::kNotFound;
    case EEXIST:
    case EADDRINUSE:
      return Code::kAlreadyExists;
    case ETIMEDOUT:
    case ETIME:
      return Code::kDeadlineExceeded;
    case ECANCELED:
      return Code::kCancelled;
    case ECONNREFUSED:
    case ECONNRESET:
    case ECONNABORTED:
    case EPIPE:
    case ENOTCONN:
    case EHOSTUNREACH:
    case EHOSTDOWN:
    case ENETUNREACH:
    case ENETDOWN:
    case ENETRESET:
    case EAGAIN:
    case EINTR:
      return Code::kUnavailable;
    case ENOMEM:
    case ENOSPC:
    case ENOBUFS:
    case EMFILE:
    case ENFILE:
    case EDQUOT:
    case EFBIG:
    case E2BIG:
    case EMSGSIZE:
      return Code::kResourceExhausted;
    case EPERM:
    case EACCES:
    case EROFS:
      return Code::kPermission;
    case EPROTO:
    case EBADMSG:
      return Code::kProtocol;
    case EIO:
      return Code::kDeviceError;
    case ENOSYS:
    case EOPNOTSUPP:
    case EPROTONOSUPPORT:
      return Code::kUnsupported;
    default:
      return Code::kInternal;
  }
}

}  // namespace

std::string_view code_name(Code code) {
  switch (code) {
    case Code::kOk:
      return "ok";
    case Code::kInvalidArgument:
      return "invalid argument";
    case Code::kNotFound:
      return "not found";
    case Code::kAlreadyExists:
      return "already exists";
    case Code::kDeadlineExceeded:
      return "deadline exceeded";
    case Code::kCancelled:
      return "cancelled";
    case Code::kUnavailable:
      return "unavailable";
    case Code::kResourceExhausted:
      return "resource exhausted";
    case Code::kProtocol:
      return "protocol error";
    case Code::kPermission:
      return "permission denied";
    case Code::kDeviceError:
      return "device error";
    case Code::kUnsupported:
      return "unsupported";
    case Code::kClosed:
      return "closed";
    case Code::kDataLoss:
      return "data loss";
    case Code::kInternal:
      return "internal error";
  }
  return "unknown code";
}

Status::Status(Code code, std::string message) {
  if (code == Code::kOk) return;
  failure_ = std::make_shared<const Failure>(Failure{code, std::move(message)});
}

const std::string& Status::message() const { return failure_ ? failure_->message : kNoMessage; }

std::string Status::to_string() const {
  if (ok()) return "ok";
  return fmt::format("{}: {}", code_name(code()), message());
}

Status Status::with_context(std::string_view context) const {
  if (ok()) return {};
  return Status(code(), fmt::format("{}: {}", context, message()));
}

Status error_from_errno(int error_number, std::string_view what) {
  const char* text = strerrordesc_np(error_number);
  return error(code_of_errno(error_number), "{}: {} ({})", what, errno_name(error_number),
               text ? text : "no description");
}

std::string_view errno_name(int error_number) {
  const char* name = strerrorname_np(error_number);
  return name ? name : "unknown errno";
}

}  // namespace be
