#include "cache/cache_folder.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/random.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <span>

#include "cache/block_format.h"

namespace headpond {
namespace {

constexpr const char* kMarker = "headpond-cache";
constexpr std::string_view kMarkerText = "headpond cache\n";
constexpr std::string_view kUnfinished = "headpond-cache.tmp-";
constexpr std::size_t kHexDigits = 32;
constexpr std::string_view kHex = "0123456789abcdef";

bool is_hex(std::string_view text) {
  return text.find_first_not_of(kHex) == std::string_view::npos;
}

bool is_unfinished_marker(std::string_view name) {
  return name.size() == kUnfinished.size() + kHexDigits && name.starts_with(kUnfinished) &&
         is_hex(name.substr(kUnfinished.size()));
}

// "ab/cd/abcd...": a block's path below blocks/, its last part a fill file's name.
class BlockPath {
 public:
  explicit BlockPath(const BlockKey& key) {
    char* at = text_.data() + kFolders;
    for (const std::uint64_t half : {key.digest.high, key.digest.low}) {
      for (int shift = 60; shift >= 0; shift -= 4) *at++ = kHex[(half >> shift) & 15u];
    }
    *at = '\0';
    const char* const name = this->name();
    text_[0] = name[0];
    text_[1] = name[1];
    text_[2] = '/';
    text_[3] = name[2];
    text_[4] = name[3];
    text_[5] = '/';
  }
  const char* path() const { return text_.data(); }
  const char* name() const { return text_.data() + kFolders; }
  std::array<char, 3> first() const { return {text_[0], text_[1], '\0'}; }
  std::array<char, 3> second() const { return {text_[3], text_[4], '\0'}; }

