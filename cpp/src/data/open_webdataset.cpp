#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <utility>

#include "base/cpus.h"
#include "base/thread.h"
#include "data/arguments.h"
#include "data/source.h"
#include "format/formats.h"
#include "format/store_reading.h"
#include "format/tar_index_folder.h"

namespace headpond {
namespace {

using Indexes = std::vector<std::shared_ptr<const TarIndex>>;

// Does one thing for every shard on threads of its own, which are joined before run()
// returns; the calling thread reports progress meanwhile.
class ForEachShard {
 public:
  // `work(shard, proceed)`; `proceed` is to be asked now and then.
  using Work = std::function<Result<void>(std::uint64_t shard, const std::function<bool()>&)>;

  ForEachShard(std::uint64_t shards, OpenContext& context) : shards_(shards), context_(context) {}

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
      const std::uint64_t shard = next_.fetch_add(1);
      if (shard >= shards_ || stop_.load()) break;
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
  std::atomic<std::uint64_t> next_{0};
  std::atomic<bool> stop_{false};

  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t running_ = 0;
  std::uint64_t done_ = 0;
  std::optional<Error> error_;
  std::uint64_t error_shard_ = 0;
};

Result<Indexes> index_all(const Manifest& manifest, Store& store, OpenContext& context) {
  const TarIndexFolder folder(context.index_folder, context.log);
  Indexes indexes(manifest.size());
  auto done =
      ForEachShard(manifest.size(), context)
          .run(usable_cpus(), [&](std::uint64_t shard, const auto& proceed) -> Result<void> {
            std::string name;
            manifest.name(shard, name);
            auto index = folder.get(
                {store, name, object_key(manifest, shard), manifest.version(shard)}, proceed);
            if (!index) return std::move(index).error();
            indexes[shard] = *std::move(index);
            return {};
          });
  if (!done) return std::move(done).error();
  return indexes;
}

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

// As known at opening, else the store is asked.
Result<ObjectVersion> version_of(Store& store, const std::string& name, ObjectVersion known,
                                 const GoOn& go_on) {
  if (!known.is_any()) return known;
  auto info = stat_blocking(store, name, go_on);
  if (!info) return std::move(info).error();
  return std::move(info->version);
}

Result<void> index_shard(const Dataset& dataset, Store& store, std::uint64_t shard,
                         const std::function<bool()>& proceed) {
  const Shards& shards = *dataset.format().shards();
  if (shards.count(shard)) return {};
  std::string name;
  dataset.manifest().name(shard, name);
  auto version = version_of(store, name, shards.version(shard), proceed);
  if (!version) return std::move(version).error();
  HeaderReader reader(store, name, *version, proceed);
  auto indexing = shards.index(
      shard, *version,
      [&](std::uint64_t offset, std::span<std::byte> out) { return reader.read(offset, out); });
  if (!indexing) return std::move(indexing).error();
  for (bool known = *indexing == nullptr; !known;) {
    if (!proceed()) return Error(ErrorCode::cancelled, "indexing was stopped");
    const auto advanced = (*indexing)->advance(version->size);
    if (!advanced) return advanced.error();
    known = *advanced;
  }
  return {};
}

std::string describe(const TarSkipped& skipped) {
  const std::pair<std::uint64_t, const char*> kinds[] = {
      {skipped.folders, "folders"},
      {skipped.metadata, "of __metadata__"},
      {skipped.hidden, "with a name that begins with \".\""},
      {skipped.without_field, "without an extension"},
      {skipped.other, "of unknown type"}};
  std::string text;
  for (const auto& [count, what] : kinds) {
    if (count > 0) text += (text.empty() ? "" : ", ") + std::to_string(count) + " " + what;
  }
  return text;
}

// A list of shards would drown the log: the first few say where to look.
class ShardList {
 public:
  void add(std::string uri) {
    if (count_++ < 3) text_ += (text_.empty() ? "" : ", ") + std::move(uri);
  }
  bool empty() const { return count_ == 0; }
  std::string text() const {
    return count_ > 3 ? text_ + " and " + std::to_string(count_ - 3) + " more" : text_;
  }

 private:
  std::string text_;
  std::uint64_t count_ = 0;
};

struct Findings {
  std::uint64_t samples = 0;
  TarSkipped skipped;
  ShardList unmarked, followed, empty;

  void add(const TarIndex& index, const std::string& uri) {
    const auto& more = index.skipped();
    samples += index.samples();
    skipped.folders += more.folders;
    skipped.metadata += more.metadata;
    skipped.hidden += more.hidden;
    skipped.without_field += more.without_field;
    skipped.other += more.other;
    if (!index.end_marked()) unmarked.add(uri);
    if (index.bytes_behind_end() > 0)
      followed.add(uri + " (" + count_of(index.bytes_behind_end(), "byte") + ")");
    if (index.samples() == 0) empty.add(uri);
  }

