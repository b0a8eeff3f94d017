#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "headpond/log.h"
#include "io/event_loop.h"
#include "io/host_health.h"
#include "io/http_counts.h"
#include "io/remote_call.h"

namespace headpond {

// The calls to one host, of all stores: who waits, who is under way, who is tried
// again when. For the loop's thread alone.
class RemoteHost final : public AttemptListener, public std::enable_shared_from_this<RemoteHost> {
 public:
  RemoteHost(std::string name, const RetryOptions& options, std::uint64_t seed,
             std::shared_ptr<EventLoop> loop, std::shared_ptr<HttpCounts> counts,
             std::shared_ptr<LogQueue> log);

  void add(std::unique_ptr<RemoteCall> call);
  // Ends the calls that this holds for with `cancelled`.
  void cancel_if(const std::function<bool(const RemoteCall&)>& chosen);

  void succeeded(RemoteCall& call, ReadOutcome outcome) override;
  void failed(RemoteCall& call, Failure failure) override;

  const HostHealth& health() const { return health_; }

 private:
  using Call = std::unique_ptr<RemoteCall>;

  // A retry that the host's budget does not pay yet.
  struct Unpaid {
    Call call;
    bool timed_out = false;
    Clock::Time ready{};  // when it may go, once it is paid
    Clock::Time until{};  // when it gives up
  };

  void pump();
  void pay_retries(Clock::Time now);
  void start_next();
  void wake_at(Clock::Time time);
  Call take_active(RemoteCall& call);
  void retry(Call call, const Failure& failure);
  void note(const RemoteCall& call, const Failure& failure);
  bool may_retry(RemoteCall& call, const Failure& failure) const;
  void went_down(const Failure& failure);
  void end_outage();
  void end_shortage(const Error& error);
  Error final_error(const RemoteCall& call, Error last) const;
  void fail(Call call, Error last);
  Error at(const RemoteCall& call, Error error) const;

  const std::string name_;
  const RetryOptions options_;
  const std::shared_ptr<EventLoop> loop_;
  const std::shared_ptr<HttpCounts> counts_;
  const std::shared_ptr<LogQueue> log_;
  HostHealth health_;
  std::deque<Call> waiting_;
  std::multimap<Clock::Time, Call> delayed_;  // by the time of their next attempt
  std::deque<Unpaid> unpaid_;                 // in the order of their failures
  std::vector<Call> active_;
  std::optional<Error> why_down_;
  Clock::Time next_wake_ = Clock::Time::max();
  bool pumping_ = false;
};

}  // namespace headpond
