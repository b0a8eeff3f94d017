#include "data/index_shards.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <numeric>
#include <utility>

#include "base/cpus.h"
#include "base/thread.h"
#include "format/store_reading.h"
#include "format/tar_index_folder.h"

namespace headpond {
namespace {

constexpr std::uint64_t kRemoteThreads = 32;  // they wait for the network

// Does one thing for every shard on threads of its own, which are joined before run()
// returns; the calling thread reports progress meanwhile.
class ForEachShard {
 public:
  // `work(shard, proceed)`; `proceed` is to be asked now and then.
  using Work = std::function<Result<void>(std::uint64_t shard, const std::function<bool()>&)>;

  ForEachShard(std::uint64_t shards, OpenContext& context) : shards_(shards), context_(context) {}

  // Where processes index the same shards at once: each begins at another one and finds the
  // others' work done, instead of waiting for them shard by shard.
  ForEachShard& from_anywhere() {
    first_ = (static_cast<std::uint64_t>(::getpid()) * 0x9E3779B97F4A7C15u) >> 32;
    return *this;
  }

  // Errors: the first shard's that failed; cancelled.
  Result<void> run(std::uint64_t most_threads, const Work& work) {
    if (context_.progress && !context_.progress("indexing", 0, shards_)) return stopped();
    const auto count = std::min(most_threads, shards_);
    std::vector<Thread> threads;
    running_ = count;
    for (std::uint64_t i = 0; i < count; ++i) {
      auto thread =
          Thread::start({"hp-index-" + std::to_string(i), 0}, [&] { work_on_shards(work); });
      if (!thread) {
        // Fewer threads do as well; none at all: this one.
        const std::lock_guard lock(mutex_);
        running_ -= count - i;
        break;
      }
      threads.push_back(*std::move(thread));
    }
    if (threads.empty()) {
      running_ = 1;
      work_on_shards(work);
    }
    const bool wanted = wait();
    threads.clear();
    if (!wanted) return stopped();
    if (error_) return *std::move(error_);
    return {};
  }

 private:
  static Error stopped() { return Error(ErrorCode::cancelled, "indexing was stopped"); }

  void work_on_shards(const Work& work) {
    for (;;) {
      const std::uint64_t number = next_.fetch_add(1);
      if (number >= shards_ || stop_.load()) break;
      const std::uint64_t shard = (first_ + number) % shards_;
      finish(shard, work(shard, [this] { return !stop_.load(); }));
    }
    const std::lock_guard lock(mutex_);
    --running_;
    changed_.notify_all();
  }

  void finish(std::uint64_t shard, Result<void> done) {
    const std::lock_guard lock(mutex_);
    ++done_;
    if (!done && (done.error().code() != ErrorCode::cancelled || !stop_.load()) &&
        (!error_ || shard < error_shard_)) {
      error_ = std::move(done).error();
      error_shard_ = shard;
      stop_ = true;
    }
    changed_.notify_all();
  }

  // Until no thread works; false when the caller does not want to go on.
  bool wait() {
    bool wanted = true;
    std::unique_lock lock(mutex_);
    while (running_ > 0) {
      changed_.wait_for(lock, std::chrono::milliseconds(100));
      if (!context_.progress || !wanted) continue;
      const auto done = done_;
      lock.unlock();
      wanted = context_.progress("indexing", done, shards_);
      if (!wanted) stop_ = true;
      lock.lock();
    }
    return wanted;
  }

  const std::uint64_t shards_;
  OpenContext& context_;
  std::uint64_t first_ = 0;
  std::atomic<std::uint64_t> next_{0};
  std::atomic<bool> stop_{false};

  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t running_ = 0;
  std::uint64_t done_ = 0;
  std::optional<Error> error_;
  std::uint64_t error_shard_ = 0;
};

// Reads of a far shard's headers: in long pieces while members follow closely, since a
// request costs as much as they do; alone where they are large.
class HeaderReader {
 public:
  HeaderReader(Store& store, std::string name, const ObjectVersion& version, GoOn go_on)
      : store_(store), name_(std::move(name)), version_(version), go_on_(std::move(go_on)) {}

  Result<void> read(std::uint64_t offset, std::span<std::byte> out) {
    const std::uint64_t stop = start_ + bytes_.size();
    if (offset >= start_ && offset + out.size() <= stop) {
      std::memcpy(out.data(), bytes_.data() + (offset - start_), out.size());
      return {};
    }
    const bool far = offset > stop && offset - stop > kFar;
    const auto size = std::max<std::uint64_t>(out.size(), far ? kShort : kLong);
    bytes_.resize(std::min(size, version_.size - offset));
    start_ = offset;
    if (auto done = read_exactly(store_, name_, version_, offset, bytes_, go_on_); !done) {
      bytes_.clear();
      return done;
    }
    std::memcpy(out.data(), bytes_.data(), out.size());
    return {};
  }

