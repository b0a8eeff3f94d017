#include "pipeline/shard_stream.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "format/store_reading.h"

namespace headpond {
namespace {

// Large enough that a request's latency is small beside its transfer, small enough that
// several are in flight for one shard.
constexpr std::uint64_t kBlockBytesMax = std::uint64_t{4} << 20;
constexpr std::uint64_t kBlockBytesMin = std::uint64_t{256} << 10;
constexpr std::uint64_t kReadsMax = 16;   // blocks and questions in flight
constexpr std::ptrdiff_t kUnreadMax = 2;  // shards that are here whole and not indexed
// Of a shard that is only indexed: more than any header, which is at most 1 MiB.
constexpr std::uint64_t kIndexOnlyBytes = std::uint64_t{2} << 20;
constexpr std::uint64_t kNever = ~std::uint64_t{0};
// More than any shard; a size beyond it is a wrong answer, and would cost memory per block.
constexpr std::uint64_t kShardBytesMax = std::uint64_t{1} << 44;

std::uint64_t block_bytes_for(std::uint64_t held_bytes_max) {
  const std::uint64_t share = held_bytes_max / (2 * kReadsMax) / 4096 * 4096;
  return std::clamp(share, kBlockBytesMin, kBlockBytesMax);
}

}  // namespace

// A shard on its way, at a slot of the order.
struct ShardStream::Entry {
  enum class State : std::uint8_t { waiting, asking, reading, done, failed };

  std::uint64_t slot = 0;
  std::uint32_t shard = 0;
  State state = State::waiting;
  bool hold = true;  // its bytes stay until its group is let go
  ObjectVersion version;
  std::optional<Error> error;  // failed
  std::shared_ptr<HeldShard> bytes;
  std::unique_ptr<ShardIndexing> indexing;  // null: nothing to index
  bool busy = false;                        // a worker indexes it
  std::uint64_t advanced_to = kNever;       // bytes that the indexing has seen
  std::vector<bool> asked;                  // blocks that were asked for
  std::uint64_t next_block = 0;             // those before it were asked for
  std::uint64_t reads = 0;                  // in flight
  std::uint64_t there = 0;                  // blocks that arrived

