// One side of a conversation on one process: the handler of its socket.
//
//   connecting: on_open --greeting--> sends its messages; closes when all its messages were sent
//               and all of the other side have come
//   accepting:  first message names the conversation --> sends its messages; is closed
//
// Either may break off early. All members run on the socket's I/O thread.
#pragma once

#include <vector>

#include "be/sim/application.h"
#include "be/transport/socket.h"

namespace be::sim {

class ConversationEnd final : public SocketHandler {
 public:
  ConversationEnd(Application& application, Process& process, Side side)
      : application_(application), process_(process), side_(side) {}
  virtual ~ConversationEnd() = default;

  void take(Plan& plan);  // this is whose side we are
  Process& process() const { return process_; }
  bool open_over_rdma() const {
    return socket_ != nullptr && socket_->transport() == TransportKind::kSimulated;
  }
  void on_process_end() {
    process_ends_ = true;
    if (plan_ != nullptr) plan_->model->process_ends();
    held_.clear();
  }

  void on_open(Socket& socket) override;
  void on_message(Socket& socket, Buffer message) override;
  void on_sent(Socket& socket, uint64_t cookie, const Status& status) override;
  void on_closed(Socket& socket, const Status& status) override;

 private:
  Side other() const { return side_ == kConnecting ? kAccepting : kConnecting; }
  void go_on();
  bool send_next();  // false: it has to wait
  void hold(Buffer message);
  void close_if_over();
  void close();

  Application& application_;
  Process& process_;
  const Side side_;
  Plan* plan_ = nullptr;
  Socket* socket_ = nullptr;
  uint32_t next_ = 0;         // message to send
  uint32_t outstanding_ = 0;  // handed to send() and not got back
  bool retry_set_ = false;
  bool closing_ = false;
  bool process_ends_ = false;
  std::vector<Buffer> held_;
};

}  // namespace be::sim
