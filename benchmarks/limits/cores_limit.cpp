// How many cores spinning threads get. On a shared machine a wall time means something only while
// two threads get (nearly) two.
#include <atomic>

#include "measure.h"

using namespace headpond::limits;

int main(int argc, char** argv) {
  Arguments arguments(argc, argv);
  const std::uint64_t threads = arguments.number("threads", 2);
  const double seconds = arguments.real("seconds", 0.3);
  arguments.finish();

  std::atomic<std::uint64_t> spins{0};
  Usage usage = run_threads(
      threads, [](std::uint64_t) {},
      [&](std::uint64_t) {
        Meter meter;
        std::uint64_t mine = 0;
        while (meter.seconds() < seconds) ++mine;
        spins += mine;
      });
  print_result("cores", spins, 0, threads, usage,
               ", \"cores\": " + std::to_string(usage.cpu_s / usage.wall_s));
}