  // Bytes without a hole behind what the indexing still needs.
  std::uint64_t available() const {
    const std::uint64_t needed = indexing->needed();
    std::uint64_t block = bytes->block_of(needed);
    if (needed >= bytes->size()) return bytes->size();
    if (!bytes->has(block)) return advanced_to == kNever ? 0 : advanced_to;
    while (block < bytes->block_count() && bytes->has(block)) ++block;
    return std::min(bytes->size(), bytes->block_start(block));
  }
};

// Shards whose samples are mixed; alive as long as somebody copies from them.
struct ShardStream::Group {
  ShardOrder::Group range;
  std::vector<std::shared_ptr<HeldShard>> shards;  // those that are held, once it is ready
  bool ready = false;
};

ShardStream::ShardStream(Setup setup)
    : setup_(std::move(setup)),
      shards_(*setup_.dataset->format().shards()),
      block_bytes_(block_bytes_for(setup_.held_bytes_max)),
      held_(shards_.shard_number()),
      held_budget_(std::make_shared<ByteBudget>(setup_.held_bytes_max)) {
  held_budget_->on_release(setup_.wake);
  if (!setup_.dataset->size_is_known()) return;
  const auto counts = setup_.dataset->format().shard_counts();
  first_samples_.resize(counts.size());
  std::exclusive_scan(counts.begin(), counts.end(), first_samples_.begin(), std::uint64_t{0});
}

ShardStream::~ShardStream() = default;

void ShardStream::start(const Sampler& sampler, std::uint64_t epoch, Sampler::GroupPlace group,
                        bool whole) {
  const auto from = whole ? Sampler::GroupPlace{} : group;
  const auto number = shards_.shard_number();
  planned_ = std::make_shared<ShardOrder>(sampler, number, epoch, from);
  auto order = std::make_shared<ShardOrder>(sampler, number, epoch, from);
  rest();
  StopSource before;
  {
    const std::lock_guard lock(mutex_);
    before = stop_;
    order_ = std::move(order);
    hold_from_slot_ = group.first_shard;
    present_ = wanted_stop_ = group.cursor;
    base_slot_ = from.first_shard;
    starving_ = false;
    cancelled_ = false;
    stop_ = StopSource();
    learn_counts();
    // What is known and not wanted needs no look.
    base_slot_ = std::max(base_slot_, std::min(hold_from_slot_, order_->next_slot()));
  }
  before.request_stop();  // without the lock: a store may complete reads inside
  setup_.wake();
}

// --- the planner's side ---

void ShardStream::add_known(ShardOrder& order) const {
  while (!order.complete()) {
    const auto shard = order.shard_at(order.next_slot());
    const auto count = shards_.count(shard);
    if (!count) return;
    order.add(*count, first_samples_.empty() ? Shards::number(shard, 0) : first_samples_[shard]);
  }
}

bool ShardStream::ready(const Need& need) {
  std::vector<std::shared_ptr<void>> let_go;  // after the lock
  bool is = false;
  bool news = false;
  {
    const std::lock_guard lock(mutex_);
    present_ = std::max(present_, need.from);
    wanted_stop_ = std::max(wanted_stop_, need.stop);
    while (!groups_.empty() && groups_.front()->range.stop <= present_) {
      const std::uint64_t stop_slot = groups_.front()->range.stop_slot;
      for (; !entries_.empty() && base_slot_ < stop_slot; ++base_slot_) {
        let_go.push_back(std::move(entries_.front()));
        entries_.pop_front();
      }
      let_go.push_back(std::move(groups_.front()));
      groups_.pop_front();
    }
    learn_counts();
    add_known(*planned_);
    const bool complete = planned_->complete();
    is = complete || planned_->known() > need.seen;
    const std::uint64_t stop = std::min(need.stop, planned_->known());
    for (std::uint64_t position = need.from; is && position < stop;) {
      const auto group = group_at(position);
      is = group != nullptr && group->ready;
      if (is) position = group->range.stop;
    }
    // What is let go makes room first.
    const bool starving = need.starving && !is && let_go.empty();
    news = !let_go.empty() || (starving && !starving_);
    starving_ = starving;
  }
  let_go.clear();
  if (news) setup_.wake();
  return is;
}

std::shared_ptr<ShardStream::Group> ShardStream::group_at(std::uint64_t position) const {
  for (const auto& group : groups_) {
    if (group->range.start <= position && position < group->range.stop) return group;
  }
  return nullptr;
}

std::vector<std::shared_ptr<const void>> ShardStream::hold(std::uint64_t first,
                                                           std::uint64_t stop) const {
  std::vector<std::shared_ptr<const void>> held;
  const std::lock_guard lock(mutex_);
  for (const auto& group : groups_) {
    if (group->range.start < stop && first < group->range.stop) held.push_back(group);
  }
  return held;
}

// --- what is known ---

// Do the groups reach behind what is planned next, by one?
bool ShardStream::enough_groups() const {
  return groups_.size() >= 2 && groups_[groups_.size() - 2]->range.stop >= wanted_stop_;
}

// Adds counts to the order, and makes the present groups and the next as soon as they are known.
void ShardStream::learn_counts() {
  if (order_ == nullptr) return;
  add_known(*order_);
  while (!enough_groups()) {
    const std::uint64_t start = groups_.empty() ? present_ : groups_.back()->range.stop;
    if (start >= order_->known()) break;
    auto group = std::make_shared<Group>();
    group->range = order_->group_of(start);
    groups_.push_back(std::move(group));
  }
  mark_ready_groups();
}

void ShardStream::mark_ready_groups() {
  for (const auto& group : groups_) {
    if (group->ready || !is_ready(*group)) continue;
    group->ready = true;
    starving_ = false;  // until the planner has looked again
    for (std::uint64_t slot = std::max(group->range.first_slot, base_slot_);
         slot < group->range.stop_slot; ++slot) {
      const Entry& entry = *entries_[slot - base_slot_];
      if (entry.hold) group->shards.push_back(entry.bytes);
    }
  }
}

bool ShardStream::is_ready(const Group& group) const {
  if (base_slot_ + entries_.size() < group.range.stop_slot) return false;
  for (std::uint64_t slot = std::max(group.range.first_slot, base_slot_);
       slot < group.range.stop_slot; ++slot) {
    if (entries_[slot - base_slot_]->state != Entry::State::done) return false;
  }
  return true;
}

// Slots whose shards may be read now.
std::uint64_t ShardStream::slots_wanted() const {
  return enough_groups() ? groups_.back()->range.stop_slot : order_->shards();
}

// --- the workers' side ---

bool ShardStream::work() {
  Lock lock(mutex_);
  if (cancelled_ || order_ == nullptr) return false;
  return index_some(lock) || issue(lock);
}

bool ShardStream::index_some(Lock& lock) {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const auto entry = entries_[i];
    if (entry->indexing == nullptr || entry->busy || entry->state == Entry::State::failed) continue;
    const std::uint64_t available = entry->available();
    if (available == entry->advanced_to) continue;
    entry->busy = true;
    lock.unlock();
    Result<bool> known = false;
    std::uint64_t before = 0;
    do {
      before = entry->indexing->needed();
      known = entry->indexing->advance(available);
    } while (known && !*known && entry->indexing->needed() != before);
    std::vector<HeldShard::Block> dropped;
    lock.lock();
    entry->busy = false;
    entry->advanced_to = available;
    if (!known) {
      fail(*entry, std::move(known).error());
    } else if (*known) {
      entry->indexing.reset();
    }
    settle(entry, dropped);
    learn_counts();
    lock.unlock();
    dropped.clear();
    setup_.wake();
    return true;
  }
  return false;
}

