#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "base/cpus.h"
#include "base/thread.h"
#include "data/arguments.h"
#include "data/numbers_source.h"
#include "data/source.h"
#include "format/formats.h"
#include "format/store_reading.h"
#include "format/tar_index_folder.h"

namespace headpond {
namespace {

using Indexes = std::vector<std::shared_ptr<const TarIndex>>;

// Opens or builds the indexes of all shards on threads of its own, which are joined
// before it returns; the calling thread reports progress meanwhile.
class ShardIndexer {
 public:
  ShardIndexer(const Manifest& manifest, std::shared_ptr<Store> store, OpenContext& context)
      : manifest_(manifest),
        store_(std::move(store)),
        context_(context),
        folder_(context.index_folder, context.log),
        indexes_(manifest.size()) {}

  Result<Indexes> run() {
    if (context_.progress && !context_.progress("indexing", 0, manifest_.size())) return stopped();
    const auto count = std::min<std::uint64_t>(usable_cpus(), manifest_.size());
    std::vector<Thread> threads;
    running_ = count;
    for (std::uint64_t i = 0; i < count; ++i) {
      auto thread = Thread::start({"hp-index-" + std::to_string(i), 0}, [this] { work(); });
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
      work();
    }
    const bool wanted = wait();
    threads.clear();
    if (!wanted) return stopped();
    if (error_) return *std::move(error_);
    return std::move(indexes_);
  }

 private:
  static Error stopped() { return Error(ErrorCode::cancelled, "indexing was stopped"); }

  void work() {
    std::string name;
    for (;;) {
      const std::uint64_t shard = next_.fetch_add(1);
      if (shard >= manifest_.size() || stop_.load()) break;
      manifest_.name(shard, name);
      auto index =
          folder_.get({*store_, name, object_uri(manifest_, shard), manifest_.version(shard)},
                      [this] { return !stop_.load(); });
      finish(shard, std::move(index));
    }
    const std::lock_guard lock(mutex_);
    --running_;
    changed_.notify_all();
  }

  void finish(std::uint64_t shard, Result<std::shared_ptr<const TarIndex>> index) {
    const std::lock_guard lock(mutex_);
    ++done_;
    if (index) {
      indexes_[shard] = *std::move(index);
    } else if ((index.error().code() != ErrorCode::cancelled || !stop_.load()) &&
               (!error_ || shard < error_shard_)) {
      error_ = std::move(index).error();
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
      wanted = context_.progress("indexing", done, manifest_.size());
      if (!wanted) stop_ = true;
      lock.lock();
    }
    return wanted;
  }

  const Manifest& manifest_;
  std::shared_ptr<Store> store_;
  OpenContext& context_;
  TarIndexFolder folder_;
  std::atomic<std::uint64_t> next_{0};
  std::atomic<bool> stop_{false};

  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t running_ = 0;
  std::uint64_t done_ = 0;
  Indexes indexes_;
  std::optional<Error> error_;
  std::uint64_t error_shard_ = 0;
};

std::string count_of(std::uint64_t count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
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

// The fields of the first sample there is: headers of the first shards are read until a
// sample has ended. Says which shards' versions that took.
Result<std::vector<Field>> first_fields(Store& store, const Manifest& manifest) {
  std::string name;
  for (std::uint64_t shard = 0; shard < manifest.size(); ++shard) {
    manifest.name(shard, name);
    auto info = stat_blocking(store, name);
    if (!info) return std::move(info).error().at_uri(object_uri(manifest, shard));
    auto fields = first_sample_fields(
        info->version.size, [&](std::uint64_t offset, std::span<std::byte> out) {
          return read_exactly(store, name, info->version, offset, out);
        });
    if (!fields) return std::move(fields).error().at_uri(object_uri(manifest, shard));
    if (!fields->empty()) return fields;
  }
  return Error(ErrorCode::corrupt_data, "no sample in " + count_of(manifest.size(), "shard"))
      .at_uri(manifest.root().to_string());
}

// Shards of a store that is reached through a network: they are indexed while they are read.
Result<std::shared_ptr<const Dataset>> open_late(Dataset::Parts parts, Store& store,
                                                 OpenContext& context) {
  auto fields = first_fields(store, *parts.manifest);
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
  auto indexes = ShardIndexer(manifest, *std::move(store), context).run();
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

}  // namespace headpond
