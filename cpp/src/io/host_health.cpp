#include "io/host_health.h"

#include <algorithm>

namespace headpond {

HostHealth::HostHealth(const RetryOptions& options, std::uint64_t seed)
    : options_(options),
      random_(seed),
      limit_(std::max(1u, options.connections)),
      threshold_(limit_),
      tokens_(options.tokens) {}

bool HostHealth::may_start(Time now, std::size_t in_flight) const {
  if (down_) return !probing_ && now >= next_probe_;
  return now >= paused_until_ && in_flight < static_cast<std::size_t>(limit_);
}

HostHealth::Time HostHealth::next_start() const {
  if (down_) return probing_ ? Time::max() : next_probe_;
  return paused_until_;
}

bool HostHealth::start(Time now) {
  if (!down_) return false;
  probing_ = true;
  ++probes_;
  last_probe_ = now;
  return true;
}

void HostHealth::answered(bool good, bool probe) {
  if (probe) probing_ = false;
  unanswered_ = 0;
  if (down_) {
    // Come back gently: the others would all arrive at the same moment.
    down_ = false;
    probing_ = false;
    limit_ = 1;
    threshold_ = options_.connections;
  }
  if (!good) return;
  cuts_ = 0;
  hindered_ = 0;
  tokens_ = std::min(tokens_ + 1, options_.tokens);
  limit_ = std::min<double>(limit_ + (limit_ < threshold_ ? 1 : 1 / limit_),
                            std::max(1u, options_.connections));
}

void HostHealth::refused(Time started, Time now, bool probe,
                         std::optional<std::int64_t> retry_after_s) {
  answered(false, probe);
  if (retry_after_s) paused_until_ = std::max(paused_until_, now + honoured(*retry_after_s));
  // Those that were under way together are refused together: that is one sign.
  if (started < last_cut_) return;
  last_cut_ = now;
  limit_ = std::max(1.0, limit_ / 2);
  threshold_ = limit_;
  if (!retry_after_s && cuts_ > 0)
    paused_until_ = std::max(paused_until_, now + jitter(options_.delay_min, cuts_ - 1));
  ++cuts_;
}

bool HostHealth::unanswered(Time now, bool probe) {
  if (probe) probing_ = false;
  if (unanswered_++ == 0) first_unanswered_ = now;
  if (down_) {
    if (probe) plan_probe(now);
    return false;
  }
  if (unanswered_ < options_.down_after) return false;
  down_ = true;
  down_since_ = first_unanswered_;
  probing_ = false;
  probes_ = 0;
  last_probe_ = now;
  plan_probe(now);
  return true;
}

void HostHealth::hindered(Time started, Time now, bool probe) {
  if (probe) {
    probing_ = false;
    plan_probe(now);
  }
  // Those that were under way together are hindered together.
  if (hindered_ > 0 && started <= last_hindered_) return;
  last_hindered_ = now;
  limit_ = std::max(1.0, limit_ / 2);
  threshold_ = limit_;
  Clock::Duration pause = options_.delay_min;
  for (unsigned i = 0; i < hindered_ && pause < options_.hindered_max; ++i) pause *= 2;
  ++hindered_;
  pause = std::min<Clock::Duration>(pause, options_.hindered_max);
  paused_until_ = std::max(paused_until_, now + pause);
}

void HostHealth::abandoned(bool probe) {
  if (probe) probing_ = false;
}

void HostHealth::give_up() {
  down_ = false;
  probing_ = false;
  unanswered_ = 0;
}

// Between the starts of two probes; one that waited for an answer has waited already.
void HostHealth::plan_probe(Time now) {
  next_probe_ = std::max(now, last_probe_ + jitter(options_.delay_min, probes_));
}

Clock::Duration HostHealth::jitter(Clock::Duration first, unsigned doublings) {
  const Clock::Duration longest = options_.delay_max;
  Clock::Duration window = first;
  for (unsigned i = 0; i < doublings && window < longest; ++i) window *= 2;
  window = std::min(window, longest);
  std::uniform_int_distribution<std::int64_t> draw(0, window.count());
  return Clock::Duration(draw(random_));
}

Clock::Duration HostHealth::honoured(std::int64_t retry_after_s) const {
  const Clock::Duration longest = options_.retry_after_max;
  if (retry_after_s >= std::chrono::duration_cast<std::chrono::seconds>(longest).count())
    return longest;
  return std::chrono::seconds(std::max<std::int64_t>(0, retry_after_s));
}

Clock::Duration HostHealth::delay(unsigned spent, bool busy,
                                  std::optional<std::int64_t> retry_after_s) {
  if (retry_after_s) return honoured(*retry_after_s) + jitter(options_.delay_min, 0);
  const unsigned doublings = spent > 0 ? spent - 1 : 0;
  return jitter(busy ? options_.busy_delay_min : options_.delay_min, doublings);
}

bool HostHealth::pay(Time now, bool timed_out) {
  const int cost = timed_out ? options_.timeout_tokens : options_.retry_tokens;
  if (tokens_ >= cost) {
    tokens_ -= cost;
    return true;
  }
  if (now < next_unpaid_) return false;
  next_unpaid_ = now + options_.without_tokens;
  return true;
}

}  // namespace headpond
