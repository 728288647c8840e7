// One end of the transport's handshake, spoken by hand over a connected stream descriptor: by the
// rules, with true proofs, or not. For peers that lie (tests/fuzz, tests/cluster).
//
// Never blocks on reading: receive() takes what is there. Keeps the transcript as the honest end
// does, so that a proof can be made at any point; and every byte that was heard and said.
#pragma once

#include <sys/socket.h>

#include <cerrno>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "be/base/hmac.h"
#include "be/transport/handshake_frames.h"

namespace be::test {

class HandshakePeer {
 public:
  enum class Role : uint8_t { kClient = 1, kServer = 2 };
  enum class Proof : uint8_t { kRight, kNone, kWrong };
  struct Frame {
    HandshakeType type;
    std::vector<uint8_t> body;
    std::vector<uint8_t> proof;
  };

  HandshakePeer(int fd, Role role, std::string secret)
      : fd_(fd), role_(role), secret_(std::move(secret)) {}

  // kRight: a proof if there is a secret and the frame is one that carries it.
  void send(HandshakeType type, const std::vector<uint8_t>& body, Proof proof = Proof::kRight) {
    const bool usual = !secret_.empty() && type != HandshakeType::kClientHello;
    const bool proven = proof == Proof::kWrong || (proof == Proof::kRight && usual);
    std::vector<uint8_t> bytes(kHandshakeHeaderBytes);
    HandshakeHeader{type, proven, static_cast<uint32_t>(body.size())}.encode(bytes.data());
    bytes.insert(bytes.end(), body.begin(), body.end());
    transcript_.insert(transcript_.end(), bytes.begin(), bytes.end());
    if (proven) {
      std::vector<uint8_t> shown = make_proof(role_);
      if (proof == Proof::kWrong) shown[0] ^= 1;
      bytes.insert(bytes.end(), shown.begin(), shown.end());
    }
    send_bytes(bytes);
  }

  // `meant` goes into the transcript, `sent` to the other end: somebody in between has changed it.
  void send_changed(HandshakeType type, const std::vector<uint8_t>& meant,
                    const std::vector<uint8_t>& sent) {
    std::vector<uint8_t> bytes(kHandshakeHeaderBytes);
    HandshakeHeader{type, false, static_cast<uint32_t>(meant.size())}.encode(bytes.data());
    transcript_.insert(transcript_.end(), bytes.begin(), bytes.end());
    transcript_.insert(transcript_.end(), meant.begin(), meant.end());
    bytes.insert(bytes.end(), sent.begin(), sent.end());
    send_bytes(bytes);
  }

  // As they are; not part of the transcript.
  void send_bytes(const std::vector<uint8_t>& bytes) {
    said.insert(said.end(), bytes.begin(), bytes.end());
    // The other end may have hung up already.
    [[maybe_unused]] const ssize_t sent =
        ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }

  // The whole frames that have come since the last call. What is no frame ends the parsing.
  std::vector<Frame> receive() {
    uint8_t bytes[4096];
    for (;;) {
      const ssize_t got = ::recv(fd_, bytes, sizeof(bytes), MSG_DONTWAIT);
      if (got > 0) {
        heard.insert(heard.end(), bytes, bytes + got);
        continue;
      }
      ended_ = ended_ || got == 0 || errno != EAGAIN;
      break;
    }
    std::vector<Frame> frames;
    while (heard.size() - parsed_ >= kHandshakeHeaderBytes) {
      const Result<HandshakeHeader> header = HandshakeHeader::decode(&heard[parsed_]);
      if (!header.ok()) break;
      const size_t proven = kHandshakeHeaderBytes + header->body_bytes;
      const size_t whole = proven + (header->has_proof ? kHandshakeProofBytes : 0);
      if (heard.size() - parsed_ < whole) break;
      const auto begin = heard.begin() + static_cast<ptrdiff_t>(parsed_);
      const auto end_of_body = begin + static_cast<ptrdiff_t>(proven);
      transcript_.insert(transcript_.end(), begin, end_of_body);
      frames.push_back({header->type,
                        {begin + kHandshakeHeaderBytes, end_of_body},
                        {end_of_body, begin + static_cast<ptrdiff_t>(whole)}});
      parsed_ += whole;
    }
    return frames;
  }

  // HMAC over everything so far, as the end of this role would show it.
  std::vector<uint8_t> make_proof(Role sender) const {
    constexpr std::string_view kLabel = "byteexpress handshake 1";
    std::vector<uint8_t> message(kLabel.begin(), kLabel.end());
    message.push_back(static_cast<uint8_t>(sender));
    message.insert(message.end(), transcript_.begin(), transcript_.end());
    const std::span<const uint8_t> key(reinterpret_cast<const uint8_t*>(secret_.data()),
                                       secret_.size());
    const Sha256Digest digest = hmac_sha256(key, message).value();
    return {digest.begin(), digest.end()};
  }

  bool ended() const { return ended_; }  // the other end has
  int fd() const { return fd_; }

  std::vector<uint8_t> heard;  // all of it
  std::vector<uint8_t> said;

 private:
  const int fd_;
  const Role role_;
  const std::string secret_;
  std::vector<uint8_t> transcript_;
  size_t parsed_ = 0;
  bool ended_ = false;
};

}  // namespace be::test
