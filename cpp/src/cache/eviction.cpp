#include "cache/eviction.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <thread>
#include <utility>

namespace headpond {
namespace {

constexpr std::uint64_t kNever64 = std::numeric_limits<std::uint64_t>::max();
constexpr double kAnyTime = -1;
constexpr std::size_t kBlocksPerCandidate = 1024;
constexpr int kMaxFailedRemovals = 4;  // in one call
// Others may take the room that was made; then this block is passed by.
constexpr int kTries = 8;

}  // namespace

Eviction::Eviction(std::shared_ptr<const CacheFolder> folder, Space& space, UseFiles& uses)
    : folder_(std::move(folder)), space_(space), uses_(uses) {}

Result<std::optional<Reservation>> Eviction::make_room(std::uint64_t bytes,
                                                       const Incoming& incoming) {
  int failed = 0;
  std::uint64_t freed = 0, most = kNever64;
  for (int i = 0; i < kTries; ++i) {
    if (auto room = space_.reserve(bytes)) return room;
    const std::lock_guard lock(mutex_);
    needed_ = true;
    const std::uint64_t shortage = space_.shortage(bytes);
    if (shortage == 0) continue;
    if (!listed_ || shortage == kNever64 || freed >= most) break;
    if (most == kNever64) most = 2 * shortage;
    follow();
    const double sooner = uses_.seconds_until(incoming.key, incoming.own, incoming.own_next);
    std::vector<SpaceEvent> chosen;
    if (!choose(shortage, sooner, chosen)) break;
    auto removed = remove(chosen, failed);
    if (!removed)
      return std::move(removed).error().in("making room in the cache " + folder_->path());
    freed += *removed;
  }
  const std::lock_guard lock(mutex_);
  ++counts_.refused;
  return std::optional<Reservation>();
}

Result<void> Eviction::shrink(const std::function<bool()>& proceed) {
  constexpr std::uint64_t kStep = std::uint64_t{256} << 20;
  int failed = 0;
  std::uint64_t left = space_.shortage(0);
  if (left == kNever64) return {};
  while (left > 0) {
    if (proceed && !proceed())
      return Error(ErrorCode::cancelled, "shrinking the cache was stopped");
    const std::lock_guard lock(mutex_);
    needed_ = true;
    if (!listed_) return {};
    follow();
    merge();
    std::vector<SpaceEvent> chosen;
    const std::uint64_t step = std::min({left, kStep, listing_.sum});
    if (step == 0 || !choose(step, kAnyTime, chosen)) return {};
    auto removed = remove(chosen, failed);
    if (!removed) return std::move(removed).error().in("shrinking the cache " + folder_->path());
    left -= std::min(left, *removed);
  }
  return {};
}

// Blocks that free `shortage` and are all needed later than in `sooner` seconds. False: there are
// not enough.
bool Eviction::choose(std::uint64_t shortage, double sooner, std::vector<SpaceEvent>& chosen) {
  bool fresh = false;
  if (calls_left_ == 0) {
    look(shortage);
    fresh = true;
  }
  --calls_left_;
  for (;;) {
    std::uint64_t freed = 0;
    while (freed < shortage && !candidates_.empty()) {
      const SpaceEvent& last = candidates_.back();
      // Asked again: it may have been used, or be wanted by somebody new, since the look.
      if (!(uses_.seconds_until(last.key) > sooner)) {
        candidates_.insert(candidates_.end(), chosen.rbegin(), chosen.rend());
        return false;
      }
      freed += last.bytes;
      chosen.push_back(last);
      candidates_.pop_back();
    }
    if (freed >= shortage) return true;
    if (fresh) return false;
    chosen.clear();
    look(shortage);
    fresh = true;
  }
}

// Finds the candidates: at least one in 1024, at least `shortage` bytes.
void Eviction::look(std::uint64_t shortage) {
  merge();
  uses_.refresh();
  const std::size_t blocks = listing_.keys.size();
  seconds_.resize(blocks);
  uses_.seconds_until(listing_.keys, seconds_);
  std::vector<std::uint32_t> order;
  order.reserve(blocks);
  for (std::size_t i = 0; i < blocks; ++i)
    if (stuck_.empty() || stuck_.count(listing_.keys[i]) == 0)
      order.push_back(static_cast<std::uint32_t>(i));
  const auto later = [this](std::uint32_t a, std::uint32_t b) {
    return seconds_[a] != seconds_[b] ? seconds_[a] > seconds_[b] : a < b;
  };
  calls_left_ = std::max<std::size_t>(1, blocks / kBlocksPerCandidate);
  std::size_t wanted = std::min(calls_left_, order.size());
  std::uint64_t sum = 0;
  // Found: the farthest, in order. Blocks differ in size, so how many are needed is seen then.
  std::size_t found = 0;
  for (;;) {
    const auto at = [&](std::size_t i) { return order.begin() + static_cast<std::ptrdiff_t>(i); };
    std::partial_sort(at(found), at(wanted), order.end(), later);
    for (; found < wanted; ++found) sum += listing_.bytes[order[found]];
    if (sum >= shortage || wanted == order.size()) break;
    wanted = std::min(order.size(), 2 * wanted);
  }
  candidates_.clear();
  while (found > 0) {
    const std::uint32_t i = order[--found];
    candidates_.push_back({listing_.keys[i], listing_.bytes[i], true});
  }
}

// The bytes that went.
Result<std::uint64_t> Eviction::remove(std::span<const SpaceEvent> chosen, int& failed) {
  std::uint64_t freed = 0;
  for (const SpaceEvent& block : chosen) {
    Removal removal = space_.remove(block.key, block.bytes);
    auto removed = folder_->remove_block(block.key);
    if (!removed) {
      ++counts_.failed_removals;
      stuck_.insert(block.key);
      if (++failed == kMaxFailedRemovals) return std::move(removed).error();
      continue;
    }
    if (*removed == 0) {
      removal.gone();
      ++counts_.gone;
    } else {
      removal.unlinked(*removed);
      ++counts_.evicted_blocks;
      counts_.evicted_bytes += *removed;
      freed += *removed;
    }
    // The log tells it too, but not to who has lost track.
    events_.push_back({block.key, block.bytes, false});
  }
  return freed;
}

// --- What is there.

void Eviction::follow() {
  if (!space_.follow(place_, events_)) {
    lost_ = true;
    // What the log still tells helps until the rescan.
    const LogPlace end = space_.log_end();
    place_.generation = end.generation;
    if (!space_.follow(place_, events_)) place_ = end;
  }
  constexpr std::size_t kManyEvents = 65'536;
  if (events_.size() > kManyEvents) merge();
}

// Applies the events to the listing: the last one of each block counts.
void Eviction::merge() {
  if (events_.empty()) return;
  std::stable_sort(events_.begin(), events_.end(),
                   [](const auto& a, const auto& b) { return a.key < b.key; });
  Listing old = std::exchange(listing_, {});
  listing_.keys.reserve(old.keys.size() + events_.size());
  listing_.bytes.reserve(old.keys.size() + events_.size());
  const auto add = [this](const BlockKey& key, std::uint64_t bytes) {
    listing_.keys.push_back(key);
    listing_.bytes.push_back(bytes);
    listing_.sum += bytes;
  };
  std::size_t i = 0;
  for (std::size_t e = 0; e < events_.size(); ++e) {
    const SpaceEvent& event = events_[e];
    if (e + 1 < events_.size() && events_[e + 1].key == event.key) continue;
    for (; i < old.keys.size() && old.keys[i] < event.key; ++i) add(old.keys[i], old.bytes[i]);
    if (i < old.keys.size() && old.keys[i] == event.key) ++i;
    if (event.published) add(event.key, event.bytes);
  }
  for (; i < old.keys.size(); ++i) add(old.keys[i], old.bytes[i]);
  events_.clear();
}

bool Eviction::wants_rescan() const {
  if (space_.wants_rescan()) return true;
  const std::lock_guard lock(mutex_);
  return needed_ && (!listed_ || lost_);
}

Result<void> Eviction::rescan(const std::function<bool()>& proceed) {
  const LogPlace start = space_.log_end();
  std::vector<std::pair<BlockKey, std::uint64_t>> blocks;
  for (int folder = 0; folder < 256;) {
    if (proceed && !proceed()) return Error(ErrorCode::cancelled, "listing the cache was stopped");
    auto next = folder_->scan(folder, [&](const BlockKey& key, std::uint64_t bytes) {
      blocks.emplace_back(key, bytes);
      return true;
    });
    if (!next) return std::move(next).error().in("listing the cache " + folder_->path());
    folder = *next;
  }
  std::sort(blocks.begin(), blocks.end());
  Listing listing;
  listing.keys.reserve(blocks.size());
  listing.bytes.reserve(blocks.size());
  for (const auto& [key, bytes] : blocks) {
    listing.keys.push_back(key);
    listing.bytes.push_back(bytes);
    listing.sum += bytes;
  }

  {
    const std::lock_guard lock(mutex_);
    listing_ = std::move(listing);
    place_ = start;
    events_.clear();
    candidates_.clear();
    calls_left_ = 0;
    stuck_.clear();
    listed_ = true;
    lost_ = false;
  }
  // Between the operations of others there is an instant soon when none is under way.
  constexpr int kMendTries = 1000;
  for (int i = 0; i < kMendTries; ++i) {
    {
      const std::lock_guard lock(mutex_);
      follow();
      merge();
      if (lost_ || space_.mend(place_, listing_.sum)) break;
    }
    std::this_thread::yield();
  }
  return {};
}

Eviction::Counts Eviction::counts() const {
  const std::lock_guard lock(mutex_);
  Counts counts = counts_;
  counts.listed_blocks = listing_.keys.size();
  counts.listed_bytes = listing_.sum;
  return counts;
}

}  // namespace headpond
