#include "pipeline/shard_stream.h"

#include <algorithm>
#include <array>
#include <utility>

#include "format/store_reading.h"
#include "pipeline/guard.h"

namespace headpond {
namespace {

using State = StreamedShard::State;

// Large enough that a request's latency is small beside its transfer, small enough that
// several are in flight for one shard.
constexpr std::uint64_t kBlockBytesMax = std::uint64_t{4} << 20;
constexpr std::uint64_t kBlockBytesMin = std::uint64_t{256} << 10;
constexpr std::uint64_t kReadsMax = 16;   // blocks and questions in flight
constexpr std::ptrdiff_t kUnreadMax = 2;  // shards that are here whole and not indexed
// More than any shard; a size beyond it is a wrong answer, and would cost memory per block.
constexpr std::uint64_t kShardBytesMax = std::uint64_t{1} << 44;

std::uint64_t block_bytes_for(std::uint64_t held_bytes_max) {
  const std::uint64_t share = held_bytes_max / (2 * kReadsMax) / 4096 * 4096;
  return std::clamp(share, kBlockBytesMin, kBlockBytesMax);
}

}  // namespace

ShardStream::ShardStream(Setup setup)
    : setup_(std::move(setup)),
      shards_(*setup_.dataset->format().shards()),
      counts_(*setup_.dataset),
      block_bytes_(block_bytes_for(setup_.held_bytes_max)),
      held_(shards_.shard_number()),
      held_budget_(std::make_shared<ByteBudget>(setup_.held_bytes_max)),
      groups_(counts_),
      run_(std::make_shared<Run>()) {
  held_budget_->on_release(setup_.wake);
}

ShardStream::~ShardStream() = default;

void ShardStream::start(const Sampler& sampler, std::uint64_t epoch, Sampler::GroupPlace group) {
  start(sampler, epoch, group, true);
}

void ShardStream::start_indexing(const Sampler& sampler, std::uint64_t epoch) {
  start(sampler, epoch, {}, false);
}

void ShardStream::start(const Sampler& sampler, std::uint64_t epoch, Sampler::GroupPlace group,
                        bool hold) {
  const auto number = shards_.shard_number();
  planned_ = std::make_shared<ShardOrder>(sampler, number, epoch, group);
  auto order = std::make_unique<ShardOrder>(sampler, number, epoch, group);
  rest();
  StopSource before;
  {
    const std::lock_guard lock(mutex_);
    before = std::exchange(stop_, StopSource());
    starving_ = false;
    cancelled_ = false;
    groups_.start(std::move(order), group.cursor, hold);
  }
  before.request_stop();  // without the lock: a store may complete reads inside
  setup_.wake();
}

// --- the planner's side ---

bool ShardStream::ready(const Need& need) {
  ShardGroups::Gone gone;  // let go after the lock
  bool is = false;
  bool news = false;
  {
    const std::lock_guard lock(mutex_);
    gone = groups_.move_on(need.from, need.stop);
    look();
    counts_.add_to(*planned_);
    is = (planned_->complete() || planned_->known() > need.seen) &&
         groups_.ready(need.from, std::min(need.stop, planned_->known()));
    // What is let go makes room first.
    const bool starving = need.starving && !is && gone.empty();
    news = !gone.empty() || (starving && !starving_);
    starving_ = starving;
  }
  gone = {};
  if (news) setup_.wake();
  return is;
}

std::vector<std::shared_ptr<const void>> ShardStream::hold(std::uint64_t first,
                                                           std::uint64_t stop) const {
  const std::lock_guard lock(mutex_);
  return groups_.hold(first, stop);
}

// A group that has become ready ends the starving, until the planner has looked again.
void ShardStream::look() {
  if (groups_.look()) starving_ = false;
}

// --- the workers' side ---

bool ShardStream::work() {
  Lock lock(mutex_);
  if (cancelled_ || !groups_.started()) return false;
  return index_some(lock) || issue(lock);
}

// In what follows workers let go of a shard before anybody can find that it is done with: what is
// held beyond its group would look like memory in use.

bool ShardStream::index_some(Lock& lock) {
  const auto& shards = groups_.shards();
  const auto found = std::find_if(shards.begin(), shards.end(),
                                  [](const auto& shard) { return shard->can_be_indexed(); });
  if (found == shards.end()) return false;
  std::shared_ptr<StreamedShard> shard = *found;
  const auto [indexing, available] = shard->start_indexing();
  lock.unlock();
  Result<bool> known = false;
  std::uint64_t before = 0;
  do {
    before = indexing->needed();
    known = indexing->advance(available);
  } while (known && !*known && indexing->needed() != before);
  std::vector<HeldShard::Block> dropped;
  lock.lock();
  shard->end_indexing(available, known && *known);
  if (!known) fail(*shard, std::move(known).error());
  settle(*shard, dropped);
  look();
  shard.reset();
  lock.unlock();
  dropped.clear();
  setup_.wake();
  return true;
}

// Versions are asked for ahead; blocks take memory in the order in which they are needed.
bool ShardStream::issue(Lock& lock) {
  bool in_order = true;
  const auto& shards = groups_.shards();
  for (std::size_t i = 0; i < shards.size(); ++i) {
    if (run_->active >= kReadsMax) return false;
    auto shard = shards[i];
    if (shard->state() == State::waiting) {
      if (shard->version().is_any()) {
        ask_version(lock, std::move(shard));
      } else {
        begin(lock, std::move(shard));
      }
      return true;
    }
    if (shard->state() == State::failed) return false;  // nothing behind it will be asked for
    if (shard->state() == State::asking) in_order = false;
    if (shard->state() != State::reading || !in_order) continue;
    const Issued issued = read_block(lock, std::move(shard));
    if (issued == Issued::yes) return true;
    if (issued == Issued::no_memory) return false;  // somebody's release wakes
  }
  if (run_->active >= kReadsMax || !groups_.wants_another()) return false;
  // What lies here unread may already fill the groups that are wanted.
  const auto unread = std::count_if(shards.begin(), shards.end(),
                                    [](const auto& shard) { return shard->is_unread(); });
  if (unread >= kUnreadMax) return false;
  const std::uint32_t next = groups_.next_shard();
  groups_.add(std::make_shared<StreamedShard>(next, shards_.version(next), groups_.are_held()));
  return true;
}

// By a read of one byte: unlike a question for the version alone it can be cancelled.
void ShardStream::ask_version(Lock& lock, std::shared_ptr<StreamedShard> shard) {
  shard->ask();
  const auto run = run_;
  ++run->active;
  ReadRequest request;
  request.stop = stop_.get_token();
  lock.unlock();
  setup_.dataset->manifest().name(shard->shard(), request.object);
  const auto byte = std::make_shared<std::byte>();
  request.out = {byte.get(), 1};
  request.done = [this, byte, run, shard = std::move(shard),
                  last = std::shared_ptr<const void>()](Result<ReadOutcome> outcome) mutable {
    if (shard == nullptr) return;
    ended(*run, shard, [&] { note_version(*shard, std::move(outcome)); });
    last = run->in_flight.remove();
  };
  run->in_flight.add();
  ask(*setup_.store, {&request, 1});
}

// Its version is known: what is there to be done?
void ShardStream::begin(Lock& lock, std::shared_ptr<StreamedShard> shard) {
  shard->ask();  // nobody else begins it
  lock.unlock();
  std::string name;
  setup_.dataset->manifest().name(shard->shard(), name);
  std::shared_ptr<HeldShard> bytes = held_.find(shard->shard());
  const bool whole = bytes != nullptr;
  if (!whole)
    bytes = std::make_shared<HeldShard>(shard->shard(), shard->version().size, block_bytes_);
  Result<std::unique_ptr<ShardIndexing>> indexing = std::unique_ptr<ShardIndexing>();
  if (!shards_.count(shard->shard())) {
    indexing = shards_.index(
        shard->shard(), shard->version(),
        [bytes = bytes.get()](std::uint64_t offset, std::span<std::byte> out) -> Result<void> {
          bytes->copy(offset, out);
          return {};
        });
  }
  const bool warm = !whole && indexing && *indexing == nullptr && lies_in_memory(*shard, name);
  std::vector<HeldShard::Block> dropped;
  lock.lock();
  shard->begin(std::move(bytes), whole, indexing ? *std::move(indexing) : nullptr);
  if (warm) shard->stop_holding();
  if (!indexing) fail(*shard, std::move(indexing).error());
  settle(*shard, dropped);
  look();
  shard.reset();
  lock.unlock();
  setup_.wake();
}

// Local shards in the page cache are read from there.
bool ShardStream::lies_in_memory(const StreamedShard& shard, const std::string& name) const {
  const ObjectVersion& version = shard.version();
  if (setup_.store->is_remote() || version.size == 0) return false;
  std::array<std::byte, 512> probe;
  constexpr std::uint64_t kProbes = 8;
  for (std::uint64_t i = 0; i < kProbes; ++i) {
    const std::uint64_t offset = (version.size - 1) / kProbes * i;
    const auto bytes = std::min<std::uint64_t>(probe.size(), version.size - offset);
    const Piece piece{offset, std::span(probe).first(bytes)};
    const auto filled = setup_.store->read_now(name, version, {&piece, 1}, Wait::never);
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
  const auto& shards = groups_.shards();
  return starving_ && run_->active == 0 &&
         std::none_of(shards.begin(), shards.end(), [](const auto& shard) {
           return shard->is_busy() || shard->state() == State::asking;
         });
}

ShardStream::Issued ShardStream::read_block(Lock& lock, std::shared_ptr<StreamedShard> shard) {
  const auto block = shard->next_block();
  if (!block) return Issued::nothing_left;
  const std::uint64_t size = shard->bytes()->block_size(*block);
  auto credits = take_credits(size, !shard->hold() && shard->reads() == 0);
  if (!credits) {
    if (!shard->hold() || !is_stuck()) return Issued::no_memory;
    std::vector<HeldShard::Block> dropped;
    stop_holding(*shard);
    settle(*shard, dropped);
    look();
    lock.unlock();
    dropped.clear();
    setup_.wake();
    return Issued::yes;
  }
  shard->asked(*block);
  const auto run = run_;
  ++run->active;
  ReadRequest request;
  request.stop = stop_.get_token();
  lock.unlock();
  // ReadRequest wants a copyable function; credits are not.
  const auto held = std::make_shared<HeldShard::Block>();
  held->credits = *std::move(credits);
  const auto note = [this, block = *block](Run& of, std::shared_ptr<StreamedShard>& to,
                                           HeldShard::Block memory, Result<ReadOutcome> outcome) {
    std::vector<HeldShard::Block> dropped;  // let go after the lock
    ended(of, to, [&] {
      note_block(*to, block, std::move(memory), std::move(outcome), dropped);
      settle(*to, dropped);
    });
  };
  const std::array<std::uint64_t, 1> part{size};
  auto memory = setup_.buffers->allocate(part);
  if (!memory) {
    note(*run, shard, std::move(*held), std::move(memory).error());
    return Issued::yes;
  }
  held->memory = *memory;
  setup_.dataset->manifest().name(shard->shard(), request.object);
  request.offset = shard->bytes()->block_start(*block);
  request.out = (*memory)->part(0);
  request.expected = shard->version();
  request.done = [note, run, held, shard = std::move(shard),
                  last = std::shared_ptr<const void>()](Result<ReadOutcome> outcome) mutable {
    if (shard == nullptr) return;
    note(*run, shard, std::move(*held), std::move(outcome));
    last = run->in_flight.remove();
  };
  run->in_flight.add();
  ask(*setup_.store, {&request, 1});
  return Issued::yes;
}

// --- completions, on threads of the store: they only note ---

// All that the caller holds of ours is to be gone before the read counts as back, for then the
// stream and the budget's owner may go.
template <class Note>
void ShardStream::ended(Run& run, std::shared_ptr<StreamedShard>& shard, Note note) {
  const std::lock_guard lock(mutex_);
  const auto thrown = guarded([&] {
    note();
    if (!cancelled_) look();
  });
  if (thrown) shard->fail(*thrown);
  shard.reset();
  --run.active;
  if (!cancelled_) setup_.wake();
}

void ShardStream::note_version(StreamedShard& shard, Result<ReadOutcome> outcome) {
  if (!outcome) {
    fail(shard, std::move(outcome).error());
  } else if (outcome->version.size > kShardBytesMax) {
    fail(shard,
         Error(ErrorCode::corrupt_data, "a shard of " + std::to_string(outcome->version.size) +
                                            " bytes: the server gave a wrong size"));
  } else {
    shard.set_version(std::move(outcome->version));
  }
}

void ShardStream::note_block(StreamedShard& shard, std::uint64_t block, HeldShard::Block memory,
                             Result<ReadOutcome> outcome, std::vector<HeldShard::Block>& dropped) {
  if (outcome && outcome->bytes != shard.bytes()->block_size(block))
    outcome = Error(ErrorCode::object_changed, "the shard ends before its size says");
  if (outcome) {
    read_.bytes += outcome->bytes;
    shard.arrived(block, std::move(memory));
    return;
  }
  shard.lost();
  dropped.push_back(std::move(memory));
  if (shard.is_indexing()) {
    fail(shard, std::move(outcome).error());
  } else {
    stop_holding(shard);  // its samples are read one by one, each with its own error
  }
}

void ShardStream::fail(StreamedShard& shard, Error error) {
  shard.fail(std::move(error).at_uri(object_uri(setup_.dataset->manifest(), shard.shard())));
}

void ShardStream::stop_holding(StreamedShard& shard) {
  if (!shard.hold()) return;
  read_.dropped += shard.stop_holding();
  if (setup_.log != nullptr && starving_) {
    setup_.log->push_once(
        LogLevel::warning, "shuffle window",
        "the shards of a shuffle window do not fit into memory (" +
            std::to_string(held_budget_->limit() >> 20) +
            " MiB for them): some are only indexed, and their samples are read again one by one; "
            "a smaller window= or a larger memory= reads each byte once");
  }
}

void ShardStream::settle(StreamedShard& shard, std::vector<HeldShard::Block>& dropped) {
  if (shard.state() != State::reading) return;
  // Another loader may have indexed newer bytes meanwhile: then its samples are read by range,
  // and say that the shard changed.
  if (shard.hold() && !shard.is_indexing() && shards_.version(shard.shard()) != shard.version())
    stop_holding(shard);
  shard.settle(dropped);
  if (shard.state() == State::done && shard.hold()) held_.put(shard.bytes());
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
  ShardGroups::Gone gone;  // let go after the lock
  const std::lock_guard lock(mutex_);
  gone = groups_.rest();
}

bool ShardStream::drain(std::chrono::steady_clock::time_point deadline,
                        std::shared_ptr<const void> owner) {
  std::shared_ptr<Run> run;
  {
    const std::lock_guard lock(mutex_);
    run = run_;
  }
  const bool drained = run->in_flight.drain(deadline, std::move(owner));
  if (!drained) {
    auto fresh = std::make_shared<Run>();  // nobody waits for the stuck ones again
    const std::lock_guard lock(mutex_);
    run_ = std::move(fresh);
  }
  rest();
  return drained;
}

std::optional<Error> ShardStream::error() const {
  const std::lock_guard lock(mutex_);
  for (const auto& shard : groups_.shards()) {
    if (shard->state() == State::failed) return shard->error();
    if (shard->state() != State::done) return std::nullopt;
  }
  return std::nullopt;
}

ShardStream::Counters ShardStream::counters() const {
  const std::lock_guard lock(mutex_);
  return read_;
}

std::string ShardStream::describe() const {
  const std::lock_guard lock(mutex_);
  for (const auto& shard : groups_.shards()) {
    if (shard->state() == State::done) continue;
    std::string text = "shard " + object_uri(setup_.dataset->manifest(), shard->shard());
    if (shard->bytes() == nullptr) return text + " is asked for its size";
    return text + ": " + std::to_string(shard->blocks_there()) + " of " +
           std::to_string(shard->bytes()->block_count()) + " blocks have arrived";
  }
  return "the next shards";
}

}  // namespace headpond