// Versions are asked for ahead; blocks take memory in the order in which they are needed.
bool ShardStream::issue(Lock& lock) {
  bool in_order = true;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (in_flight_ >= kReadsMax) return false;
    const auto entry = entries_[i];
    if (entry->state == Entry::State::waiting) {
      if (entry->version.is_any()) {
        ask_version(lock, entry);
      } else {
        begin(lock, entry);
      }
      return true;
    }
    if (entry->state == Entry::State::failed) return false;  // nothing behind it will be asked for
    if (entry->state == Entry::State::asking) in_order = false;
    if (entry->state != Entry::State::reading || !in_order) continue;
    const Issued issued = read_block(lock, entry);
    if (issued == Issued::yes) return true;
    if (issued == Issued::no_memory) return false;  // somebody's release wakes
  }
  if (in_flight_ >= kReadsMax || base_slot_ + entries_.size() >= slots_wanted()) return false;
  // What lies here unread may already fill the groups that are wanted.
  const auto unread = std::count_if(entries_.begin(), entries_.end(), [](const auto& entry) {
    return entry->indexing != nullptr && entry->there == entry->bytes->block_count();
  });
  if (unread >= kUnreadMax) return false;
  make_entry();
  return true;
}

void ShardStream::make_entry() {
  auto entry = std::make_shared<Entry>();
  entry->slot = base_slot_ + entries_.size();
  entry->shard = static_cast<std::uint32_t>(order_->shard_at(entry->slot));
  entry->hold = entry->slot >= hold_from_slot_;
  entry->version = shards_.version(entry->shard);
  entries_.push_back(std::move(entry));
}

