#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "headpond/digest.h"

namespace headpond {

Digest digest(std::span<const std::byte> bytes);
Digest digest(std::string_view text);

// Feeds parts one after another. Strings are preceded by their length, so that
// ("ab", "c") and ("a", "bc") differ.
class DigestBuilder {
 public:
  DigestBuilder();
  ~DigestBuilder();
  DigestBuilder(const DigestBuilder&) = delete;
  DigestBuilder& operator=(const DigestBuilder&) = delete;

  DigestBuilder& add(std::string_view text);
  DigestBuilder& add(std::uint64_t number);
  Digest finish() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// CRC32C (Castagnoli), as iSCSI and the on-disk formats use it; `seed` continues
// an earlier result. SSE 4.2 and PCLMUL where the CPU has them.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t seed = 0);
// The same without them.
std::uint32_t crc32c_plain(std::span<const std::byte> bytes, std::uint32_t seed = 0);

}  // namespace headpond
