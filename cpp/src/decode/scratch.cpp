#include <algorithm>
#include <bit>
#include <new>

#include "headpond/decoder.h"

namespace headpond {
namespace {

constexpr std::align_val_t kAlignment{64};

}  // namespace

void Scratch::Free::operator()(std::byte* p) const { ::operator delete[](p, kAlignment); }

std::span<std::byte> Scratch::get(std::size_t slot, std::size_t bytes) {
  if (slot >= buffers_.size()) buffers_.resize(slot + 1);
  Buffer& buffer = buffers_[slot];
  if (buffer.size < bytes) {
    // Powers of two: sizes that vary from picture to picture settle after a few.
    const std::size_t size = std::bit_ceil(std::max<std::size_t>(bytes, 4096));
    buffer.data.reset();
    buffer.size = 0;
    buffer.data.reset(static_cast<std::byte*>(::operator new[](size, kAlignment)));
    buffer.size = size;
    ++allocations_;
  }
  return {buffer.data.get(), bytes};
}

}  // namespace headpond
