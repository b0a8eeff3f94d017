#include "pipeline/streamed_shard.h"

#include <algorithm>
#include <utility>

namespace headpond {
namespace {

// Of a shard that is only indexed: more than any header, which is at most 1 MiB.
constexpr std::uint64_t kIndexOnlyBytes = std::uint64_t{2} << 20;

}  // namespace

void StreamedShard::set_version(ObjectVersion version) {
  version_ = std::move(version);
  state_ = State::waiting;
}

void StreamedShard::begin(std::shared_ptr<HeldShard> bytes, bool whole,
                          std::unique_ptr<ShardIndexing> indexing) {
  bytes_ = std::move(bytes);
  indexing_ = std::move(indexing);
  asked_.assign(bytes_->block_count(), whole);
  if (whole) there_ = next_block_ = bytes_->block_count();
  state_ = State::reading;
}

void StreamedShard::fail(Error error) {
  if (state_ == State::failed) return;
  state_ = State::failed;
  error_ = std::move(error);
}

std::optional<std::uint64_t> StreamedShard::next_block() {
  std::uint64_t block = next_block_;
  std::uint64_t stop = bytes_->block_count();
  if (!hold_) {
    if (indexing_ == nullptr || busy_) return std::nullopt;
    block = bytes_->block_of(indexing_->needed());
    stop = std::min(stop, block + 2 + kIndexOnlyBytes / bytes_->block_bytes());
  }
  while (block < stop && asked_[block]) ++block;
  if (hold_) next_block_ = block;
  return block < stop ? std::optional(block) : std::nullopt;
}

void StreamedShard::asked(std::uint64_t block) {
  asked_[block] = true;
  ++reads_;
}

void StreamedShard::arrived(std::uint64_t block, HeldShard::Block memory) {
  --reads_;
  ++there_;
  bytes_->put(block, std::move(memory));
}

std::uint64_t StreamedShard::available() const {
  const std::uint64_t needed = indexing_->needed();
  std::uint64_t block = bytes_->block_of(needed);
  if (needed >= bytes_->size()) return bytes_->size();
  if (!bytes_->has(block)) return advanced_to_ == kNever ? 0 : advanced_to_;
  while (block < bytes_->block_count() && bytes_->has(block)) ++block;
  return std::min(bytes_->size(), bytes_->block_start(block));
}

bool StreamedShard::can_be_indexed() const {
  return indexing_ != nullptr && !busy_ && state_ != State::failed && available() != advanced_to_;
}

StreamedShard::Indexing StreamedShard::start_indexing() {
  busy_ = true;
  return {indexing_.get(), available()};
}

void StreamedShard::end_indexing(std::uint64_t available, bool known) {
  busy_ = false;
  advanced_to_ = available;
  if (known) indexing_.reset();
}

bool StreamedShard::is_unread() const {
  return indexing_ != nullptr && there_ == bytes_->block_count();
}

std::uint64_t StreamedShard::stop_holding() {
  if (!hold_) return 0;
  hold_ = false;
  std::uint64_t dropped = 0;
  asked_.assign(asked_.size(), false);
  for (std::uint64_t block = 0; block < bytes_->block_count(); ++block) {
    if (!bytes_->has(block)) continue;
    asked_[block] = true;
    dropped += bytes_->block_size(block);
  }
  return dropped;
}

void StreamedShard::settle(std::vector<HeldShard::Block>& dropped) {
  if (state_ != State::reading) return;
  const std::uint64_t blocks = bytes_->block_count();
  if (!hold_ && !busy_) {
    const std::uint64_t stop =
        indexing_ == nullptr ? blocks : std::min(blocks, bytes_->block_of(indexing_->needed()));
    for (std::uint64_t block = 0; block < stop; ++block) {
      if (bytes_->has(block)) dropped.push_back(bytes_->take(block));
    }
  }
  const bool complete = hold_ ? there_ == blocks : reads_ == 0;
  if (indexing_ == nullptr && !busy_ && complete) state_ = State::done;
}

}  // namespace headpond
