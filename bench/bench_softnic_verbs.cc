// Round trips between two processes at the verbs level of softnic: no engine, no RPC.
//
// Request of N bytes (SEND up to 4 KiB, WRITE_WITH_IMM in fragments above), reply of 32 bytes,
// one outstanding. Payloads are touched: the client rewrites its source, the server reads what
// came. Also the price of an empty poll, and one-way SENDs with 64 outstanding.
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "be/base/histogram.h"
#include "be/softnic/softnic_device.h"

namespace {

using be::Device;
using Clock = std::chrono::steady_clock;

constexpr size_t kMemoryBytes = size_t{16} << 20;
constexpr size_t kReceiveAt = size_t{8} << 20;  // receives, one slot of kEager each
constexpr uint32_t kEager = 4096;
constexpr uint32_t kDepth = 64;
constexpr uint32_t kReplyBytes = 32;

[[noreturn]] void die(const std::string& why) {
  std::fprintf(stderr, "bench_softnic_verbs: %s\n", why.c_str());
  std::_Exit(1);
}

template <typename T>
T need(be::Result<T> result) {
  if (!result.ok()) die(result.status().to_string());
  return std::move(result).value();
}

// One process' end of the connection.
class End {
 public:
  explicit End(int side_channel) : side_(side_channel) {
    const int fd = memfd_create("bench", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (ftruncate(fd, kMemoryBytes) != 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) != 0) {
      die("memfd");
    }
    memory_ = static_cast<uint8_t*>(
        mmap(nullptr, kMemoryBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0));
    device_ = need(be::open_softnic({}));
    channel_ = need(device_->create_event_channel());
    domain_ = need(device_->create_thread_domain());
    cq_ = need(device_->create_cq(4 * kDepth, channel_.get(), nullptr, domain_));
    region_ = need(device_->register_memory(
        memory_, kMemoryBytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, {.fd = fd}));
    be::QueuePairOptions options;
    options.send_cq = options.recv_cq = cq_;
    options.send_depth = options.recv_depth = kDepth;
    options.thread_domain = domain_;
    qp_ = need(device_->create_qp(options)).qp;
    for (uint32_t i = 0; i < kDepth; ++i) post_recv(i);
  }

  void connect(bool initiator) {
    struct Hello {
      uint32_t length;
      uint8_t blob[be::kMaxEndpointBytes];
      uint64_t address;
      uint32_t rkey;
    } mine{}, theirs{};
    const be::EndpointBlob blob = need(device_->local_endpoint(qp_));
    mine.length = static_cast<uint32_t>(blob.size());
    std::memcpy(mine.blob, blob.data(), blob.size());
    mine.address = reinterpret_cast<uint64_t>(memory_);
    mine.rkey = region_->rkey;
    if (send(side_, &mine, sizeof(mine), 0) != sizeof(mine) ||
        recv(side_, &theirs, sizeof(theirs), MSG_WAITALL) != sizeof(theirs)) {
      die("side channel");
    }
    remote_address_ = theirs.address;
    rkey_ = theirs.rkey;
    const be::EndpointBlob remote(theirs.blob, theirs.blob + theirs.length);
    const uint8_t token[16] = {42};
    const be::Status status = device_->connect_qp(qp_, remote, token, initiator, {});
    if (!status.ok()) die(status.to_string());
    std::vector<be::DeviceEvent> events;
    while (events.empty()) channel_->take_events(events);
    if (!events[0].status.ok()) die(events[0].status.to_string());
  }

  uint8_t* memory() { return memory_; }
  uint8_t* receive(uint64_t wr_id) { return memory_ + kReceiveAt + wr_id * kEager; }

  void post_recv(uint64_t wr_id) {
    ibv_sge sge{.addr = reinterpret_cast<uint64_t>(receive(wr_id)),
                .length = kEager,
                .lkey = region_->lkey};
    ibv_recv_wr request{};
    request.wr_id = wr_id;
    request.sg_list = &sge;
    request.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    if (ibv_post_recv(qp_, &request, &bad) != 0) die("ibv_post_recv");
  }

