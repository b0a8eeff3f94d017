#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <vector>

#include "decode/crop.h"
#include "decode/exif.h"
#include "decode/half.h"
#include "headpond/decoder.h"
#include "plain_reference.h"
#include "support/catch.h"
#include "support/jpeg_maker.h"

using namespace headpond;
using namespace headpond::decode;

namespace {

constexpr SampleContext kContext{11, 3, 42};

std::vector<std::byte> decode_image(const ImageOptions& options, std::span<const std::byte> jpeg,
                                    const SampleContext& context = kContext) {
  const auto decoder = make_image_decoder(options);
  REQUIRE(decoder);
  Scratch scratch;
  std::vector<std::byte> out((*decoder)->output_bytes_max(jpeg.size()));
  const auto written = (*decoder)->decode(jpeg, context, out, scratch);
  if (!written) FAIL(written.error().to_string());
  CHECK(*written == out.size());
  return out;
}

Pixels plain_image(const ImageOptions& options, std::span<const std::byte> jpeg,
                   int orientation = 1) {
  const Pixels picture = plain_turn(plain_decode(jpeg), orientation);
  SampleRandom random(kContext.seed, kContext.epoch, kContext.sample);
  return plain_view(picture, choose_view(options, {picture.width, picture.height}, random));
}

void check_close(const ImageOptions& options, const JpegRecipe& recipe) {
  INFO(recipe.width << "x" << recipe.height << " to " << options.width << "x" << options.height
                    << " channels " << recipe.channels);
  const auto jpeg = make_jpeg(recipe);
  const auto shown = decode_image(options, jpeg);
  const int orientation = options.exif && recipe.orientation != 0 ? recipe.orientation : 1;
  const Difference apart = difference(plain_image(options, jpeg, orientation), shown);
  CHECK(apart.mean <= 0.6);
  CHECK(apart.p999 <= 2);
}

ImageOptions small_options() {
  ImageOptions options;
  options.width = 48;
  options.height = 40;
  return options;
}

}  // namespace

TEST_CASE("image: every crop mode shows what PIL shows") {
  ImageOptions options = small_options();
  options.crop = GENERATE(ImageOptions::Crop::random_resized, ImageOptions::Crop::center,
                          ImageOptions::Crop::none);
  options.flip = GENERATE(false, true);
  if (options.crop == ImageOptions::Crop::center) options.resize = 55;
  for (const int sampling : {1, 2}) {
    JpegRecipe recipe;
    recipe.horizontal = recipe.vertical = sampling;
    for (const unsigned side : {1u, 2u, 3u, 9u, 47u, 64u, 150u}) {
      recipe.width = side;
      for (const unsigned other : {1u, 2u, 17u, 40u, 130u}) {
        recipe.height = other;
        check_close(options, recipe);
      }
    }
  }
}

TEST_CASE("image: every kind of JPEG shows what PIL shows") {
  JpegRecipe recipe;
  recipe.width = 123;
  recipe.height = 91;
  SECTION("grey") { recipe.channels = 1, recipe.horizontal = recipe.vertical = 1; }
  SECTION("progressive") { recipe.progressive = true; }
  SECTION("4:2:2") { recipe.vertical = 1; }
  SECTION("4:4:0") { recipe.horizontal = 1; }
  SECTION("4:1:1") { recipe.horizontal = 4, recipe.vertical = 1; }
  SECTION("CMYK") { recipe.channels = 4, recipe.horizontal = recipe.vertical = 1; }
  SECTION("YCCK") { recipe.channels = 4, recipe.ycck = true; }
  SECTION("RGB") { recipe.as_rgb = true, recipe.horizontal = recipe.vertical = 1; }
  SECTION("restart markers") { recipe.restart_rows = 2; }
  check_close(small_options(), recipe);
}

