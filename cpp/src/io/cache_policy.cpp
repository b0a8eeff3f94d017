#include "io/cache_policy.h"

namespace headpond {

bool CachePolicy::direct(std::uint64_t file_identity, std::uint64_t file_bytes,
                         std::uint64_t bytes) {
  if (bytes < kDirectMin) return false;
  auto known = read_.find(file_identity);
  if (known == read_.end()) {
    files_bytes_ += file_bytes;
    // So many large files do not fit into memory.
    if (read_.size() >= kFilesMax) return true;
    known = read_.emplace(file_identity, 0).first;
  }
  const bool again = known->second >= file_bytes;
  known->second += bytes;
  return !again || files_bytes_ > limit_;
}

}  // namespace headpond
