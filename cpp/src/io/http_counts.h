#pragma once

#include <atomic>
#include <cstdint>

#include "headpond/http_options.h"

namespace headpond {

// The sums behind HttpCounters: written by the reactor's thread, read by any.
struct HttpCounts {
  using Sum = std::atomic<std::uint64_t>;
  Sum requests = 0;
  Sum bytes = 0;
  Sum connections = 0;
  Sum retries = 0;
  Sum redirects = 0;
  Sum refusals = 0;
  Sum no_answers = 0;
  Sum outages = 0;
  Sum failures = 0;

  // One writer: no locked instruction is needed.
  static void add(Sum& sum, std::uint64_t n = 1) {
    sum.store(sum.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }
  HttpCounters read() const {
    const auto value = [](const Sum& sum) { return sum.load(std::memory_order_relaxed); };
    return {value(requests),   value(bytes),     value(connections),
            value(retries),    value(redirects), value(refusals),
            value(no_answers), value(outages),   value(failures)};
  }
};

}  // namespace headpond
