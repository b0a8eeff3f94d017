#pragma once

#include <cstdint>
#include <optional>
#include <variant>

#include "io/http_headers.h"
#include "io/remote_call.h"

namespace headpond {

// What was asked of an object: bytes [first, first + bytes), or all of it.
struct Asked {
  std::uint64_t first = 0;
  std::uint64_t bytes = 0;
  bool whole = false;        // asked without a range
  ObjectVersion expected;    // of earlier answers, or of the caller
  std::uint64_t before = 0;  // bytes before `first` that earlier attempts brought
};

// How to use the body of an answer that is right so far.
struct BodyPlan {
  std::uint64_t skip = 0;             // its first bytes, which were not asked for
  std::uint64_t take = 0;             // then the wanted ones
  std::optional<std::uint64_t> size;  // of the object, if said
  bool all = false;                   // it is the whole object
  ObjectVersion version;
};

// An answer 200 to a range is used for objects up to this size.
constexpr std::uint64_t kWholeForRangeMax = 8u << 20;

// Judges the head of an answer to a read: nothing is data but a 200 or 206 with the
// range, length, total, encoding and version that were asked for. `now_s`: the time of
// day, for Retry-After.
std::variant<BodyPlan, Failure> judge_read(const ResponseHead& head, const Asked& asked,
                                           std::int64_t now_s);

// The same of a question about size and version: HEAD, or the first byte. Nothing: ask
// in the other way.
std::variant<ObjectVersion, Failure, std::monostate> judge_stat(const ResponseHead& head,
                                                                bool by_head,
                                                                const ObjectVersion& expected,
                                                                std::int64_t now_s);

// What an answer that is no success means.
Failure status_failure(const ResponseHead& head, std::int64_t now_s);

// Do both describe the same bytes, as far as they say? Strong entity tags decide alone.
bool same_object(const ObjectVersion& expected, const ObjectVersion& actual);
Failure changed_failure(const ObjectVersion& expected, const ObjectVersion& actual);

}  // namespace headpond
