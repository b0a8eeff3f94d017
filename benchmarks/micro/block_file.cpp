// What checking costs: CRC32C alone, reads of a cached block with and without, verify.
//
//   micro_block_file [FOLDER]      (default /dev/shm: the page cache and no disk)
#include "cache/block_file.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/digest.h"
#include "cache/fill_file.h"

using namespace headpond;

namespace {

double cpu_seconds() {
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// CPU seconds per GB (1e9 bytes), the least of some rounds; each round moves `bytes` several times.
double seconds_per_gb(std::uint64_t bytes, const std::function<void()>& once) {
  double best = 1e9;
  once();
  for (int round = 0; round < 7; ++round) {
    const std::uint64_t times = std::max<std::uint64_t>(1, 400'000'000 / bytes);
    const double start = cpu_seconds();
    for (std::uint64_t i = 0; i < times; ++i) once();
    best = std::min(best, (cpu_seconds() - start) * 1e9 / static_cast<double>(bytes * times));
  }
  return best;
}

void print(const char* what, double seconds) {
  std::printf("%-52s %7.4f CPU s/GB  %6.2f GB/s\n", what, seconds, 1 / seconds);
}

void check(bool held, const char* what) {
  if (held) return;
  std::fprintf(stderr, "%s failed\n", what);
  std::exit(1);
}

void sums() {
  std::uint32_t sum = 0;
  for (const std::size_t size : {4096u, 262'144u, 4u << 20}) {
    const std::vector<std::byte> bytes(size, std::byte{7});
    const auto name = "crc32c of " + std::to_string(size) + " bytes";
    print(name.c_str(), seconds_per_gb(size, [&] { sum += crc32c(bytes, sum); }));
  }
  if (sum == 42) std::puts("");  // the results are used
}

void reads(const PublishedBlock& block, int fd, std::uint64_t payload_offset) {
  std::vector<std::byte> out(block.bytes());
  for (const std::size_t size : {4096u, 10'000u, 110'000u, 1u << 20, 4u << 20}) {
    // Neighbouring records as they lie in shards: hardly one begins where a cell does.
    const auto each_piece = [&](auto&& read) {
      for (std::uint64_t at = 0; at + size <= block.bytes(); at += size)
        read(Piece{at, std::span(out).subspan(at, size)});
    };
    const std::uint64_t bytes = block.bytes() / size * size;
    const double bare = seconds_per_gb(bytes, [&] {
      each_piece([&](const Piece& piece) {
        const auto got = ::pread(fd, piece.out.data(), piece.out.size(),
                                 static_cast<off_t>(payload_offset + piece.offset));
        check(got == static_cast<ssize_t>(piece.out.size()), "pread");
      });
    });
    const double checked = seconds_per_gb(bytes, [&] {
      each_piece([&](const Piece& piece) {
        const auto done = block.read({&piece, 1}, Wait::allowed);
        check(done && *done == 1, "read");
      });
    });
    const std::string name = "read in pieces of " + std::to_string(size);
    print((name + ", bare pread").c_str(), bare);
    print((name + ", checked").c_str(), checked);
    print((name + ", the check").c_str(), checked - bare);
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::string folder = std::string(argc > 1 ? argv[1] : "/dev/shm") + "/headpond-XXXXXX";
  check(::mkdtemp(folder.data()) != nullptr, "mkdtemp");
  sums();
  {
    const auto cache = CacheFolder::open(folder, std::make_shared<CacheOps>());
    check(cache.has_value(), "opening the cache");
    constexpr std::uint64_t kBytes = 4 << 20;
    ObjectVersion version;
    version.size = kBytes;
    const Block block = make_block({{"http://origin/shard-000000.tar", version, {0, kBytes}}});
    std::vector<std::byte> payload(kBytes);
    for (std::size_t i = 0; i < kBytes; ++i) payload[i] = static_cast<std::byte>(i * i >> 7);
    FillClaims claims;
    const auto fill = [&] {
      auto begun = FillFile::begin(*cache, block, *claims.claim(block.key));
      check(begun.has_value(), "filling");
      const auto file = std::get<std::unique_ptr<FillFile>>(*std::move(begun));
      for (std::uint64_t at = 0; at < kBytes; at += 262'144)
        check(file->write(at, std::span(payload).subspan(at, 262'144)).has_value(), "writing");
      check(file->publish(nullptr).value(), "publishing");
    };
    print("fill and publish in pieces of 262144", seconds_per_gb(kBytes, [&] {
            (*cache)->remove_block(block.key).value();
            fill();
          }));
    const auto published = PublishedBlock::open(*cache, block);
    check(published && *published, "opening the block");
    const int fd = (*cache)->open_block(block.key);
    print("verify", seconds_per_gb(
                        kBytes, [&] { check((*published)->wrong_cells()->empty(), "verifying"); }));
    reads(**published, fd, layout_of(block)->header_bytes);
    ::close(fd);
    std::vector<BlockExtent> extents;
    for (int i = 0; i < 419; ++i) {
      version.size = 10'000;
      extents.push_back(
          {"http://origin/train/" + std::to_string(i) + ".jpg", version, {0, 10'000}});
    }
    const Block bundle = make_block(std::move(extents));
    std::printf("%-52s %7.2f us\n", "the head of a bundle of 419 objects",
                seconds_per_gb(100'000, [&] { check(!encode_head(bundle).empty(), "encoding"); }) *
                    1e-9 * 100'000 * 1e6);
    const auto opens = [&] { check(PublishedBlock::open(*cache, block)->has_value(), "open"); };
    std::printf("%-52s %7.2f us\n", "open a block of one object",
                seconds_per_gb(100'000, opens) * 1e-9 * 100'000 * 1e6);
  }
  std::filesystem::remove_all(folder);
  return 0;
}
