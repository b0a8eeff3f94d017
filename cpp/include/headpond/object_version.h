#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace headpond {

// Which bytes an object holds: two reads with equal versions see the same ones.
//
// A value. Local files: size, mtime in ns, inode. Remote objects: size and ETag
// (later). Default-constructed it means "any".
struct ObjectVersion {
  static constexpr std::uint64_t kAnySize = ~std::uint64_t{0};

  std::uint64_t size = kAnySize;
  std::int64_t mtime_ns = 0;  // 0: unknown
  std::uint64_t inode = 0;    // 0: unknown
  std::string etag;           // empty: unknown
  bool weak = false;          // the store gives no strong validator

  bool is_any() const { return size == kAnySize && mtime_ns == 0 && inode == 0 && etag.empty(); }

  // Does `actual` agree with every part that this version knows?
  bool accepts(const ObjectVersion& actual) const;

  auto operator<=>(const ObjectVersion&) const = default;
};

std::string to_string(const ObjectVersion& version);

}  // namespace headpond

template <>
struct std::hash<headpond::ObjectVersion> {
  std::size_t operator()(const headpond::ObjectVersion& v) const noexcept {
    return std::hash<std::string>()(v.etag) ^ (v.size * 0x9E3779B97F4A7C15ull) ^
           (static_cast<std::uint64_t>(v.mtime_ns) * 0xC2B2AE3D27D4EB4Full) ^ v.inode;
  }
};
