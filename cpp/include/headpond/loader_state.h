#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "headpond/result.h"
#include "headpond/sampler.h"

namespace headpond {

// What identifies an order: a state is only loaded into a loader with the same one.
struct OrderIdentity {
  std::string fingerprint;
  std::optional<std::uint64_t> n;  // it and the digest are compared when both sides know them
  std::string size_digest;
  std::uint64_t seed = 0;
  std::uint64_t augmentation_seed = 0;
  ShuffleMode mode = ShuffleMode::none;
  std::uint64_t window = 0;
  int sampler_version = Sampler::kVersion;

  bool operator==(const OrderIdentity&) const = default;
};

// Where a loader stands, counting batches handed to the caller. A value, JSON,
// under 1 KiB, the same on every rank.
struct LoaderState {
  OrderIdentity order;
  std::uint64_t epoch = 0;
  std::uint64_t cursor = 0;
  std::uint64_t pass_step = 0;  // batches handed out in the present pass (steps_per_epoch)
  Sampler::GroupPlace group;    // mode window
  bool ended = false;           // the loop over this epoch is over: the next pass is the next epoch

  std::string to_json() const;
  // Errors: state_mismatch (not JSON, a missing, unknown, repeated or wrong-typed
  // entry, another version, a cursor past n), saying which.
  static Result<LoaderState> from_json(std::string_view text);

  bool operator==(const LoaderState&) const = default;
};

// Nothing, or state_mismatch naming the first entry that differs with both values.
Result<void> check_compatible(const OrderIdentity& state, const OrderIdentity& loader);

}  // namespace headpond
