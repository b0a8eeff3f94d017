#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cache/fill_file.h"
#include "cache/space.h"
#include "headpond/block_cache.h"

namespace headpond {

// Ranges of a block's payload, kept apart and in order: what has arrived of it.
class RangeSet {
 public:
  void add(ByteRange range);
  bool covers(ByteRange range) const;
  // What of `range` is missing, in order.
  std::vector<ByteRange> missing(ByteRange range) const;
  const std::vector<ByteRange>& ranges() const { return ranges_; }

 private:
  std::vector<ByteRange> ranges_;  // disjoint, not touching, sorted
};

// One block that is wanted and not published, in this process. The table's lock guards
// the upper half; the rest belongs to the step that runs.
struct Fill {
  enum class Phase : std::uint8_t {
    looking,    // is it published?
    queued,     // waits for memory
    elsewhere,  // another process fetches it
    fetching,
  };
  // A range that the source has answered for.
  struct Part {
    ByteRange range;
    Result<void> outcome;
  };

  explicit Fill(std::shared_ptr<const Block> what) : block(std::move(what)) {}

  const std::shared_ptr<const Block> block;
  Phase phase = Phase::looking;
  std::vector<BlockRead> waiters;
  std::vector<Part> arrived;
  bool stepping = false;
  bool again = false;
  std::optional<BlockRead> lender;  // wants the whole block: the fetch goes to its memory
  StopSource stop;                  // of the fetch, with its lender

  // None: the fetch is for the waiters alone. The room returns after the file is gone.
  std::optional<Reservation> room;
  std::unique_ptr<FillFile> file;
  std::shared_ptr<BlockSource> source;
  std::unique_ptr<std::byte[]> own;
  std::span<std::byte> memory;
  RangeSet here;     // in memory
  RangeSet written;  // of it, to the file
  std::size_t parts_in_flight = 0;
  std::optional<Error> error;  // the first of the fetch
  bool kept = false;           // it was published
  bool counted = false;        // among those that hold memory
  FillStamp stamp;
  Clock::Time stamp_since{};
};

}  // namespace headpond
