#include "decode/demo_pictures.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <span>
// Needs <cstdio> before it.
#include <jpeglib.h>

#include "data/mix.h"
#include "headpond/sampler.h"

namespace headpond {
namespace {

constexpr int kWidthMax = 512;

// What SampleRandom's seed is for.
constexpr std::uint64_t kSizeSeed = 0x64656d6f00;
constexpr std::uint64_t kLookSeed = 0x64656d6f01;
constexpr std::uint64_t kPictureSeed = 0x64656d6f02;

struct Size {
  int width;
  int height;
};
constexpr std::array<Size, 8> kSizes{{{500, 375},
                                      {500, 375},
                                      {500, 375},
                                      {500, 333},
                                      {375, 500},
                                      {512, 384},
                                      {480, 360},
                                      {500, 400}}};

struct Color {
  int red;
  int green;
  int blue;
};

// Hue, saturation and value, each 0 to 1; the hue wraps.
Color color_of(double hue, double saturation, double value) {
  const auto channel = [&](double offset) {
    const double place = (hue + offset) - std::floor(hue + offset);
    const double distance = std::abs(place * 6 - 3) - 1;
    const double pure = std::min(1.0, std::max(0.0, distance));
    return static_cast<int>(255 * value * (1 - saturation * (1 - pure)));
  };
  return {channel(0), channel(2.0 / 3), channel(1.0 / 3)};
}

enum class Form : std::uint8_t { disc, ring, square, diamond, triangle, cross, frame };
constexpr std::uint32_t kForms = 7;

struct Shape {
  Form form;
  int x;
  int y;
  int radius;
  Color color;

  // In the row `dy` below the centre the shape covers what is at least `inner`
  // and less than `outer` columns from its axis.
  struct Extent {
    int inner;
    int outer;
  };
  Extent extent(int dy) const {
    const int away = std::abs(dy);
    if (away >= radius) return {0, 0};
    const auto chord = [away](int r) {
      return away >= r ? 0 : static_cast<int>(std::sqrt(static_cast<double>(r * r - away * away)));
    };
    const int hole = radius * 3 / 5;
    switch (form) {
      case Form::disc:
        return {0, chord(radius)};
      case Form::ring:
        return {chord(hole), chord(radius)};
      case Form::square:
        return {0, radius};
      case Form::diamond:
        return {0, radius - away};
      case Form::triangle:
        return {0, (dy + radius) / 2};
      case Form::cross:
        return {0, away < radius / 3 ? radius : radius / 3};
      case Form::frame:
        return {away < hole ? hole : 0, radius};
    }
    return {0, 0};
  }
};

// What the pictures of a class have in common.
struct Look {
  double hue;
  Form form;
  int pattern_x;  // the pattern's wave runs along this direction,
  int pattern_y;  // in 256ths of a wave per pixel
  int roughness;  // grey levels of the finest texture
};

Look look_of(std::uint32_t label) {
  // Multiples of the golden ratio keep the hues of any number of classes apart.
  constexpr double kGolden = 0.6180339887498949;
  SampleRandom random(kLookSeed, 0, label);
  Look look{};
  look.hue = label * kGolden;
  look.form = static_cast<Form>(label % kForms);
  const int turn = static_cast<int>(random.below(4));
  const int speed = 3 + static_cast<int>(random.below(12));
  constexpr std::array<std::array<int, 2>, 4> kDirections{{{1, 0}, {0, 1}, {1, 1}, {1, -1}}};
  look.pattern_x = speed * kDirections[static_cast<std::size_t>(turn)][0];
  look.pattern_y = speed * kDirections[static_cast<std::size_t>(turn)][1];
  look.roughness = 9 + static_cast<int>(random.below(7));
  return look;
}

// Draws one picture row by row in integers, so that it is the same on every machine.
class Picture {
 public:
  Picture(std::uint32_t label, std::uint64_t index) : look_(look_of(label)) {
    SampleRandom random(kPictureSeed, label, index);
    size_ = kSizes[SampleRandom(kSizeSeed, label, index).below(kSizes.size())];
    for (std::size_t at = 0; at < noise_.size(); at += sizeof(std::uint64_t)) {
      const std::uint64_t draw = random.next();
      for (std::size_t byte = 0; byte < sizeof draw; ++byte) {
        noise_[at + byte] = static_cast<std::int8_t>(draw >> (8 * byte));
      }
    }
    row_key_ = random.next();
    const double hue = look_.hue + random.uniform(-0.03, 0.03);
    from_ = color_of(hue, random.uniform(0.35, 0.6), random.uniform(0.35, 0.6));
    to_ = color_of(hue + random.uniform(-0.06, 0.06), random.uniform(0.3, 0.6),
                   random.uniform(0.6, 0.95));
    slope_x_ = static_cast<int>(random.uniform(-1, 1) * 65536) / size_.width;
    slope_y_ = static_cast<int>(random.uniform(-1, 1) * 65536) / size_.height;
    phase_ = static_cast<int>(random.below(256));
    place_shapes(random);
  }

