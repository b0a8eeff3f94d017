#include "io/remote_host.h"

#include <algorithm>
#include <cstdio>
#include <utility>

namespace headpond {
namespace {

// So much on the way since the last failure is a new beginning: a large object over a
// line that breaks now and then arrives in the end.
constexpr std::uint64_t kProgressBytes = 8u << 20;

std::string seconds(Clock::Duration time) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", std::chrono::duration<double>(time).count());
  return text;
}

bool is_no_answer(FailureKind kind) {
  return kind == FailureKind::gateway || kind == FailureKind::no_answer ||
         kind == FailureKind::timed_out || kind == FailureKind::stalled;
}

bool is_refusal(FailureKind kind) {
  return kind == FailureKind::busy || kind == FailureKind::refused;
}

}  // namespace

RemoteHost::RemoteHost(std::string name, const RetryOptions& options, std::uint64_t seed,
                       std::shared_ptr<EventLoop> loop, std::shared_ptr<HttpCounts> counts,
                       std::shared_ptr<LogQueue> log)
    : name_(std::move(name)),
      options_(options),
      loop_(std::move(loop)),
      counts_(std::move(counts)),
      log_(std::move(log)),
      health_(options, seed) {}

void RemoteHost::add(Call call) {
  if (call->stopped()) {
    Error error = at(*call, Error(ErrorCode::cancelled, "the read was cancelled"));
    return call->finish(std::move(error));
  }
  call->retries.began = loop_->now();
  waiting_.push_back(std::move(call));
  pump();
}

void RemoteHost::cancel_if(const std::function<bool(const RemoteCall&)>& chosen) {
  std::vector<Call> out;
  const auto take = [&](auto& calls, auto get) {
    for (auto entry = calls.begin(); entry != calls.end();) {
      if (chosen(*get(*entry))) {
        out.push_back(std::move(get(*entry)));
        entry = calls.erase(entry);
      } else {
        ++entry;
      }
    }
  };
  take(waiting_, [](Call& call) -> Call& { return call; });
  take(delayed_, [](auto& entry) -> Call& { return entry.second; });
  take(unpaid_, [](Unpaid& entry) -> Call& { return entry.call; });
  const std::size_t idle = out.size();
  take(active_, [](Call& call) -> Call& { return call; });
  for (std::size_t i = idle; i < out.size(); ++i) {
    out[i]->attempts->cancel(*out[i]);
    health_.abandoned(out[i]->retries.probe);
  }
  for (auto& call : out) {
    Error error = at(*call, Error(ErrorCode::cancelled, "the read was cancelled"));
    call->finish(std::move(error));
  }
  pump();
}

// A call that ends at once, or a `done` that asks for more, comes back in here.
void RemoteHost::pump() {
  if (std::exchange(pumping_, true)) return;
  const auto now = loop_->now();
  pay_retries(now);
  while (!delayed_.empty() && delayed_.begin()->first <= now) {
    // In front: they have waited longest.
    auto due = delayed_.extract(delayed_.begin());
    waiting_.push_front(std::move(due.mapped()));
  }
  while (!waiting_.empty() && health_.may_start(now, active_.size())) start_next();
  pumping_ = false;
  if (!delayed_.empty()) wake_at(delayed_.begin()->first);
  if (!unpaid_.empty()) wake_at(std::min(health_.next_unpaid(), unpaid_.front().until));
  if (!waiting_.empty() && health_.next_start() > now) wake_at(health_.next_start());
}

// However many fail, a host gets no more retries than its budget says, in their order.
void RemoteHost::pay_retries(Clock::Time now) {
  while (!unpaid_.empty()) {
    Unpaid& next = unpaid_.front();
    const bool paid = health_.pay(now, next.timed_out);
    if (!paid && now < next.until) return;
    Unpaid entry = std::move(next);
    unpaid_.pop_front();
    if (paid) {
      delayed_.emplace(std::max(entry.ready, now), std::move(entry.call));
    } else {
      fail(std::move(entry.call),
           Error(ErrorCode::unavailable, "no retry is left for it: too many fail at this host"));
    }
  }
}

void RemoteHost::start_next() {
  Call call = std::move(waiting_.front());
  waiting_.pop_front();
  if (call->stopped()) {
    Error error = at(*call, Error(ErrorCode::cancelled, "the read was cancelled"));
    return call->finish(std::move(error));
  }
  auto& retries = call->retries;
  retries.started = loop_->now();
  retries.got_before = call->got;
  retries.probe = health_.start(retries.started);
  if (retries.attempts++ > 0) HttpCounts::add(counts_->retries);
  RemoteCall& started = *call;
  active_.push_back(std::move(call));
  started.attempts->start(started, *this);
}

void RemoteHost::wake_at(Clock::Time time) {
  if (time >= next_wake_ || time == Clock::Time::max()) return;
  next_wake_ = time;
  loop_->at(time, [weak = weak_from_this(), time] {
    const auto self = weak.lock();
    if (self == nullptr) return;
    if (self->next_wake_ == time) self->next_wake_ = Clock::Time::max();
    self->pump();
  });
}

RemoteHost::Call RemoteHost::take_active(RemoteCall& call) {
  const auto place = std::find_if(active_.begin(), active_.end(),
                                  [&](const Call& each) { return each.get() == &call; });
  Call taken = std::move(*place);
  *place = std::move(active_.back());
  active_.pop_back();
  return taken;
}

void RemoteHost::succeeded(RemoteCall& call, ReadOutcome outcome) {
  Call taken = take_active(call);
  health_.answered(true, taken->retries.probe);
  pump();  // first: the next request is on its way while this one is dealt with
  taken->finish(std::move(outcome));
}

