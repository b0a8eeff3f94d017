#include "cache/fill.h"

#include <algorithm>

namespace headpond {

void RangeSet::add(ByteRange range) {
  if (range.start >= range.stop) return;
  auto first = std::find_if(ranges_.begin(), ranges_.end(),
                            [&](const ByteRange& r) { return r.stop >= range.start; });
  auto last = first;
  for (; last != ranges_.end() && last->start <= range.stop; ++last) {
    range.start = std::min(range.start, last->start);
    range.stop = std::max(range.stop, last->stop);
  }
  first = ranges_.erase(first, last);
  ranges_.insert(first, range);
}

bool RangeSet::covers(ByteRange range) const {
  if (range.start >= range.stop) return true;
  return std::any_of(ranges_.begin(), ranges_.end(), [&](const ByteRange& r) {
    return r.start <= range.start && range.stop <= r.stop;
  });
}

std::vector<ByteRange> RangeSet::missing(ByteRange range) const {
  std::vector<ByteRange> gaps;
  if (range.start >= range.stop) return gaps;
  for (const ByteRange& r : ranges_) {
    if (r.stop <= range.start) continue;
    if (r.start >= range.stop) break;
    if (r.start > range.start) gaps.push_back({range.start, r.start});
    range.start = std::max(range.start, r.stop);
  }
  if (range.start < range.stop) gaps.push_back(range);
  return gaps;
}

}  // namespace headpond
