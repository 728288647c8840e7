#include <unistd.h>

#include <cstdio>

#include "be/rpc/server.h"

be::Status run() {
  BE_ASSIGN_OR_RETURN(auto node, be::Node::create(be::kernel_world(), {}));
  BE_ASSIGN_OR_RETURN(auto server, be::rpc::Server::create(*node, {}));
  BE_RETURN_IF_ERROR(server->add_method(  // the answer is the request's own memory: no copy
      "demo.Echo", be::rpc::RunOn::kIoThread,
      [](be::rpc::ServerCall call) { call.reply({.body = std::move(call.body())}); }));
  BE_ASSIGN_OR_RETURN(const be::Address address, be::Address::parse("127.0.0.1:9000"));
  BE_RETURN_IF_ERROR(server->listen(address));
  pause();  // softnic, hardware and TCP clients are served until a signal comes
  return be::ok_status();
}

int main() { std::fprintf(stderr, "%s\n", run().to_string().c_str()); }
