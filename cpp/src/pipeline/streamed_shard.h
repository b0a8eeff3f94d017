#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "headpond/byte_budget.h"
#include "headpond/error.h"
#include "headpond/object_version.h"
#include "headpond/shards.h"
#include "headpond/slab.h"
#include "pipeline/held_shard.h"

namespace headpond {

// One shard on its way into memory: which block is read next, how far its indexing may go, and
// when it is done. Not locked: its stream's lock guards it.
class StreamedShard {
 public:
  enum class State : std::uint8_t {
    waiting,  // for somebody to begin with it
    asking,   // its version or its kept index is looked up
    reading,
    done,  // indexed, and all of it here or none of it needed
    failed,
  };

  // `hold`: its bytes stay until its group is let go; else it is only indexed.
  StreamedShard(std::uint32_t shard, ObjectVersion version, bool hold)
      : shard_(shard), version_(std::move(version)), hold_(hold) {}

  std::uint32_t shard() const { return shard_; }
  State state() const { return state_; }
  bool hold() const { return hold_; }
  const ObjectVersion& version() const { return version_; }
  const std::optional<Error>& error() const { return error_; }        // failed
  const std::shared_ptr<HeldShard>& bytes() const { return bytes_; }  // null before `reading`
  std::uint64_t blocks_there() const { return there_; }
  std::uint64_t reads() const { return reads_; }

  void ask() { state_ = State::asking; }
  void set_version(ObjectVersion version);
  // `whole`: its bytes are all there. `indexing` is null where there is nothing to index.
  void begin(std::shared_ptr<HeldShard> bytes, bool whole, std::unique_ptr<ShardIndexing> indexing);
  void fail(Error error);

  // The block to read next, if there is one now.
  std::optional<std::uint64_t> next_block();
  void asked(std::uint64_t block);
  void arrived(std::uint64_t block, HeldShard::Block memory);
  // A read came back without bytes.
  void lost() { --reads_; }

  bool is_indexing() const { return indexing_ != nullptr; }
  bool is_busy() const { return busy_; }
  // Does its indexing find bytes that it has not seen? The caller indexes then, without the lock,
  // what is available.
  bool can_be_indexed() const;
  struct Indexing {
    ShardIndexing* indexing = nullptr;
    std::uint64_t available = 0;  // bytes without a hole behind what it still needs
  };
  Indexing start_indexing();
  void end_indexing(std::uint64_t available, bool known);
  // It is here whole, and was not looked into.
  bool is_unread() const;

  // Its bytes are not kept: what is not known yet is read for the index alone. Returns the bytes
  // that were read for nothing.
  std::uint64_t stop_holding();
  // Takes out what is not needed any more, and notices when it is done.
  void settle(std::vector<HeldShard::Block>& dropped);

 private:
  static constexpr std::uint64_t kNever = ~std::uint64_t{0};
  std::uint64_t available() const;

  const std::uint32_t shard_;
  ObjectVersion version_;
  State state_ = State::waiting;
  bool hold_;
  std::optional<Error> error_;
  std::shared_ptr<HeldShard> bytes_;
  std::unique_ptr<ShardIndexing> indexing_;
  bool busy_ = false;                   // a worker indexes it
  std::uint64_t advanced_to_ = kNever;  // bytes that the indexing has seen
  std::vector<bool> asked_;             // blocks that were asked for
  std::uint64_t next_block_ = 0;        // those before it were asked for
  std::uint64_t reads_ = 0;             // in flight
  std::uint64_t there_ = 0;             // blocks that arrived
};

}  // namespace headpond
