#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "io/http_io.h"
#include "support/manual_clock.h"
#include "support/scripted_origin.h"
#include "support/wrapped_store.h"

namespace headpond {

// Counts the calls that are not done, before their `done` runs.
class CountedStore final : public WrappedStore {
 public:
  CountedStore(std::shared_ptr<Store> inner, std::shared_ptr<std::atomic<int>> calls)
      : WrappedStore(std::move(inner)), calls_(std::move(calls)) {}

  void read(std::span<ReadRequest> requests) override {
    for (auto& request : requests) {
      ++*calls_;
      request.done = [calls = calls_, done = std::move(request.done)](Result<ReadOutcome> outcome) {
        --*calls;
        done(std::move(outcome));
      };
    }
    inner().read(requests);
  }
  void stat(std::string object, std::function<void(Result<ObjectInfo>)> done) override {
    ++*calls_;
    inner().stat(std::move(object), [calls = calls_, done = std::move(done)](auto info) {
      --*calls;
      done(std::move(info));
    });
  }

 private:
  const std::shared_ptr<std::atomic<int>> calls_;
};

// A scripted origin and an HttpIo on one thread and one clock. Time moves by itself,
// to the next thing that either of them waits for, and only when neither has anything
// left to do: so an outage of minutes takes milliseconds, and the same ones always. It
// stands still when no call is open.
class HttpSimulation {
 public:
  explicit HttpSimulation(HttpOptions options = {}, HttpIoSeams seams = {})
      : clock(std::make_shared<ManualClock>()), origin(clock), log(std::make_shared<LogQueue>()) {
    clock->advance(std::chrono::hours(1));
    seams.drive = [this](std::shared_ptr<TransferLoop> loop) {
      thread_ = std::thread([this, loop] { run(*loop); });
    };
    io = make_http_io(options, clock, log, std::move(seams));
    store = open(origin.url());
  }

  ~HttpSimulation() {
    io->close();
    stopping_ = true;
    if (thread_.joinable()) thread_.join();
  }

  std::shared_ptr<Store> open(const std::string& url) {
    auto uri = Uri::parse(url);
    auto opened = io->open(*uri);
    if (!opened) return nullptr;
    return std::make_shared<CountedStore>(*opened, calls_);
  }

  // Seconds of its own time since the start.
  double now_s() const {
    return std::chrono::duration<double>(clock->now().time_since_epoch()).count() - 3600;
  }

  // Runs when the time comes, on the simulation's thread. Before the first call.
  void at(double time_s, std::function<void()> call) {
    events_.emplace(Clock::Time(std::chrono::duration_cast<Clock::Duration>(
                        std::chrono::duration<double>(time_s + 3600))),
                    std::move(call));
  }

  // Is something under way that neither shows? Before the first call.
  void await(std::function<bool()> busy) { busy_ = std::move(busy); }

  std::shared_ptr<ManualClock> clock;
  ScriptedOrigin origin;
  std::shared_ptr<LogQueue> log;
  std::shared_ptr<HttpIo> io;
  std::shared_ptr<Store> store;

 private:
  // Loopback delivers before send() returns, so a round without news is one; two more
  // are looked at all the same.
  static constexpr int kIdleRounds = 3;

  void run(TransferLoop& loop) {
    int idle = 0;
    while (!stopping_) {
      bool busy = loop.run_once(std::chrono::milliseconds(idle == 0 ? 0 : 1));
      busy |= origin.step(0);
      busy |= run_events();
      busy |= busy_ && busy_();
      if (busy) {
        idle = 0;
      } else if (++idle >= kIdleRounds && move_time(loop)) {
        idle = 0;
      }
    }
  }

  bool run_events() {
    bool any = false;
    while (!events_.empty() && events_.begin()->first <= clock->now()) {
      auto event = events_.extract(events_.begin());
      event.mapped()();
      any = true;
    }
    return any;
  }

  bool move_time(const TransferLoop& loop) {
    if (*calls_ == 0) return false;
    auto next = std::min(loop.next_deadline(), origin.next_event());
    if (next == Clock::Time::max()) return false;
    if (!events_.empty()) next = std::min(next, events_.begin()->first);
    const auto now = clock->now();
    if (next > now) clock->advance(next - now);
    return true;
  }

  const std::shared_ptr<std::atomic<int>> calls_ = std::make_shared<std::atomic<int>>(0);
  std::thread thread_;
  std::atomic<bool> stopping_ = false;
  std::multimap<Clock::Time, std::function<void()>> events_;
  std::function<bool()> busy_;
};

}  // namespace headpond
