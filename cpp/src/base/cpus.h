#pragma once

#include <cstdint>
#include <string>

namespace headpond {

// CPUs this process may use: its affinity, cut by the cgroup's quota (v2 cpu.max,
// v1 cfs_quota_us), rounded up, at least 1. `cgroup_root` is for tests.
unsigned usable_cpus(const std::string& cgroup_root = "/sys/fs/cgroup");

// The cgroup's memory limit, or the machine's memory when there is none, in bytes.
std::uint64_t usable_memory_bytes(const std::string& cgroup_root = "/sys/fs/cgroup");

}  // namespace headpond
