// The standard's containers in registered memory, by PoolAllocator and by std::pmr.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <memory_resource>
#include <new>
#include <numeric>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "be/memory/bemalloc.h"
#include "be/memory/pool_allocator.h"
#include "be/memory/pool_resource.h"
#include "be/memory/registered_pool.h"
#include "be/memory/vector_buffer.h"
#include "tests/unit/base/forked_child.h"
#include "tests/unit/memory/fake_device.h"

namespace be {
namespace {

using ::testing::HasSubstr;

constexpr size_t kBlock = size_t{64} << 10;
constexpr PoolOptions kOptions = {.block_bytes = kBlock, .cap_bytes = 64 * kBlock};

template <typename T>
using Vector = std::vector<T, PoolAllocator<T>>;
using String = std::basic_string<char, std::char_traits<char>, PoolAllocator<char>>;
template <typename K, typename V>
using Map =
    std::unordered_map<K, V, std::hash<K>, std::equal_to<K>, PoolAllocator<std::pair<const K, V>>>;

template <size_t kAlignment>
struct alignas(kAlignment) Aligned {
  uint8_t bytes[kAlignment];
};

bool is_aligned(const void* pointer, size_t alignment) {
  return reinterpret_cast<uintptr_t>(pointer) % alignment == 0;
}

// Two pools of one device; after each test both are empty.
class PoolContainers : public ::testing::Test {
 protected:
  PoolContainers()
      : pool_(RegisteredPool::create(kOptions).value()),
        other_(RegisteredPool::create(kOptions).value()) {
    EXPECT_TRUE(pool_->add_device(&device_).ok());
    EXPECT_TRUE(other_->add_device(&device_).ok());
  }
  void TearDown() override {
    EXPECT_EQ(alive(), 0u);
    EXPECT_EQ(other_->stats().allocations, 0u);
  }
  uint64_t alive() const { return pool_->stats().allocations; }
  bool in_pool(const void* pointer) const { return pool_->region(pointer, 0) != nullptr; }
  bool in_other(const void* pointer) const { return other_->region(pointer, 0) != nullptr; }