  Size size() const { return size_; }

  void draw_row(int y, std::span<std::uint8_t> rgb) {
    draw_ground(y);
    draw_shapes(y);
    draw_texture(y);
    const std::int8_t* red = noise_row(5, y);
    const std::int8_t* blue = noise_row(6, y);
    for (int x = 0; x < size_.width; ++x) {
      const auto at = static_cast<std::size_t>(x);
      const int shade = shade_[at] >> 4;
      rgb[3 * at] = clamped(ground_[0][at] + shade + (red[x] >> kColorNoiseShift));
      rgb[3 * at + 1] = clamped(ground_[1][at] + shade);
      rgb[3 * at + 2] = clamped(ground_[2][at] + shade + (blue[x] >> kColorNoiseShift));
    }
  }

 private:
  static constexpr int kColorNoiseShift = 4;
  static constexpr std::size_t kNoiseOffsets = 4096;

  static std::uint8_t clamped(int value) {
    return static_cast<std::uint8_t>(std::clamp(value, 0, 255));
  }

  void place_shapes(SampleRandom& random) {
    const int shorter = std::min(size_.width, size_.height);
    count_ = 2 + random.below(3);
    for (std::size_t i = 0; i < count_; ++i) {
      Shape& shape = shapes_[i];
      shape.form = look_.form;
      shape.x = static_cast<int>(random.below(static_cast<std::uint64_t>(size_.width)));
      shape.y = static_cast<int>(random.below(static_cast<std::uint64_t>(size_.height)));
      shape.radius = static_cast<int>(random.uniform(0.1, 0.3) * shorter);
      shape.color = color_of(look_.hue + 0.4 + random.uniform(-0.05, 0.05),
                             random.uniform(0.4, 0.8), random.uniform(0.3, 0.9));
    }
  }

  // A row of noise: the same table from an offset that depends on the row.
  const std::int8_t* noise_row(int layer, int row) const {
    const auto number = static_cast<std::uint64_t>(layer) << 32 | static_cast<std::uint32_t>(row);
    return noise_.data() + mix(row_key_ ^ number) % kNoiseOffsets;
  }

  void draw_ground(int y) {
    const std::array<std::array<int, 2>, 3> ends{
        {{from_.red, to_.red}, {from_.green, to_.green}, {from_.blue, to_.blue}}};
    const int start = 32768 + slope_y_ * (y - size_.height / 2) - slope_x_ * (size_.width / 2);
    for (std::size_t channel = 0; channel < 3; ++channel) {
      const int low = ends[channel][0];
      const int difference = ends[channel][1] - low;
      int* out = ground_[channel].data();
      for (int x = 0; x < size_.width; ++x) {
        const int place = std::clamp(start + slope_x_ * x, 0, 65535);
        out[x] = low + ((place >> 4) * difference >> 12);
      }
    }
  }

  void draw_shapes(int y) {
    for (std::size_t i = 0; i < count_; ++i) {
      const Shape& shape = shapes_[i];
      const auto [inner, outer] = shape.extent(y - shape.y);
      if (outer <= inner) continue;
      if (inner == 0) {
        fill(shape.x - outer, shape.x + outer, shape.color);
      } else {
        fill(shape.x - outer, shape.x - inner, shape.color);
        fill(shape.x + inner, shape.x + outer, shape.color);
      }
    }
  }

  void fill(int from, int to, const Color& color) {
    from = std::max(from, 0);
    to = std::min(to, size_.width);
    if (from >= to) return;
    const std::array<int, 3> values{color.red, color.green, color.blue};
    for (std::size_t channel = 0; channel < 3; ++channel) {
      std::fill(ground_[channel].begin() + from, ground_[channel].begin() + to, values[channel]);
    }
  }

