// A device that only registers memory: remembers every region and can be told to fail.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "be/verbs/device.h"
#include "tests/common/must_hold.h"

namespace be {

class FakeDevice : public Device {
 public:
  explicit FakeDevice(std::string name = "fake0") : name_(std::move(name)) {}
  ~FakeDevice() override { MUST_HOLD(region_count() == 0); }

  // The registration after `successes` more fails with ENOMEM, and so do all later ones.
  void fail_registrations_after(int successes) {
    std::lock_guard lock(mutex_);
    registrations_left_ = successes;
  }
  void fail_deregistrations_after(int successes) {
    std::lock_guard lock(mutex_);
    deregistrations_left_ = successes;
  }
  void fail_deregistrations(bool fail) { fail_deregistrations_after(fail ? 0 : -1); }
  void heal() {
    fail_registrations_after(-1);
    fail_deregistrations_after(-1);
  }

  size_t region_count() const {
    std::lock_guard lock(mutex_);
    return regions_.size();
  }
  size_t registered_bytes() const {
    std::lock_guard lock(mutex_);
    size_t sum = 0;
    for (const auto& [lkey, region] : regions_) sum += region.mr.length;
    return sum;
  }

  struct Region {
    ibv_mr mr{};
    int access = 0;
    Backing backing;
  };
  // By value; requires that the key is alive.
  Region region_of(uint32_t lkey) const {
    std::lock_guard lock(mutex_);
    const auto found = regions_.find(lkey);
    MUST_HOLD(found != regions_.end());
    return found->second;
  }

  Result<ibv_mr*> register_memory(void* address, size_t length, int access,
                                  const Backing& backing) override {
    std::lock_guard lock(mutex_);
    if (!succeeds(registrations_left_)) {
      return error(Code::kResourceExhausted, "ibv_reg_mr failed: ENOMEM, RLIMIT_MEMLOCK");
    }
    const uint32_t lkey = ++last_key_;
    Region& region = regions_[lkey];
    region.mr.addr = address;
    region.mr.length = length;
    region.mr.lkey = lkey;
    region.mr.rkey = lkey + kRkeyOffset;
    region.access = access;
    region.backing = backing;
    return &region.mr;
  }
  Status deregister(ibv_mr* mr) override {
    std::lock_guard lock(mutex_);
    if (!succeeds(deregistrations_left_)) {
      return error(Code::kDeviceError, "ibv_dereg_mr failed: EBUSY");
    }
    MUST_HOLD(regions_.erase(mr->lkey) == 1);
    return ok_status();
  }

  DeviceKind kind() const override { return DeviceKind::kSimulated; }
  const std::string& name() const override { return name_; }
  const DeviceLimits& limits() const override { return limits_; }
  ibv_pd* pd() override { return nullptr; }
  Result<std::unique_ptr<EventChannel>> create_event_channel() override { return none(); }
  Result<ibv_td*> create_thread_domain() override { return none(); }
  void destroy_thread_domain(ibv_td*) override {}
  Result<ibv_cq*> create_cq(uint32_t, EventChannel*, void*, ibv_td*) override { return none(); }
  Status destroy_cq(ibv_cq*) override { return none(); }
  Result<ibv_srq*> create_srq(uint32_t, uint32_t) override { return none(); }
  Status destroy_srq(ibv_srq*) override { return none(); }
  Result<QueuePair> create_qp(const QueuePairOptions&) override { return none(); }
  Result<EndpointBlob> local_endpoint(ibv_qp*) override { return none(); }
  Status reachable(const EndpointBlob&) override { return none(); }
  Status connect_qp(ibv_qp*, const EndpointBlob&, const uint8_t[16], bool,
                    const ConnectOptions&) override {
    return none();
  }
  Status fail_qp(ibv_qp*) override { return none(); }
  ibv_qp_state qp_state(ibv_qp*) override { return IBV_QPS_UNKNOWN; }
  Result<QuiesceToken> retire_qp(ibv_qp*) override { return none(); }

  static constexpr uint32_t kRkeyOffset = 1u << 20;

 private:
  // Counts down; -1: without end.
  static bool succeeds(int& left) {
    if (left == 0) return false;
    if (left > 0) --left;
    return true;
  }
  static Status none() { return error(Code::kUnsupported, "a FakeDevice has memory only"); }

  const std::string name_;
  DeviceLimits limits_;
  mutable std::mutex mutex_;
  std::map<uint32_t, Region> regions_;  // by lkey; never reused
  uint32_t last_key_ = 100;
  int registrations_left_ = -1;
  int deregistrations_left_ = -1;
};

}  // namespace be
