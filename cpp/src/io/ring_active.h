#pragma once

#include <sys/uio.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "io/ring_reads.h"

namespace headpond {

// Answers that only ask to try again.
inline bool is_passing_error(int result) {
  return result == -EINTR || result == -EAGAIN || result == -ECANCELED;
}
constexpr unsigned kRingTriesMax = 64;

struct alignas(8) RingReads::Active {
  LocalRead read;
  CPath path;
  bool whole = false;

  // A chain: its direct descriptor, where the byte too many goes, the three results.
  unsigned slot = 0;
  std::byte spill{};
  std::array<struct iovec, 2> parts{};
  unsigned answers = 0;
  int open_result = 0;
  int read_result = 0;

  // A range: what is left to be given to the ring, and what is there.
  std::shared_ptr<FileHandle> handle;
  std::uint64_t next = 0;
  std::uint64_t end = 0;
  unsigned operations = 0;
  bool direct = false;
  int failure = 0;  // not 0: the whole read is done again by blocking calls
  std::optional<Error> error;
};

struct alignas(8) RingReads::Operation {
  Active* active = nullptr;
  RingCall call = RingCall::read;
  std::uint64_t offset = 0;        // of the file
  std::span<std::byte> out;        // what is still to be filled
  int block = -1;                  // of staging, for O_DIRECT
  std::uint64_t block_offset = 0;  // of the file, aligned: where the block begins
  unsigned tries = 0;
  bool plain = false;  // not by a fixed buffer
};

}  // namespace headpond
