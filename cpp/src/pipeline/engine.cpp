#include "headpond/engine.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/cpus.h"
#include "cache/cached_store.h"
#include "pipeline/scheduler.h"

namespace headpond {
namespace {

constexpr std::uint64_t kBudgetMax = std::uint64_t{2} << 30;
// Of the cache; they come out of the budget.
constexpr std::uint64_t kBlocksInTheMakingMax = std::uint64_t{64} << 20;

class EngineImpl final : public Engine {
 public:
  explicit EngineImpl(EngineOptions options)
      : pid_(getpid()),
        log_(std::make_shared<LogQueue>()),
        local_(make_local_io(options.io, log_)),
        http_(make_http_io(options.http, std::make_shared<SystemClock>(), log_)),
        cache_options_(std::move(options.cache)),
        memory_bytes_(options.memory_bytes),
        budget_(options.memory_bytes - cache_options_.memory_bytes),
        cpu_threads_(options.cpu_threads),
        scheduler_(options.cpu_threads, options.nice) {
    add_builtin_stores(stores_, local_, http_);
    if (!cache_options_.folder.empty() && cache_options_.size_bytes > 0) {
      stores_.add_cache([this](std::shared_ptr<Store> store, const Uri& root,
                               std::shared_ptr<const BlockMap> blocks) {
        return cached(std::move(store), root, std::move(blocks));
      });
    }
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
    {
      const std::lock_guard lock(cache_mutex_);
      if (cache_ != nullptr) status.cache_folder = cache_options_.folder;
      status.cache_reason = cache_reason_;
    }
    status.cache_counters = cache_counters();
    status.cpu_threads = cpu_threads_;
    status.started = is_ours() && scheduler_.threads() > 0;
    status.memory_bytes = memory_bytes_;
    status.memory_used = budget_.used();
    status.memory_peak = budget_.peak();
    return status;
  }

  HttpCounters http_counters() const override { return http_->counters(); }

  CacheCounters cache_counters() const override {
    const std::lock_guard lock(cache_mutex_);
    return cache_ != nullptr ? cache_->counters() : CacheCounters{};
  }

  void close() override {
    if (!is_ours()) return;  // the threads are the parent's
    scheduler_.close();
    stores_.close();
    local_->close();
    http_->close();
  }

 private:
  // The cache is opened for the first store that is to be read through it. Without one,
  // training goes on: the warning says why.
  std::shared_ptr<Store> cached(std::shared_ptr<Store> store, const Uri& root,
                                std::shared_ptr<const BlockMap> blocks) {
    const std::lock_guard lock(cache_mutex_);
    if (cache_ == nullptr && cache_reason_.empty()) {
      // What cannot be made here is what opening then says.
      std::error_code ignored;
      std::filesystem::create_directories(
          std::filesystem::path(cache_options_.folder).parent_path(), ignored);
      auto opened = BlockCache::open(cache_options_, std::make_shared<SystemClock>(), log_);
      if (opened) {
        cache_ = *std::move(opened);
      } else {
        cache_reason_ = opened.error().to_string();
        log_->push(LogLevel::warning, "no cache: " + cache_reason_);
      }
    }
    if (cache_ == nullptr) return store;
    return std::make_shared<CachedStore>(std::move(store), cache_, root, std::move(blocks));
  }

  const pid_t pid_;
  std::shared_ptr<LogQueue> log_;
  std::shared_ptr<LocalIo> local_;
  std::shared_ptr<HttpIo> http_;
  const CacheOptions cache_options_;
  const std::uint64_t memory_bytes_;
  mutable std::mutex cache_mutex_;
  std::shared_ptr<BlockCache> cache_;
  std::string cache_reason_;
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
  const bool caches = !options.cache.folder.empty() && options.cache.size_bytes > 0;
  options.cache.memory_bytes =
      caches ? std::min(kBlocksInTheMakingMax, options.memory_bytes / 8) : 0;
  std::shared_ptr<Engine> engine(new EngineImpl(std::move(options)), [](Engine* made) {
    // In a forked child its threads do not exist, and its locks may be held for
    // ever by one of them: leave it to the end of the process.
    if (made->is_ours()) delete made;
  });
  return engine;
}

}  // namespace headpond
