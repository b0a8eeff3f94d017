#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace headpond {

// A permutation of [0, n) that is chosen by a key and stored nowhere: a Feistel
// network over the smallest power of two (4 at least) that holds n, with cycle
// walking. n is 1 to 2^63. A value of a few hundred bytes; safe from any thread.
class Permutation {
 public:
  static constexpr int kRoundsMax = 32;

  Permutation(std::uint64_t n, std::uint64_t key);

  std::uint64_t size() const { return n_; }
  // The image of `place` < n.
  std::uint64_t operator()(std::uint64_t place) const;
  // out[k] = image of first + k * stride; all of these < n.
  void map(std::uint64_t first, std::uint64_t stride, std::span<std::uint64_t> out) const;

 private:
  std::uint64_t n_;
  unsigned high_bits_;
  unsigned low_bits_;
  int rounds_;
  std::array<std::uint64_t, kRoundsMax> keys_;  // rounds_ of them are set
};

}  // namespace headpond
