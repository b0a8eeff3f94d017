#include "headpond/engine.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/cpus.h"
#include "pipeline/scheduler.h"

namespace headpond {
namespace {

constexpr std::uint64_t kBudgetMax = std::uint64_t{2} << 30;

class EngineImpl final : public Engine {
 public:
  explicit EngineImpl(EngineOptions options)
      : pid_(getpid()),
        log_(std::make_shared<LogQueue>()),
        local_(make_local_io(options.io, log_)),
        http_(make_http_io(options.http, std::make_shared<SystemClock>(), log_)),
        budget_(options.memory_bytes),
        cpu_threads_(options.cpu_threads),
        scheduler_(options.cpu_threads, options.nice) {
    add_builtin_stores(stores_, local_, http_);
    budget_.on_release([this] { scheduler_.wake(); });
  }

  ~EngineImpl() override { close(); }

  StoreRegistry& stores() override { return stores_; }
  ByteBudget& budget() override { return budget_; }
  std::shared_ptr<LogQueue> log() override { return log_; }
  Scheduler& scheduler() override { return scheduler_; }
  bool is_ours() const override { return getpid() == pid_; }

  EngineStatus status() const override {
    EngineStatus status;
    status.io = local_->status();
    status.http = http_->status();
    status.http_counters = http_->counters();
    status.cpu_threads = cpu_threads_;
    status.started = is_ours() && scheduler_.threads() > 0;
    status.memory_bytes = budget_.limit();
    status.memory_used = budget_.used();
    status.memory_peak = budget_.peak();
    return status;
  }

  HttpCounters http_counters() const override { return http_->counters(); }

  void close() override {
    if (!is_ours()) return;  // the threads are the parent's
    scheduler_.close();
    stores_.close();
    local_->close();
    http_->close();
  }

 private:
  const pid_t pid_;
  std::shared_ptr<LogQueue> log_;
  std::shared_ptr<LocalIo> local_;
  std::shared_ptr<HttpIo> http_;
  StoreRegistry stores_;
  ByteBudget budget_;
  const unsigned cpu_threads_;
  Scheduler scheduler_;
};

}  // namespace

std::shared_ptr<Engine> Engine::make(EngineOptions options) {
  const unsigned ranks = std::max(1u, options.ranks_on_node);
  if (options.cpu_threads == 0) options.cpu_threads = std::max(1u, usable_cpus() / ranks);
  if (options.memory_bytes == 0)
    options.memory_bytes = std::min(kBudgetMax, usable_memory_bytes() / 4) / ranks;
  std::shared_ptr<Engine> engine(new EngineImpl(std::move(options)), [](Engine* made) {
    // In a forked child its threads do not exist, and its locks may be held for
    // ever by one of them: leave it to the end of the process.
    if (made->is_ours()) delete made;
  });
  return engine;
}

}  // namespace headpond
