#include "io/unsized_body.h"

#include <algorithm>
#include <cstring>

namespace headpond {

bool UnsizedBody::append(std::span<const std::byte> bytes) {
  const std::uint64_t room = held() - size_;
  const std::uint64_t more = bytes.size() > room ? bytes.size() - room : 0;
  const std::uint64_t chunks = (more + kChunk - 1) / kChunk;
  if (total_.bytes + chunks * kChunk > kUnsizedMax) return false;
  total_.bytes += chunks * kChunk;
  for (std::uint64_t i = 0; i < chunks; ++i)
    chunks_.push_back(std::make_unique_for_overwrite<std::byte[]>(kChunk));
  while (!bytes.empty()) {
    const std::size_t at = size_ % kChunk;
    const auto part = bytes.first(std::min(bytes.size(), kChunk - at));
    std::memcpy(chunks_[size_ / kChunk].get() + at, part.data(), part.size());
    size_ += part.size();
    bytes = bytes.subspan(part.size());
  }
  return true;
}

void UnsizedBody::move_to(std::span<std::byte> out) {
  for (const auto& chunk : chunks_) {
    const auto part = out.first(std::min(out.size(), kChunk));
    if (!part.empty()) std::memcpy(part.data(), chunk.get(), part.size());
    out = out.subspan(part.size());
  }
  clear();
}

void UnsizedBody::clear() {
  if (chunks_.empty()) return;
  total_.bytes -= held();
  chunks_.clear();
  size_ = 0;
}

}  // namespace headpond
