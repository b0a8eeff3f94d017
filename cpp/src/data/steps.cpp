#include "headpond/steps.h"

#include <limits>

namespace headpond {
namespace {

// Rows of a rank when `m` positions are dealt out one by one.
std::uint64_t rows_dealt(std::uint64_t m, std::uint64_t world, std::uint64_t rank) {
  return m / world + (rank < m % world ? 1 : 0);
}

// A product too large for any epoch counts as infinite.
std::uint64_t whole_step(const Steps& steps) {
  std::uint64_t product = 0;
  if (__builtin_mul_overflow(steps.world, steps.batch, &product)) {
    return std::numeric_limits<std::uint64_t>::max();
  }
  return product;
}

// The step over the last `m` < world * batch positions.
std::optional<Steps::Step> last_step(const Steps& steps, std::uint64_t cursor, std::uint64_t m) {
  if (steps.drop_last || m == 0) return std::nullopt;
  const std::uint64_t dealt = rows_dealt(m, steps.world, steps.rank);
  Steps::Step step{cursor, dealt, dealt, steps.n};
  if (steps.uneven == Uneven::pad) step.rows = rows_dealt(m, steps.world, 0);
  if (steps.uneven == Uneven::drop) {
    step.rows = step.valid = m / steps.world;
    step.next = cursor + step.rows * steps.world;
  }
  if (step.rows == 0) return std::nullopt;
  return step;
}

}  // namespace

std::optional<Steps::Step> Steps::at(std::uint64_t cursor) const {
  if (cursor >= n) return std::nullopt;
  const std::uint64_t m = n - cursor;
  const std::uint64_t whole = whole_step(*this);
  if (m < whole) return last_step(*this, cursor, m);
  return Step{cursor, batch, batch, cursor + whole};
}

std::uint64_t Steps::position(const Step& step, std::uint64_t row) const {
  const std::uint64_t place = step.cursor + row * world + rank;
  return place < n ? place : place % n;
}

std::uint64_t Steps::count_from(std::uint64_t cursor) const {
  if (cursor >= n) return 0;
  const std::uint64_t m = n - cursor;
  const std::uint64_t whole = whole_step(*this);
  const std::uint64_t left = m % whole;
  return m / whole + (last_step(*this, n - left, left) ? 1 : 0);
}

}  // namespace headpond
