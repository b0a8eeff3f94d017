#include "io/cold_map.h"

#include <algorithm>
#include <functional>

namespace headpond {
namespace {

constexpr std::uint32_t kWarm = 1u << 16;

std::uint64_t mix(std::uint64_t x) {  // splitmix64
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

}  // namespace

ColdMap::ColdMap() : slots_(std::make_unique<Slot[]>(kSlots)) {}

ColdMap::Spot ColdMap::region(std::uint64_t file_identity, std::uint64_t offset) {
  const std::uint64_t file = mix(file_identity);
  return {static_cast<std::uint32_t>(mix(file + 1 + offset / kRegionBytes) % kSlots),
          static_cast<std::uint32_t>(file % kSlots)};
}

ColdMap::Spot ColdMap::folder(std::uint32_t root, std::string_view name) {
  const auto slash = name.rfind('/');
  const std::string_view folder =
      slash == std::string_view::npos ? std::string_view{} : name.substr(0, slash + 1);
  const std::uint64_t store = mix(root + 0x9E3779B97F4A7C15ull);
  return {static_cast<std::uint32_t>(mix(store ^ std::hash<std::string_view>()(folder)) % kSlots),
          static_cast<std::uint32_t>(store % kSlots)};
}

bool ColdMap::should_probe(Spot spot) {
  Slot& own = slots_[spot.own];
  std::uint32_t state = own.load(std::memory_order_relaxed);
  Slot& slot = state == 0 ? slots_[spot.parent] : own;
  if (&slot != &own) state = slot.load(std::memory_order_relaxed);
  if ((state & 0xFFFF) == 0) return true;
  // Two threads may take the same step: one probe more or less.
  slot.store(state - 1, std::memory_order_relaxed);
  return false;
}

void ColdMap::was_cold(Spot spot) {
  note_cold(slots_[spot.own]);
  if (spot.parent != spot.own) note_cold(slots_[spot.parent]);
}

void ColdMap::note_cold(Slot& slot) {
  const std::uint32_t state = slot.load(std::memory_order_relaxed);
  const std::uint32_t streak =
      std::min(std::max(state >> 16, 1u), 6u);  // cold answers, this one included
  const std::uint32_t skip = std::min(1u << streak, kSkipMax) - 1;
  slot.store((streak + 1) << 16 | skip, std::memory_order_relaxed);
}

void ColdMap::was_warm(Spot spot) {
  for (const auto index : {spot.own, spot.parent}) {
    Slot& slot = slots_[index];
    // Read first: in a warm run the line stays shared between the CPUs.
    if (slot.load(std::memory_order_relaxed) != kWarm) slot.store(kWarm, std::memory_order_relaxed);
  }
}

}  // namespace headpond