// By a read of one byte: unlike a question for the version alone it can be cancelled.
void ShardStream::ask_version(Lock& lock, const std::shared_ptr<Entry>& entry) {
  entry->state = Entry::State::asking;
  ++in_flight_;
  ReadRequest request;
  request.stop = stop_.get_token();
  lock.unlock();
  setup_.dataset->manifest().name(entry->shard, request.object);
  const auto byte = std::make_shared<std::byte>();
  request.out = {byte.get(), 1};
  request.done = [this, byte,
                  entry = std::shared_ptr<Entry>(entry)](Result<ReadOutcome> outcome) mutable {
    {
      const std::lock_guard answered(mutex_);
      if (!outcome) {
        fail(*entry, std::move(outcome).error());
      } else if (outcome->version.size > kShardBytesMax) {
        fail(*entry,
             Error(ErrorCode::corrupt_data, "a shard of " + std::to_string(outcome->version.size) +
                                                " bytes: the server gave a wrong size"));
      } else {
        entry->version = std::move(outcome->version);
        entry->state = Entry::State::waiting;
      }
    }
    entry.reset();
    finish_in_flight();
  };
  setup_.store->read({&request, 1});
}

void ShardStream::fail(Entry& entry, Error error) {
  if (entry.state == Entry::State::failed) return;
  entry.state = Entry::State::failed;
  entry.error = std::move(error).at_uri(object_uri(setup_.dataset->manifest(), entry.shard));
}

// Its version is known: what is there to be done?
void ShardStream::begin(Lock& lock, const std::shared_ptr<Entry>& entry) {
  entry->state = Entry::State::asking;  // nobody else begins it
  lock.unlock();
  std::string name;
  setup_.dataset->manifest().name(entry->shard, name);
  std::shared_ptr<HeldShard> bytes = held_.find(entry->shard);
  const bool whole = bytes != nullptr;
  if (!whole) bytes = std::make_shared<HeldShard>(entry->shard, entry->version.size, block_bytes_);
  std::optional<Error> error;
  std::unique_ptr<ShardIndexing> indexing;
  if (!shards_.count(entry->shard)) {
    auto begun = shards_.index(
        entry->shard, entry->version,
        [bytes = bytes.get()](std::uint64_t offset, std::span<std::byte> out) -> Result<void> {
          bytes->copy(offset, out);
          return {};
        });
    if (begun) {
      indexing = *std::move(begun);
    } else {
      error = std::move(begun).error();
    }
  }
  const bool warm = !whole && indexing == nullptr && lies_in_memory(*entry, name);
  std::vector<HeldShard::Block> dropped;
  lock.lock();
  entry->bytes = std::move(bytes);
  entry->indexing = std::move(indexing);
  entry->asked.assign(entry->bytes->block_count(), whole);
  if (whole) entry->there = entry->next_block = entry->bytes->block_count();
  if (warm) entry->hold = false;
  entry->state = Entry::State::reading;
  if (error) fail(*entry, *std::move(error));
  settle(entry, dropped);
  learn_counts();
  lock.unlock();
  setup_.wake();
}

// Local shards in the page cache are read from there.
bool ShardStream::lies_in_memory(const Entry& entry, const std::string& name) const {
  if (setup_.store->is_remote() || entry.version.size == 0) return false;
  std::array<std::byte, 512> probe;
  constexpr std::uint64_t kProbes = 8;
  for (std::uint64_t i = 0; i < kProbes; ++i) {
    const std::uint64_t offset = (entry.version.size - 1) / kProbes * i;
    const auto bytes = std::min<std::uint64_t>(probe.size(), entry.version.size - offset);
    const Piece piece{offset, std::span(probe).first(bytes)};
    const auto filled = setup_.store->read_now(name, entry.version, {&piece, 1}, Wait::never);
    if (!filled || *filled == 0) return false;
  }
  return true;
}

std::optional<std::vector<ByteBudget::Credit>> ShardStream::take_credits(std::uint64_t bytes,
                                                                         bool must) {
  using Rank = ByteBudget::Rank;
  const Rank rank = must ? Rank::oldest : Rank::later;
  std::vector<ByteBudget::Credit> credits;
  for (ByteBudget* budget : {held_budget_.get(), setup_.budget}) {
    auto credit = budget->take(bytes, rank);
    if (!credit) return std::nullopt;
    credits.push_back(*std::move(credit));
  }
  return credits;
}

