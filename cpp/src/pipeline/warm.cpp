#include "headpond/warm.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>

#include "cache/cached_store.h"

namespace headpond {
namespace {

constexpr std::uint64_t kInFlight = 16;
constexpr std::chrono::milliseconds kProceedEvery{50};

// A dataset's objects with the versions that it knows by now.
class DatasetObjects final : public ObjectList {
 public:
  explicit DatasetObjects(std::shared_ptr<const Dataset> dataset) : dataset_(std::move(dataset)) {}
  std::uint64_t size() const override { return dataset_->manifest().size(); }
  void name(std::uint64_t index, std::string& name) const override {
    dataset_->manifest().name(index, name);
  }
  ObjectVersion version(std::uint64_t index) const override {
    return dataset_->version(static_cast<std::uint32_t>(index));
  }
  std::uint64_t object_size(std::uint64_t index) const override {
    const bool come_late = dataset_->format().shards() != nullptr;
    return come_late ? version(index).size : dataset_->manifest().object_size(index);
  }
  std::optional<std::uint64_t> find(std::string_view name) const override {
    return dataset_->manifest().find(name);
  }

 private:
  const std::shared_ptr<const Dataset> dataset_;
};

// Blocks on their way, shared with their completions.
struct Progress {
  std::mutex mutex;
  std::condition_variable changed;
  std::uint64_t in_flight = 0;
  std::uint64_t done = 0;
  Warmed warmed;
  bool full = false;
  std::optional<Error> error;
  StopSource stop;

  void ended(std::uint64_t bytes, Result<void> outcome) {
    const std::lock_guard lock(mutex);
    --in_flight;
    ++done;
    if (outcome) {
      ++warmed.kept;
      warmed.bytes += bytes;
    } else if (outcome.error().code() == ErrorCode::resource_limit) {
      full = true;
    } else if (!error) {
      error = std::move(outcome).error();
    }
    changed.notify_all();
  }
};

}  // namespace

Result<Warmed> warm(const std::shared_ptr<const Dataset>& dataset, Engine& engine,
                    OpenContext& context,
                    const std::function<bool(std::uint64_t done, std::uint64_t total)>& proceed) {
  if (auto indexed = index_shards(*dataset, context); !indexed) return std::move(indexed).error();
  const Uri& root = dataset->manifest().root();
  auto blocks =
      std::make_shared<const BlockMap>(std::make_shared<DatasetObjects>(dataset), root.to_string());
  auto opened = engine.stores().open(root, dataset->caching(), std::move(blocks));
  if (!opened) return std::move(opened).error();
  const auto store = std::dynamic_pointer_cast<CachedStore>(*opened);
  if (store == nullptr) {
    const std::string why = engine.status().cache_reason;
    return Error(ErrorCode::invalid_argument,
                 "there is nothing to fill: " +
                     (why.empty() ? "this dataset is not read through a cache (cache=, cache_size)"
                                  : "no cache: " + why));
  }
  const auto map = store->map();
  const auto progress = std::make_shared<Progress>();
  progress->warmed.blocks = map->size();
  std::uint64_t next = 0;
  bool stopped = false;
  std::unique_lock lock(progress->mutex);
  while (!stopped) {
    const bool ending = next == map->size() || progress->full || progress->error;
    if (ending && progress->in_flight == 0) break;
    if (!ending && progress->in_flight < kInFlight) {
      ++progress->in_flight;
      const std::uint64_t block = next++;
      lock.unlock();
      const auto described = map->block(block);
      const std::uint64_t bytes = described ? described->bytes() : 0;
      store->keep(block, progress->stop.get_token(), [progress, bytes](Result<void> outcome) {
        progress->ended(bytes, std::move(outcome));
      });
      lock.lock();
      continue;
    }
    progress->changed.wait_for(lock, kProceedEvery);
    const std::uint64_t done = progress->done;
    lock.unlock();
    stopped = proceed && !proceed(done, map->size());
    lock.lock();
  }
  lock.unlock();
  progress->stop.request_stop();
  if (stopped) {
    store->cache()->cancel_stopped();
    return Error(ErrorCode::cancelled, "stopped while the cache was filled");
  }
  if (progress->error) return std::move(*progress->error);
  return progress->warmed;
}

}  // namespace headpond
