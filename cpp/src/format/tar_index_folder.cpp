#include "format/tar_index_folder.h"

#include <sys/types.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <string_view>
#include <utility>

#include "format/record_lock.h"

namespace headpond {
namespace {

constexpr std::string_view kTemporary = ".tmp.", kLock = ".lock";

// Two threads of one process are not kept apart by the lock, so each has its own name.
std::string temporary_name(const std::string& path) {
  return path + std::string(kTemporary) + std::to_string(::getpid()) + "." +
         std::to_string(::gettid());
}

constexpr std::string_view kSuffix = ".tarindex";
constexpr auto kUnusedAfter = std::chrono::hours(24 * 90);
// The time of last use is the file's mtime, renewed no more often than this.
constexpr auto kRenewAfter = std::chrono::hours(24);

void renew(const std::string& path) {
  std::error_code error;  // of another user's folder, say: then it lives by its building alone
  const auto now = std::filesystem::file_time_type::clock::now();
  const auto used = std::filesystem::last_write_time(path, error);
  if (!error && now - used > kRenewAfter) std::filesystem::last_write_time(path, now, error);
}

bool is_hex(std::string_view text) {
  return text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// An index, or what a builder of one left that was killed. "ab" of "ab...": the name begins with
// its folder's.
bool is_ours(std::string_view folder, std::string_view name) {
  constexpr std::size_t kNameSize = 32 + kSuffix.size();
  if (name.size() < kNameSize || !is_hex(name.substr(0, 32)) || name.substr(0, 2) != folder ||
      name.substr(32, kSuffix.size()) != kSuffix) {
    return false;
  }
  const auto rest = name.substr(kNameSize);
  return rest.empty() || rest == kLock || rest.starts_with(kTemporary);
}

// What builders left that died; the lock is held, so that none of another process lives.
void remove_left_over(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  const std::string start = fs::path(path).filename().string() + std::string(kTemporary);
  const std::string own = start + std::to_string(::getpid()) + ".";
  for (fs::directory_iterator it(fs::path(path).parent_path(), error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    std::error_code ignored;  // gone already: what we want
    if (name.starts_with(start) && !name.starts_with(own)) fs::remove(it->path(), ignored);
  }
}

}  // namespace

Digest digest_of(const ObjectVersion& version) {
  return DigestBuilder()
      .add(version.size)
      .add(static_cast<std::uint64_t>(version.mtime_ns))
      .add(version.inode)
      .add(version.etag)
      .finish();
}

TarIndexFolder::TarIndexFolder(std::string folder, std::shared_ptr<LogQueue> log,
                               std::chrono::milliseconds patience)
    : folder_(std::move(folder)), log_(std::move(log)), patience_(patience) {}

void TarIndexFolder::log(LogLevel level, const std::string& key, std::string text) const {
  if (log_) log_->push_once(level, key, std::move(text));
}

std::string TarIndexFolder::path_of(const std::string& uri, const ObjectVersion& version) const {
  // Bytes that say nothing of their version may be others next time.
  const bool unmarked = version.etag.empty() && version.mtime_ns == 0 && version.inode == 0;
  if (folder_.empty() || unmarked) return {};
  const Digest digest = digest_of(version);
  const std::string name = DigestBuilder().add(uri).add(digest.high).add(digest.low).finish().hex();
  return folder_ + "/" + name.substr(0, 2) + "/" + name + std::string(kSuffix);
}

Result<std::shared_ptr<const TarIndex>> TarIndexFolder::build(
    const Shard& shard, const std::function<bool()>& proceed) const {
  const Digest version = digest_of(shard.version);
  if (shard.shipped) {
    if (auto image = shard.shipped())
      return TarIndex::open(Image(*std::move(image)), shard.version.size, version);
  }
  auto image = build_tar_index(shard.version.size, version, shard.read, proceed);
  if (!image) return std::move(image).error().at_uri(shard.uri);
  return TarIndex::open(Image(*std::move(image)), shard.version.size, version);
}

Result<std::shared_ptr<const TarIndex>> TarIndexFolder::find(const std::string& uri,
                                                             const ObjectVersion& version) const {
  const std::string path = path_of(uri, version);
  if (path.empty()) return std::shared_ptr<const TarIndex>();
  auto image = Image::map(path);
  if (!image) {
    if (image.error().code() == ErrorCode::not_found) return std::shared_ptr<const TarIndex>();
    return std::move(image).error();
  }
  auto index = TarIndex::open(*std::move(image), version.size, digest_of(version));
  if (index) {
    renew(path);
    return index;
  }
  log(LogLevel::warning, "tar index " + path,
      "the index of " + uri + " is built again: " + index.error().message() + " (" + path + ")");
  return std::shared_ptr<const TarIndex>();
}

Result<std::shared_ptr<const TarIndex>> TarIndexFolder::build_and_publish(
    const Shard& shard, const std::string& path, const std::function<bool()>& proceed) const {
  remove_left_over(path);
  auto index = build(shard, proceed);
  if (!index) return index;
  return publish(shard.uri, shard.version, *std::move(index));
}

Result<std::shared_ptr<const TarIndex>> TarIndexFolder::publish(
    const std::string& uri, const ObjectVersion& version,
    std::shared_ptr<const TarIndex> index) const {
  const std::string path = path_of(uri, version);
  const auto published = publish_file(path, temporary_name(path), index->image(), Flush::none);
  if (!published) {
    log(LogLevel::warning, "tar index folder",
        "tar indexes are kept in memory and built again next time: " +
            published.error().to_string());
    return index;
  }
  std::call_once(unused_removed_, [this] { remove_unused(); });
  // From the file from now on: pages that nobody uses cost no memory.
  auto mapped = find(uri, version);
  return mapped && *mapped ? mapped : index;
}

Result<std::shared_ptr<const TarIndex>> TarIndexFolder::keep(const std::string& uri,
                                                             const ObjectVersion& version,
                                                             std::vector<std::byte> image) const {
  auto index = TarIndex::open(Image(std::move(image)), version.size, digest_of(version));
  const std::string path = path_of(uri, version);
  if (!index || path.empty()) return index;
  if (auto found = find(uri, version); found && *found) return found;
  std::error_code error;  // publish() tells
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  return publish(uri, version, *std::move(index));
}

// Errors mean that somebody else was faster, or that the folder is not ours to tidy.
void TarIndexFolder::remove_unused() const {
  namespace fs = std::filesystem;
  const auto oldest = fs::file_time_type::clock::now() - kUnusedAfter;
  std::error_code error;
  for (fs::directory_iterator folder(folder_, error), end; !error && folder != end;
       folder.increment(error)) {
    const std::string name = folder->path().filename().string();
    if (name.size() != 2 || !is_hex(name)) continue;
    std::error_code inner;
    for (fs::directory_iterator file(folder->path(), inner); !inner && file != end;
         file.increment(inner)) {
      std::error_code ignored;
      if (!is_ours(name, file->path().filename().string())) continue;
      const auto used = file->last_write_time(ignored);
      if (!ignored && used < oldest) fs::remove(file->path(), ignored);
    }
  }
}

Result<std::shared_ptr<const TarIndex>> TarIndexFolder::get(
    const Shard& shard, const std::function<bool()>& proceed) const {
  const std::string path = path_of(shard.uri, shard.version);
  if (path.empty()) return build(shard, proceed);
  if (auto found = find(shard.uri, shard.version); found && *found) return found;
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  const auto until = std::chrono::steady_clock::now() + patience_;
  bool gave_up = false;
  auto lock = RecordLock::acquire(path + std::string(kLock), [&] {
    if (proceed && !proceed()) return false;
    gave_up = std::chrono::steady_clock::now() >= until;
    return !gave_up;
  });
  if (gave_up) {
    // Stopped, or stuck in a read of its own. Both indexes are the same.
    auto index = build(shard, proceed);
    return index ? publish(shard.uri, shard.version, *std::move(index)) : index;
  }
  if (!lock && lock.error().code() == ErrorCode::cancelled)
    return std::move(lock).error().at_uri(shard.uri);
  if (!lock) {
    log(LogLevel::warning, "tar index folder",
        "tar indexes are kept in memory and built again next time: " + lock.error().to_string());
    return build(shard, proceed);
  }
  // Whoever held the lock before may have built it.
  if (auto found = find(shard.uri, shard.version); found && *found) return found;
  return build_and_publish(shard, path, proceed);
}

}  // namespace headpond
