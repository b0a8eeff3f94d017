#include "cache/space.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>

#include "base/digest.h"
#include "cache/fill_file.h"

namespace headpond {
namespace {

using Number = std::atomic<std::uint64_t>;
// Numbers in a mapping shared by processes are only right without locks of the library.
static_assert(Number::is_always_lock_free && sizeof(Number) == 8);

constexpr std::size_t kSlots = 1024;
constexpr std::size_t kLogEntries = 32'768;
constexpr std::uint64_t kRemovedBit = std::uint64_t{1} << 63;

// Bytes of the file that stand for something when locked.
constexpr std::uint64_t kOpeningByte = 0;
constexpr std::uint64_t kMendingByte = 1;
constexpr std::uint64_t kFirstSlotByte = 4096;

constexpr std::int64_t kOpeningPatienceNs = 5'000'000'000;

// What never changes while anybody has the file open.
struct Constants {
  char magic[8];
  std::uint32_t slots;
  std::uint32_t log_entries;
  Digest boot;
  std::uint32_t crc;  // of what stands before
};
constexpr std::size_t kConstantBytes = offsetof(Constants, crc) + sizeof(Constants::crc);

constexpr char kMagic[8] = {'h', 'p', 's', 'p', 'a', 'c', 'e', '1'};

std::uint32_t crc_of(const Constants& constants) {
  return crc32c(std::as_bytes(std::span(&constants, 1)).first(offsetof(Constants, crc)));
}

// One event. `turn` is 2 * position + 1 while it is written, + 2 when it can be read. `check`
// detects a writer that was overtaken by a whole round in the middle of its stores.
struct alignas(64) LogEntry {
  Number turn;
  Number high;
  Number low;
  Number bytes;  // and kRemovedBit
  Number check;
};

std::uint64_t check_of(std::uint64_t position, const std::array<std::uint64_t, 3>& fields) {
  std::uint64_t sum = position;
  for (const std::uint64_t field : fields) {
    sum = (sum ^ field) * 0x9E3779B97F4A7C15ull;
    sum ^= sum >> 29;
  }
  return sum;
}

std::string kernel_boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

}  // namespace

// Of one process. Unclaimed: limit 0.
struct alignas(64) SpaceSlot {
  Number limit;
  Number floor;
  Number reserved;
  // Publications and removals that were begun and that are over. They differ while one is under
  // way, and for ever when its process died in it.
  Number begun;
  Number done;
};

struct SpaceImage {
  Constants constants;
  alignas(64) Number published;
  alignas(64) Number log_end;
  alignas(64) Number used_slots;  // no slot from here on was ever claimed
  // Grows whenever the log or the total cannot be trusted any more. 0 in `mended`: nothing was
  // ever counted.
  Number generation;
  Number mended;  // the generation for which the total was last set
  alignas(4096) SpaceSlot slots[kSlots];
  alignas(4096) LogEntry log[kLogEntries];
};
static_assert(std::is_standard_layout_v<SpaceImage>);
static_assert(offsetof(SpaceImage, slots) == 4096);
static_assert(sizeof(SpaceImage) == 4096 + kSlots * 64 + kLogEntries * 64);

namespace {

// Sums over all processes, in an order that can only overstate: the slots first, because
// publishing adds to the total before it takes from a slot.
struct Totals {
  std::uint64_t limit = ~std::uint64_t{0};
  std::uint64_t floor = 0;
  std::uint64_t reserved = 0;
  std::uint64_t published = 0;
  std::uint64_t processes = 0;
};

Totals totals_of(const SpaceImage& image) {
  Totals totals;
  const std::uint64_t used = std::min<std::uint64_t>(image.used_slots, kSlots);
  for (std::size_t i = 0; i < used; ++i) {
    const SpaceSlot& slot = image.slots[i];
    totals.reserved += slot.reserved;
    const std::uint64_t limit = slot.limit;
    if (limit == 0) continue;
    ++totals.processes;
    totals.limit = std::min(totals.limit, limit);
    totals.floor = std::max<std::uint64_t>(totals.floor, slot.floor);
  }
  totals.published = image.published;
  // Below zero only where somebody removed what was never counted; a rescan sets it right.
  if (static_cast<std::int64_t>(totals.published) < 0) totals.published = 0;
  return totals;
}

}  // namespace

// --- What was given out.

// All numbers are changed sequentially consistently: the limit is hard because of two reservations
// at once at least one sees the other.

Reservation::~Reservation() {
  if (space_ == nullptr || space_->fork_.forked()) return;
  space_->slot_->reserved -= bytes_;
}

void Publication::renamed() {
  Space* space = std::exchange(reservation_.space_, nullptr);
  if (space == nullptr || space->fork_.forked()) return;
  space->append({key_, reservation_.bytes_, true});
  ++space->slot_->done;
}

Publication::~Publication() {
  Space* space = reservation_.space_;
  if (space == nullptr || space->fork_.forked()) return;
  space->slot_->reserved += reservation_.bytes_;  // until the reservation goes, right after this
  space->image_->published -= reservation_.bytes_;
  ++space->slot_->done;
}

void Removal::unlinked(std::uint64_t file_bytes) {
  Space* space = std::exchange(space_, nullptr);
  if (space == nullptr || space->fork_.forked()) return;
  space->image_->published -= file_bytes;
  ++space->slot_->done;
}

void Removal::gone() {
  Space* space = std::exchange(space_, nullptr);
  if (space == nullptr || space->fork_.forked()) return;
  ++space->slot_->done;
}

Removal::~Removal() {
  Space* space = std::exchange(space_, nullptr);
  if (space == nullptr || space->fork_.forked()) return;
  space->append({key_, bytes_, true});
  ++space->slot_->done;
}

// --- Opening.

Space::Space(std::shared_ptr<const CacheFolder> folder, FillClaims& claims, SpaceOptions options)
    : folder_(std::move(folder)), claims_(claims), options_(std::move(options)) {}

Result<std::unique_ptr<Space>> Space::open(std::shared_ptr<const CacheFolder> folder,
                                           FillClaims& claims, SpaceOptions options) {
  if (options.limit_bytes == 0)
    return Error(ErrorCode::invalid_argument, "a cache of 0 bytes cannot hold anything");
  if (options.boot_id.empty()) options.boot_id = kernel_boot_id();
  std::unique_ptr<Space> space(new Space(std::move(folder), claims, std::move(options)));
  if (auto opened = space->open_file(); !opened)
    return std::move(opened).error().in("opening the accounts of the cache " +
                                        space->folder_->path());
  return space;
}

Result<void> Space::open_file() {
  CacheOps& ops = folder_->ops();
  const int fd =
      ops.openat(folder_->v1(), "space", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return system_error(-fd, "opening", "v1/space");
  fd_ = CacheFd(ops, fd);
  if (auto locked = lock_opening(); !locked) return locked;
  auto ready = map_file();
  if (ready) ready = check_image();
  if (ready) ready = claim_slot();
  unlock_byte(kOpeningByte);
  return ready;
}

// Held for some milliseconds, and dropped by the kernel when its holder dies.
Result<void> Space::lock_opening() {
  CacheOps& ops = folder_->ops();
  const std::int64_t deadline = ops.now_ns() + kOpeningPatienceNs;
  for (;;) {
    const int locked = ops.set_lock(fd_.get(), F_WRLCK, kOpeningByte, 1);
    if (locked == 0) return {};
    if (locked != -EAGAIN && locked != -EACCES) return system_error(-locked, "locking", "v1/space");
    if (ops.now_ns() >= deadline)
      return Error(ErrorCode::timed_out, "another process has been opening it for 5 s");
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

Result<void> Space::map_file() {
  CacheOps& ops = folder_->ops();
  struct stat info = {};
  if (const int result = ops.fstat(fd_.get(), &info); result < 0)
    return system_error(-result, "reading", "v1/space");
  if (!S_ISREG(info.st_mode)) return Error(ErrorCode::not_regular, "v1/space is not a file");
  // Written, not only made longer: a store to a hole of a full disk kills the process.
  const auto size = static_cast<std::uint64_t>(info.st_size);
  if (size < sizeof(SpaceImage)) {
    const std::vector<std::byte> zeros(sizeof(SpaceImage) - size);
    if (const int result = pwrite_all(ops, fd_.get(), zeros, size); result < 0)
      return system_error(-result, "writing", "v1/space");
  }
  void* image = mmap(nullptr, sizeof(SpaceImage), PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
  if (image == MAP_FAILED) return system_error(errno, "mapping", "v1/space");
  image_ = static_cast<SpaceImage*>(image);
  return {};
}

// Makes the image one to work with: as it stands, or, when it is not of this boot and format, with
// everything to be counted anew. Under the opening lock.
Result<void> Space::check_image() {
  Constants expected = {};
  std::memcpy(expected.magic, kMagic, sizeof(kMagic));
  expected.slots = kSlots;
  expected.log_entries = kLogEntries;
  expected.boot = digest(options_.boot_id);
  expected.crc = crc_of(expected);
  if (std::memcmp(&image_->constants, &expected, kConstantBytes) == 0) return {};
  const Constants found = image_->constants;
  // Whole, but not ours: numbers stand elsewhere.
  const bool other_layout =
      crc_of(found) == found.crc && (std::memcmp(found.magic, kMagic, sizeof(kMagic)) != 0 ||
                                     found.slots != kSlots || found.log_entries != kLogEntries);

  if (lock_byte(kFirstSlotByte, kSlots)) {
    // Nobody is alive, so no fill file is either, and no number has a meaning.
    auto removed = remove_dead_fills(*folder_, claims_);
    if (removed) {
      const std::vector<std::byte> zeros(sizeof(SpaceImage));
      const int result = pwrite_all(folder_->ops(), fd_.get(), zeros, 0);
      if (result < 0) removed = system_error(-result, "writing", "v1/space");
    }
    unlock_byte(kFirstSlotByte, kSlots);
    if (!removed) return std::move(removed).error();
    image_->generation = 1;
  } else if (other_layout) {
    return Error(ErrorCode::unsupported, "another version of headpond is using it");
  } else {
    // Others work with it: their slots are theirs, the rest begins anew.
    image_->used_slots = kSlots;
    image_->mended = 0;
    image_->log_end = 0;
    for (LogEntry& entry : image_->log) entry.turn = 0;
    ++image_->generation;
  }
  // The mark of a whole image: last, so that a kill before leaves one that is made again.
  std::memcpy(static_cast<void*>(&image_->constants), &expected, kConstantBytes);
  return {};
}

Result<void> Space::claim_slot() {
  for (std::size_t i = 0; i < kSlots; ++i) {
    if (!lock_byte(kFirstSlotByte + i)) continue;
    SpaceSlot& slot = image_->slots[i];
    if (!empty_slot(slot)) {
      unlock_byte(kFirstSlotByte + i);
      continue;
    }
    if (image_->used_slots <= i) image_->used_slots = i + 1;
    slot.floor = options_.floor_bytes;
    slot.limit = options_.limit_bytes;
    slot_ = &slot;
    return {};
  }
  return Error(ErrorCode::resource_limit, "more than 1024 processes use this cache");
}

Space::~Space() {
  if (image_ == nullptr) return;
  if (slot_ != nullptr && !fork_.forked()) {
    slot_->limit = 0;
    slot_->floor = 0;
  }
  munmap(image_, sizeof(SpaceImage));
}

bool Space::lock_byte(std::uint64_t byte, std::uint64_t bytes) {
  return folder_->ops().set_lock(fd_.get(), F_WRLCK, byte, bytes) == 0;
}

void Space::unlock_byte(std::uint64_t byte, std::uint64_t bytes) {
  folder_->ops().set_lock(fd_.get(), F_UNLCK, byte, bytes);
}

// --- Dead processes.

bool Space::reap() {
  if (fork_.forked()) return false;
  const std::lock_guard lock(mutex_);
  return reap_locked();
}

bool Space::reap_locked() {
  bool found = false;
  const std::uint64_t used = std::min<std::uint64_t>(image_->used_slots, kSlots);
  for (std::size_t i = 0; i < used; ++i) {
    SpaceSlot& slot = image_->slots[i];
    // Our own lock would be granted again, and given back with it.
    if (&slot == slot_) continue;
    if (slot.limit == 0 && slot.reserved == 0 && slot.begun == slot.done) continue;
    if (!lock_byte(kFirstSlotByte + i)) continue;
    found = empty_slot(slot) || found;
    unlock_byte(kFirstSlotByte + i);
  }
  return found;
}

// Takes what a dead process left in `slot`, whose lock we hold. False: its fill files cannot be
// removed, so their room stays taken.
bool Space::empty_slot(SpaceSlot& slot) {
  const bool cut_off = slot.begun != slot.done;
  if ((slot.reserved != 0 || cut_off) && !remove_dead_fills(*folder_, claims_)) return false;
  slot.reserved = 0;
  // The generation first: who finds everybody quiet then sees it.
  if (cut_off) ++image_->generation;
  slot.done = slot.begun.load();
  slot.limit = 0;
  slot.floor = 0;
  return true;
}

// --- Room.

bool Space::counted() const { return image_->mended != 0; }

std::uint64_t Space::shortage(std::uint64_t bytes) const {
  if (fork_.forked() || !counted()) return ~std::uint64_t{0};
  const Totals totals = totals_of(*image_);
  if (bytes > totals.limit) return ~std::uint64_t{0};
  const std::uint64_t wanted = totals.published + totals.reserved + bytes;
  std::uint64_t shortage = wanted > totals.limit ? wanted - totals.limit : 0;
  if (totals.floor == 0) return shortage;
  struct statvfs disk = {};
  if (folder_->ops().fstatvfs(folder_->v1(), &disk) < 0) return ~std::uint64_t{0};
  const std::uint64_t free = std::uint64_t{disk.f_bavail} * disk.f_frsize;
  // What is reserved may not be on the disk yet.
  const std::uint64_t taken = totals.floor + totals.reserved + bytes;
  return std::max(shortage, taken > free ? taken - free : 0);
}

bool Space::try_reserve(std::uint64_t bytes) {
  slot_->reserved += bytes;
  if (shortage(0) == 0) return true;
  slot_->reserved -= bytes;
  return false;
}

std::optional<Reservation> Space::reserve(std::uint64_t bytes) {
  if (fork_.forked() || !counted() || replaced()) return std::nullopt;
  // Two that ask at once may refuse each other where there is room for one: again.
  constexpr int kTries = 3;
  for (int i = 0; i < kTries; ++i) {
    if (try_reserve(bytes)) return Reservation(*this, bytes);
    if (shortage(bytes) != 0) break;
  }
  if (reap() && try_reserve(bytes)) return Reservation(*this, bytes);
  return std::nullopt;
}

// Who deletes the file makes the next process open another one: two accounts of one folder.
bool Space::replaced() const {
  struct stat info = {};
  return folder_->ops().fstat(fd_.get(), &info) < 0 || info.st_nlink == 0;
}

Publication Space::publish(Reservation reservation, const BlockKey& key) {
  const std::uint64_t bytes = reservation.bytes_;
  if (!fork_.forked()) {
    ++slot_->begun;
    image_->published += bytes;
    slot_->reserved -= bytes;
  }
  return Publication(std::move(reservation), key);
}

Removal Space::remove(const BlockKey& key, std::uint64_t bytes) {
  if (!fork_.forked()) {
    ++slot_->begun;
    // Told before it is so: who publishes the block again, after the unlink, is then told of later.
    append({key, bytes, false});
  }
  return Removal(*this, key, bytes);
}

void Space::distrust() {
  if (!fork_.forked()) ++image_->generation;
}

Space::Usage Space::usage() const {
  const Totals totals = totals_of(*image_);
  return {totals.limit, totals.floor, totals.published, totals.reserved, totals.processes};
}

// --- The log.

void Space::append(const SpaceEvent& event) {
  const std::uint64_t position = image_->log_end++;
  LogEntry& entry = image_->log[position % kLogEntries];
  const std::uint64_t writing = 2 * position + 1;
  std::uint64_t turn = entry.turn;
  do {
    if (turn > writing) {  // stopped for a whole round: the place is another's by now
      ++image_->generation;
      return;
    }
  } while (!entry.turn.compare_exchange_weak(turn, writing));
  const std::array<std::uint64_t, 3> fields = {event.key.digest.high, event.key.digest.low,
                                               event.bytes | (event.published ? 0 : kRemovedBit)};
  entry.high = fields[0];
  entry.low = fields[1];
  entry.bytes = fields[2];
  entry.check = check_of(position, fields);
  turn = writing;
  if (!entry.turn.compare_exchange_strong(turn, writing + 1)) ++image_->generation;
}

LogPlace Space::log_end() const {
  // The generation first: one that changes in between makes follow() say so.
  const std::uint64_t generation = image_->generation;
  return {generation, image_->log_end};
}

bool Space::follow(LogPlace& place, std::vector<SpaceEvent>& events) {
  if (fork_.forked() || place.generation != image_->generation) return false;
  const std::uint64_t end = image_->log_end;
  if (end < place.position || end - place.position > kLogEntries) return false;
  for (; place.position < end; ++place.position) {
    const LogEntry& entry = image_->log[place.position % kLogEntries];
    const std::uint64_t ready = 2 * place.position + 2;
    const std::uint64_t turn = entry.turn;
    if (turn > ready) return false;
    if (turn < ready) {  // still being written; by a dead process: an event that is lost
      reap();
      break;
    }
    const std::array<std::uint64_t, 3> fields = {entry.high, entry.low, entry.bytes};
    const std::uint64_t check = entry.check;
    if (entry.turn != ready || check != check_of(place.position, fields)) return false;
    events.push_back(
        {{{fields[0], fields[1]}}, fields[2] & ~kRemovedBit, (fields[2] & kRemovedBit) == 0});
  }
  return place.generation == image_->generation;
}

// --- Counting again.

bool Space::wants_rescan() const { return image_->mended != image_->generation; }

// Is no operation under way? Fills in how many each slot has begun.
bool Space::quiet(std::span<std::uint64_t> begun) const {
  for (std::size_t i = 0; i < kSlots; ++i) {
    const SpaceSlot& slot = image_->slots[i];
    // In this order: when they are equal, nothing was under way in between.
    const std::uint64_t done = slot.done;
    begun[i] = slot.begun;
    if (begun[i] != done) return false;
  }
  return true;
}

bool Space::mend(const LogPlace& place, std::uint64_t listed_bytes) {
  if (fork_.forked()) return false;
  const std::lock_guard lock(mutex_);
  if (!lock_byte(kMendingByte)) return false;
  reap_locked();
  // What was published and what is listed are compared at an instant when nothing is under way.
  // The difference holds for ever after, because everybody else only adds and subtracts.
  std::vector<std::uint64_t> before(kSlots), after(kSlots);
  bool still = quiet(before) && image_->log_end == place.position;
  const std::uint64_t published = image_->published;
  still = still && quiet(after) && before == after && image_->generation == place.generation;
  if (still) {
    image_->published += listed_bytes - published;
    image_->mended = place.generation;
  }
  unlock_byte(kMendingByte);
  return still;
}

}  // namespace headpond
