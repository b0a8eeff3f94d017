#pragma once

#include <cstdint>
#include <optional>

#include "headpond/result.h"

namespace headpond {

enum class Uneven : std::uint8_t { pad, drop, allow };

// How an epoch of `n` positions is dealt to ranks, step by step. A value.
//
// A step takes the next world * batch positions from the cursor c: row j of rank r
// is position c + j * world + r. When fewer are left, `drop_last` ends the epoch;
// else `pad` gives every rank ceil(m / world) rows (filled from the epoch's start,
// marked invalid), `drop` floor(m / world), `allow` what remains. A rank gets no
// empty batch.
struct Steps {
  std::uint64_t n = 0;
  std::uint64_t batch = 1;
  std::uint64_t world = 1;
  std::uint64_t rank = 0;
  bool drop_last = false;
  Uneven uneven = Uneven::pad;

  struct Step {
    std::uint64_t cursor = 0;  // position of row 0 of rank 0
    std::uint64_t rows = 0;    // of this rank
    std::uint64_t valid = 0;   // rows that lie before n; the others are padding
    std::uint64_t next = 0;    // the cursor after the step, the same on every rank
  };

  // The step that starts at `cursor`, or nothing when the epoch is over for this rank.
  std::optional<Step> at(std::uint64_t cursor) const;
  // The position of row j; padding wraps round to the epoch's start.
  std::uint64_t position(const Step& step, std::uint64_t row) const;
  // Batches of this rank from `cursor` to the end.
  std::uint64_t count_from(std::uint64_t cursor) const;
};

}  // namespace headpond