  void post_send(uint32_t bytes) { post(IBV_WR_SEND, 0, bytes); }

  // The last fragment announces the whole.
  void post_write(uint32_t bytes, uint32_t fragment) {
    for (uint32_t at = 0; at < bytes; at += fragment) {
      const uint32_t part = std::min(fragment, bytes - at);
      post(at + part == bytes ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE, at, part);
    }
  }

  // Takes completions until a receive is among them; its wr_id.
  uint64_t wait_receive() {
    for (;;) {
      if (uint64_t wr_id = 0; poll(&wr_id)) return wr_id;
    }
  }

  // One poll. True: *wr_id is that of a receive.
  bool poll(uint64_t* wr_id) {
    while (next_ < polled_) {
      const ibv_wc& wc = completions_[next_++];
      if (wc.status != IBV_WC_SUCCESS) die("completion status " + std::to_string(wc.status));
      if (wc.opcode & IBV_WC_RECV) {
        *wr_id = wc.wr_id;
        return true;
      }
      --outstanding_;
    }
    next_ = 0;
    polled_ = ibv_poll_cq(cq_, 16, completions_);
    if (polled_ > 0) {
      idle_ = 0;
    } else if (++idle_ % 256 == 0) {
      sched_yield();  // in case both ends share a core
    }
    return false;
  }
  int outstanding() const { return outstanding_; }
  ibv_cq* cq() { return cq_; }

  // No goodbye: the other end may have exited already.
  void finish() { need(device_->retire_qp(qp_)); }

 private:
  void post(ibv_wr_opcode opcode, uint32_t at, uint32_t bytes) {
    ibv_sge sge{
        .addr = reinterpret_cast<uint64_t>(memory_ + at), .length = bytes, .lkey = region_->lkey};
    ibv_send_wr request{};
    request.opcode = opcode;
    request.sg_list = &sge;
    request.num_sge = 1;
    request.send_flags = IBV_SEND_SIGNALED;
    request.wr.rdma.remote_addr = remote_address_ + at;
    request.wr.rdma.rkey = rkey_;
    ibv_send_wr* bad = nullptr;
    if (int error = ibv_post_send(qp_, &request, &bad)) die(std::strerror(error));
    ++outstanding_;
  }

  const int side_;
  uint8_t* memory_ = nullptr;
  std::unique_ptr<Device> device_;
  std::unique_ptr<be::EventChannel> channel_;
  ibv_td* domain_ = nullptr;
  ibv_cq* cq_ = nullptr;
  ibv_mr* region_ = nullptr;
  ibv_qp* qp_ = nullptr;
  uint64_t remote_address_ = 0;
  uint32_t rkey_ = 0;
  ibv_wc completions_[16];
  int polled_ = 0;
  int next_ = 0;
  int outstanding_ = 0;
  uint32_t idle_ = 0;
};

struct Case {
  const char* name;
  uint32_t bytes;
  uint32_t fragment;  // 0: a SEND
  int rounds;
};

uint64_t checksum(const uint8_t* bytes, uint32_t length) {
  uint64_t sum = 0;
  for (uint32_t i = 0; i + 8 <= length; i += 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes + i, 8);
    sum += word;
  }
  return sum;
}

void serve(End& end, const std::vector<Case>& cases, int stream) {
  volatile uint64_t sink = 0;
  for (const Case& c : cases) {
    for (int i = 0; i < c.rounds; ++i) {
      const uint64_t wr_id = end.wait_receive();
      sink = sink + checksum(c.fragment ? end.memory() : end.receive(wr_id), c.bytes);
      end.post_recv(wr_id);
      end.post_send(kReplyBytes);
    }
  }
  for (int i = 0; i < stream; ++i) {
    const uint64_t wr_id = end.wait_receive();
    sink = sink + checksum(end.receive(wr_id), 512);
    end.post_recv(wr_id);
  }
  end.post_send(kReplyBytes);
  while (end.outstanding() > 0) {
    uint64_t wr_id = 0;
    end.poll(&wr_id);
  }
}

