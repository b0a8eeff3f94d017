// Nanoseconds per sample index of each order, a batch at a time as a loader asks for it.
#include "headpond/sampler.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <vector>

namespace {

using headpond::Sampler;

// The fastest of some rounds: what the code costs where nobody interferes.
double ns_per_index(const Sampler& sampler, std::uint64_t batch, std::uint64_t stride) {
  constexpr int kRounds = 7;
  constexpr std::uint64_t kIndices = 1 << 20;
  const auto order = sampler.order(3);
  std::vector<std::uint64_t> out(batch);
  std::uint64_t sum = 0;
  double best = 1e9;
  for (int round = 0; round < kRounds; ++round) {
    const auto start = std::chrono::steady_clock::now();
    std::uint64_t made = 0;
    for (std::uint64_t first = 0; made < kIndices; made += batch, first += batch * stride) {
      if (first + batch * stride > sampler.size()) first = 0;
      order->indices(first, stride, out);
      sum += out[batch / 2];
    }
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start;
    best = std::min(best, took.count() / static_cast<double>(made));
  }
  if (sum == 42) std::puts("");  // the results are used
  return best;
}

void print(const char* name, const Sampler& sampler) {
  for (const std::uint64_t stride : {1ull, 8ull}) {
    std::printf("%-24s n %13llu  stride %llu  %6.2f ns/index\n", name,
                static_cast<unsigned long long>(sampler.size()),
                static_cast<unsigned long long>(stride), ns_per_index(sampler, 256, stride));
  }
}

}  // namespace

int main() {
  for (const std::uint64_t n : {10'000ull, 60'000ull, 1'000'000ull, 1'050'000ull, 1'281'167ull,
                                100'000'000ull, 10'000'000'000ull}) {
    print("full", Sampler::full(n, 7));
  }
  const std::vector<std::uint64_t> shards(1000, 1000);
  print("window 16384", Sampler::window(shards, 7, 16'384));
  print("none", Sampler::none(1'000'000));
}
