#include "io/staging.h"

#include <sys/mman.h>

#include <algorithm>

namespace headpond {

Staging::~Staging() {
  if (memory_ != nullptr) munmap(memory_, blocks_ * kBlockBytes);
}

bool Staging::make(std::size_t blocks) {
  const std::size_t bytes = blocks * kBlockBytes;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return false;
  if (madvise(memory, bytes, MADV_DONTFORK) != 0) {
    munmap(memory, bytes);
    return false;
  }
  memory_ = static_cast<std::byte*>(memory);
  blocks_ = blocks;
  for (std::size_t i = blocks; i > 0; --i) free_.push_back(static_cast<int>(i - 1));
  return true;
}

int Staging::take() {
  if (free_.empty()) return -1;
  const int block = free_.back();
  free_.pop_back();
  return block;
}

void Staging::give_back(int block) {
  // Sorted, lowest number last: these are the registered and the touched ones.
  free_.insert(std::lower_bound(free_.begin(), free_.end(), block, std::greater<>()), block);
}

std::span<std::byte> Staging::bytes(int block) const {
  return {memory_ + static_cast<std::size_t>(block) * kBlockBytes, kBlockBytes};
}

std::vector<struct iovec> Staging::buffers(std::size_t count) const {
  std::vector<struct iovec> buffers;
  for (std::size_t i = 0; i < std::min(count, blocks_); ++i)
    buffers.push_back({memory_ + i * kBlockBytes, kBlockBytes});
  return buffers;
}

}  // namespace headpond
