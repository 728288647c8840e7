#include "be/ps/parameter_client.h"

#include <cstdio>

be::Status run() {
  BE_ASSIGN_OR_RETURN(auto node, be::Node::create(be::kernel_world(), {}));
  BE_ASSIGN_OR_RETURN(const be::Address server, be::Address::parse("127.0.0.1:9000"));
  BE_ASSIGN_OR_RETURN(auto client, be::ps::ParameterClient::connect(*node, {.servers = {server}}));
  BE_ASSIGN_OR_RETURN(const auto* table,
                      client->create_table({.model = "demo", .name = "users", .dim = 4}));
  const be::ps::Key keys[] = {7, 42};
  const float gradients[] = {1, 2, 3, 4, 5, 6, 7, 8};  // dim values for each key
  BE_ASSIGN_OR_RETURN(auto pushed, client->push_and_wait(*table, keys, gradients, {}));
  BE_ASSIGN_OR_RETURN(auto rows, client->fetch_and_wait(*table, keys, {}));
  std::printf("%zu rows made; row 42 is now %g %g %g %g\n", pushed.created, rows.row(1)[0],
              rows.row(1)[1], rows.row(1)[2], rows.row(1)[3]);
  return be::ok_status();
}

int main() { std::fprintf(stderr, "%s\n", run().to_string().c_str()); }
