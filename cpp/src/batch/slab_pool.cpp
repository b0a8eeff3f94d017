#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <map>
#include <new>
#include <string>
#include <utility>

#include "headpond/slab.h"

namespace headpond {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kPartAlignment = 64;
constexpr std::size_t kPage = 4096;
// Smaller slabs share a mapping, so that they lie on huge pages too.
constexpr std::size_t kOwnMapping = 2 * kHugePage;

constexpr std::size_t align_up(std::size_t bytes, std::size_t to) {
  return (bytes + to - 1) / to * to;
}

// Memory from the operating system: aligned to huge pages and touched, so that
// nothing faults later. Held by the regions cut from it.
class Mapping {
 public:
  // `counter` holds the bytes that are mapped now.
  static Result<std::shared_ptr<Mapping>> make(
      std::size_t bytes, std::shared_ptr<std::atomic<std::uint64_t>> counter) {
    const std::size_t reserved = bytes + kHugePage;
    void* raw = mmap(nullptr, reserved, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (raw == MAP_FAILED) {
      return system_error(errno, "mapping " + std::to_string(bytes) + " bytes for batches");
    }
    auto* start =
        reinterpret_cast<std::byte*>(align_up(reinterpret_cast<std::uintptr_t>(raw), kHugePage));
    auto* first = static_cast<std::byte*>(raw);
    // What lies before and after the aligned part goes back at once.
    if (start != first) munmap(first, static_cast<std::size_t>(start - first));
    auto* stop = start + align_up(bytes, kPage);
    const auto tail = static_cast<std::size_t>(first + reserved - stop);
    if (tail != 0) munmap(stop, tail);
    auto mapping = std::make_shared<Mapping>();
    mapping->start_ = start;
    mapping->bytes_ = static_cast<std::size_t>(stop - start);
    *counter += mapping->bytes_;
    mapping->counter_ = std::move(counter);
    mapping->touch();
    return mapping;
  }
  Mapping() = default;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() {
    if (start_ == nullptr) return;
    munmap(start_, bytes_);
    *counter_ -= bytes_;
  }
  std::byte* start() const { return start_; }
  std::size_t bytes() const { return bytes_; }

 private:
  void touch() {
    madvise(start_, bytes_, MADV_HUGEPAGE);  // advice: without huge pages it only faults more now
#ifdef MADV_POPULATE_WRITE
    if (madvise(start_, bytes_, MADV_POPULATE_WRITE) == 0) return;  // Linux 5.14
#endif
    for (std::size_t at = 0; at < bytes_; at += kPage) start_[at] = std::byte{0};
  }

  std::byte* start_ = nullptr;
  std::size_t bytes_ = 0;
  std::shared_ptr<std::atomic<std::uint64_t>> counter_;
};

struct Region {
  std::shared_ptr<Mapping> mapping;
  std::byte* start = nullptr;
  std::size_t capacity = 0;
};

// Capacities come in steps of an eighth of a power of two, so that batches whose
// size varies a little share regions, and at most 12.5 % is wasted.
std::size_t capacity_for(std::size_t bytes) {
  bytes = std::max(bytes, kPartAlignment);
  const std::size_t step = std::max<std::size_t>(kPartAlignment, std::bit_floor(bytes) / 8);
  const std::size_t capacity = align_up(bytes, step);
  return capacity < kPage ? capacity : align_up(capacity, kPage);
}

std::size_t total_bytes(std::span<const std::uint64_t> part_bytes) {
  std::size_t total = 0;
  for (const auto bytes : part_bytes) total += align_up(bytes, kPartAlignment);
  return total;
}

}  // namespace

struct SlabPool::State {
  std::mutex mutex;
  std::multimap<std::size_t, Region> free;  // by capacity
  Region rest;                              // what is left of the last mapping for small slabs
  SlabStatistics statistics;
  std::shared_ptr<std::atomic<std::uint64_t>> mapped =
      std::make_shared<std::atomic<std::uint64_t>>(0);

