#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/tar.h"
#include "headpond/object_version.h"
#include "headpond/result.h"

namespace headpond {

// Indexes that lie beside tar shards, one file for each shard.
enum class ShippedKind : std::uint8_t {
  headpond,  // "a/train-0.tar.hpindex": a TarIndex of no version (its digest is zero)
  dali,      // "a/train-0.idx": text of NVIDIA DALI's wds2idx
};

std::string_view name_of(ShippedKind kind);
// Where the index of a shard lies.
std::string shipped_name(ShippedKind kind, std::string_view shard);
// Does a file begin as such an index does?
bool is_shipped_index(ShippedKind kind, std::span<const std::byte> start);
// As many bytes as that needs.
inline constexpr std::size_t kShippedStartBytes = 8;

// The members that a text of DALI's wds2idx lists: "v1.2 SAMPLES", then a line for each sample of
// "EXTENSION OFFSET SIZE NAME" for each of its members, separated by blanks.
// Errors: unsupported (v1.1, which has no names); corrupt_data: another number of lines, what is no
// such line, offsets that are no multiple of 512 or leave no room for a header.
Result<std::vector<TarMember>> parse_dali_index(std::string_view text);

// Makes of such a file the index of a shard of this version. It is used only if the shard has the
// size that it tells, headers stand where they should in the middle and at the end, and no member
// follows the last one. `read` reads the shard, three times at most, a block each.
// Errors: corrupt_data, unsupported (not an index of this shard); those of `read`.
Result<std::vector<std::byte>> take_shipped_index(ShippedKind kind, std::vector<std::byte> file,
                                                  const ObjectVersion& version,
                                                  const TarWalker::Read& read);

// What `headpond index` writes beside a shard: an index of its present version, of no version.
std::vector<std::byte> shipped_index(std::span<const std::byte> index_image);

}  // namespace headpond