  FakeDevice device_;
  std::unique_ptr<RegisteredPool> pool_;
  std::unique_ptr<RegisteredPool> other_;
};

TEST_F(PoolContainers, AVectorsElementsHaveTheKeysOfTheirRegion) {
  Vector<uint64_t> numbers(10000, *pool_);
  std::iota(numbers.begin(), numbers.end(), 0);
  for (size_t i = 10000; i < 20000; ++i) numbers.push_back(i);
  for (size_t i = 0; i < numbers.size(); ++i) ASSERT_EQ(numbers[i], i);
  const RegionKeys* keys = pool_->region(&numbers.front(), 0);
  ASSERT_NE(keys, nullptr);
  EXPECT_EQ(keys->lkey, pool_->region(&numbers.back(), 0)->lkey);
  EXPECT_EQ(device_.region_of(keys->lkey).mr.rkey, keys->rkey);
  EXPECT_EQ(alive(), 1u) << "what it grew out of went back";
}

TEST_F(PoolContainers, MapsDequesAndStringsLiveThereNodeByNode) {
  Map<uint64_t, String> names(8, *pool_);
  for (uint64_t i = 0; i < 1000; ++i) {
    names.emplace(i, String("a name that is too long for the string itself: ", *pool_));
    names.at(i) += std::to_string(i);
  }
  for (uint64_t i = 0; i < 1000; i += 2) names.erase(i);
  EXPECT_EQ(names.size(), 500u);
  for (const auto& [number, name] : names) {
    ASSERT_TRUE(in_pool(&number));
    ASSERT_TRUE(in_pool(name.data()));
    ASSERT_TRUE(name.ends_with(": " + std::to_string(number)));
  }
  EXPECT_GE(alive(), 1000u);

  std::deque<int, PoolAllocator<int>> queue(*pool_);
  for (int i = 0; i < 5000; ++i) {
    queue.push_back(i);
    if (i % 2 == 1) queue.pop_front();
  }
  EXPECT_TRUE(in_pool(&queue.front()) && in_pool(&queue.back()));
  EXPECT_EQ(queue.front(), 2500);
  std::map<int, int, std::less<>, PoolAllocator<std::pair<const int, int>>> tree(*pool_);
  for (int i = 0; i < 100; ++i) tree[i] = i;
  EXPECT_TRUE(in_pool(&*tree.begin()));
  const std::shared_ptr<int> shared = std::allocate_shared<int>(PoolAllocator<int>(*pool_), 7);
  EXPECT_TRUE(in_pool(shared.get()));
}

TEST_F(PoolContainers, WithoutAPoolTheyLiveInTheDefaultOne) {
  const std::vector<Device*> devices = {&device_};
  ASSERT_TRUE(bemalloc::init(kOptions, devices).ok());
  {
    Vector<int> numbers(100, 7);
    EXPECT_NE(bemalloc::region(numbers.data(), 0), nullptr);
    EXPECT_EQ(numbers.get_allocator().pool(), bemalloc::pool());
    PoolResource resource;
    std::pmr::vector<int> more(100, 7, &resource);
    EXPECT_NE(bemalloc::region(more.data(), 0), nullptr);
    EXPECT_EQ(bemalloc::pool()->stats().allocations, 2u);
  }
  EXPECT_EQ(bemalloc::shutdown().to_string(), "ok");
}

TEST_F(PoolContainers, WithoutADefaultPoolTheyThrowAndNameIt) {
  ASSERT_EQ(bemalloc::pool(), nullptr);
  Vector<int> numbers;  // empty ones need none
  PoolResource resource;
  std::pmr::vector<int> more(&resource);
  for (const auto& grow :
       {std::function([&] { numbers.push_back(1); }), std::function([&] { more.push_back(1); })}) {
    try {
      grow();
      FAIL() << "no exception";
    } catch (const std::bad_alloc& failure) {
      EXPECT_THAT(failure.what(), HasSubstr("bemalloc"));
    }
  }
  EXPECT_TRUE(numbers.empty() && more.empty());
}

TEST_F(PoolContainers, AContainerMayOutliveTheShutdownOfTheDefaultPool) {
  ASSERT_TRUE(bemalloc::init(kOptions, {}).ok());
  {
    Vector<int> numbers(100, 7);
    EXPECT_THAT(bemalloc::shutdown().message(), HasSubstr("1 live allocations"));
    EXPECT_EQ(numbers[99], 7);
    EXPECT_THROW(numbers.resize(1000), PoolBadAlloc);
  }
}

template <size_t kAlignment>
void expect_aligned_vectors(RegisteredPool& pool) {
  PoolResource resource(pool);
  for (const size_t count : {1, 3, 40}) {
    const Vector<Aligned<kAlignment>> elements(count, pool);
    EXPECT_TRUE(is_aligned(elements.data(), kAlignment)) << kAlignment;
    const std::pmr::vector<Aligned<kAlignment>> more(count, &resource);
    EXPECT_TRUE(is_aligned(more.data(), kAlignment)) << kAlignment;
  }
  const auto shared =
      std::allocate_shared<Aligned<kAlignment>>(PoolAllocator<Aligned<kAlignment>>(pool));
  EXPECT_TRUE(is_aligned(shared.get(), kAlignment)) << kAlignment;
}

TEST_F(PoolContainers, ElementsAreAlignedAsTheirTypeWants) {
  expect_aligned_vectors<16>(*pool_);
  expect_aligned_vectors<32>(*pool_);
  expect_aligned_vectors<64>(*pool_);
  expect_aligned_vectors<128>(*pool_);
  expect_aligned_vectors<512>(*pool_);
  expect_aligned_vectors<4096>(*pool_);
}

TEST_F(PoolContainers, AResourceGivesEverySizeAtEveryAlignment) {
  PoolResource resource(*pool_);
  for (size_t alignment = 1; alignment <= kBlock; alignment *= 2) {
    for (const size_t size : {0ul, 1ul, 24ul, 1000ul, 4097ul, 40000ul, 2 * kBlock}) {
      void* memory = resource.allocate(size, alignment);
      ASSERT_NE(memory, nullptr);
      EXPECT_TRUE(is_aligned(memory, alignment)) << size << " at " << alignment;
      EXPECT_TRUE(in_pool(memory));
      std::memset(memory, 1, size);
      resource.deallocate(memory, size, alignment);
    }
  }
  EXPECT_THROW(static_cast<void>(resource.allocate(100, 2 * kBlock)), PoolBadAlloc);
}

TEST_F(PoolContainers, AtTheCapTheyThrowTheReasonAndStayAsTheyWere) {
  PoolResource resource(*pool_);
  std::pmr::vector<uint64_t> first(&resource);
  Vector<uint64_t> second(*pool_);
  const auto fill = [](auto& vector) {
    try {
      for (uint64_t i = 0;; ++i) vector.push_back(i);
    } catch (const std::bad_alloc& failure) {
      EXPECT_THAT(failure.what(), HasSubstr("memory.cap_bytes"));
    }
    for (uint64_t i = 0; i < vector.size(); ++i) ASSERT_EQ(vector[i], i);
  };
  fill(first);
  EXPECT_GE(first.size() * 8, 16 * kBlock);
  fill(second);
  try {
    second.reserve(32 * kBlock / 8);
    FAIL() << "no exception";
  } catch (const PoolBadAlloc& failure) {
    EXPECT_EQ(failure.status().code(), Code::kResourceExhausted);
  }
  const size_t before = second.size();
  first = std::pmr::vector<uint64_t>(&resource);
  second.insert(second.end(), before, 7);  // there is room again
  EXPECT_EQ(second[before - 1], before - 1);
  EXPECT_EQ(second.back(), 7u);
}

TEST_F(PoolContainers, SizesBeyondAllMeasureAreRefused) {
  PoolAllocator<uint64_t> allocator(*pool_);
  EXPECT_THROW(static_cast<void>(allocator.allocate(SIZE_MAX / 8 + 1)), std::bad_array_new_length);
  EXPECT_THROW(static_cast<void>(allocator.allocate(SIZE_MAX / 8)), PoolBadAlloc);
}

TEST_F(PoolContainers, AnotherThreadMayDestroyThem) {
  auto names = std::make_unique<Map<int, String>>(8, *pool_);
  std::thread([&] {
    for (int i = 0; i < 1000; ++i) {
      names->emplace(i, String("long enough to be outside the string", *pool_));
    }
  }).join();
  EXPECT_GE(alive(), 2000u);
  std::thread([moved = std::move(names)] {}).join();
  EXPECT_EQ(alive(), 0u);
}

// Moving and swapping take the memory along; copying goes to the copy's own pool.
TEST_F(PoolContainers, MovesAndSwapsTakeThePoolAlongAndCopiesDoNot) {
  Vector<int> here(1000, 1, *pool_);
  Vector<int> there(1000, 2, *other_);
  const int* const here_data = here.data();
  const int* const there_data = there.data();
  swap(here, there);
  EXPECT_EQ(here.data(), there_data);
  EXPECT_EQ(there.data(), here_data);
  here = std::move(there);
  EXPECT_EQ(here.data(), here_data) << "moved between pools without a copy";
  EXPECT_EQ(here.get_allocator().pool(), pool_.get());
  EXPECT_EQ(other_->stats().allocations, 0u);

  Vector<int> target(*other_);
  target = here;
  EXPECT_TRUE(in_other(target.data())) << "assigned to, it stays in its pool";
  const Vector<int> copy(target);
  EXPECT_TRUE(in_other(copy.data())) << "a copy is where the original is";
  const Vector<int> placed(here, *other_);
  EXPECT_TRUE(in_other(placed.data()));
  EXPECT_EQ(placed, here);
}

TEST_F(PoolContainers, EqualMeansThatOneCanFreeWhatTheOtherAllocated) {
  EXPECT_EQ(PoolAllocator<int>(*pool_), PoolAllocator<char>(*pool_));
  EXPECT_NE(PoolAllocator<int>(*pool_), PoolAllocator<int>(*other_));
  EXPECT_NE(PoolAllocator<int>(*pool_), PoolAllocator<int>());
  EXPECT_EQ(PoolAllocator<int>(), PoolAllocator<char>());
  PoolResource one(*pool_);
  PoolResource same(*pool_);
  PoolResource another(*other_);
  EXPECT_TRUE(one.is_equal(same));
  EXPECT_FALSE(one.is_equal(another));
  EXPECT_FALSE(one.is_equal(PoolResource()));
  EXPECT_TRUE(PoolResource().is_equal(PoolResource()));
  EXPECT_FALSE(one.is_equal(*std::pmr::new_delete_resource()));
  void* memory = one.allocate(100);
  same.deallocate(memory, 100);
}

TEST_F(PoolContainers, AResourceCanBeTheSourceOfAnother) {
  PoolResource resource(*pool_);
  {
    std::pmr::monotonic_buffer_resource arena(&resource);
    std::pmr::unordered_map<int, std::pmr::string> names(&arena);
    for (int i = 0; i < 100; ++i) names[i] = "long enough to be outside the string";
    EXPECT_TRUE(in_pool(names[50].data()));
    EXPECT_LT(alive(), 20u);
  }
  EXPECT_EQ(alive(), 0u);
}

TEST_F(PoolContainers, AVectorBecomesABufferWithoutACopy) {
  Vector<float> gradients({1, 2, 3, 4}, *pool_);
  gradients.reserve(1000);
  const float* const data = gradients.data();
  Buffer buffer = vector_buffer(*pool_, std::move(gradients)).value();
  EXPECT_TRUE(gradients.empty());  // NOLINT(bugprone-use-after-move): what the header promises
  EXPECT_EQ(static_cast<const void*>(buffer.data()), data);
  EXPECT_EQ(buffer.size(), 4 * sizeof(float));
  EXPECT_EQ(buffer.capacity(), buffer.size());
  EXPECT_EQ(pool_->stats().allocations, 1u);
  Buffer tail = buffer.share(2 * sizeof(float), 2 * sizeof(float));
  buffer.reset();
  float third = 0;
  std::memcpy(&third, tail.data(), sizeof(third));
  EXPECT_EQ(third, 3);
  std::thread([&] { tail.reset(); }).join();
  EXPECT_EQ(alive(), 0u);
}

TEST_F(PoolContainers, APmrVectorBecomesABufferToo) {
  PoolResource resource(*pool_);
  std::pmr::vector<uint64_t> numbers(1000, 7, &resource);
  Buffer buffer = vector_buffer(*pool_, std::move(numbers)).value();
  EXPECT_TRUE(in_pool(buffer.data()));
  EXPECT_EQ(buffer.size(), 8000u);
  EXPECT_EQ(alive(), 1u);
}

TEST_F(PoolContainers, AVectorThatIsElsewhereStaysAsItWas) {
  std::vector<int> on_the_heap(100, 7);
  const int* const data = on_the_heap.data();
  const Status refused = vector_buffer(*pool_, std::move(on_the_heap)).status();
  EXPECT_EQ(refused.code(), Code::kInvalidArgument);
  EXPECT_EQ(on_the_heap.data(), data);  // NOLINT(bugprone-use-after-move): it was not moved
  EXPECT_EQ(on_the_heap.size(), 100u);
  Vector<int> in_other_pool(100, 7, *other_);
  EXPECT_FALSE(vector_buffer(*pool_, std::move(in_other_pool)).ok());
  EXPECT_EQ(in_other_pool.size(), 100u);  // NOLINT(bugprone-use-after-move)
  EXPECT_TRUE(vector_buffer(*other_, std::move(in_other_pool)).ok());
  EXPECT_FALSE(vector_buffer(*pool_, Vector<int>(*pool_)).value()) << "an empty Buffer of nothing";
}

TEST_F(PoolContainers, InAChildTheyAreReadAndDroppedAndCannotGrow) {
  Vector<int> numbers(100, 7, *pool_);
  Vector<int> sent(100, 8, *pool_);
  Buffer buffer = vector_buffer(*pool_, std::move(sent)).value();
  run_in_child([&] {
    EXPECT_IN_CHILD(numbers[99] == 7);
    try {
      numbers.push_back(1);
      EXPECT_IN_CHILD(!"it has grown");
    } catch (const std::bad_alloc& failure) {
      EXPECT_IN_CHILD(std::string(failure.what()).find("fork()") != std::string::npos);
    }
    numbers = Vector<int>();
    buffer.reset();
  });
  EXPECT_EQ(alive(), 2u);
  EXPECT_EQ(numbers[99], 7);
}

}  // namespace
}  // namespace be
