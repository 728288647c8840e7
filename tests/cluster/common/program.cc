#include "tests/cluster/common/program.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "be/base/hash.h"

namespace be::cluster {

TemporaryDirectory::TemporaryDirectory() {
  std::string pattern = (std::filesystem::temp_directory_path() / "be_cluster_XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) std::abort();
  path_ = pattern;
}

TemporaryDirectory::~TemporaryDirectory() { std::filesystem::remove_all(path_); }

std::string read_file(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

std::string made_up_ratings(int count) {
  constexpr uint64_t kUsers = 40;
  constexpr uint64_t kMovies = 60;
  std::string text = "user\tmovie\trating\ttimestamp\tyear\tgenres\ttitle\n";
  for (int i = 0; i < count; ++i) {
    const uint64_t draw = mix64(static_cast<uint64_t>(i));
    const uint64_t user = draw % kUsers;
    const uint64_t movie = (draw >> 20) % kMovies;
    const bool match = user % 3 == movie % 3;  // a taste
    const bool likes = (draw >> 40) % 10 < (match ? 8 : 3);
    text += fmt::format("{}\t{}\t{}\t1000\t{}\tGenre{}\tMovie {}\n", user + 1, movie + 1,
                        likes ? "4.5" : "2", 1950 + movie % 10, movie % 3, movie + 1);
  }
  return text;
}

std::unique_ptr<apps::ChildProcess> start_program(const std::string& name,
                                                  const std::vector<std::string>& arguments) {
  auto child = apps::ChildProcess::start(name, BE_BIN_DIR "/byteexpress", arguments);
  if (child.ok()) return std::move(*child);
  ADD_FAILURE() << child.status().to_string();
  std::abort();
}

Outcome run_program(const std::vector<std::string>& arguments) {
  const auto child = start_program("byteexpress", arguments);
  child->wait().ignore();
  Outcome outcome{child->exit_code(), {}, child->errors()};
  while (const auto line = child->next_line()) outcome.output += *line + "\n";
  return outcome;
}

Server start_server(const std::string& shard, const std::string& transport,
                    const std::string& listen) {
  Server server{start_program("server " + shard, {"serve", "--shard", shard, "--transport",
                                                  transport, "--listen", listen}),
                {}};
  std::optional<std::string> line;
  while (!(line = server.process->next_line()) && server.process->stdout_fd() >= 0) {
    pollfd wait = {server.process->stdout_fd(), POLLIN, 0};
    ::poll(&wait, 1, -1);
    server.process->read_output();
  }
  if (!line || !line->starts_with("ready ")) {
    ADD_FAILURE() << server.process->wait().to_string();
    std::abort();
  }
  server.address = line->substr(6);
  return server;
}

std::vector<Server> start_servers(uint32_t count, const std::string& transport) {
  std::vector<Server> servers;
  for (uint32_t i = 0; i < count; ++i) {
    servers.push_back(start_server(fmt::format("{}/{}", i, count), transport));
  }
  return servers;
}

std::string addresses_of(const std::vector<Server>& servers) {
  std::string addresses;
  for (const Server& server : servers) {
    addresses += (addresses.empty() ? "" : ",") + server.address;
  }
  return addresses;
}

}  // namespace be::cluster
