#include "decode/jpeg_reader.h"

#include <algorithm>
#include <string>
#include <vector>

#include "plain_reference.h"
#include "support/catch.h"
#include "support/jpeg_maker.h"

using namespace headpond;
using namespace headpond::decode;

namespace {

// Rows of `box` as the reader makes them.
Result<Pixels> read_box(JpegReader& reader, std::span<const std::byte> jpeg, const PixelBox& box) {
  if (auto size = reader.open(jpeg); !size) return std::move(size).error();
  const auto rows = reader.start(box, 1);
  if (!rows) return std::move(rows).error();
  Pixels pixels{box.width, box.height,
                std::vector<double>(std::size_t{box.width} * box.height * 3)};
  std::vector<std::uint8_t> row(std::size_t{rows->width} * 4);
  for (std::uint32_t y = 0; y < box.height; ++y) {
    std::uint8_t* to = row.data();
    if (auto read = reader.read(&to, 1); !read) return std::move(read).error();
    for (std::uint32_t x = 0; x < box.width; ++x) {
      for (std::size_t c = 0; c < 3; ++c) pixels.at(x, y, c) = row[(rows->skip + x) * 4 + c];
    }
  }
  reader.close();
  return pixels;
}

void check_all_boxes(const JpegRecipe& recipe, std::uint32_t step) {
  INFO(recipe.width << "x" << recipe.height << " channels " << recipe.channels << " sampling "
                    << recipe.horizontal << "x" << recipe.vertical << " progressive "
                    << recipe.progressive);
  const auto jpeg = make_jpeg(recipe);
  const Pixels whole = plain_decode(jpeg);
  JpegReader reader;
  for (std::uint32_t top = 0; top < recipe.height; top += step) {
    for (std::uint32_t left = 0; left < recipe.width; left += step) {
      const std::uint32_t width = std::min(recipe.width - left, 1 + (left * 7 + top * 3) % 40);
      const std::uint32_t height = std::min(recipe.height - top, 1 + (left * 5 + top) % 40);
      const PixelBox box{left, top, width, height};
      auto pixels = read_box(reader, jpeg, box);
      INFO("box " << left << " " << top << " " << width << " " << height);
      REQUIRE(pixels);
      REQUIRE(pixels->rgb == plain_crop(whole, box).rgb);
    }
  }
}

}  // namespace

TEST_CASE("JpegReader: any box of a small picture equals that of the whole decode") {
  const auto channels = GENERATE(1, 3);
  for (std::uint32_t width = 1; width <= 40; width += width < 18 ? 1 : 5) {
    for (std::uint32_t height = 1; height <= 40; height += height < 18 ? 1 : 5) {
      JpegRecipe recipe;
      recipe.width = width;
      recipe.height = height;
      recipe.channels = channels;
      if (channels == 1) recipe.horizontal = recipe.vertical = 1;
      check_all_boxes(recipe, 7);
    }
  }
}

TEST_CASE("JpegReader: boxes equal those of the whole decode for every sampling") {
  struct Sampling {
    int horizontal, vertical;
  };
  for (const Sampling s :
       {Sampling{1, 1}, {2, 1}, {1, 2}, {2, 2}, {4, 1}, {1, 4}, {4, 2}, {2, 4}}) {
    for (const bool progressive : {false, true}) {
      JpegRecipe recipe;
      recipe.width = 131;
      recipe.height = 117;
      recipe.horizontal = s.horizontal;
      recipe.vertical = s.vertical;
      recipe.progressive = progressive;
      check_all_boxes(recipe, 11);
    }
  }
}

TEST_CASE(
    "JpegReader: restart markers, arithmetic coding, RGB, CMYK and YCCK equal the whole decode") {
  JpegRecipe recipe;
  recipe.width = 90;
  recipe.height = 70;
  SECTION("restart markers") { recipe.restart_rows = 1; }
  SECTION("arithmetic") { recipe.arithmetic = true; }
  SECTION("RGB") { recipe.as_rgb = true, recipe.horizontal = recipe.vertical = 1; }
  SECTION("CMYK") { recipe.channels = 4, recipe.horizontal = recipe.vertical = 1; }
  SECTION("YCCK") { recipe.channels = 4, recipe.ycck = true; }
  check_all_boxes(recipe, 9);
}

TEST_CASE("JpegReader: nothing of a picture survives into the next one") {
  const auto whole = make_jpeg({});
  std::vector<std::byte> bare{whole[0], whole[1]};  // the same without its tables
  for (std::size_t at = 2; at + 4 < whole.size();) {
    const auto kind = std::to_integer<unsigned>(whole[at + 1]);
    const std::size_t length = 2 + (std::to_integer<std::size_t>(whole[at + 2]) << 8) +
                               std::to_integer<std::size_t>(whole[at + 3]);
    const bool last = kind == 0xDA;
    const auto end = last ? whole.end() : whole.begin() + static_cast<std::ptrdiff_t>(at + length);
    if (kind != 0xDB) bare.insert(bare.end(), whole.begin() + static_cast<std::ptrdiff_t>(at), end);
    if (last) break;
    at += length;
  }
  const PixelBox box{0, 0, 100, 80};
  JpegReader reader;
  REQUIRE(read_box(reader, whole, box));
  const auto pixels = read_box(reader, bare, box);
  REQUIRE_FALSE(pixels);
  CHECK(pixels.error().code() == ErrorCode::corrupt_data);
  CHECK(read_box(reader, whole, box));
}

