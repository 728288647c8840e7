// HandshakeChannel: whole handshake frames over a new connection, each proven.
//
//   proof_n = HMAC-SHA256(secret, label | role of the sender | all frames so far, frame n too)
//
// Both hellos carry a fresh nonce and are part of what is proven, and so is the sender's role:
// nothing can be replayed, reflected or left out (no downgrade). A refusal is believed without
// a proof: who can forge one can cut the connection as well.
//
// Reads exactly the frames, not a byte of what follows: release() hands the descriptor on. The
// user is told of each frame, or once of the failure; it then disposes of us, or of itself.
// Used on its I/O thread only. Bounded: a frame by kMaxHandshakeBody, the number of frames by
// kMaxFrames, the time by the user.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "be/transport/handshake_frames.h"
#include "be/transport/io_thread_impl.h"

namespace be {

class HandshakeUser {
 public:
  virtual void on_handshake_frame(HandshakeType type, std::span<const uint8_t> body) = 0;
  virtual void on_handshake_failed(const Status& why) = 0;

 protected:
  ~HandshakeUser() = default;
};

class HandshakeChannel final : private PollHandler {
 public:
  enum class Role : uint8_t { kClient = 1, kServer = 2 };

  // Takes a connected descriptor that is in no Poller.
  HandshakeChannel(IoThreadImpl& thread, int fd, Role role, const std::string& secret,
                   HandshakeUser* user);
  virtual ~HandshakeChannel();
  HandshakeChannel(const HandshakeChannel&) = delete;
  HandshakeChannel& operator=(const HandshakeChannel&) = delete;

  Status start();
  Status send(HandshakeType type, std::span<const uint8_t> body);
  bool all_sent() const { return output_.empty(); }
  int fd() const { return fd_; }

  // The descriptor, in no Poller any more; from now on this object does nothing.
  int release();

 private:
  static constexpr int kMaxFrames = 64;

  void on_ready(bool readable, bool writable) override;
  Status read_frames();
  Status take_frame();
  Status flush();
  Result<std::vector<uint8_t>> proof(Role sender) const;

  IoThreadImpl& thread_;
  int fd_;
  const Role role_;
  const std::string& secret_;
  HandshakeUser* const user_;

  std::vector<uint8_t> transcript_;
  std::vector<uint8_t> output_;
  std::vector<uint8_t> input_;  // the frame that is being read
  size_t input_wanted_ = kHandshakeHeaderBytes;
  HandshakeHeader header_;
  int frames_ = 0;
};

}  // namespace be