TEST_CASE("image: a picture much larger than the result is decoded smaller and still PIL's") {
  ImageOptions options = small_options();
  options.width = options.height = 20;
  options.crop = GENERATE(ImageOptions::Crop::random_resized, ImageOptions::Crop::center,
                          ImageOptions::Crop::none);
  for (const unsigned side : {81u, 160u, 333u, 640u}) {
    JpegRecipe recipe;
    recipe.width = side + 13;
    recipe.height = side;
    const auto jpeg = make_jpeg(recipe);
    ImageOptions complete = options;
    if (options.crop == ImageOptions::Crop::center) complete.resize = 20u * 256 / 224;
    const Difference apart = difference(plain_image(complete, jpeg), decode_image(options, jpeg));
    INFO("side " << side);
    CHECK(apart.mean <= 1.0);
    CHECK(apart.p999 <= 6);
  }
}

TEST_CASE("image: exif=True turns the picture before the crop, exif=False ignores it") {
  ImageOptions options = small_options();
  options.exif = GENERATE(false, true);
  options.flip = true;
  options.crop = GENERATE(ImageOptions::Crop::random_resized, ImageOptions::Crop::none);
  for (int orientation = 0; orientation <= 8; ++orientation) {
    JpegRecipe recipe;
    recipe.width = 90;
    recipe.height = 61;
    recipe.orientation = orientation;
    INFO("orientation " << orientation);
    check_close(options, recipe);
  }
}

TEST_CASE("exif: a directory cut anywhere or out of bounds means upright") {
  const auto whole = exif_segment(6);
  CHECK(exif_orientation(whole) == 6);
  for (std::size_t size = 0; size < 26; ++size) {
    CHECK(exif_orientation(std::span(whole).first(size)) == 1);
  }
  auto far = whole;
  far[10] = std::byte{0xFF};  // the directory's offset
  CHECK(exif_orientation(far) == 1);
  CHECK(exif_orientation(exif_segment(9)) == 1);
  CHECK(exif_orientation(exif_segment(0)) == 1);
}

TEST_CASE("image: layout and dtype change places and types, not pixels") {
  ImageOptions options = small_options();
  options.exif = GENERATE(false, true);
  JpegRecipe recipe;
  recipe.orientation = 6;
  const auto jpeg = make_jpeg(recipe);
  const auto plain = decode_image(options, jpeg);

  options.layout = GENERATE(ImageOptions::Layout::nhwc, ImageOptions::Layout::nchw);
  options.dtype = GENERATE(DType::uint8, DType::float32, DType::float16);
  if (options.dtype != DType::uint8) {
    options.mean = {123.675f, 116.28f, 103.53f};
    options.std = {58.395f, 57.12f, 57.375f};
  }
  const auto made = decode_image(options, jpeg);
  const bool nhwc = options.layout == ImageOptions::Layout::nhwc;
  for (std::size_t y = 0; y < 40; ++y) {
    for (std::size_t x = 0; x < 48; ++x) {
      for (std::size_t c = 0; c < 3; ++c) {
        const auto level = std::to_integer<std::uint8_t>(plain[(y * 48 + x) * 3 + c]);
        const std::size_t at = nhwc ? (y * 48 + x) * 3 + c : (c * 40 + y) * 48 + x;
        if (options.dtype == DType::uint8) {
          REQUIRE(std::to_integer<std::uint8_t>(made[at]) == level);
          continue;
        }
        const float expected = (static_cast<float>(level) - options.mean[c]) / options.std[c];
        if (options.dtype == DType::float32) {
          float value;
          std::memcpy(&value, &made[at * 4], 4);
          REQUIRE(value == expected);
        } else {
          std::uint16_t bits;
          std::memcpy(&bits, &made[at * 2], 2);
          REQUIRE(half_to_float(bits) == Approx(expected).margin(0.002));
        }
      }
    }
  }
}

TEST_CASE("image: pixels depend on seed, epoch and sample only") {
  const auto jpeg = make_jpeg({});
  ImageOptions options = small_options();
  options.flip = true;
  const auto first = decode_image(options, jpeg, {1, 2, 3});
  CHECK(first == decode_image(options, jpeg, {1, 2, 3}));
  CHECK(first != decode_image(options, jpeg, {2, 2, 3}));
  CHECK(first != decode_image(options, jpeg, {1, 3, 3}));
  CHECK(first != decode_image(options, jpeg, {1, 2, 4}));
}