void RemoteHost::failed(RemoteCall& call, Failure failure) {
  Call taken = take_active(call);
  const bool was_down = health_.down();
  note(*taken, failure);
  if (health_.down() && !was_down) went_down(failure);
  const bool retrying = may_retry(*taken, failure);
  if (!taken->retries.first) taken->retries.first = failure.error;
  if (retrying) {
    retry(std::move(taken), failure);
    pump();
  } else {
    if (failure.kind == FailureKind::hindered && active_.empty()) end_shortage(failure.error);
    pump();
    fail(std::move(taken), std::move(failure.error));
  }
}

void RemoteHost::note(const RemoteCall& call, const Failure& failure) {
  const auto now = loop_->now();
  const bool probe = call.retries.probe;
  if (failure.kind == FailureKind::hindered) {
    health_.hindered(call.retries.started, now, probe);
  } else if (is_no_answer(failure.kind)) {
    HttpCounts::add(counts_->no_answers);
    // It was there until its last byte.
    if (call.got > call.retries.got_before) health_.answered(false, probe);
    health_.unanswered(now, probe);
  } else if (is_refusal(failure.kind)) {
    HttpCounts::add(counts_->refusals);
    health_.refused(call.retries.started, now, probe, failure.retry_after_s);
  } else {
    health_.answered(false, probe);
  }
}

bool RemoteHost::may_retry(RemoteCall& call, const Failure& failure) const {
  auto& retries = call.retries;
  if (failure.kind == FailureKind::final) return false;
  if (failure.kind == FailureKind::hindered) return health_.hindered_times() <= options_.retries;
  if (is_no_answer(failure.kind) && retries.last) return false;
  if (is_no_answer(failure.kind) && health_.down()) return true;  // parked
  if (call.got >= retries.got + kProgressBytes) retries.spent = 0;
  retries.got = call.got;
  ++retries.spent;
  if (failure.kind == FailureKind::wrong && ++retries.wrong > 1) return false;
  return retries.spent <= options_.retries;
}

void RemoteHost::retry(Call call, const Failure& failure) {
  if (failure.kind == FailureKind::hindered) return waiting_.push_front(std::move(call));
  call->fresh = !is_refusal(failure.kind);
  // Behind the others, so that probes go round: one object that never comes must not keep the
  // host down for all.
  if (is_no_answer(failure.kind) && health_.down()) return waiting_.push_back(std::move(call));
  const auto now = loop_->now();
  const auto wait =
      health_.delay(call->retries.spent, failure.kind == FailureKind::busy, failure.retry_after_s);
  const bool timed_out =
      failure.kind == FailureKind::timed_out || failure.kind == FailureKind::stalled;
  unpaid_.push_back({std::move(call), timed_out, now + wait, now + options_.outage});
}

void RemoteHost::went_down(const Failure& failure) {
  HttpCounts::add(counts_->outages);
  why_down_ = failure.error;
  const auto end = health_.outage_end();
  if (log_ != nullptr) {
    log_->push(LogLevel::warning, name_ + " does not answer (" + failure.error.message() +
                                      "); its reads wait up to " + seconds(options_.outage) +
                                      " for it");
  }
  loop_->at(end, [weak = weak_from_this(), end] {
    const auto self = weak.lock();
    if (self != nullptr && self->health_.down() && self->health_.outage_end() == end)
      self->end_outage();
  });
}

void RemoteHost::end_outage() {
  std::deque<Call> waiting = std::exchange(waiting_, {});
  for (auto& entry : delayed_) waiting.push_back(std::move(entry.second));
  delayed_.clear();
  for (auto& entry : std::exchange(unpaid_, {})) waiting.push_back(std::move(entry.call));
  for (auto& call : active_) call->retries.last = true;
  health_.give_up();
  const Error why = why_down_.value_or(Error(ErrorCode::unavailable, "no answer"));
  for (auto& call : waiting) fail(std::move(call), why);
  pump();
}

// Nothing is under way that could give something back: who waits would fail in the same way.
void RemoteHost::end_shortage(const Error& error) {
  health_.forget_hindered();
  for (auto& call : std::exchange(waiting_, {})) fail(std::move(call), error);
}

Error RemoteHost::final_error(const RemoteCall& call, Error last) const {
  const auto& retries = call.retries;
  const bool has_own_end =
      last.code() != ErrorCode::unavailable && last.code() != ErrorCode::timed_out;
  Error error = has_own_end ? last : retries.first.value_or(last);
  std::string message = error.message();
  if (retries.attempts > 1) {
    message += " after " + std::to_string(retries.attempts) + " attempts in " +
               seconds(loop_->now() - retries.began);
  } else if (retries.attempts == 0) {
    message += "; waited " + seconds(loop_->now() - retries.began);
  }
  const Error& other = has_own_end ? retries.first.value_or(last) : last;
  if (other.message() != error.message())
    message += (has_own_end ? "; at first: " : "; at last: ") + other.message();
  return Error(error.code(), std::move(message));
}

void RemoteHost::fail(Call call, Error last) {
  HttpCounts::add(counts_->failures);
  Error error = at(*call, final_error(*call, std::move(last)));
  call->finish(std::move(error));
}

Error RemoteHost::at(const RemoteCall& call, Error error) const {
  error = std::move(error).at_uri(call.attempts->describe(call.request.object));
  const auto size = std::max<std::uint64_t>(call.out.size(), call.request.out.size());
  if (!call.is_stat() || size > 0)
    error = std::move(error).at_range({call.request.offset, call.request.offset + size});
  return error;
}

}  // namespace headpond
