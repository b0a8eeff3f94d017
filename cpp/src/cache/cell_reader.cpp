#include "cache/cell_reader.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <vector>

#include "base/digest.h"

namespace headpond {
namespace {

constexpr std::size_t kMaxParts = 64;  // of one preadv

// Pieces that follow each other in the file, widened to whole cells.
class Run {
 public:
  // Takes pieces off the front of `pieces` as long as they continue each other.
  explicit Run(const CellFile& file) : file_(file) {}

  std::size_t take(std::span<const Piece> pieces) {
    start_ = pieces[0].offset;
    stop_ = start_;
    const std::uint64_t before = start_ % kCellBytes;
    count_ = 0;
    if (before > 0) add(head_.data(), before);
    std::size_t taken = 0;
    for (; taken < pieces.size() && count_ < kMaxParts - 1; ++taken) {
      if (pieces[taken].offset != stop_) break;
      if (!pieces[taken].out.empty()) add(pieces[taken].out.data(), pieces[taken].out.size());
      stop_ += pieces[taken].out.size();
    }
    start_ -= before;
    const std::uint64_t end = std::min(whole_cells(stop_), file_.layout.payload_bytes);
    if (end > stop_) add(tail_.data(), end - stop_);
    stop_ = std::max(stop_, end);
    return taken;
  }

  // Bytes read, less than asked where the file ends or, with Wait::never, memory; or -errno.
  ssize_t read(Wait wait) {
    if (bytes() == 0) return 0;
    const int flags = wait == Wait::never ? RWF_NOWAIT : 0;
    const ssize_t got = file_.ops.preadv(file_.fd, parts_.data(), static_cast<int>(count_),
                                         file_.layout.header_bytes + start_, flags);
    const bool cut_short = got > 0 && static_cast<std::uint64_t>(got) < bytes();
    return cut_short && wait == Wait::allowed ? read_rest(static_cast<std::uint64_t>(got)) : got;
  }

  std::uint64_t bytes() const { return stop_ - start_; }

  bool matches() const {
    std::size_t part = 0, at = 0;
    const std::uint64_t last = cells_of(stop_);
    for (std::uint64_t cell = start_ / kCellBytes; cell < last; ++cell) {
      std::uint32_t crc = cell_seed(file_.key, cell);
      for (std::size_t left = file_.layout.cell_bytes(cell); left > 0;) {
        const std::size_t take = std::min(left, parts_[part].iov_len - at);
        const auto* const bytes = static_cast<const std::byte*>(parts_[part].iov_base) + at;
        crc = crc32c({bytes, take}, crc);
        left -= take;
        at += take;
        if (at == parts_[part].iov_len) {
          ++part;
          at = 0;
        }
      }
      if (cell_sum(crc) != file_.sums[cell]) return false;
    }
    return true;
  }

 private:
  // Goes on behind the first `done` bytes.
  ssize_t read_rest(std::uint64_t done) {
    std::array<struct iovec, kMaxParts> left = parts_;
    std::size_t first = 0;
    for (std::uint64_t skip = done;;) {
      while (skip > 0) {
        const std::size_t part = std::min<std::size_t>(skip, left[first].iov_len);
        left[first].iov_base = static_cast<std::byte*>(left[first].iov_base) + part;
        left[first].iov_len -= part;
        if (left[first].iov_len == 0) ++first;
        skip -= part;
      }
      if (done == bytes()) return static_cast<ssize_t>(done);
      const ssize_t got =
          file_.ops.preadv(file_.fd, left.data() + first, static_cast<int>(count_ - first),
                           file_.layout.header_bytes + start_ + done, 0);
      if (got < 0) return got;
      if (got == 0) return static_cast<ssize_t>(done);
      skip = static_cast<std::uint64_t>(got);
      done += skip;
    }
  }

  void add(std::byte* bytes, std::size_t size) { parts_[count_++] = {bytes, size}; }

  const CellFile& file_;
  std::uint64_t start_ = 0, stop_ = 0;  // in the payload
  std::array<struct iovec, kMaxParts> parts_;
  std::size_t count_ = 0;
  std::array<std::byte, kCellBytes> head_, tail_;
};

// Not in memory, or a file system that cannot tell.
bool would_wait(ssize_t result) { return result == -EAGAIN || result == -EOPNOTSUPP; }

}  // namespace

bool within(std::span<const Piece> pieces, const BlockLayout& layout) {
  return std::all_of(pieces.begin(), pieces.end(), [&](const Piece& piece) {
    return piece.offset <= layout.payload_bytes &&
           piece.out.size() <= layout.payload_bytes - piece.offset;
  });
}

CellsRead read_cells(const CellFile& file, std::span<const Piece> pieces, Wait wait) {
  CellsRead result;
  Run run(file);
  while (result.filled < pieces.size()) {
    const std::size_t taken = run.take(pieces.subspan(result.filled));
    const ssize_t got = run.read(wait);
    if (wait == Wait::never && would_wait(got)) return result;
    if (got < 0) {
      result.error = static_cast<int>(got);
      return result;
    }
    if (static_cast<std::uint64_t>(got) < run.bytes()) {
      // A short answer without waiting is the end of what is in memory, or of the file: who waits
      // will see which.
      result.wrong = wait == Wait::allowed;
      return result;
    }
    if (!run.matches()) {
      result.wrong = true;
      return result;
    }
    result.filled += taken;
  }
  return result;
}

int check_cells(const CellFile& file, std::uint64_t first, std::uint64_t stop,
                const std::function<void(std::uint64_t cell, bool matches)>& each) {
  constexpr std::uint64_t kAtOnce = 64;
  std::vector<std::byte> buffer(std::min(stop - first, kAtOnce) * kCellBytes);
  for (std::uint64_t cell = first; cell < stop; cell += kAtOnce) {
    const std::uint64_t end = std::min(cell + kAtOnce, stop);
    const std::uint64_t size =
        std::min(end * kCellBytes, file.layout.payload_bytes) - cell * kCellBytes;
    const ssize_t got = pread_all(file.ops, file.fd, std::span(buffer).first(size),
                                  file.layout.header_bytes + cell * kCellBytes);
    if (got < 0) return static_cast<int>(got);
    for (std::uint64_t at = cell; at < end; ++at) {
      const std::uint64_t offset = (at - cell) * kCellBytes;
      const std::size_t bytes = file.layout.cell_bytes(at);
      const bool there = offset + bytes <= static_cast<std::uint64_t>(got);
      each(at, there && cell_sum(file.key, at, std::span(buffer).subspan(offset, bytes)) ==
                            file.sums[at]);
    }
  }
  return 0;
}

}  // namespace headpond