TEST_CASE("image: once every size was seen, a worker allocates nothing more of its own") {
  const auto decoder = make_image_decoder(small_options());
  REQUIRE(decoder);
  std::vector<std::vector<std::byte>> jpegs;
  for (const unsigned side : {30u, 100u, 333u}) {
    JpegRecipe recipe;
    recipe.width = side;
    jpegs.push_back(make_jpeg(recipe));
  }
  Scratch scratch;
  std::vector<std::byte> out((*decoder)->output_bytes_max(0));
  const auto run = [&](std::uint64_t epoch) {
    for (std::uint64_t sample = 0; sample < 200; ++sample) {
      REQUIRE((*decoder)->decode(jpegs[sample % 3], {1, epoch, sample}, out, scratch));
    }
  };
  run(0);
  const auto before = scratch.allocations();
  run(1);
  CHECK(scratch.allocations() == before);
}

TEST_CASE("image: the caller's slots of the scratch memory stay as they are") {
  JpegRecipe recipe;
  recipe.progressive = GENERATE(false, true);
  const auto jpeg = make_jpeg(recipe);
  const auto decoder = make_image_decoder(small_options());
  REQUIRE(decoder);
  Scratch scratch;
  std::vector<std::byte> out((*decoder)->output_bytes_max(0));
  std::vector<std::span<std::byte>> records;
  for (std::size_t slot = 0; slot < Scratch::kDecoderSlots; ++slot) {
    records.push_back(scratch.get(slot, jpeg.size()));
    std::copy(jpeg.begin(), jpeg.end(), records.back().begin());
  }
  for (const auto& record : records) {
    REQUIRE((*decoder)->decode(record, kContext, out, scratch));
    CHECK(out == decode_image(small_options(), jpeg));
    CHECK(std::equal(jpeg.begin(), jpeg.end(), record.begin(), record.end()));
  }
}

TEST_CASE("image: a damaged picture leaves the worker usable") {
  const auto decoder = make_image_decoder(small_options());
  REQUIRE(decoder);
  const auto jpeg = make_jpeg({});
  Scratch scratch;
  std::vector<std::byte> out((*decoder)->output_bytes_max(0)), again = out;
  REQUIRE((*decoder)->decode(jpeg, kContext, out, scratch));
  for (std::size_t size = 0; size < jpeg.size(); size += 97) {
    const auto cut = (*decoder)->decode(std::span(jpeg).first(size), kContext, again, scratch);
    if (!cut) CHECK((cut.error().code() == ErrorCode::corrupt_data || size < 2));
  }
  REQUIRE((*decoder)->decode(jpeg, kContext, again, scratch));
  CHECK(again == out);
}

TEST_CASE("image: wrong options are refused when the decoder is made") {
  using Change = void (*)(ImageOptions&);
  const std::vector<std::pair<const char*, Change>> changes{
      {"size", [](ImageOptions& o) { o.width = 0; }},
      {"size", [](ImageOptions& o) { o.height = 70'000; }},
      {"resize", [](ImageOptions& o) { o.resize = 256; }},
      {"resize", [](ImageOptions& o) { o.crop = ImageOptions::Crop::center, o.resize = 10; }},
      {"scale", [](ImageOptions& o) { o.scale_min = 0; }},
      {"scale", [](ImageOptions& o) { o.scale_min = 1, o.scale_max = 0.5; }},
      {"ratio", [](ImageOptions& o) { o.ratio_min = -1; }},
      {"dtype", [](ImageOptions& o) { o.dtype = DType::int64; }},
      {"mean",
       [](ImageOptions& o) {
         o.mean = {1, 2, 3};
       }},
      {"mean", [](ImageOptions& o) { o.dtype = DType::float32, o.mean = {1}; }},
      {"std",
       [](ImageOptions& o) {
         o.dtype = DType::float32, o.std = {1, 0, 1};
       }},
  };
  for (const auto& [name, change] : changes) {
    ImageOptions options;
    change(options);
    const auto decoder = make_image_decoder(options);
    REQUIRE_FALSE(decoder);
    CHECK(decoder.error().code() == ErrorCode::invalid_argument);
    CHECK_THAT(decoder.error().message(), Catch::Matchers::ContainsSubstring(name));
  }
}