// Does the consumer wait for memory that nobody will give back? Then the first shard that
// asks for more is the one that it waits for.
bool ShardStream::is_stuck() const {
  return starving_ && in_flight_ == 0 &&
         std::none_of(entries_.begin(), entries_.end(), [](const auto& entry) {
           return entry->busy || entry->state == Entry::State::asking;
         });
}

ShardStream::Issued ShardStream::read_block(Lock& lock, const std::shared_ptr<Entry>& entry) {
  Entry& e = *entry;
  std::uint64_t block = 0;
  std::uint64_t stop = e.bytes->block_count();
  if (e.hold) {
    block = e.next_block;
  } else {
    if (e.indexing == nullptr || e.busy) return Issued::nothing_left;
    block = e.bytes->block_of(e.indexing->needed());
    stop = std::min(stop, block + 2 + kIndexOnlyBytes / block_bytes_);
  }
  while (block < stop && e.asked[block]) ++block;
  if (e.hold) e.next_block = block;
  if (block >= stop) return Issued::nothing_left;
  const std::uint64_t size = e.bytes->block_size(block);
  auto credits = take_credits(size, !e.hold && e.reads == 0);
  if (!credits) {
    if (!e.hold || !is_stuck()) return Issued::no_memory;
    std::vector<HeldShard::Block> dropped;
    stop_holding(e);
    settle(entry, dropped);
    learn_counts();
    lock.unlock();
    dropped.clear();
    setup_.wake();
    return Issued::yes;
  }
  e.asked[block] = true;
  ++e.reads;
  ++in_flight_;
  ReadRequest request;
  request.stop = stop_.get_token();
  lock.unlock();
  setup_.dataset->manifest().name(e.shard, request.object);
  const std::array<std::uint64_t, 1> part{size};
  auto memory = setup_.buffers->allocate(part);
  if (!memory) {
    arrived(entry, block, nullptr, *std::move(credits), std::move(memory).error());
    return Issued::yes;
  }
  request.offset = e.bytes->block_start(block);
  request.out = (*memory)->part(0);
  request.expected = e.version;
  // ReadRequest wants a copyable function; credits are not.
  const auto held = std::make_shared<std::vector<ByteBudget::Credit>>(*std::move(credits));
  request.done = [this, entry = std::shared_ptr<Entry>(entry), block, memory = *memory,
                  held](Result<ReadOutcome> outcome) mutable {
    arrived(std::move(entry), block, std::move(memory), std::move(*held), std::move(outcome));
  };
  setup_.store->read({&request, 1});
  return Issued::yes;
}

// On a thread of the store: only notes. All that it holds is gone before the read counts as
// finished, for then the budget's owner may go.
void ShardStream::arrived(std::shared_ptr<Entry> entry, std::uint64_t block,
                          std::shared_ptr<Slab> memory, std::vector<ByteBudget::Credit> credits,
                          Result<ReadOutcome> outcome) {
  {
    std::vector<HeldShard::Block> dropped;  // let go after the lock
    const std::lock_guard lock(mutex_);
    Entry& e = *entry;
    --e.reads;
    if (outcome && outcome->bytes != e.bytes->block_size(block)) {
      outcome = Error(ErrorCode::object_changed, "the shard ends before its size says");
    }
    if (outcome) {
      counters_.bytes += outcome->bytes;
      e.bytes->put(block, std::move(memory), std::move(credits));
      ++e.there;
    } else {
      dropped.push_back({std::move(credits), std::move(memory)});
      if (e.indexing == nullptr) {
        stop_holding(e);  // its samples are read one by one, each with its own error
      } else {
        fail(e, std::move(outcome).error());
      }
    }
    settle(entry, dropped);
  }
  entry.reset();
  finish_in_flight();
}

