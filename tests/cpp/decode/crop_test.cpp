#include "decode/crop.h"

#include <cmath>
#include <vector>

#include "support/catch.h"

using namespace headpond;
using namespace headpond::decode;

TEST_CASE("random_resized: every box lies in the picture and obeys scale and ratio") {
  ImageOptions options;
  for (std::uint64_t sample = 0; sample < 20'000; ++sample) {
    const PixelSize picture{static_cast<std::uint32_t>(100 + sample % 400), 375};
    SampleRandom random(1, 2, sample);
    const PixelBox box = random_resized_box(options, picture, random);
    REQUIRE(box.left + box.width <= picture.width);
    REQUIRE(box.top + box.height <= picture.height);
    REQUIRE(std::min(box.width, box.height) > 0);
    const double share =
        double{1} * box.width * box.height / (double{1} * picture.width * picture.height);
    REQUIRE(share > 0.07);
    REQUIRE(double{1} * box.width / box.height < 4.0 / 3.0 + 0.02);
    REQUIRE(double{1} * box.width / box.height > 3.0 / 4.0 - 0.02);
  }
}

TEST_CASE("random_resized: area is uniform in scale and the place uniform in what fits") {
  ImageOptions options;
  constexpr int kSamples = 40'000;
  double area = 0, left = 0;
  int landscape = 0;
  for (std::uint64_t sample = 0; sample < kSamples; ++sample) {
    SampleRandom random(5, 0, sample);
    // A square so large that every draw fits: the distribution is the plain one.
    options.scale_max = 0.5;
    const PixelBox box = random_resized_box(options, {2'000, 2'000}, random);
    area += box.width * double{1} * box.height / 4e6;
    left += box.left / (2'000.0 - box.width);
    landscape += box.width > box.height;
  }
  CHECK(area / kSamples == Approx((0.08 + 0.5) / 2).epsilon(0.01));
  CHECK(left / kSamples == Approx(0.5).epsilon(0.01));
  CHECK(landscape / double{kSamples} == Approx(0.5).epsilon(0.02));
}

TEST_CASE("random_resized: where no try fits, the centre with the nearest allowed ratio is taken") {
  ImageOptions options;
  options.scale_min = options.scale_max = 1.0;
  SampleRandom wide_random(1, 1, 1);
  CHECK(random_resized_box(options, {1'000, 30}, wide_random) == PixelBox{480, 0, 40, 30});
  SampleRandom tall_random(1, 1, 1);
  CHECK(random_resized_box(options, {30, 1'000}, tall_random) == PixelBox{0, 480, 30, 40});
  SampleRandom dot_random(1, 1, 1);
  CHECK(random_resized_box(options, {1, 1}, dot_random) == PixelBox{0, 0, 1, 1});
}

TEST_CASE("center: sizes and offsets round as torchvision's Resize and CenterCrop") {
  ImageOptions options;
  options.crop = ImageOptions::Crop::center;
  options.resize = 256;
  struct Case {
    PixelSize picture;
    PixelSize resized;
    std::uint32_t left, top;
  };
  // torchvision 0.29: Resize(256) then CenterCrop(224).
  const std::vector<Case> cases{
      {{500, 375}, {341, 256}, 58, 16},  // (341 - 224) / 2 = 58.5, to even
      {{375, 500}, {256, 341}, 16, 58}, {{500, 333}, {384, 256}, 80, 16},
      {{256, 257}, {256, 257}, 16, 16},  // 16.5, to even
      {{256, 259}, {256, 259}, 16, 18},  // 17.5, to even
      {{1, 1}, {256, 256}, 16, 16},     {{10, 1'000}, {256, 25'600}, 16, 12'688},
  };
  for (const Case& c : cases) {
    SampleRandom random(0, 0, 0);
    const View view = choose_view(options, c.picture, random);
    CHECK(view.x == AxisView{0, c.picture.width, c.resized.width, c.left, 224, false});
    CHECK(view.y == AxisView{0, c.picture.height, c.resized.height, c.top, 224, false});
  }
}

TEST_CASE("flip: half of the samples are mirrored, and asking for it moves no crop") {
  ImageOptions plain, flipped;
  flipped.flip = true;
  int mirrored = 0;
  for (std::uint64_t sample = 0; sample < 10'000; ++sample) {
    SampleRandom one(3, 0, sample), two(3, 0, sample);
    const View a = choose_view(plain, {500, 375}, one);
    View b = choose_view(flipped, {500, 375}, two);
    CHECK_FALSE(a.x.mirrored);
    mirrored += b.x.mirrored;
    b.x.mirrored = false;
    REQUIRE(a == b);
  }
  CHECK(mirrored == Approx(5'000).margin(250));
}
