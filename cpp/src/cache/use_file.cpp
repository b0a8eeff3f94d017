#include "cache/use_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <mutex>
#include <numeric>
#include <set>
#include <string>
#include <utility>

#include "base/digest.h"
#include "io/fork_mark.h"

namespace headpond {
namespace {

using Number = std::atomic<std::uint64_t>;
static_assert(Number::is_always_lock_free && sizeof(Number) == 8);

constexpr std::uint64_t kMagic = 0x3130307365737568;  // "huses001"

struct Constants {
  std::uint64_t count;
  std::uint64_t epoch_positions;
  std::uint64_t salt;
  std::uint32_t opaque;
  std::uint32_t crc;  // of what stands before
};

struct Header {
  Number magic;  // written last
  Constants constants;
  Number cursor;
  Number rate;  // the bits of a double
  std::uint64_t zero;
};
static_assert(sizeof(Header) == 64);

struct Entry {
  std::uint64_t high;
  std::uint64_t low;
  Number next;
};
static_assert(sizeof(Entry) == 24);

std::uint32_t crc_of(const Constants& constants) {
  return crc32c(std::as_bytes(std::span(&constants, 1)).first(offsetof(Constants, crc)));
}

bool less(const Entry& entry, const Digest& key) {
  return entry.high != key.high ? entry.high < key.high : entry.low < key.low;
}
bool same(const Entry& entry, const Digest& key) {
  return entry.high == key.high && entry.low == key.low;
}

// In (0, 1].
double drawn(const Digest& key, std::uint64_t salt) {
  std::uint64_t x = (key.low ^ salt) * 0x9E3779B97F4A7C15ull;
  x ^= x >> 32;
  x *= 0xD6E8FEB86659FD93ull;
  x ^= x >> 32;
  return static_cast<double>((x >> 11) + 1) * 0x1p-53;
}

std::uint64_t file_bytes(std::uint64_t count) { return sizeof(Header) + count * sizeof(Entry); }

Digest random_name() {
  Digest name;
  // Cannot fail for so few bytes (getrandom(2)); a name that is taken is seen by O_EXCL.
  static_cast<void>(getrandom(&name, sizeof(name), 0));
  return name;
}

}  // namespace

// A use file in memory. Its descriptor holds the lock (ours) or asks for it (another's).
class UseMap {
 public:
  // nullptr: not a whole use file (yet).
  static std::shared_ptr<UseMap> map(CacheOps& ops, CacheFd& fd, std::string name, bool writable) {
    struct stat info = {};
    std::array<std::byte, sizeof(Header)> head;
    if (ops.fstat(fd.get(), &info) < 0 || !S_ISREG(info.st_mode)) return nullptr;
    if (pread_all(ops, fd.get(), head, 0) != static_cast<ssize_t>(head.size())) return nullptr;
    std::uint64_t magic = 0;
    Constants constants;
    std::memcpy(&magic, head.data() + offsetof(Header, magic), sizeof(magic));
    std::memcpy(&constants, head.data() + offsetof(Header, constants), sizeof(constants));
    const auto size = static_cast<std::uint64_t>(info.st_size);
    if (!writable && magic != kMagic) return nullptr;
    if (crc_of(constants) != constants.crc || constants.count > size / sizeof(Entry) ||
        file_bytes(constants.count) != size)
      return nullptr;
    const int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
    void* bytes = mmap(nullptr, size, protection, MAP_SHARED, fd.get(), 0);
    if (bytes == MAP_FAILED) return nullptr;
    return std::shared_ptr<UseMap>(
        new UseMap(std::move(fd), std::move(name), static_cast<std::byte*>(bytes), constants));
  }
  ~UseMap() { munmap(bytes_, file_bytes(constants_.count)); }

  const std::string& name() const { return name_; }
  int fd() const { return fd_.get(); }
  const Constants& constants() const { return constants_; }
  Header& header() const { return *reinterpret_cast<Header*>(bytes_); }
  std::span<Entry> entries() const {
    return {reinterpret_cast<Entry*>(bytes_ + sizeof(Header)),
            static_cast<std::size_t>(constants_.count)};
  }