// Under the lock to its end: behind it a waiting drain() returns.
void ShardStream::finish_in_flight() {
  const std::lock_guard lock(mutex_);
  if (!cancelled_) {
    learn_counts();
    setup_.wake();
  }
  if (--in_flight_ == 0) drained_.notify_all();
}

void ShardStream::stop_holding(Entry& entry) {
  if (!entry.hold) return;
  entry.hold = false;
  entry.asked.assign(entry.asked.size(), false);
  for (std::uint64_t block = 0; block < entry.bytes->block_count(); ++block) {
    if (!entry.bytes->has(block)) continue;
    entry.asked[block] = true;
    counters_.dropped += entry.bytes->block_size(block);
  }
  if (setup_.log != nullptr && starving_) {
    setup_.log->push_once(
        LogLevel::warning, "shuffle window",
        "the shards of a shuffle window do not fit into memory (" +
            std::to_string(held_budget_->limit() >> 20) +
            " MiB for them): some are only indexed, and their samples are read again one by one; "
            "a smaller window= or a larger memory= reads each byte once");
  }
}

// Drops what is not needed any more, and notices when the shard is done.
void ShardStream::settle(const std::shared_ptr<Entry>& entry,
                         std::vector<HeldShard::Block>& dropped) {
  Entry& e = *entry;
  if (e.state != Entry::State::reading) return;
  // Another loader may have indexed newer bytes meanwhile: then its samples are read by range,
  // and say that the shard changed.
  if (e.hold && e.indexing == nullptr && !e.busy && shards_.version(e.shard) != e.version)
    stop_holding(e);
  if (!e.hold && !e.busy) {
    const std::uint64_t stop =
        e.indexing == nullptr ? e.bytes->block_count() : e.bytes->block_of(e.indexing->needed());
    for (std::uint64_t block = 0; block < std::min(stop, e.bytes->block_count()); ++block) {
      if (e.bytes->has(block)) dropped.push_back(e.bytes->take(block));
    }
  }
  const bool complete = e.hold ? e.there == e.bytes->block_count() : e.reads == 0;
  if (e.indexing != nullptr || e.busy || !complete) return;
  e.state = Entry::State::done;
  if (e.hold) held_.put(e.bytes);
}

// --- ending ---

void ShardStream::cancel() {
  StopSource source;
  {
    const std::lock_guard lock(mutex_);
    cancelled_ = true;
    source = stop_;
  }
  source.request_stop();  // without the lock: a store may complete reads inside
}

void ShardStream::rest() {
  std::deque<std::shared_ptr<Entry>> entries;  // let go after the lock
  std::deque<std::shared_ptr<Group>> groups;
  const std::lock_guard lock(mutex_);
  entries.swap(entries_);
  groups.swap(groups_);
  order_.reset();
}

bool ShardStream::drain(std::chrono::milliseconds limit) {
  bool drained = false;
  {
    Lock lock(mutex_);
    drained = drained_.wait_for(lock, limit, [&] { return in_flight_ == 0; });
  }
  rest();
  return drained;
}

std::optional<Error> ShardStream::error() const {
  const std::lock_guard lock(mutex_);
  for (const auto& entry : entries_) {
    if (entry->state == Entry::State::failed) return entry->error;
    if (entry->state != Entry::State::done) return std::nullopt;
  }
  return std::nullopt;
}

ShardStream::Counters ShardStream::counters() const {
  const std::lock_guard lock(mutex_);
  return counters_;
}

std::string ShardStream::describe() const {
  const std::lock_guard lock(mutex_);
  for (const auto& entry : entries_) {
    if (entry->state == Entry::State::done) continue;
    std::string text = "shard " + object_uri(setup_.dataset->manifest(), entry->shard);
    if (entry->bytes == nullptr) return text + " is asked for its size";
    return text + ": " + std::to_string(entry->there) + " of " +
           std::to_string(entry->bytes->block_count()) + " blocks have arrived";
  }
  return "the next shards";
}

}  // namespace headpond
