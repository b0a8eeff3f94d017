#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "headpond/manifest.h"
#include "headpond/store.h"

namespace headpond {

// Fills `out` from `offset` on the calling thread: opening a dataset has one to spare.
// Errors: as Store::read; corrupt_data when the object ends before; cancelled by `go_on`.
Result<void> read_exactly(Store& store, std::string_view object, const ObjectVersion& expected,
                          std::uint64_t offset, std::span<std::byte> out, const GoOn& go_on = {});

// The URI of object `index`, for messages.
std::string object_uri(const Manifest& manifest, std::uint64_t index);
// The same with the query that tells objects apart, for what is kept on disk; a query with a
// signature is left out.
std::string object_key(const Manifest& manifest, std::uint64_t index);

}  // namespace headpond