double since_us(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

nlohmann::json measure(End& end, const Case& c) {
  be::Histogram histogram;
  const auto start = Clock::now();
  auto last = start;
  for (int i = 0; i < c.rounds; ++i) {
    std::memset(end.memory(), i, c.bytes);
    if (c.fragment) {
      end.post_write(c.bytes, c.fragment);
    } else {
      end.post_send(c.bytes);
    }
    end.post_recv(end.wait_receive());
    const auto now = Clock::now();
    histogram.record(static_cast<uint64_t>((now - last).count()));
    last = now;
  }
  const double mean = since_us(start) / c.rounds;
  const double p50 = static_cast<double>(histogram.percentile(0.5)) / 1e3;
  const double p99 = static_cast<double>(histogram.percentile(0.99)) / 1e3;
  std::printf("%-12s %9.3f %9.3f %9.3f\n", c.name, mean, p50, p99);
  return {{"mean_us", mean}, {"p50_us", p50}, {"p99_us", p99}, {"rounds", c.rounds}};
}

nlohmann::json measure_stream(End& end, int messages) {
  const auto start = Clock::now();
  uint64_t wr_id = 0;
  for (int i = 0; i < messages;) {
    if (end.outstanding() < static_cast<int>(kDepth) / 2) {
      std::memset(end.memory(), i, 512);
      end.post_send(512);
      ++i;
    } else {
      end.poll(&wr_id);
    }
  }
  end.post_recv(end.wait_receive());
  const double rate = messages / since_us(start);
  std::printf("%-12s %9.3f million/s\n", "stream_512B", rate);
  return {{"million_per_s", rate}};
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Round trips at the verbs level of softnic, between two processes");
  std::string json_file;
  bool quick = false;
  app.add_option("--json", json_file, "write all figures to this file");
  app.add_flag("--quick", quick, "a tenth of the rounds");
  CLI11_PARSE(app, argc, argv);

  const int scale = quick ? 1 : 10;
  const std::vector<Case> cases = {{"warm_up", 32, 0, 20000},
                                   {"send_32B", 32, 0, 40000 * scale},
                                   {"send_200B", 200, 0, 40000 * scale},
                                   {"send_1KB", 1024, 0, 20000 * scale},
                                   {"send_4KB", 4096, 0, 20000 * scale},
                                   {"write_64KB", 64 << 10, 64 << 10, 3000 * scale},
                                   {"write_1MB", 1 << 20, 64 << 10, 300 * scale}};
  const int stream = 100000 * scale;
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0) die("socketpair");
  const pid_t child = fork();
  if (child < 0) die("fork");
  if (child == 0) {
    End end(sockets[1]);
    end.connect(false);
    serve(end, cases, stream);
    std::_Exit(0);  // the client's queue pair learns of it
  }
  nlohmann::json figures;
  {
    End end(sockets[0]);
    end.connect(true);
    std::printf("%-12s %9s %9s %9s\n", "", "mean us", "p50 us", "p99 us");
    for (const Case& c : cases) figures["softnic_verbs"][c.name] = measure(end, c);
    figures["softnic_verbs"]["stream_512B"] = measure_stream(end, stream);
    ibv_wc wc;
    constexpr int kPolls = 1'000'000;
    const auto start = Clock::now();
    for (int i = 0; i < kPolls; ++i) ibv_poll_cq(end.cq(), 1, &wc);
    const double empty_ns = since_us(start) * 1e3 / kPolls;
    std::printf("%-12s %9.1f ns\n", "empty_poll", empty_ns);
    figures["softnic_verbs"]["empty_poll"] = {{"mean_ns", empty_ns}};
    end.finish();
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (!json_file.empty()) {
    std::ofstream out(json_file);
    out << figures.dump(2) << "\n";
    if (!out) die("cannot write " + json_file);
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