 private:
  // About what a connection brings in the time of a request.
  static constexpr std::uint64_t kFar = 3u << 19, kShort = 64u << 10, kLong = 4u << 20;
  Store& store_;
  std::string name_;
  ObjectVersion version_;
  GoOn go_on_;
  std::uint64_t start_ = 0;
  std::vector<std::byte> bytes_;
};

}  // namespace

Result<ObjectVersion> version_of(Store& store, const std::string& name, ObjectVersion known,
                                 const GoOn& go_on) {
  if (!known.is_any()) return known;
  auto info = stat_blocking(store, name, go_on);
  if (!info) return std::move(info).error();
  return std::move(info->version);
}

namespace {

// One shard of a store, and how its index is made.
class ShardSource {
 public:
  ShardSource(const Manifest& manifest, Store& store, std::uint64_t shard, GoOn go_on)
      : manifest_(manifest), store_(store), shard_(shard), go_on_(std::move(go_on)) {
    manifest.name(shard, name_);
  }

  // Before anything else. Errors: of the store.
  Result<void> find_version(const ObjectVersion& known) {
    auto version = version_of(store_, name_, known, go_on_);
    if (!version) return std::move(version).error();
    version_ = *std::move(version);
    return {};
  }
  const ObjectVersion& version() const { return version_; }
  std::string uri() const { return object_uri(manifest_, shard_); }
  std::string key() const { return object_key(manifest_, shard_); }  // of what is kept

  TarWalker::Read reader() const {
    if (!store_.is_remote()) {
      return [this](std::uint64_t offset, std::span<std::byte> out) {
        return read_exactly(store_, name_, version_, offset, out, go_on_);
      };
    }
    auto headers = std::make_shared<HeaderReader>(store_, name_, version_, go_on_);
    return [headers](std::uint64_t offset, std::span<std::byte> out) {
      return headers->read(offset, out);
    };
  }
  std::function<std::optional<std::vector<std::byte>>()> shipped(
      const Beside& beside, const std::shared_ptr<LogQueue>& log) const {
    return shipped_index_reader(beside, store_, manifest_, shard_, version_, log, go_on_);
  }

