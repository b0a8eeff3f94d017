#include "fork_generation.h"

#include <pthread.h>

#include <atomic>

namespace headpond::python {
namespace {
std::atomic<std::uint64_t> generation{0};
std::atomic<bool> watched{false};
}  // namespace

std::uint64_t fork_generation() { return generation.load(std::memory_order_relaxed); }

void watch_forks() {
  if (watched.exchange(true)) return;
  pthread_atfork(nullptr, nullptr, [] { generation.fetch_add(1, std::memory_order_relaxed); });
}

}  // namespace headpond::python
