#include "format/front_coded.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace headpond {
namespace {

void append_varint(std::vector<std::byte>& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<std::byte>(value | 0x80u));
  out.push_back(static_cast<std::byte>(value));
}

// Lengths of names: at most 35 bits, so that no sum below can overflow.
bool take_varint(std::span<const std::byte>& in, std::uint64_t& value) {
  if (!in.empty() && (in[0] & std::byte{0x80}) == std::byte{0}) {  // nearly always
    value = std::to_integer<std::uint64_t>(in[0]);
    in = in.subspan(1);
    return true;
  }
  value = 0;
  for (unsigned shift = 0; shift < 35 && !in.empty(); shift += 7) {
    const auto byte = std::to_integer<std::uint64_t>(in[0]);
    in = in.subspan(1);
    value |= (byte & 0x7Fu) << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

}  // namespace

void FrontCodedWriter::add(std::string_view name) {
  std::size_t shared = 0;
  if (count_ % kNamesPerGroup == 0) {
    groups_.push_back(blob_.size());
  } else {
    const std::size_t most = std::min(name.size(), last_.size());
    shared = static_cast<std::size_t>(
        std::mismatch(name.begin(), name.begin() + static_cast<std::ptrdiff_t>(most), last_.begin())
            .first -
        name.begin());
  }
  const std::string_view rest = name.substr(shared);
  append_varint(blob_, shared);
  append_varint(blob_, rest.size());
  append(blob_, std::as_bytes(std::span(rest)));
  last_ = name;
  ++count_;
}

std::vector<std::uint64_t> FrontCodedWriter::group_offsets() const {
  auto offsets = groups_;
  offsets.push_back(blob_.size());
  return offsets;
}

bool FrontCodedNames::offsets_valid() const {
  if (groups_.size() != name_groups(count_) + 1 || groups_[0] != 0) return false;
  for (std::size_t i = 1; i < groups_.size(); ++i) {
    if (groups_[i] < groups_[i - 1]) return false;
  }
  return groups_[groups_.size() - 1] == blob_.size();
}

bool FrontCodedNames::get(std::uint64_t index, std::string& name) const {
  name.clear();
  const std::uint64_t group = index / kNamesPerGroup;
  const std::uint64_t last = index % kNamesPerGroup;
  const std::uint64_t start = groups_[group];
  auto rest = blob_.subspan(start, groups_[group + 1] - start);
  // Walks the lengths first, then copies backwards just the bytes that are still in
  // the last name: most names on the way give none.
  struct Step {
    std::uint64_t shared;
    std::span<const std::byte> rest;
  };
  std::array<Step, kNamesPerGroup> steps;
  std::uint64_t length = 0;
  for (std::uint64_t i = 0; i <= last; ++i) {
    std::uint64_t shared = 0;
    std::uint64_t size = 0;
    if (!take_varint(rest, shared) || !take_varint(rest, size) || shared > length ||
        size > rest.size())
      return false;
    steps[i] = {shared, rest.first(size)};
    rest = rest.subspan(size);
    length = shared + size;
  }
  name.resize(length);
  std::uint64_t missing = length;  // leading bytes
  for (std::uint64_t i = last + 1; i > 0 && missing > 0; --i) {
    const Step& step = steps[i - 1];
    if (step.shared >= missing) continue;
    std::memcpy(name.data() + step.shared, step.rest.data(), missing - step.shared);
    missing = step.shared;
  }
  return true;
}

}  // namespace headpond