 private:
  const Manifest& manifest_;
  Store& store_;
  const std::uint64_t shard_;
  const GoOn go_on_;
  std::string name_;
  ObjectVersion version_;
};

Result<void> index_shard(const Dataset& dataset, Store& store, std::uint64_t shard,
                         const OpenContext& context, const std::function<bool()>& proceed) {
  const Shards& shards = *dataset.format().shards();
  if (shards.count(shard)) return {};
  ShardSource source(dataset.manifest(), store, shard, proceed);
  if (auto found = source.find_version(shards.version(shard)); !found)
    return std::move(found).error().at_uri(source.uri());
  Shards::Making making{source.version(), source.reader(), nullptr, proceed};
  if (const Beside* beside = dataset.beside())
    making.shipped = source.shipped(*beside, context.log);
  auto made = shards.make_known(shard, making);
  if (!made) return std::move(made).error().at_uri(source.uri());
  return {};
}

std::uint64_t threads_for(const Store& store) {
  return store.is_remote() ? kRemoteThreads : usable_cpus();
}

}  // namespace

Result<TarIndexes> index_local_shards(const Manifest& manifest, Store& store, const Beside& beside,
                                      OpenContext& context) {
  const TarIndexFolder folder(context.index_folder, context.log);
  TarIndexes indexes(manifest.size());
  auto done =
      ForEachShard(manifest.size(), context)
          .run(usable_cpus(), [&](std::uint64_t shard, const auto& proceed) -> Result<void> {
            ShardSource source(manifest, store, shard, proceed);
            if (auto found = source.find_version(manifest.version(shard)); !found)
              return std::move(found).error().at_uri(source.uri());
            auto index = folder.get({source.key(), source.version(), source.reader(),
                                     source.shipped(beside, context.log)},
                                    proceed);
            if (!index) return std::move(index).error();
            indexes[shard] = *std::move(index);
            return {};
          });
  if (!done) return std::move(done).error();
  return indexes;
}

Result<void> index_shards(const Dataset& dataset, OpenContext& context) {
  const Manifest& manifest = dataset.manifest();
  if (dataset.size_is_known()) return {};
  auto store = dataset.store(*context.stores);
  if (!store) return std::move(store).error().at_uri(manifest.root().to_string());
  auto done = ForEachShard(manifest.size(), context)
                  .from_anywhere()
                  .run(threads_for(**store), [&](std::uint64_t shard, const auto& proceed) {
                    return index_shard(dataset, **store, shard, context, proceed);
                  });
  if (!done) return std::move(done).error().in("indexing");
  return {};
}

Result<std::vector<std::uint64_t>> reach_samples(const Dataset& dataset,
                                                 std::span<const std::uint64_t> samples,
                                                 OpenContext& context) {
  std::vector<std::uint64_t> numbers(samples.begin(), samples.end());
  if (dataset.size_is_known()) return numbers;
  const Shards& shards = *dataset.format().shards();
  std::vector<std::uint64_t> ends(shards.shard_number());
  for (std::uint64_t shard = 0, end = 0; shard < ends.size(); ++shard) {
    const auto count = shards.count(shard) ? shards.count(shard) : shards.promised(shard);
    if (!count) {
      return Error(ErrorCode::invalid_argument,
                   "which sample has which number is not known before the shards are counted");
    }
    ends[shard] = end += *count;
  }
  std::vector<std::uint64_t> needed;
  for (std::uint64_t& number : numbers) {
    const auto found = std::upper_bound(ends.begin(), ends.end(), number);
    if (found == ends.end()) {
      return Error(ErrorCode::invalid_argument, "there is no sample " + std::to_string(number));
    }
    const auto shard = static_cast<std::uint64_t>(found - ends.begin());
    number = Shards::number(shard, shard == 0 ? number : number - ends[shard - 1]);
    if (!shards.count(shard)) needed.push_back(shard);
  }
  std::sort(needed.begin(), needed.end());
  needed.erase(std::unique(needed.begin(), needed.end()), needed.end());
  if (needed.empty()) return numbers;
  auto store = dataset.store(*context.stores);
  if (!store) return std::move(store).error().at_uri(dataset.manifest().root().to_string());
  auto done = ForEachShard(needed.size(), context)
                  .run(threads_for(**store), [&](std::uint64_t i, const auto& proceed) {
                    return index_shard(dataset, **store, needed[i], context, proceed);
                  });
  if (!done) return std::move(done).error().in("indexing");
  return numbers;
}

namespace {

// Where the index of a shard is written to: below `folder`, or beside the shard.
Result<std::string> shipped_path(const Manifest& manifest, std::uint64_t shard,
                                 const std::string& folder) {
  const std::string name = shipped_name(ShippedKind::headpond, manifest.key(shard));
  for (const auto& part : std::filesystem::path(name)) {
    if (part == "..") {
      return Error(ErrorCode::invalid_argument, "a name with \"..\" leads out of the folder")
          .at_uri(object_uri(manifest, shard));
    }
  }
  std::string path = folder.empty() ? manifest.root().path + "/" + name : folder + "/" + name;
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  if (error) return system_error(error.value(), "creating the folder of", path);
  return path;
}

}  // namespace

Result<ShardIndexesWritten> write_shard_indexes(const Source& shards, const std::string& folder,
                                                OpenContext& context) {
  auto resolved = resolve_shards(shards, context);
  if (!resolved) return std::move(resolved).error();
  const Manifest& manifest = **resolved;
  if (folder.empty() && manifest.root().scheme != "file") {
    return Error(ErrorCode::invalid_argument,
                 "indexes cannot be written beside shards on a web server: name a local folder, "
                 "and put what is in it beside them")
        .at_uri(manifest.root().to_string());
  }
  auto store = context.stores->open(manifest.root());
  if (!store) return std::move(store).error().at_uri(manifest.root().to_string());
  const TarIndexFolder kept(context.index_folder, context.log);
  std::vector<ShardIndexesWritten> parts(manifest.size());
  auto done =
      ForEachShard(manifest.size(), context)
          .run(threads_for(**store), [&](std::uint64_t shard, const auto& proceed) -> Result<void> {
            ShardSource source(manifest, **store, shard, proceed);
            if (auto found = source.find_version(manifest.version(shard)); !found)
              return std::move(found).error().at_uri(source.uri());
            auto index = kept.get({source.key(), source.version(), source.reader()}, proceed);
            if (!index) return std::move(index).error().at_uri(source.uri());
            const auto path = shipped_path(manifest, shard, folder);
            if (!path) return path.error();
            const auto image = shipped_index((*index)->image());
            parts[shard] = {1, (*index)->samples(), image.size()};
            return publish_file(*path, *path + ".tmp", image, Flush::to_disk);
          });
  if (!done) return std::move(done).error().in("indexing");
  ShardIndexesWritten all;
  for (const auto& part : parts) {
    all.shards += part.shards;
    all.samples += part.samples;
    all.bytes += part.bytes;
  }
  return all;
}

}  // namespace headpond