  Result<Region> take(std::size_t bytes) {
    const std::size_t capacity = capacity_for(bytes);
    const std::lock_guard lock(mutex);
    // A region of up to twice the size serves; a larger one would waste more than it saves.
    const auto found = free.lower_bound(capacity);
    if (found != free.end() && found->first <= 2 * capacity) {
      Region region = std::move(found->second);
      free.erase(found);
      ++statistics.reused;
      return region;
    }
    ++statistics.allocated;
    return capacity < kOwnMapping ? cut(capacity) : map(capacity);
  }

  // In a destructor: without memory for the list's entry the region is not kept.
  void give_back(Region region) noexcept {
    const std::lock_guard lock(mutex);
    const auto capacity = region.capacity;
    try {
      free.emplace(capacity, std::move(region));
    } catch (const std::bad_alloc&) {
    }
  }

 private:
  Result<Region> map(std::size_t capacity) {
    // The batches have outgrown a smaller free region: it would only lie there.
    const auto smaller = free.lower_bound(capacity);
    if (smaller != free.begin()) {
      const auto victim = std::prev(smaller);
      if (victim->first >= kOwnMapping) free.erase(victim);
    }
    auto mapping = Mapping::make(capacity, mapped);
    if (!mapping) return std::move(mapping).error();
    Region region;
    region.start = (*mapping)->start();
    region.mapping = *std::move(mapping);
    region.capacity = capacity;
    return region;
  }

  Result<Region> cut(std::size_t capacity) {
    if (rest.capacity < capacity) {
      auto mapping = Mapping::make(align_up(4 * capacity, kHugePage), mapped);
      if (!mapping) return std::move(mapping).error();
      rest.start = (*mapping)->start();
      rest.capacity = (*mapping)->bytes();
      rest.mapping = *std::move(mapping);
    }
    Region region;
    region.mapping = rest.mapping;
    region.start = rest.start;
    region.capacity = capacity;
    rest.start += capacity;
    rest.capacity -= capacity;
    return region;
  }
};

namespace {

template <class State>
class PooledSlab final : public Slab {
 public:
  PooledSlab(std::weak_ptr<State> pool, Region region, std::span<const std::uint64_t> part_bytes)
      : pool_(std::move(pool)), region_(std::move(region)) {
    parts_.reserve(part_bytes.size());
    std::byte* at = region_.start;
    for (const auto bytes : part_bytes) {
      parts_.emplace_back(at, bytes);
      at += align_up(bytes, kPartAlignment);
    }
  }
  ~PooledSlab() override {
    if (const auto pool = pool_.lock()) pool->give_back(std::move(region_));
  }
  PooledSlab(const PooledSlab&) = delete;
  PooledSlab& operator=(const PooledSlab&) = delete;

  std::span<std::byte> part(std::size_t field) override { return parts_[field]; }

 private:
  std::weak_ptr<State> pool_;
  Region region_;
  std::vector<std::span<std::byte>> parts_;
};

}  // namespace

std::shared_ptr<SlabPool> SlabPool::make() { return std::shared_ptr<SlabPool>(new SlabPool()); }

SlabPool::SlabPool() : state_(std::make_shared<State>()) {}

SlabPool::~SlabPool() { trim(); }

Result<std::shared_ptr<Slab>> SlabPool::allocate(std::span<const std::uint64_t> part_bytes) {
  auto region = state_->take(total_bytes(part_bytes));
  if (!region) return std::move(region).error();
  return std::shared_ptr<Slab>(
      std::make_shared<PooledSlab<State>>(state_, *std::move(region), part_bytes));
}

SlabStatistics SlabPool::statistics() const {
  const std::lock_guard lock(state_->mutex);
  SlabStatistics statistics = state_->statistics;
  statistics.bytes = *state_->mapped;
  return statistics;
}

void SlabPool::trim() {
  std::multimap<std::size_t, Region> unmapped;  // destroyed after the lock: munmap takes its time
  const std::lock_guard lock(state_->mutex);
  unmapped.swap(state_->free);
  state_->rest = {};
}

}  // namespace headpond
