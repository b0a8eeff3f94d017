#pragma once

// What the limit programs share: arguments, the meter and the one JSON line that each prints.

#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <barrier>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace headpond::limits {

[[noreturn]] inline void fail(const std::string& what) {
  std::fprintf(stderr, "%s: %s\n", what.c_str(), std::strerror(errno));
  std::exit(1);
}

// `--name value` pairs; a name that the program never asked for is an error.
class Arguments {
 public:
  Arguments(int argc, char** argv) {
    for (int i = 1; i < argc; i += 2) {
      if (std::strncmp(argv[i], "--", 2) != 0 || i + 1 == argc) {
        std::fprintf(stderr, "%s: options are pairs of --name value\n", argv[0]);
        std::exit(2);
      }
      given_[argv[i] + 2] = argv[i + 1];
    }
  }
  std::string text(const std::string& name, const std::string& otherwise) {
    auto found = given_.find(name);
    if (found == given_.end()) return otherwise;
    std::string value = found->second;
    given_.erase(found);
    return value;
  }
  std::uint64_t number(const std::string& name, std::uint64_t otherwise) {
    return std::strtoull(text(name, std::to_string(otherwise)).c_str(), nullptr, 10);
  }
  double real(const std::string& name, double otherwise) {
    return std::strtod(text(name, std::to_string(otherwise)).c_str(), nullptr);
  }
  // Call after the last question.
  void finish() const {
    if (given_.empty()) return;
    std::fprintf(stderr, "unknown option --%s\n", given_.begin()->first.c_str());
    std::exit(2);
  }

 private:
  std::map<std::string, std::string> given_;
};

struct Usage {
  double wall_s = 0;
  double cpu_s = 0;  // user + system of the process, kernel workers of its rings included
  long minor_faults = 0;
  long switches = 0;
};

// Measures from its construction on.
class Meter {
 public:
  Meter() : wall_(std::chrono::steady_clock::now()), usage_(now()) {}
  Usage stop() const {
    Usage end = now();
    auto wall = std::chrono::steady_clock::now() - wall_;
    return {std::chrono::duration<double>(wall).count(), end.cpu_s - usage_.cpu_s,
            end.minor_faults - usage_.minor_faults, end.switches - usage_.switches};
  }
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - wall_).count();
  }

 private:
  static Usage now() {
    rusage self{};
    getrusage(RUSAGE_SELF, &self);
    auto seconds = [](timeval t) {
      return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
    };
    return {0, seconds(self.ru_utime) + seconds(self.ru_stime), self.ru_minflt,
            self.ru_nvcsw + self.ru_nivcsw};
  }
  std::chrono::steady_clock::time_point wall_;
  Usage usage_;
};

// One line of JSON. `extra` is empty or further members, each with its leading comma.
inline void print_result(const std::string& name, std::uint64_t items, std::uint64_t bytes,
                         std::uint64_t threads, const Usage& usage, const std::string& extra = "") {
  std::printf(
      "{\"limit\": \"%s\", \"items\": %llu, \"bytes\": %llu, \"threads\": %llu, \"wall_s\": %.6f, "
      "\"cpu_s\": %.6f, \"minor_faults\": %ld, \"switches\": %ld%s}\n",
      name.c_str(), static_cast<unsigned long long>(items), static_cast<unsigned long long>(bytes),
      static_cast<unsigned long long>(threads), usage.wall_s, usage.cpu_s, usage.minor_faults,
      usage.switches, extra.c_str());
}

// Runs `work(thread)` on each thread; `prepare(thread)` has run everywhere before the meter starts.
template <class Prepare, class Work>
Usage run_threads(std::uint64_t threads, Prepare prepare, Work work) {
  // Started before any thread is let go, not when this thread next gets a core.
  std::optional<Meter> meter;
  auto start = [&]() noexcept { meter.emplace(); };
  std::barrier ready(static_cast<std::ptrdiff_t>(threads), start);
  std::vector<std::thread> running;
  for (std::uint64_t t = 0; t < threads; ++t) {
    running.emplace_back([&, t] {
      prepare(t);
      ready.arrive_and_wait();
      work(t);
    });
  }
  for (auto& thread : running) thread.join();
  return meter->stop();
}

inline std::vector<std::uint32_t> shuffled(std::size_t n, std::uint64_t seed) {
  std::vector<std::uint32_t> order(n);
  for (std::size_t i = 0; i < n; ++i) order[i] = static_cast<std::uint32_t>(i);
  std::mt19937_64 random(seed);
  std::shuffle(order.begin(), order.end(), random);
  return order;
}

// Anonymous memory on huge pages where the kernel has them, touched before it is returned.
class WarmBuffer {
 public:
  explicit WarmBuffer(std::size_t bytes) : bytes_((bytes + kHuge - 1) / kHuge * kHuge) {
    void* at =
        mmap(nullptr, bytes_ + kHuge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) fail("mmap");
    mapping_ = at;
    auto address = reinterpret_cast<std::uintptr_t>(at);
    data_ = reinterpret_cast<std::byte*>((address + kHuge - 1) / kHuge * kHuge);
    madvise(data_, bytes_, MADV_HUGEPAGE);
    std::memset(data_, 1, bytes_);
  }
  WarmBuffer(const WarmBuffer&) = delete;
  WarmBuffer& operator=(const WarmBuffer&) = delete;
  ~WarmBuffer() { munmap(mapping_, bytes_ + kHuge); }
  std::byte* data() const { return data_; }
  std::size_t size() const { return bytes_; }

 private:
  static constexpr std::size_t kHuge = 2 << 20;
  std::size_t bytes_;
  void* mapping_ = nullptr;
  std::byte* data_ = nullptr;
};

// Keeps the compiler from dropping stores to `p`.
inline void keep(const void* p) { asm volatile("" : : "r"(p) : "memory"); }

}  // namespace headpond::limits