  // Noise on several scales, weaker where finer, as photographs have it, and the
  // class's wave; in sixteenths of a grey level.
  void draw_texture(int y) {
    int wave = phase_ + look_.pattern_y * y;
    for (int x = 0; x < size_.width; ++x, wave += look_.pattern_x) {
      shade_[static_cast<std::size_t>(x)] = (std::abs((wave & 255) - 128) - 64) * 4;
    }
    add_noise<6>(y, 44);
    add_noise<4>(y, 26);
    add_noise<2>(y, 2 * look_.roughness);
    add_noise<1>(y, look_.roughness + 4);
    add_noise<0>(y, look_.roughness);
  }

  // Value noise on a lattice of 2^kBits pixels, linear between its points.
  template <int kBits>
  void add_noise(int y, int amplitude) {
    constexpr int kCell = 1 << kBits;
    const int lattice_row = y >> kBits;
    const int below = y & (kCell - 1);
    const std::int8_t* upper = noise_row(kBits, lattice_row);
    const std::int8_t* lower = noise_row(kBits, lattice_row + 1);
    const int cells = (size_.width + kCell - 1) >> kBits;
    const auto point = [&](int i) { return upper[i] * (kCell - below) + lower[i] * below; };
    // The last cell may reach past the width, never past the row's memory.
    int* out = shade_.data();
    int left = point(0);
    for (int i = 0; i < cells; ++i) {
      const int right = point(i + 1);
      for (int x = 0; x < kCell; ++x) {
        *out++ += (left * (kCell - x) + right * x) * amplitude >> (2 * kBits + 3);
      }
      left = right;
    }
  }

  Look look_;
  Size size_{};
  std::uint64_t row_key_ = 0;
  Color from_{};
  Color to_{};
  int slope_x_ = 0;  // of the ground's colour, in 65536ths per pixel
  int slope_y_ = 0;
  int phase_ = 0;
  std::array<Shape, 4> shapes_;
  std::size_t count_ = 0;
  std::array<std::int8_t, kNoiseOffsets + std::size_t{2} * kWidthMax> noise_;
  std::array<std::array<int, kWidthMax>, 3> ground_;
  std::array<int, kWidthMax + 64> shade_;
};

// Owns libjpeg's state and output. libjpeg reports errors by a jump, so nothing
// that needs a destructor lives in a function that it may leave.
struct Encoder {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  std::jmp_buf escape{};
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  std::array<char, JMSG_LENGTH_MAX> message{};

  Encoder() = default;
  Encoder(const Encoder&) = delete;
  Encoder& operator=(const Encoder&) = delete;
  ~Encoder() {
    jpeg_destroy_compress(&info);
    std::free(bytes);
  }
};

void leave(j_common_ptr info) {
  auto* encoder = static_cast<Encoder*>(info->client_data);
  (*info->err->format_message)(info, encoder->message.data());
  std::longjmp(encoder->escape, 1);
}

bool encode(Encoder& encoder, Picture& picture, std::span<std::uint8_t> row, bool halve_colors) {
  auto& info = encoder.info;
  info.err = jpeg_std_error(&encoder.errors);
  encoder.errors.error_exit = leave;
  info.client_data = &encoder;
  if (setjmp(encoder.escape) != 0) return false;
  jpeg_create_compress(&info);
  jpeg_mem_dest(&info, &encoder.bytes, &encoder.size);
  info.image_width = static_cast<JDIMENSION>(picture.size().width);
  info.image_height = static_cast<JDIMENSION>(picture.size().height);
  info.input_components = 3;
  info.in_color_space = JCS_RGB;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, 92, TRUE);
  info.comp_info[0].h_samp_factor = halve_colors ? 2 : 1;
  info.comp_info[0].v_samp_factor = halve_colors ? 2 : 1;
  jpeg_start_compress(&info, TRUE);
  for (int y = 0; y < picture.size().height; ++y) {
    picture.draw_row(y, row);
    JSAMPROW line = row.data();
    jpeg_write_scanlines(&info, &line, 1);
  }
  jpeg_finish_compress(&info);
  return true;
}

}  // namespace

Result<std::vector<std::byte>> make_demo_picture(std::uint32_t label, std::uint64_t index) {
  Picture picture(label, index);
  std::array<std::uint8_t, std::size_t{3} * kWidthMax> row;
  Encoder encoder;
  if (!encode(encoder, picture, row, index % 4 == 3)) {
    return Error(ErrorCode::internal, encoder.message.data()).in("encoding a demo picture");
  }
  const auto* bytes = reinterpret_cast<const std::byte*>(encoder.bytes);
  return std::vector<std::byte>(bytes, bytes + encoder.size);
}

}  // namespace headpond
