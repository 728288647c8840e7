#include "be/transport/handshake_channel.h"

#include <string_view>
#include <utility>

#include "be/base/hmac.h"

namespace be {
namespace {

constexpr std::string_view kLabel = "byteexpress handshake 1";

}  // namespace

HandshakeChannel::HandshakeChannel(IoThreadImpl& thread, int fd, Role role,
                                   const std::string& secret, HandshakeUser* user)
    : thread_(thread), fd_(fd), role_(role), secret_(secret), user_(user) {}

HandshakeChannel::~HandshakeChannel() {
  const int fd = release();
  if (fd >= 0) thread_.world().network().close(fd);
}

Status HandshakeChannel::start() { return thread_.poller().add(fd_, this); }

int HandshakeChannel::release() {
  if (fd_ >= 0) thread_.poller().remove(fd_);
  return std::exchange(fd_, -1);
}

Status HandshakeChannel::send(HandshakeType type, std::span<const uint8_t> body) {
  const bool with_proof = !secret_.empty() && type != HandshakeType::kClientHello;
  uint8_t header[kHandshakeHeaderBytes];
  HandshakeHeader{type, with_proof, static_cast<uint32_t>(body.size())}.encode(header);
  const size_t begin = output_.size();
  output_.insert(output_.end(), header, header + sizeof(header));
  output_.insert(output_.end(), body.begin(), body.end());
  transcript_.insert(transcript_.end(), output_.begin() + static_cast<ptrdiff_t>(begin),
                     output_.end());
  if (with_proof) {
    BE_ASSIGN_OR_RETURN(const std::vector<uint8_t> bytes, proof(role_));
    output_.insert(output_.end(), bytes.begin(), bytes.end());
  }
  return flush();
}

Status HandshakeChannel::flush() {
  while (!output_.empty()) {
    const iovec iov = {output_.data(), output_.size()};
    const IoResult result = thread_.world().network().write(fd_, &iov, 1);
    if (result.kind == IoResult::Kind::kWouldBlock) break;
    if (result.kind != IoResult::Kind::kOk) return error_from_errno(result.error_number, "write");
    output_.erase(output_.begin(), output_.begin() + static_cast<ptrdiff_t>(result.bytes));
  }
  return thread_.poller().set_writable(fd_, !output_.empty());
}

void HandshakeChannel::on_ready(bool readable, bool writable) {
  Status status;
  if (writable) status = flush();
  if (status.ok() && readable) status = read_frames();
  if (!status.ok()) user_->on_handshake_failed(status);
}

Status HandshakeChannel::read_frames() {
  // The user may release the descriptor while it takes a frame.
  while (fd_ >= 0) {
    uint8_t bytes[kMaxHandshakeBody + kHandshakeProofBytes];
    const iovec iov = {bytes, input_wanted_ - input_.size()};
    const IoResult result = thread_.world().network().read(fd_, &iov, 1);
    switch (result.kind) {
      case IoResult::Kind::kOk:
        break;
      case IoResult::Kind::kWouldBlock:
        return {};
      case IoResult::Kind::kEnd:
        return Status(Code::kUnavailable, "the peer ended the connection");
      case IoResult::Kind::kError:
        return error_from_errno(result.error_number, "read");
    }
    input_.insert(input_.end(), bytes, bytes + result.bytes);
    if (input_.size() < input_wanted_) continue;
    if (input_wanted_ == kHandshakeHeaderBytes) {
      BE_ASSIGN_OR_RETURN(header_, HandshakeHeader::decode(input_.data()));
      input_wanted_ += header_.body_bytes + (header_.has_proof ? kHandshakeProofBytes : 0);
    }
    if (input_.size() == input_wanted_) BE_RETURN_IF_ERROR(take_frame());
  }
  return {};
}

Status HandshakeChannel::take_frame() {
  if (++frames_ > kMaxFrames) return Status(Code::kProtocol, "endless handshake");
  const std::vector<uint8_t> frame = std::exchange(input_, {});
  input_wanted_ = kHandshakeHeaderBytes;
  const std::span<const uint8_t> proven(frame.data(), kHandshakeHeaderBytes + header_.body_bytes);
  transcript_.insert(transcript_.end(), proven.begin(), proven.end());

  const bool hello = header_.type == HandshakeType::kClientHello;
  const bool refusal = header_.type == HandshakeType::kRefuse;
  if (!secret_.empty() && !hello && !refusal) {
    const Role peer = role_ == Role::kClient ? Role::kServer : Role::kClient;
    BE_ASSIGN_OR_RETURN(const std::vector<uint8_t> expected, proof(peer));
    if (!header_.has_proof) {
      return Status(Code::kPermission, "the peer does not prove that it knows the shared secret");
    }
    if (!constant_time_equal(expected, std::span(frame).subspan(proven.size()))) {
      return Status(Code::kPermission, "the peer's shared secret is not ours");
    }
  } else if (secret_.empty() && header_.has_proof && !refusal) {
    return Status(Code::kPermission, "the peer demands a shared secret, and we have none");
  }
  user_->on_handshake_frame(header_.type, proven.subspan(kHandshakeHeaderBytes));
  return {};
}

Result<std::vector<uint8_t>> HandshakeChannel::proof(Role sender) const {
  std::vector<uint8_t> message(kLabel.begin(), kLabel.end());
  message.push_back(static_cast<uint8_t>(sender));
  message.insert(message.end(), transcript_.begin(), transcript_.end());
  const std::span<const uint8_t> key(reinterpret_cast<const uint8_t*>(secret_.data()),
                                     secret_.size());
  BE_ASSIGN_OR_RETURN(const Sha256Digest digest, hmac_sha256(key, message));
  return std::vector<uint8_t>(digest.begin(), digest.end());
}

}  // namespace be
