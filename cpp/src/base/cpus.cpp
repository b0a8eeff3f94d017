#include "base/cpus.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

namespace headpond {
namespace {

// The folders that limit this process, from its own cgroup up to the root.
std::vector<std::string> cgroup_folders(const std::string& root) {
  std::vector<std::string> folders;
  std::ifstream own("/proc/self/cgroup");
  for (std::string line; std::getline(own, line);) {
    if (line.rfind("0::", 0) != 0) continue;
    for (std::string path = line.substr(3); !path.empty() && path != "/";
         path.resize(path.rfind('/'))) {
      folders.push_back(root + path);
    }
  }
  folders.push_back(root);
  return folders;
}

std::optional<std::string> first_line(const std::string& file) {
  std::ifstream in(file);
  std::string line;
  if (!std::getline(in, line)) return std::nullopt;
  return line;
}

std::optional<double> number(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (end == text.c_str()) return std::nullopt;
  return value;
}

// CPUs by quota, or nothing without one.
std::optional<double> quota_of(const std::string& folder) {
  if (const auto line = first_line(folder + "/cpu.max")) {
    const auto space = line->find(' ');
    const auto quota = number(line->substr(0, space));
    const auto period =
        space == std::string::npos ? std::optional(100000.0) : number(line->substr(space + 1));
    if (quota && period && *period > 0) return *quota / *period;
    return std::nullopt;
  }
  const auto quota = first_line(folder + "/cpu/cpu.cfs_quota_us");
  const auto period = first_line(folder + "/cpu/cpu.cfs_period_us");
  if (!quota || !period) return std::nullopt;
  const auto q = number(*quota);
  const auto p = number(*period);
  if (!q || !p || *q <= 0 || *p <= 0) return std::nullopt;
  return *q / *p;
}

}  // namespace

unsigned usable_cpus(const std::string& cgroup_root) {
  cpu_set_t set;
  double cpus = 1;
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    cpus = CPU_COUNT(&set);
  } else {
    cpus =
        static_cast<double>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));  // more than 1,024 CPUs
  }
  for (const auto& folder : cgroup_folders(cgroup_root)) {
    if (const auto quota = quota_of(folder)) cpus = std::min(cpus, *quota);
  }
  return static_cast<unsigned>(std::max(1.0, std::ceil(cpus)));
}

std::uint64_t usable_memory_bytes(const std::string& cgroup_root) {
  auto bytes = static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) *
               static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  for (const auto& folder : cgroup_folders(cgroup_root)) {
    for (const char* file : {"/memory.max", "/memory/memory.limit_in_bytes"}) {
      const auto line = first_line(folder + file);
      const auto limit = line ? number(*line) : std::nullopt;
      if (limit && *limit > 0)
        bytes = std::min(bytes, static_cast<std::uint64_t>(std::min(*limit, 9e18)));
    }
  }
  return bytes;
}

}  // namespace headpond
