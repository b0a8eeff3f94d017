#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "headpond/object_version.h"

namespace headpond {

// The objects of one store that belong together, in their order: what neighbours are is known.
// Immutable; safe to read from any thread.
class ObjectList {
 public:
  virtual ~ObjectList() = default;
  virtual std::uint64_t size() const = 0;
  // Valid for index < size(). `name` is overwritten, so that its memory is reused.
  virtual void name(std::uint64_t index, std::string& name) const = 0;
  virtual ObjectVersion version(std::uint64_t index) const = 0;
  virtual std::uint64_t object_size(std::uint64_t index) const = 0;
  virtual std::optional<std::uint64_t> find(std::string_view name) const = 0;
};

}  // namespace headpond
