#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headpond/object_list.h"
#include "headpond/object_version.h"
#include "headpond/result.h"
#include "headpond/store.h"
#include "headpond/uri.h"

namespace headpond {

// What a manifest's columns add up to, each 32 hex digits: made when it is built and
// kept with it, so that comparing datasets reads no list.
struct ManifestDigests {
  std::string names;  // in order
  std::string sizes;
  std::string versions;  // size, mtime, inode and ETag
};

// An immutable list of a dataset's objects with size and version, in the order
// of their key's bytes. Built once, so that no stat, HEAD or LIST comes later.
//
// Names are front-coded in groups, sizes and versions lie in fixed columns; a
// saved one is memory-mapped: opening ten million entries takes milliseconds and
// next to no memory. Safe to read from any thread.
class Manifest : public ObjectList {
 public:
  // Sorts by key, then by name. Versions may be unknown where objects are asked for them later
  // (shards). Errors: invalid_argument (the same name twice, an empty name).
  static Result<std::shared_ptr<const Manifest>> build(Uri root, std::vector<ObjectInfo> objects);
  // Errors: not_found; corrupt_data (truncated, bad magic, bad checksum, offsets
  // past the end); unsupported (a newer format).
  static Result<std::shared_ptr<const Manifest>> load(const std::string& path);

  // Writes a complete temporary file and renames it over `path`.
  virtual Result<void> save(const std::string& path) const = 0;

  virtual const Uri& root() const = 0;
  // The name as what tells the object tomorrow, in digests and for people: without the query
  // of a signed URL.
  std::string key(std::uint64_t index) const;
  // By its key, in O(log size).
  std::optional<std::uint64_t> find(std::string_view name) const override;
  virtual const ManifestDigests& digests() const = 0;
};

}  // namespace headpond