 private:
  UseMap(CacheFd fd, std::string name, std::byte* bytes, const Constants& constants)
      : fd_(std::move(fd)), name_(std::move(name)), bytes_(bytes), constants_(constants) {}
  CacheFd fd_;
  std::string name_;
  std::byte* bytes_;
  Constants constants_;  // as checked; what stands in the file may change
};

// Which files are ours: those are never opened a second time, because closing any descriptor of a
// file gives its lock back.
struct UseRegistry {
  explicit UseRegistry(std::shared_ptr<const CacheFolder> cache_folder)
      : folder(std::move(cache_folder)) {}
  const std::shared_ptr<const CacheFolder> folder;
  const ForkMark fork;
  std::mutex mutex;
  std::set<std::string> own_names;
  std::vector<std::weak_ptr<UseMap>> own;
  std::vector<std::shared_ptr<UseMap>> others;
};

// --- Writing.

UseWriter::UseWriter(std::shared_ptr<UseMap> map, std::vector<std::uint32_t> places,
                     std::shared_ptr<UseRegistry> registry)
    : map_(std::move(map)), places_(std::move(places)), registry_(std::move(registry)) {}

UseWriter::~UseWriter() {
  if (registry_->fork.forked()) return;
  const std::lock_guard lock(registry_->mutex);
  registry_->folder->ops().unlinkat(registry_->folder->use(), map_->name().c_str());
  registry_->own_names.erase(map_->name());
}

void UseWriter::used(std::size_t block, std::uint64_t next) {
  if (registry_->fork.forked()) return;
  map_->entries()[places_[block]].next.store(next, std::memory_order_relaxed);
}

void UseWriter::advance(std::uint64_t cursor, double rate) {
  if (registry_->fork.forked()) return;
  Header& header = map_->header();
  header.rate.store(std::bit_cast<std::uint64_t>(rate), std::memory_order_relaxed);
  header.cursor.store(cursor, std::memory_order_release);
}

UseFiles::UseFiles(std::shared_ptr<const CacheFolder> folder)
    : registry_(std::make_shared<UseRegistry>(std::move(folder))) {}

UseFiles::~UseFiles() = default;

namespace {

// A new empty file of this process, locked. Under the registry's mutex, so that nobody here takes
// it for a dead one.
Result<std::pair<CacheFd, std::string>> create_locked(UseRegistry& registry) {
  const CacheFolder& folder = *registry.folder;
  CacheOps& ops = folder.ops();
  constexpr int kTries = 16;
  for (int i = 0; i < kTries; ++i) {
    std::string name = random_name().hex();
    const int opened = ops.openat(folder.use(), name.c_str(),
                                  O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (opened == -EEXIST) continue;
    if (opened < 0) return system_error(-opened, "creating", "v1/use/" + name);
    CacheFd fd(ops, opened);
    const int locked = ops.set_lock(fd.get(), F_WRLCK, 0, 0);
    struct stat info = {};
    // Another process may have taken it for a dead one before it was locked.
    if (locked == 0 && ops.fstat(fd.get(), &info) == 0 && info.st_nlink != 0) {
      registry.own_names.insert(name);
      return std::pair(std::move(fd), std::move(name));
    }
    if (locked == 0 || locked == -EAGAIN || locked == -EACCES) continue;
    ops.unlinkat(folder.use(), name.c_str());
    return system_error(-locked, "locking", "v1/use/" + name);
  }
  return Error(ErrorCode::unavailable, "other processes keep removing the use file");
}

// The file but for its magic, in pieces.
int write_file(CacheOps& ops, int fd, Constants constants, std::span<const NextUse> blocks,
               std::span<const std::uint32_t> order) {
  struct Plain {
    std::uint64_t high, low, next;
  };
  constexpr std::size_t kPiece = 16'384;
  constants.crc = crc_of(constants);
  std::array<std::byte, sizeof(Header)> head = {};
  std::memcpy(head.data() + offsetof(Header, constants), &constants, sizeof(constants));
  if (const int result = pwrite_all(ops, fd, head, 0); result < 0) return result;
  std::vector<Plain> piece;
  for (std::size_t first = 0; first < order.size(); first += kPiece) {
    piece.clear();
    for (std::size_t i = first; i < std::min(order.size(), first + kPiece); ++i) {
      const NextUse& use = blocks[order[i]];
      piece.push_back({use.key.digest.high, use.key.digest.low, use.position});
    }
    const int result = pwrite_all(ops, fd, std::as_bytes(std::span(piece)), file_bytes(first));
    if (result < 0) return result;
  }
  return 0;
}

}  // namespace

Result<std::unique_ptr<UseWriter>> UseFiles::create(std::span<const NextUse> blocks,
                                                    const UseOptions& options) {
  if (registry_->fork.forked())
    return Error(ErrorCode::forked, "the cache was opened by the parent process");
  CacheOps& ops = registry_->folder->ops();
  std::vector<std::uint32_t> order(blocks.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(),
            [&](std::uint32_t a, std::uint32_t b) { return blocks[a].key < blocks[b].key; });

  std::unique_lock lock(registry_->mutex);
  auto created = create_locked(*registry_);
  lock.unlock();
  if (!created) return std::move(created).error().in("telling the cache what comes next");
  auto& [fd, name] = *created;

  const Constants constants = {blocks.size(), options.epoch_positions, random_name().low,
                               options.opaque ? 1u : 0u, 0};
  const int written = write_file(ops, fd.get(), constants, blocks, order);
  auto map = written < 0 ? nullptr : UseMap::map(ops, fd, name, /*writable=*/true);
  lock.lock();
  if (map == nullptr) {
    ops.unlinkat(registry_->folder->use(), name.c_str());
    registry_->own_names.erase(name);
    return system_error(written < 0 ? -written : ENOMEM, "writing", "v1/use/" + name);
  }
  // Release: who sees the magic sees the rest.
  map->header().magic.store(kMagic, std::memory_order_release);
  registry_->own.push_back(map);
  lock.unlock();

  std::vector<std::uint32_t> places(blocks.size());
  for (std::size_t i = 0; i < order.size(); ++i) places[order[i]] = static_cast<std::uint32_t>(i);
  return std::unique_ptr<UseWriter>(new UseWriter(std::move(map), std::move(places), registry_));
}

// --- Reading.

namespace {

// Takes a file whose process is dead away; false: it lives (or cannot be told).
bool remove_dead(const CacheFolder& folder, int fd, const std::string& name) {
  if (folder.ops().set_lock(fd, F_WRLCK, 0, 0) != 0) return false;
  folder.ops().unlinkat(folder.use(), name.c_str());
  return true;
}

}  // namespace

void UseFiles::refresh() {
  if (registry_->fork.forked()) return;
  const CacheFolder& folder = *registry_->folder;
  CacheOps& ops = folder.ops();
  const std::lock_guard lock(registry_->mutex);
  std::set<std::string> names;
  const int listed = ops.list(folder.use(), [&](const char* name) {
    // Names of another kind are not ours to touch.
    if (parse_block_name(name)) names.insert(name);
    return true;
  });
  if (listed < 0) return;
  auto& others = registry_->others;
  others.erase(std::remove_if(others.begin(), others.end(),
                              [&](const auto& map) {
                                return names.erase(map->name()) == 0 ||
                                       remove_dead(folder, map->fd(), map->name());
                              }),
               others.end());
  for (const std::string& name : names) {
    if (registry_->own_names.count(name) != 0) continue;
    const int opened = ops.openat(folder.use(), name.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (opened < 0) continue;
    CacheFd fd(ops, opened);
    if (remove_dead(folder, fd.get(), name)) continue;
    if (auto map = UseMap::map(ops, fd, name, /*writable=*/false)) others.push_back(std::move(map));
  }
}

std::vector<std::shared_ptr<UseMap>> UseFiles::living() const {
  const std::lock_guard lock(registry_->mutex);
  std::vector<std::shared_ptr<UseMap>> maps = registry_->others;
  auto& own = registry_->own;
  own.erase(std::remove_if(own.begin(), own.end(), [](const auto& map) { return map.expired(); }),
            own.end());
  for (const auto& weak : own) {
    auto map = weak.lock();
    if (map != nullptr && registry_->own_names.count(map->name()) != 0)
      maps.push_back(std::move(map));
  }
  return maps;
}

std::size_t UseFiles::size() const { return living().size(); }

namespace {

// One file at one instant.
class View {
 public:
  explicit View(const UseMap& map) : map_(&map) {
    // Acquire: whoever sees this cursor sees the uses before it (UseWriter::advance).
    cursor_ = map.header().cursor.load(std::memory_order_acquire);
    rate_ = std::bit_cast<double>(map.header().rate.load(std::memory_order_relaxed));
    if (!(rate_ > 0) || rate_ == kNever) rate_ = 0;
  }
  const UseMap* map() const { return map_; }
  double rate() const { return rate_; }
  void set_rate(double rate) { rate_ = rate; }

  double seconds(const Digest& key, std::uint64_t next) const {
    const Constants& constants = map_->constants();
    if (constants.opaque != 0)
      return drawn(key, constants.salt) * static_cast<double>(constants.epoch_positions) / rate_;
    if (next == kNeverUsed) return kNever;
    return next <= cursor_ ? 0 : static_cast<double>(next - cursor_) / rate_;
  }
  double seconds(const Digest& key, const Entry& entry) const {
    return seconds(key, entry.next.load(std::memory_order_relaxed));
  }

 private:
  const UseMap* map_;
  std::uint64_t cursor_;
  double rate_;
};

std::vector<View> views_of(const std::vector<std::shared_ptr<UseMap>>& maps) {
  std::vector<View> views;
  double sum = 0;
  int known = 0;
  for (const auto& map : maps) {
    views.emplace_back(*map);
    sum += views.back().rate();
    known += views.back().rate() > 0;
  }
  for (View& view : views)
    if (view.rate() == 0) view.set_rate(known == 0 ? 1 : sum / known);
  return views;
}

// The first entry from `first` on that is not less than `key`: steps of growing length, so that a
// pass over sorted keys costs little, whichever side is longer.
std::size_t find_from(std::span<const Entry> entries, std::size_t first, const Digest& key) {
  std::size_t step = 1;
  std::size_t stop = first;
  while (stop < entries.size() && less(entries[stop], key)) {
    first = stop + 1;
    stop += step;
    step *= 2;
  }
  stop = std::min(stop, entries.size());
  const auto found =
      std::lower_bound(entries.begin() + static_cast<std::ptrdiff_t>(first),
                       entries.begin() + static_cast<std::ptrdiff_t>(stop), key, less);
  return static_cast<std::size_t>(found - entries.begin());
}

}  // namespace

double UseFiles::seconds_until(const BlockKey& block, const UseWriter* own,
                               std::uint64_t own_next) const {
  const auto maps = living();
  double seconds = kNever;
  for (const View& view : views_of(maps)) {
    if (own != nullptr && view.map() == own->map_.get()) {
      seconds = std::min(seconds, view.seconds(block.digest, own_next));
      continue;
    }
    const std::span<const Entry> entries = view.map()->entries();
    const auto found = std::lower_bound(entries.begin(), entries.end(), block.digest, less);
    if (found != entries.end() && same(*found, block.digest))
      seconds = std::min(seconds, view.seconds(block.digest, *found));
  }
  return seconds;
}

void UseFiles::seconds_until(std::span<const BlockKey> blocks, std::span<double> seconds) const {
  std::fill(seconds.begin(), seconds.end(), kNever);
  const auto maps = living();
  for (const View& view : views_of(maps)) {
    const std::span<const Entry> entries = view.map()->entries();
    std::size_t place = 0;
    for (std::size_t i = 0; i < blocks.size() && place < entries.size(); ++i) {
      const Digest& key = blocks[i].digest;
      place = find_from(entries, place, key);
      if (place < entries.size() && same(entries[place], key))
        seconds[i] = std::min(seconds[i], view.seconds(key, entries[place]));
    }
  }
}

}  // namespace headpond
