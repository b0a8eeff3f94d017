#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace headpond {

// All bodies together of which no server says the length. They have no place yet that a byte
// budget could account for, so there is little room for them.
constexpr std::uint64_t kUnsizedMax = 32u << 20;

struct UnsizedTotal {
  std::uint64_t bytes = 0;
};

// A body that grows until its end says how long the object is. For one thread.
class UnsizedBody {
 public:
  explicit UnsizedBody(UnsizedTotal& total) : total_(total) {}
  ~UnsizedBody() { clear(); }
  UnsizedBody(const UnsizedBody&) = delete;
  UnsizedBody& operator=(const UnsizedBody&) = delete;

  // False: no room is left; the body is as it was.
  bool append(std::span<const std::byte> bytes);
  // Is all that is held this one's?
  bool is_alone() const { return held() == total_.bytes; }
  std::uint64_t size() const { return size_; }
  // `out` is of its size; nothing is left.
  void move_to(std::span<std::byte> out);
  void clear();

 private:
  static constexpr std::size_t kChunk = 256u << 10;

  std::uint64_t held() const { return chunks_.size() * kChunk; }

  UnsizedTotal& total_;
  // No vector of bytes, which needs room for three times its size when it grows.
  std::vector<std::unique_ptr<std::byte[]>> chunks_;
  std::uint64_t size_ = 0;
};

}  // namespace headpond
