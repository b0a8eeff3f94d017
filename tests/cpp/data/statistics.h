#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

namespace headpond {

// How far counts are from equal ones, in standard deviations of the chi-square
// statistic (Wilson and Hilferty's normal approximation). Seeds are fixed in the
// tests, so a result is the same on every machine; |z| < 4 is asked of each.
inline double chi_square_z(const std::vector<std::uint64_t>& counts, double freedom) {
  double total = 0;
  for (const auto count : counts) total += static_cast<double>(count);
  const double expected = total / static_cast<double>(counts.size());
  double statistic = 0;
  for (const auto count : counts) {
    const double difference = static_cast<double>(count) - expected;
    statistic += difference * difference / expected;
  }
  const double ninth = 2.0 / (9.0 * freedom);
  return (std::cbrt(statistic / freedom) - (1.0 - ninth)) / std::sqrt(ninth);
}

inline double chi_square_z(const std::vector<std::uint64_t>& counts) {
  return chi_square_z(counts, static_cast<double>(counts.size() - 1));
}

}  // namespace headpond
