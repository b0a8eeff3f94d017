// Copies between two warm buffers that no cache holds: the top of every path with one copy.
#include "measure.h"

using namespace headpond::limits;

int main(int argc, char** argv) {
  Arguments arguments(argc, argv);
  const std::uint64_t bytes = arguments.number("bytes", 512 << 20);
  const std::uint64_t rounds = arguments.number("rounds", 4);
  arguments.finish();

  WarmBuffer from(bytes);
  WarmBuffer to(bytes);
  Meter meter;
  for (std::uint64_t r = 0; r < rounds; ++r) {
    std::memcpy(to.data(), from.data(), bytes);
    keep(to.data());
  }
  print_result("memcpy", rounds, rounds * bytes, 1, meter.stop());
}
