#include "be/ps/push_strands.h"

#include <string>
#include <utility>

namespace be::ps {
namespace {

// About 370 rows of 9 values, some 30 us: a longer push would hold up the I/O thread.
constexpr size_t kInlineBytes = 16 << 10;

}  // namespace

struct PushStrands::Job {
  explicit Job(ValidPush valid) : push(std::move(valid)) {}
  ValidPush push;
  std::atomic<size_t> strands_left{0};
  std::atomic<size_t> created{0};
};

Result<std::unique_ptr<PushStrands>> PushStrands::start(World& world, int threads,
                                                        RegisteredPool& pool, ServerCore& core) {
  std::unique_ptr<PushStrands> strands(new PushStrands(pool, core, static_cast<size_t>(threads)));
  for (size_t i = 0; i < strands->strands_.size(); ++i) {
    BE_ASSIGN_OR_RETURN(strands->strands_[i].thread,
                        world.executor().start_workers("ps-push-" + std::to_string(i), 1));
  }
  return strands;
}

std::vector<bool> PushStrands::touched_by(Unaligned<Key> keys) const {
  std::vector<bool> touched(strands_.size());
  for (size_t i = 0; i < keys.size(); ++i) touched[strand_of(virtual_shard_of(keys[i]))] = true;
  return touched;
}

bool PushStrands::all_idle(const std::vector<bool>& touched) const {
  for (size_t strand = 0; strand < strands_.size(); ++strand) {
    if (touched[strand] && strands_[strand].unfinished.load() != 0) return false;
  }
  return true;
}

void PushStrands::submit(ValidPush push) {
  const std::vector<bool> touched = touched_by(push.request.keys);
  if (push.call.body().size() <= kInlineBytes && all_idle(touched)) {
    Job job(std::move(push));
    job.created = job.push.table->apply(job.push.request.keys, job.push.request.gradients,
                                        [](uint32_t) { return true; });
    return answer(job);
  }
  const auto job = std::make_shared<Job>(std::move(push));
  for (const bool used : touched) job->strands_left += used;
  for (size_t strand = 0; strand < strands_.size(); ++strand) {
    if (!touched[strand]) continue;
    strands_[strand].unfinished.fetch_add(1);
    strands_[strand].thread->submit([this, job, strand] { apply(*job, strand); });
  }
}

void PushStrands::apply(Job& job, size_t strand) {
  const PushRequest& request = job.push.request;
  job.created += job.push.table->apply(
      request.keys, request.gradients,
      [&](uint32_t virtual_shard) { return strand_of(virtual_shard) == strand; });
  strands_[strand].unfinished.fetch_sub(1);
  if (--job.strands_left == 0) answer(job);
}

void PushStrands::answer(Job& job) {
  const auto keys = static_cast<uint32_t>(job.push.request.keys.size());
  core_.counters.pushes.fetch_add(1, std::memory_order_relaxed);
  core_.counters.pushed_keys.fetch_add(keys, std::memory_order_relaxed);
  job.push.call.body().reset();  // so that, at the memory cap, its own answer has room
  Result<Buffer> response = pool_.allocate_buffer(kPushResponseBytes);
  if (!response.ok()) {
    job.push.call.fail(response.status().with_context("the push was applied, but its answer"));
    return;
  }
  write_push_response(response->bytes(), {keys, static_cast<uint32_t>(job.created)});
  job.push.call.reply({std::move(*response), {}});
}

}  // namespace be::ps
