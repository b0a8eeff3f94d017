#pragma once

// Catch2 is version 2 on Debian 12 and 3 on Debian 13.
#ifdef HEADPOND_CATCH2_V2
#include <catch2/catch.hpp>
namespace Catch::Matchers {
inline auto ContainsSubstring(const std::string& text) { return Contains(text); }
}  // namespace Catch::Matchers
#else
#include <catch2/catch_all.hpp>
using Catch::Approx;
#endif

// The reason for a test that this machine cannot run; the test then returns.
#ifdef HEADPOND_CATCH2_V2
#define HP_SKIP(reason)       \
  do {                        \
    WARN("skipped: " reason); \
    SUCCEED();                \
    return;                   \
  } while (false)
#else
#define HP_SKIP(reason) SKIP(reason)
#endif
