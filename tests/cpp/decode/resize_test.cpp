#include "decode/resize.h"

#include <cstring>
#include <random>
#include <vector>

#include "support/catch.h"

using namespace headpond;
using namespace headpond::decode;

namespace {

AxisRequest whole(std::uint32_t source, std::uint32_t resized) {
  return {0.0, static_cast<double>(source), resized, 0, resized, false};
}

}  // namespace

TEST_CASE("Axis: weights of every result pixel add up to one and lie inside the source") {
  Scratch scratch;
  for (std::uint32_t source = 1; source <= 40; ++source) {
    for (std::uint32_t resized = 1; resized <= 40; ++resized) {
      const Axis axis = plan_axis(whole(source, resized), scratch, 0);
      REQUIRE(axis.begin == 0);
      REQUIRE(axis.end == source);
      REQUIRE(axis.taps % 2 == 0);
      for (std::uint32_t i = 0; i < resized; ++i) {
        int sum = 0;
        for (std::uint32_t t = 0; t < axis.taps; ++t) {
          const int weight = axis.weights[i * axis.taps + t];
          REQUIRE(weight >= 0);
          if (weight > 0) REQUIRE(axis.starts[i] + t < source);
          sum += weight;
        }
        REQUIRE(sum == 1 << kWeightBits);
      }
    }
  }
}

TEST_CASE("Axis: thousands of taps still add up to one without a negative weight") {
  Scratch scratch;
  for (const std::uint32_t source : {5'000u, 16'384u, 65'500u}) {
    const Axis axis = plan_axis(whole(source, 1), scratch, 0);
    int sum = 0;
    for (const int weight : axis.weights) {
      REQUIRE(weight >= 0);
      sum += weight;
    }
    CHECK(sum == 1 << kWeightBits);
  }
}

TEST_CASE("Axis: a cut has the weights of the same pixels of the whole") {
  Scratch scratch, other;
  const Axis all = plan_axis(whole(300, 256), scratch, 0);
  AxisRequest request = whole(300, 256);
  request.cut_first = 16;
  request.cut_count = 224;
  const Axis cut = plan_axis(request, other, 0);
  REQUIRE(cut.taps == all.taps);
  for (std::uint32_t i = 0; i < 224; ++i) {
    CHECK(cut.begin + cut.starts[i] == all.starts[i + 16]);
    CHECK(std::memcmp(&cut.weights[i * cut.taps], &all.weights[(i + 16) * all.taps],
                      cut.taps * sizeof(std::int16_t)) == 0);
  }
}

TEST_CASE("Axis: mirrored means the opposite order") {
  Scratch scratch, other;
  AxisRequest request = whole(50, 31);
  const Axis ahead = plan_axis(request, scratch, 0);
  request.mirrored = true;
  const Axis back = plan_axis(request, other, 0);
  for (std::uint32_t i = 0; i < 31; ++i) CHECK(back.starts[i] == ahead.starts[30 - i]);
}

TEST_CASE("Kernels: AVX2 gives the bytes of the scalar loops") {
  const ResizeKernels* avx2 = avx2_kernels();
  if (avx2 == nullptr) HP_SKIP("this CPU has no AVX2");
  std::mt19937 random(1);
  Scratch scratch;
  for (std::uint32_t source = 1; source <= 120; source += source < 20 ? 1 : 7) {
    for (std::uint32_t resized = 1; resized <= 40; ++resized) {
      const Axis axis = plan_axis(whole(source, resized), scratch, 0);
      const std::size_t bytes = std::size_t{source} * 4;
      std::vector<std::vector<std::uint8_t>> rows(axis.taps,
                                                  std::vector<std::uint8_t>(bytes + kSlackBytes));
      std::vector<const std::uint8_t*> pointers;
      for (auto& row : rows) {
        for (auto& value : row)
          value = static_cast<std::uint8_t>(random() % 4 == 0 ? 255 : random());
        pointers.push_back(row.data());
      }
      std::vector<std::int16_t> words(bytes + axis.taps * 4 + kSlackBytes), twin = words;
      for (std::uint32_t i = 0; i < resized; ++i) {
        const std::int16_t* weights = axis.weights.data() + i * axis.taps;
        scalar_kernels().vertical(pointers.data(), weights, axis.taps, bytes, words.data());
        avx2->vertical(pointers.data(), weights, axis.taps, bytes, twin.data());
        REQUIRE(std::memcmp(words.data(), twin.data(), bytes * sizeof(std::int16_t)) == 0);
      }
      std::vector<std::uint8_t> pixels(std::size_t{resized} * 4), other = pixels;
      scalar_kernels().horizontal(words.data(), axis, pixels.data());
      avx2->horizontal(words.data(), axis, other.data());
      REQUIRE(pixels == other);
      std::vector<std::uint8_t> rgb(std::size_t{resized} * 3), rgb_other = rgb;
      scalar_kernels().pack_rgb(pixels.data(), resized, rgb.data());
      avx2->pack_rgb(pixels.data(), resized, rgb_other.data());
      REQUIRE(rgb == rgb_other);
    }
  }
}

TEST_CASE("Scratch: memory is 64-byte aligned, kept while it suffices, and counted when it grows") {
  Scratch scratch;
  const auto first = scratch.get(3, 5'000);
  CHECK(first.size() == 5'000);
  CHECK(reinterpret_cast<std::uintptr_t>(first.data()) % 64 == 0);
  CHECK(scratch.get(3, 10).data() == first.data());
  CHECK(scratch.allocations() == 1);
  CHECK(scratch.get(0, 10).data() != first.data());
  CHECK(scratch.allocations() == 2);
  scratch.get(3, 1'000'000);
  CHECK(scratch.allocations() == 3);
}

TEST_CASE("Scratch: an object is made once per type") {
  Scratch scratch;
  struct One {
    int value = 0;
  };
  struct Two {
    int value = 0;
  };
  scratch.object<One>().value = 7;
  CHECK(scratch.object<Two>().value == 0);
  CHECK(scratch.object<One>().value == 7);
}
