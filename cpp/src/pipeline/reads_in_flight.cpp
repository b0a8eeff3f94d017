#include "pipeline/reads_in_flight.h"

#include <utility>

namespace headpond {

void ReadsInFlight::add(std::uint64_t reads) {
  const std::lock_guard lock(mutex_);
  count_ += reads;
}

std::shared_ptr<const void> ReadsInFlight::remove() {
  const std::lock_guard lock(mutex_);
  if (--count_ > 0) return nullptr;
  drained_.notify_all();
  return std::exchange(owner_, nullptr);
}

std::uint64_t ReadsInFlight::count() const {
  const std::lock_guard lock(mutex_);
  return count_;
}

bool ReadsInFlight::drain(std::chrono::steady_clock::time_point deadline,
                          std::shared_ptr<const void> owner) {
  std::unique_lock lock(mutex_);
  if (drained_.wait_until(lock, deadline, [this] { return count_ == 0; })) return true;
  owner_ = std::move(owner);
  return false;
}

}  // namespace headpond
