#pragma once

#include <cstdint>
#include <unordered_map>

namespace headpond {

// Whether cold ranges of large files go past the page cache (O_DIRECT).
//
// The first pass over a file does: it costs a fifth of the CPU and is faster. Once
// as many bytes of a file were read as it has, it is being read again and the page
// cache would have served it: then it is read through the cache, so that the pass
// after that one is warm, if all files seen so far fit into half of the memory. For
// one thread.
class CachePolicy {
 public:
  // Ranges below this are read through the cache: read-ahead serves their neighbours.
  static constexpr std::uint64_t kDirectMin = 64u << 10;

  explicit CachePolicy(std::uint64_t memory_bytes) : limit_(memory_bytes / 2) {}

  // Asked once per read of `bytes`; true: read them directly.
  bool direct(std::uint64_t file_identity, std::uint64_t file_bytes, std::uint64_t bytes);

 private:
  static constexpr std::size_t kFilesMax = 1u << 16;
  const std::uint64_t limit_;
  std::uint64_t files_bytes_ = 0;
  std::unordered_map<std::uint64_t, std::uint64_t> read_;  // bytes read directly, by file
};

}  // namespace headpond
