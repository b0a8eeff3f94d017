#include <sys/resource.h>

#include <array>
#include <cstring>
#include <set>

#include "headpond/slab.h"
#include "support/catch.h"

using namespace headpond;

namespace {

long minor_faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

void fill(Slab& slab, std::size_t parts) {
  for (std::size_t i = 0; i < parts; ++i)
    std::memset(slab.part(i).data(), 0x5A, slab.part(i).size());
}

}  // namespace

TEST_CASE("SlabPool: parts are aligned, as large as asked, and do not overlap") {
  const auto pool = SlabPool::make();
  const std::array<std::uint64_t, 4> sizes{1, 64, 150'528ull * 64, 0};
  auto slab = pool->allocate(sizes);
  REQUIRE(slab);
  std::byte* end = nullptr;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const auto part = (*slab)->part(i);
    CHECK(part.size() == sizes[i]);
    CHECK(reinterpret_cast<std::uintptr_t>(part.data()) % 64 == 0);
    CHECK(part.data() >= end);
    end = part.data() + part.size();
  }
  CHECK(reinterpret_cast<std::uintptr_t>((*slab)->part(0).data()) % (2u << 20) == 0);
}

TEST_CASE("SlabPool: steady state allocates nothing and faults nowhere") {
  const auto pool = SlabPool::make();
  const std::array<std::uint64_t, 2> sizes{9'633'792, 512};
  for (int i = 0; i < 3; ++i) fill(**pool->allocate(sizes), 2);
  const auto before = pool->statistics();
  [[maybe_unused]] const long faults = minor_faults();
  for (int i = 0; i < 100; ++i) fill(**pool->allocate(sizes), 2);
  const auto after = pool->statistics();
#if !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)  // they fault on memory of their own
  CHECK(minor_faults() - faults == 0);
#endif
  CHECK(after.allocated == before.allocated);
  CHECK(after.reused == before.reused + 100);
}

TEST_CASE("SlabPool: a slab that is held is never handed out again") {
  const auto pool = SlabPool::make();
  const std::array<std::uint64_t, 1> sizes{4096};
  std::vector<std::shared_ptr<Slab>> held;
  std::set<std::byte*> starts;
  for (int i = 0; i < 2000; ++i) {
    held.push_back(*pool->allocate(sizes));
    CHECK(starts.insert(held.back()->part(0).data()).second);
  }
  CHECK(pool->statistics().bytes < 2000u * 4096u + (2u << 20));
}

TEST_CASE("SlabPool: sizes that vary a little share regions") {
  const auto pool = SlabPool::make();
  for (std::uint64_t i = 0; i < 200; ++i) {
    const std::array<std::uint64_t, 1> sizes{7'000'000 + (i * 7919) % 500'000};
    REQUIRE(pool->allocate(sizes));
  }
  CHECK(pool->statistics().allocated <= 2);
}

TEST_CASE("SlabPool: growing batches do not leave the smaller regions behind") {
  const auto pool = SlabPool::make();
  for (std::uint64_t mib = 2; mib < 40; mib += 2) {
    const std::array<std::uint64_t, 1> sizes{mib << 20};
    REQUIRE(pool->allocate(sizes));
  }
  CHECK(pool->statistics().bytes <= (90ull << 20));
}

TEST_CASE("SlabPool: a slab outlives its pool") {
  auto pool = SlabPool::make();
  const std::array<std::uint64_t, 1> sizes{3u << 20};
  auto slab = *pool->allocate(sizes);
  pool.reset();
  fill(*slab, 1);
  CHECK(slab->part(0)[12345] == std::byte{0x5A});
}

TEST_CASE("SlabPool: trim unmaps what is free") {
  const auto pool = SlabPool::make();
  const std::array<std::uint64_t, 1> sizes{8u << 20};
  REQUIRE(pool->allocate(sizes));
  CHECK(pool->statistics().bytes >= (8u << 20));
  pool->trim();
  CHECK(pool->statistics().bytes == 0);
}