  std::vector<std::string> notes() const {
    std::vector<std::string> notes;
    if (skipped.total() > 0)
      notes.push_back(count_of(skipped.total(), "member") + " left out: " + describe(skipped));
    if (!unmarked.empty()) {
      notes.push_back(
          "no end-of-archive mark, perhaps cut between two members or still being written: " +
          unmarked.text());
    }
    if (!followed.empty()) {
      notes.push_back(
          "data behind the end-of-archive mark are not read (archives joined with cat?): " +
          followed.text());
    }
    if (!empty.empty()) notes.push_back("no sample in " + empty.text());
    return notes;
  }
};

// The first sample there is: headers of the first shards are read until it has ended. Its
// bytes' places go to `extents`.
Result<std::vector<Field>> first_fields(Store& store, const Manifest& manifest,
                                        std::vector<Extent>& extents, OpenContext& context) {
  std::string name;
  for (std::uint64_t shard = 0; shard < manifest.size(); ++shard) {
    manifest.name(shard, name);
    const GoOn go_on = go_on_with(context, "opening", shard, manifest.size());
    auto version = version_of(store, name, manifest.version(shard), go_on);
    if (!version) return std::move(version).error().at_uri(object_uri(manifest, shard));
    auto first =
        find_first_sample(version->size, [&](std::uint64_t offset, std::span<std::byte> out) {
          return read_exactly(store, name, *version, offset, out, go_on);
        });
    if (!first) return std::move(first).error().at_uri(object_uri(manifest, shard));
    if (first->fields.empty()) continue;
    for (const auto& range : first->ranges)
      extents.push_back({static_cast<std::uint32_t>(shard), range.start, range.size()});
    return std::move(first->fields);
  }
  return Error(ErrorCode::corrupt_data, "no sample in " + count_of(manifest.size(), "shard"))
      .at_uri(manifest.root().to_string());
}

// Shards of a store that is reached through a network: they are indexed while they are read.
Result<std::shared_ptr<const Dataset>> open_late(Dataset::Parts parts, Store& store,
                                                 OpenContext& context) {
  auto fields = first_fields(store, *parts.manifest, parts.first_sample, context);
  if (!fields) return std::move(fields).error();
  parts.format = make_late_webdataset_format(
      *std::move(fields), parts.manifest,
      std::make_shared<TarIndexFolder>(context.index_folder, context.log));
  return std::make_shared<const Dataset>(std::move(parts));
}

}  // namespace

Result<std::shared_ptr<const Dataset>> open_webdataset(const Source& shards, OpenContext& context) {
  Selection selection;
  selection.directory_suffix = ".tar";
  selection.versions_may_come_later = true;
  auto resolved = resolve_source(shards, selection, context);
  if (!resolved) return std::move(resolved).error();
  Dataset::Parts parts;
  parts.manifest = *std::move(resolved);
  parts.arguments = arguments_text({{"format", "webdataset"}});
  const Manifest& manifest = *parts.manifest;
  auto store = context.stores->open(manifest.root());
  if (!store) return std::move(store).error().at_uri(manifest.root().to_string());
  if ((*store)->is_remote()) return open_late(std::move(parts), **store, context);
  auto indexes = index_all(manifest, **store, context);
  if (!indexes) return std::move(indexes).error().in("indexing");
  Findings findings;
  for (std::uint64_t i = 0; i < manifest.size(); ++i)
    findings.add(*(*indexes)[i], object_uri(manifest, i));
  if (findings.samples == 0) {
    const std::string left_out = describe(findings.skipped);
    return Error(ErrorCode::corrupt_data,
                 "no sample in " + count_of(manifest.size(), "shard") +
                     (left_out.empty() ? ": no member" : "; left out are members " + left_out))
        .at_uri(manifest.root().to_string());
  }
  parts.notes = findings.notes();
  parts.format = make_webdataset_format(parts.manifest, *std::move(indexes));
  return std::make_shared<const Dataset>(std::move(parts));
}

Result<void> index_shards(const Dataset& dataset, OpenContext& context) {
  const Manifest& manifest = dataset.manifest();
  if (dataset.size_is_known()) return {};
  auto store = dataset.store(*context.stores);
  if (!store) return std::move(store).error().at_uri(manifest.root().to_string());
  constexpr std::uint64_t kThreads = 16;  // they wait for the network
  auto done = ForEachShard(manifest.size(), context)
                  .run(kThreads, [&](std::uint64_t shard, const auto& proceed) -> Result<void> {
                    auto indexed = index_shard(dataset, **store, shard, proceed);
                    if (!indexed)
                      return std::move(indexed).error().at_uri(object_uri(manifest, shard));
                    return {};
                  });
  if (!done) return std::move(done).error().in("indexing");
  return {};
}

}  // namespace headpond
