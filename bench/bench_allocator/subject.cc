#include "bench/bench_allocator/subject.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "be/softnic/softnic_device.h"

namespace be::bench {
namespace {

constexpr size_t kCapBytes = size_t{16} << 30;  // addresses only, the memfd is sparse

[[noreturn]] void die_of_hunger(size_t bytes, const std::string& why) {
  std::fprintf(stderr, "bench_allocator: %zu bytes were refused: %s\n", bytes, why.c_str());
  std::_Exit(1);
}

class SystemMalloc final : public Subject {
 public:
  void* allocate(size_t bytes) override {
    void* memory = std::malloc(bytes);
    if (memory == nullptr) [[unlikely]]
      die_of_hunger(bytes, "malloc gave nothing");
    return memory;
  }
  void deallocate(void* pointer) override { std::free(pointer); }
};

class Pool final : public Subject {
 public:
  Pool(std::unique_ptr<Device> device, std::unique_ptr<RegisteredPool> pool)
      : device_(std::move(device)), pool_(std::move(pool)) {}

  void* allocate(size_t bytes) override {
    Result<void*> memory = pool_->allocate(bytes);
    if (!memory.ok()) [[unlikely]]
      die_of_hunger(bytes, memory.status().to_string());
    return memory.value();
  }
  void deallocate(void* pointer) override { pool_->deallocate(pointer); }
  RegisteredPool* registered() override { return pool_.get(); }

 private:
  const std::unique_ptr<Device> device_;  // outlives the pool
  const std::unique_ptr<RegisteredPool> pool_;
};

Result<std::unique_ptr<Subject>> make_pool(bool with_device, HugePages huge_pages) {
  PoolOptions options;
  options.cap_bytes = kCapBytes;
  options.huge_pages = huge_pages;
  BE_ASSIGN_OR_RETURN(std::unique_ptr<RegisteredPool> pool, RegisteredPool::create(options));
  std::unique_ptr<Device> device;
  if (with_device) {
    BE_ASSIGN_OR_RETURN(device, open_softnic({}));
    BE_RETURN_IF_ERROR(pool->add_device(device.get()).status());
  }
  return std::unique_ptr<Subject>(std::make_unique<Pool>(std::move(device), std::move(pool)));
}

}  // namespace

Result<std::unique_ptr<Subject>> Subject::create(const std::string& name) {
  const HugePages by_default = PoolOptions().huge_pages;
  if (name == "malloc") return std::unique_ptr<Subject>(std::make_unique<SystemMalloc>());
  if (name == "pool") return make_pool(/*with_device=*/true, by_default);
  if (name == "pool without device") return make_pool(/*with_device=*/false, by_default);
  if (name == "pool without huge pages") return make_pool(/*with_device=*/true, HugePages::kOff);
  return error(Code::kInvalidArgument, "no allocator is called \"{}\"", name);
}

}  // namespace be::bench