TEST_CASE("JpegReader: a cut is damage only for boxes that need what is missing") {
  JpegRecipe recipe;
  recipe.width = 320;
  recipe.height = 256;
  recipe.horizontal = recipe.vertical = GENERATE(1, 2);
  const auto jpeg = make_jpeg(recipe);
  const Pixels whole = plain_decode(jpeg);
  JpegReader reader;
  for (std::size_t part = 0; part < 16; ++part) {
    const auto cut = std::span(jpeg).first(jpeg.size() * part / 16);
    INFO("cut after " << part << " sixteenths");
    const auto below = read_box(reader, cut, {10, 240, 100, 16});
    REQUIRE_FALSE(below);
    CHECK(below.error().code() == (part == 0 ? ErrorCode::wrong_type : ErrorCode::corrupt_data));
    // The headers are short and the texture is the same everywhere, so a row's bytes
    // lie about where the row lies in the picture.
    const auto safe = static_cast<std::uint32_t>(part > 2 ? (part - 2) * 16 : 0);
    if (safe == 0) continue;
    const PixelBox box{50, 0, 200, safe};
    const auto above = read_box(reader, cut, box);
    REQUIRE(above);
    CHECK(above->rgb == plain_crop(whole, box).rgb);
  }
}

TEST_CASE("JpegReader: a progressive file that ends early is damaged wherever the box lies") {
  JpegRecipe recipe;
  recipe.progressive = true;
  const auto jpeg = make_jpeg(recipe);
  JpegReader reader;
  REQUIRE(read_box(reader, jpeg, {0, 0, 10, 10}));
  for (std::size_t size = jpeg.size() - 2; size > 2; size -= size / 16 + 1) {
    const auto pixels = read_box(reader, std::span(jpeg).first(size), {0, 0, 10, 10});
    REQUIRE_FALSE(pixels);
    CHECK(pixels.error().code() == ErrorCode::corrupt_data);
  }
}

TEST_CASE(
    "JpegReader: bad codes are damage, bytes after the end and unknown Adobe colours are not") {
  JpegRecipe recipe;
  recipe.width = recipe.height = 64;
  auto jpeg = make_jpeg(recipe);
  JpegReader reader;
  SECTION("bytes after the end") {
    jpeg.insert(jpeg.end(), 100, std::byte{0x55});
    CHECK(read_box(reader, jpeg, {0, 0, 64, 64}));
  }
  SECTION("bytes before a marker of the header") {
    jpeg.insert(jpeg.begin() + 2, 5, std::byte{0x55});
    CHECK(read_box(reader, jpeg, {0, 0, 64, 64}));
  }
  SECTION("an unknown colour transform in the Adobe marker") {
    const unsigned char marker[] = {0xFF, 0xEE, 0,   14, 'A', 'd', 'o', 'b',
                                    'e',  0,    100, 0,  0,   0,   0,   9};
    const auto* bytes = reinterpret_cast<const std::byte*>(marker);
    jpeg.insert(jpeg.begin() + 2, bytes, bytes + sizeof marker);
    CHECK(read_box(reader, jpeg, {0, 0, 64, 64}));
  }
  SECTION("a marker within the picture") {
    jpeg[jpeg.size() / 2] = std::byte{0xFF};
    jpeg[jpeg.size() / 2 + 1] = std::byte{0xD9};
    const auto pixels = read_box(reader, jpeg, {0, 0, 64, 64});
    REQUIRE_FALSE(pixels);
    CHECK(pixels.error().code() == ErrorCode::corrupt_data);
  }
}

TEST_CASE("JpegReader: a header that claims gigapixels is refused") {
  auto jpeg = make_jpeg({});
  for (std::size_t at = 2; at + 9 < jpeg.size(); ++at) {
    if (jpeg[at] != std::byte{0xFF} || jpeg[at + 1] != std::byte{0xC0}) continue;
    std::fill_n(jpeg.begin() + static_cast<std::ptrdiff_t>(at + 5), 4, std::byte{0xF0});
    break;
  }
  JpegReader reader;
  const auto size = reader.open(jpeg);
  REQUIRE_FALSE(size);
  CHECK(size.error().code() == ErrorCode::corrupt_data);
  CHECK_THAT(size.error().message(), Catch::Matchers::ContainsSubstring("limit"));
}

TEST_CASE("JpegReader: what is not a JPEG is named by its bytes") {
  struct Case {
    std::string bytes;
    const char* name;
  };
  using namespace std::string_literals;
  const std::vector<Case> cases{
      {"\x89PNG\r\n\x1A\n123", "PNG"},
      {"GIF89a123", "GIF"},
      {"RIFF\1\2\3\4WEBPVP8 ", "WebP"},
      {"BM12345678", "BMP"},
      {"II*\0\1\2\3\4"s, "TIFF"},
      {"MM\0*\1\2\3\4"s, "TIFF"},
      {"\0\0\0\x18"
       "ftypheic\0\0"s,
       "HEIC"},
      {"\0\0\0\x18"
       "ftypavif\0\0"s,
       "AVIF"},
      {"\n <!DOCTYPE html><html>", "HTML"},
      {"<Error><Code>AccessDenied", "XML"},
      {"", "empty"},
      {std::string(100, '\0'), "zeros"},
      {"\x01\x02hello", "bytes 01 02 68"},
      {"\xFF", "bytes FF"},
  };
  JpegReader reader;
  for (const Case& c : cases) {
    const auto size = reader.open(std::as_bytes(std::span(c.bytes)));
    REQUIRE_FALSE(size);
    CHECK(size.error().code() == ErrorCode::wrong_type);
    CHECK_THAT(size.error().message(), Catch::Matchers::ContainsSubstring(c.name));
  }
}
