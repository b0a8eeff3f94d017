#include "io/in_flight.h"

namespace headpond {

bool InFlight::enter(std::size_t requests) {
  const std::lock_guard lock(mutex_);
  if (closed_) return false;
  requests_ += requests;
  return true;
}

bool InFlight::begin_done() {
  const std::lock_guard lock(mutex_);
  if (given_up_) return false;
  ++running_;
  return true;
}

void InFlight::end_done() {
  const std::lock_guard lock(mutex_);
  --running_;
  --requests_;
  if (requests_ == 0 || running_ == 0) changed_.notify_all();
}

bool InFlight::closed() const {
  const std::lock_guard lock(mutex_);
  return closed_;
}

void InFlight::refuse() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
}

bool InFlight::refuse_if_idle() {
  const std::lock_guard lock(mutex_);
  if (requests_ > 0) return false;
  closed_ = true;
  return true;
}

std::size_t InFlight::close(std::chrono::nanoseconds limit) {
  std::unique_lock lock(mutex_);
  closed_ = true;
  if (given_up_) return 0;
  if (changed_.wait_for(lock, limit, [&] { return requests_ == 0; })) return 0;
  given_up_ = true;
  changed_.wait(lock, [&] { return running_ == 0; });
  return requests_;
}

}  // namespace headpond
