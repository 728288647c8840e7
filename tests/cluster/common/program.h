// Running the program `byteexpress` as users do: as processes, with files, looking at exit codes
// and at what it prints.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "apps/child_process.h"

namespace be::cluster {

// A directory that goes away with everything in it.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

std::string read_file(const std::string& path);  // empty if there is none
void write_file(const std::string& path, const std::string& text);

// `count` ratings in the format of docs/data-format.md, of users and movies with tastes, so that
// there is something to learn.
std::string made_up_ratings(int count);

struct Outcome {
  int exit_code;  // -1: ended by a signal
  std::string output;
  std::string errors;
};
Outcome run_program(const std::vector<std::string>& arguments);  // until it ends

std::unique_ptr<apps::ChildProcess> start_program(const std::string& name,
                                                  const std::vector<std::string>& arguments);

// `byteexpress serve` that has said "ready"; fails the test if it does not.
struct Server {
  std::unique_ptr<apps::ChildProcess> process;
  std::string address;
};
Server start_server(const std::string& shard, const std::string& transport,
                    const std::string& listen = "127.0.0.1:0");
std::vector<Server> start_servers(uint32_t count, const std::string& transport);
std::string addresses_of(const std::vector<Server>& servers);  // "A,B,C"

}  // namespace be::cluster