 private:
  static constexpr std::size_t kFolders = 6;
  std::array<char, kFolders + kHexDigits + 1> text_;
};

bool same_file(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

std::uint64_t disk_bytes(const struct stat& file) {
  return whole_cells(static_cast<std::uint64_t>(file.st_size));
}

Result<std::string> random_hex() {
  std::array<unsigned char, kHexDigits / 2> bytes;
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    return system_error(errno, "asking for random bytes");
  std::string text;
  for (const unsigned char byte : bytes) {
    text += kHex[byte >> 4];
    text += kHex[byte & 15];
  }
  return text;
}

// "DIR/" names what a link DIR leads to, "DIR" the link.
std::string without_trailing_slashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

constexpr std::string_view kOwnFolder =
    "give the cache a folder of its own, say PATH/headpond-cache";

}  // namespace

std::optional<BlockKey> parse_block_name(std::string_view name) {
  if (name.size() != kHexDigits || !is_hex(name)) return std::nullopt;
  std::array<std::uint64_t, 2> halves = {};
  for (std::size_t i = 0; i < kHexDigits; ++i)
    halves[i / 16] = halves[i / 16] << 4 | kHex.find(name[i]);
  return BlockKey{{halves[0], halves[1]}};
}

Error CacheFolder::error_of(int result, std::string_view doing) const {
  return system_error(-result, doing, path_).in("cache directory");
}

Error CacheFolder::refused(ErrorCode code, std::string_view why) const {
  return Error(code, "cache directory " + path_ + " " + std::string(why));
}

Result<std::shared_ptr<CacheFolder>> CacheFolder::open(const std::string& path,
                                                       std::shared_ptr<CacheOps> ops) {
  std::shared_ptr<CacheFolder> folder(new CacheFolder(std::move(ops)));
  if (auto done = folder->open_root(path); !done) return std::move(done).error();
  if (auto done = folder->check_root(); !done) return std::move(done).error();
  if (auto done = folder->mark_root(); !done) return std::move(done).error();
  const auto open_into = [&](CacheFd& fd, int parent, const char* name) -> Result<void> {
    auto opened = folder->open_folder(parent, name);
    if (!opened) return std::move(opened).error();
    fd = *std::move(opened);
    return {};
  };
  if (auto done = open_into(folder->v1_, folder->root_.get(), "v1"); !done)
    return std::move(done).error();
  for (const auto& [fd, name] :
       {std::pair{&folder->blocks_, "blocks"}, std::pair{&folder->fill_, "fill"},
        std::pair{&folder->use_, "use"}}) {
    if (auto done = open_into(*fd, folder->v1_.get(), name); !done) return std::move(done).error();
  }
  return folder;
}

Result<void> CacheFolder::open_root(const std::string& path) {
  path_ = without_trailing_slashes(path);
  if (path_.empty()) return Error(ErrorCode::invalid_argument, "the cache directory has no name");
  struct stat what {};
  if (ops_->fstatat(AT_FDCWD, path_.c_str(), &what) == 0 && S_ISLNK(what.st_mode)) {
    return refused(ErrorCode::invalid_argument,
                   "is a symbolic link: name the folder that it leads to");
  }
  int fd = ops_->open_root(path_.c_str());
  if (fd == -ENOENT) {
    const int made = ops_->mkdirat(AT_FDCWD, path_.c_str(), 0700);
    if (made < 0 && made != -EEXIST) return error_of(made, "creating");
    fd = ops_->open_root(path_.c_str());
  }
  if (fd < 0) return error_of(fd, "opening");
  root_ = CacheFd(*ops_, fd);
  struct statfs system {};
  in_memory_ =
      ::fstatfs(fd, &system) == 0 && (system.f_type == TMPFS_MAGIC || system.f_type == RAMFS_MAGIC);
  return {};
}

Result<void> CacheFolder::check_root() {
  struct stat root {
  }, other{};
  if (const int result = ops_->fstat(root_.get(), &root); result < 0)
    return error_of(result, "looking at");
  const auto is = [&](const std::string& path) {
    return ops_->fstatat(AT_FDCWD, path.c_str(), &other) == 0 && same_file(root, other);
  };
  if (is("/"))
    return refused(ErrorCode::invalid_argument, "is the root: " + std::string(kOwnFolder));
  const char* const home = std::getenv("HOME");
  struct stat above {
  }, homes{};
  const bool below_home = ops_->fstatat(root_.get(), "..", &above) == 0 &&
                          ops_->fstatat(AT_FDCWD, "/home/.", &homes) == 0 &&
                          same_file(above, homes);
  if (below_home || is("/root/.") || (home != nullptr && is(std::string(home) + "/."))) {
    return refused(ErrorCode::invalid_argument, "is a home: " + std::string(kOwnFolder));
  }
  if (root.st_uid != ::geteuid()) {
    return refused(ErrorCode::access_denied,
                   "is owned by user " + std::to_string(root.st_uid) + " and this is user " +
                       std::to_string(::geteuid()) + ": each user has a cache of their own");
  }
  if ((root.st_mode & 022) != 0) {
    return refused(ErrorCode::access_denied, "can be written by others: chmod 700 it");
  }
  identity_ = {root.st_dev, root.st_ino};
  return {};
}

// The marker appears whole: written under another name, synced, renamed. Two that make one at the
// same time agree on who was first.
Result<void> CacheFolder::mark_root() {
  for (int attempt = 0; attempt < 10; ++attempt) {
    auto found = read_marker();
    if (!found) return std::move(found).error();
    if (*found) return {};
    if (auto empty = check_empty(); !empty) return empty;
    if (auto made = create_marker(); !made) return made;
  }
  return refused(ErrorCode::io_failed, "loses its marker again and again");
}

Result<bool> CacheFolder::read_marker() {
  const CacheFd fd(*ops_, ops_->openat(root_.get(), kMarker, O_RDONLY | O_NONBLOCK));
  if (fd.get() == -ENOENT) return false;
  if (!fd) return error_of(fd.get(), "opening the marker of");
  std::array<char, 128> text;
  const ssize_t size = pread_all(*ops_, fd.get(), std::as_writable_bytes(std::span(text)), 0);
  if (size < 0) return error_of(static_cast<int>(size), "reading the marker of");
  std::string_view rest(text.data(), static_cast<std::size_t>(size));
  const bool whole = rest.size() == kMarkerText.size() + kHexDigits + 1 &&
                     rest.starts_with(kMarkerText) && rest.back() == '\n' &&
                     is_hex(rest.substr(kMarkerText.size(), kHexDigits));
  if (!whole) {
    return refused(ErrorCode::corrupt_data, "has a file " + std::string(kMarker) +
                                                " that is not a cache's marker: if this is a "
                                                "cache, delete the folder, else name another");
  }
  node_id_ = rest.substr(kMarkerText.size(), kHexDigits);
  return true;
}

Result<void> CacheFolder::check_empty() const {
  std::string foreign;
  const int result = ops_->list(root_.get(), [&](const char* name) {
    // The marker itself: somebody was faster.
    if (name != std::string_view(kMarker) && !is_unfinished_marker(name)) foreign = name;
    return foreign.empty();
  });
  if (result < 0) return error_of(result, "listing");
  struct stat marker {};
  if (foreign.empty() || ops_->fstatat(root_.get(), kMarker, &marker) == 0) return {};
  return refused(ErrorCode::invalid_argument, "is not empty and not a cache (it holds " + foreign +
                                                  "): " + std::string(kOwnFolder));
}

Result<void> CacheFolder::create_marker() {
  auto node_id = random_hex(), unique = random_hex();
  if (!node_id) return std::move(node_id).error();
  if (!unique) return std::move(unique).error();
  const std::string name = std::string(kUnfinished) + *unique;
  if (auto written = write_marker(name.c_str(), *node_id); !written) {
    ops_->unlinkat(root_.get(), name.c_str());
    return written;
  }
  const int renamed = rename_new(*ops_, root_.get(), name.c_str(), root_.get(), kMarker);
  if (renamed < 0) ops_->unlinkat(root_.get(), name.c_str());
  // ENOENT: who made the marker tidied up after us. In both cases it is there to be read.
  if (renamed == -EEXIST || renamed == -ENOENT) return {};
  if (renamed < 0) return error_of(renamed, "marking");
  // Else a power cut may keep what is put in here later and lose the marker: a folder that is not
  // empty and not a cache. A file system that cannot sync folders says EINVAL.
  if (const int synced = ops_->fsync(root_.get()); synced < 0 && synced != -EINVAL)
    return error_of(synced, "syncing");
  remove_unfinished_markers();
  return {};
}

Result<void> CacheFolder::write_marker(const char* name, const std::string& node_id) const {
  const CacheFd fd(*ops_, ops_->openat(root_.get(), name, O_WRONLY | O_CREAT | O_EXCL, 0600));
  if (!fd) return error_of(fd.get(), "marking");
  const std::string text = std::string(kMarkerText) + node_id + "\n";
  int result = pwrite_all(*ops_, fd.get(), std::as_bytes(std::span(text)), 0);
  if (result == 0) result = ops_->fsync(fd.get());
  if (result < 0) return error_of(result, "marking");
  return {};
}

void CacheFolder::remove_unfinished_markers() const {
  static_cast<void>(ops_->list(root_.get(), [&](const char* name) {
    if (is_unfinished_marker(name)) ops_->unlinkat(root_.get(), name);
    return true;
  }));
}

Result<CacheFd> CacheFolder::open_folder(int parent, const char* name) const {
  constexpr int kFlags = O_RDONLY | O_DIRECTORY;
  int fd = ops_->openat(parent, name, kFlags);
  if (fd == -ENOENT) {
    const int made = ops_->mkdirat(parent, name, 0700);
    if (made < 0 && made != -EEXIST) return error_of(made, "creating " + std::string(name) + " in");
    fd = ops_->openat(parent, name, kFlags);
  }
  if (fd == -ELOOP || fd == -ENOTDIR) {
    return refused(ErrorCode::invalid_argument,
                   "is damaged: its " + std::string(name) + " is no folder; delete it");
  }
  if (fd < 0) return error_of(fd, "opening " + std::string(name) + " in");
  CacheFd folder(*ops_, fd);
  struct stat what {};
  if (const int result = ops_->fstat(fd, &what); result < 0) return error_of(result, "looking at");
  if (what.st_uid != ::geteuid() || (what.st_mode & 022) != 0) {
    return refused(ErrorCode::access_denied,
                   "has a folder " + std::string(name) +
                       " of another user, or one that others can write: delete the cache");
  }
  return folder;
}

CacheFd CacheFolder::leaf_folder(const BlockKey& key, bool create) const {
  constexpr int kFlags = O_PATH | O_DIRECTORY;
  const BlockPath path(key);
  CacheFd first(*ops_, ops_->openat(blocks_.get(), path.first().data(), kFlags));
  if (first.get() == -ENOENT && create) {
    const int made = ops_->mkdirat(blocks_.get(), path.first().data(), 0700);
    if (made < 0 && made != -EEXIST) return {*ops_, made};
    first = CacheFd(*ops_, ops_->openat(blocks_.get(), path.first().data(), kFlags));
  }
  if (!first) return first;
  CacheFd second(*ops_, ops_->openat(first.get(), path.second().data(), kFlags));
  if (second.get() == -ENOENT && create) {
    const int made = ops_->mkdirat(first.get(), path.second().data(), 0700);
    if (made < 0 && made != -EEXIST) return {*ops_, made};
    second = CacheFd(*ops_, ops_->openat(first.get(), path.second().data(), kFlags));
  }
  return second;
}

// Nonblocking, so that a FIFO that somebody put there does not hold us.
int CacheFolder::open_block(const BlockKey& key) const {
  return ops_->openat(blocks_.get(), BlockPath(key).path(), O_RDONLY | O_NONBLOCK);
}

int CacheFolder::open_fill(const BlockKey& key, int flags) const {
  return ops_->openat(fill_.get(), BlockPath(key).name(), O_RDWR | O_NONBLOCK | flags, 0600);
}

int CacheFolder::publish(const BlockKey& key) const {
  const CacheFd leaf = leaf_folder(key, /*create=*/true);
  if (!leaf) return leaf.get();
  const BlockPath path(key);
  return rename_new(*ops_, fill_.get(), path.name(), leaf.get(), path.name());
}

bool CacheFolder::is_fill(const BlockKey& key, int fd) const {
  struct stat open_file {
  }, named{};
  return ops_->fstat(fd, &open_file) == 0 &&
         ops_->fstatat(fill_.get(), BlockPath(key).name(), &named) == 0 &&
         same_file(open_file, named);
}

int CacheFolder::remove_fill(const BlockKey& key) const {
  return ops_->unlinkat(fill_.get(), BlockPath(key).name());
}

Result<std::uint64_t> CacheFolder::remove_block(const BlockKey& key) const {
  const CacheFd leaf = leaf_folder(key, /*create=*/false);
  if (leaf.get() == -ENOENT) return 0;
  if (!leaf) return error_of(leaf.get(), "removing a block from");
  const BlockPath path(key);
  struct stat file {};
  int result = ops_->fstatat(leaf.get(), path.name(), &file);
  if (result == 0 && !S_ISREG(file.st_mode)) return 0;  // not ours
  if (result == 0) result = ops_->unlinkat(leaf.get(), path.name());
  if (result == -ENOENT) return 0;
  if (result < 0) return error_of(result, "removing a block from");
  return disk_bytes(file);
}

void CacheFolder::remove_damaged(const BlockKey& key, int fd) const {
  const CacheFd leaf = leaf_folder(key, /*create=*/false);
  const BlockPath path(key);
  struct stat open_file {
  }, named{};
  const bool there = leaf && ops_->fstat(fd, &open_file) == 0 &&
                     ops_->fstatat(leaf.get(), path.name(), &named) == 0 &&
                     same_file(open_file, named);
  if (!there || ops_->unlinkat(leaf.get(), path.name()) < 0) return;
  ++damaged_blocks_;
  if (damaged_) damaged_(key, disk_bytes(named));
}

void CacheFolder::on_damaged(std::function<void(const BlockKey&, std::uint64_t bytes)> removed) {
  damaged_ = std::move(removed);
}

Result<int> CacheFolder::scan(
    int first_folder, const std::function<bool(const BlockKey&, std::uint64_t bytes)>& each) const {
  bool go_on = true;
  const auto scan_leaf = [&](int above, const std::string& folder, std::string_view name) {
    const CacheFd leaf(*ops_, ops_->openat(above, name.data(), O_RDONLY | O_DIRECTORY));
    if (leaf.get() == -ENOENT || leaf.get() == -ENOTDIR || leaf.get() == -ELOOP) return 0;
    if (!leaf) return leaf.get();
    return ops_->list(leaf.get(), [&](const char* file) {
      const auto key = parse_block_name(file);
      struct stat what {};
      if (!key || std::string_view(file).substr(0, 4) != folder + std::string(name)) return true;
      if (ops_->fstatat(leaf.get(), file, &what) < 0 || !S_ISREG(what.st_mode)) return true;
      go_on = each(*key, disk_bytes(what));
      return go_on;
    });
  };
  for (int number = first_folder; number < 256; ++number) {
    const auto digit = [](int value) { return kHex[static_cast<std::size_t>(value)]; };
    const std::string folder = {digit(number >> 4), digit(number & 15)};
    const CacheFd above(*ops_, ops_->openat(blocks_.get(), folder.c_str(), O_RDONLY | O_DIRECTORY));
    if (above.get() == -ENOENT) continue;
    int result = above ? 0 : above.get(), failed = 0;
    if (above) {
      result = ops_->list(above.get(), [&](const char* name) {
        const std::string_view view(name);
        if (view.size() != 2 || !is_hex(view)) return true;
        failed = scan_leaf(above.get(), folder, view);
        return go_on && failed == 0;
      });
      if (result == 0) result = failed;
    }
    if (result < 0) return error_of(result, "listing the blocks of");
    if (!go_on) return number;
  }
  return 256;
}

}  // namespace headpond
