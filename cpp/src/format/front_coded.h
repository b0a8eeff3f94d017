#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/little_endian.h"

namespace headpond {

// Names that share prefixes with their predecessor, in groups of 64.
//
// A group begins at a known offset; each name is varint(shared), varint(rest),
// rest bytes, where `shared` counts leading bytes of the name before it (0 for the
// first of a group). So a name costs at most 63 short steps to find.
inline constexpr std::uint64_t kNamesPerGroup = 64;

inline std::uint64_t name_groups(std::uint64_t count) {
  return (count + kNamesPerGroup - 1) / kNamesPerGroup;
}

class FrontCodedWriter {
 public:
  void add(std::string_view name);
  std::uint64_t count() const { return count_; }
  // name_groups(count()) + 1 offsets into blob(); the last is its size.
  std::vector<std::uint64_t> group_offsets() const;
  std::span<const std::byte> blob() const { return blob_; }

 private:
  std::uint64_t count_ = 0;
  std::string last_;
  std::vector<std::uint64_t> groups_;
  std::vector<std::byte> blob_;
};

// Reads what FrontCodedWriter wrote. A view; safe from any thread.
class FrontCodedNames {
 public:
  FrontCodedNames() = default;
  FrontCodedNames(std::uint64_t count, Column<std::uint64_t> group_offsets,
                  std::span<const std::byte> blob)
      : count_(count), groups_(group_offsets), blob_(blob) {}

  std::uint64_t size() const { return count_; }
  // Are the group offsets ascending and inside the blob? Names are read within
  // bounds whatever the blob holds.
  bool offsets_valid() const;
  // index < size(). False, and an empty name, where the blob is damaged.
  bool get(std::uint64_t index, std::string& name) const;

 private:
  std::uint64_t count_ = 0;
  Column<std::uint64_t> groups_;
  std::span<const std::byte> blob_;
};

}  // namespace headpond
