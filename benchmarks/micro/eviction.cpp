// Hit rates of a cache smaller than its data: the best possible, headpond's, LRU and random, by
// simulation over the real orders of samples. Jobs are stepped in turn, blocks are equal, every
// sample is one access to its block; the first epoch fills the cache and does not count.
//
// "optimum" is Belady's choice with bypass: it knows every access of all jobs to come.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "cache/cache_folder.h"
#include "cache/use_file.h"
#include "headpond/sampler.h"
#include "support/eviction_simulator.h"
#include "support/temp_dir.h"

namespace {

using namespace headpond;
using simulation::Job;
using simulation::Trace;

constexpr int kEpochs = 7;  // the last is only looked ahead at

struct Shape {
  std::uint32_t blocks;
  std::uint32_t samples;  // of a block
};

// Which block each position uses, all epochs one after another.
Job job_of(const Shape& shape, const Sampler& sampler, std::uint32_t speed) {
  Job job;
  job.speed = speed;
  std::vector<std::uint64_t> indices(sampler.size());
  // A faster job passes more epochs meanwhile.
  for (std::uint64_t epoch = 0; epoch < std::uint64_t{kEpochs} * speed; ++epoch) {
    sampler.order(epoch)->indices(0, 1, indices);
    for (const std::uint64_t index : indices)
      job.blocks.push_back(static_cast<std::uint32_t>(index / shape.samples));
  }
  return job;
}

Sampler sampler_of(const std::string& mode, const Shape& shape, std::uint64_t seed) {
  const std::uint64_t n = std::uint64_t{shape.blocks} * shape.samples;
  if (mode == "full") return Sampler::full(n, seed);
  // Shards of 16 blocks; groups of 8 shards.
  const std::uint64_t shard = std::uint64_t{16} * shape.samples;
  return Sampler::window(std::vector<std::uint64_t>(n / shard, shard), seed, 8 * shard);
}

struct JobSet {
  const char* name;
  std::vector<std::uint64_t> seeds;
  std::vector<std::uint32_t> speeds;
  std::size_t batch = 1;  // positions that a job tells at once
  bool uneven = false;    // whose turn it is is drawn
};

void print(const std::string& mode, const Shape& shape, const JobSet& set) {
  std::vector<Job> jobs;
  for (std::size_t i = 0; i < set.seeds.size(); ++i)
    jobs.push_back(job_of(shape, sampler_of(mode, shape, set.seeds[i]), set.speeds[i]));
  const Trace trace = set.uneven ? Trace::drawn(shape.blocks, std::move(jobs), 1)
                                 : Trace::of(shape.blocks, std::move(jobs));
  const std::size_t from = trace.accesses.size() / kEpochs;
  const std::size_t to = trace.accesses.size() - from;
  for (const int percent : {25, 50, 75}) {
    const std::size_t capacity = std::size_t{shape.blocks} * static_cast<unsigned>(percent) / 100;
    const auto rate = [&](auto policy) {
      return 100 * simulation::replay(trace, from, to, policy).rate();
    };
    const double best = rate(simulation::Optimum(trace, capacity));
    const double ours = rate(simulation::NextUse(trace, capacity, set.batch));
    const double lru = rate(simulation::Lru(trace, capacity));
    const double random = rate(simulation::Random(trace, capacity));
    std::printf("| %-6s | %6u x %2u | %-29s | %2d %% | %6.2f | %6.2f | %+6.2f | %6.2f | %6.2f |\n",
                mode.c_str(), shape.blocks, shape.samples, set.name, percent, best, ours,
                ours - best, lru, random);
    std::fflush(stdout);
  }
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// What a million blocks cost: a use file, and a look at all of them.
void print_costs() {
  constexpr std::uint64_t kBlocks = 1'000'000;
  const TempDir temp;
  const auto folder = CacheFolder::open(temp.path("cache"), std::make_shared<CacheOps>());
  if (!folder) return static_cast<void>(std::puts(folder.error().to_string().c_str()));
  UseFiles uses(*folder);
  std::vector<NextUse> blocks;
  std::uint64_t number = 1;
  for (std::uint64_t i = 0; i < kBlocks; ++i) {
    number = number * 6364136223846793005ull + 1442695040888963407ull;
    blocks.push_back({{{number, i}}, i});
  }
  auto start = std::chrono::steady_clock::now();
  const auto writer = uses.create(blocks, {});
  if (!writer) return static_cast<void>(std::puts(writer.error().to_string().c_str()));
  const double creating = seconds_since(start);

  std::vector<BlockKey> keys;
  for (const NextUse& block : blocks) keys.push_back(block.key);
  std::sort(keys.begin(), keys.end());
  std::vector<double> seconds(keys.size());
  uses.seconds_until(keys, seconds);
  start = std::chrono::steady_clock::now();
  uses.seconds_until(keys, seconds);
  const double looking = seconds_since(start);

  start = std::chrono::steady_clock::now();
  double sum = 0;
  for (std::size_t i = 0; i < keys.size(); i += 10) sum += uses.seconds_until(keys[i]);
  const double asking = seconds_since(start) * 10 / static_cast<double>(keys.size());

  start = std::chrono::steady_clock::now();
  for (std::uint64_t i = 0; i < kBlocks; ++i) (*writer)->used((i * 7919) % kBlocks, i);
  const double updating = seconds_since(start) / static_cast<double>(kBlocks);
  std::printf(
      "\na million blocks: use file made in %.0f ms, all distances %.1f ms, one %.0f ns, "
      "an update %.0f ns%s\n",
      creating * 1e3, looking * 1e3, asking * 1e9, updating * 1e9, sum < 0 ? "!" : "");
}

}  // namespace

int main() {
  std::puts(
      "| mode   | data       | jobs                          | cache | optimum | headpond | diff | "
      "LRU | random |");
  std::puts("|---|---|---|---|---|---|---|---|---|");
  const JobSet sets[] = {
      {"1", {1}, {1}},
      {"2, same seed", {1, 1}, {1, 1}},
      {"2, different seeds", {1, 2}, {1, 1}},
      {"2, different, speeds 1:3", {1, 2}, {1, 3}},
      {"4, same seed", {1, 1, 1, 1}, {1, 1, 1, 1}},
      {"4, different seeds", {1, 2, 3, 4}, {1, 1, 1, 1}},
      {"4, different, uneven", {1, 2, 3, 4}, {1, 1, 1, 1}, 1, true},
      {"1, batches of 64", {1}, {1}, 64},
      {"4, different, uneven, batches", {1, 2, 3, 4}, {1, 1, 1, 1}, 64, true},
  };
  for (const char* mode : {"full", "window"})
    for (const JobSet& set : sets) print(mode, {512, 16}, set);
  print("full", {512, 1}, sets[0]);   // a block is a sample
  print("full", {8192, 4}, sets[0]);  // chosen in batches of n / 1024
  print("window", {8192, 4}, sets[0]);
  print_costs();
}
