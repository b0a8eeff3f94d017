#include "plain_reference.h"

#include <algorithm>
#include <cmath>

#include "decode/libjpeg.h"

namespace headpond {
namespace {

// One axis of PIL's ImagingResample with the bilinear filter: result[i] from source[x].
struct Tap {
  std::uint32_t first;
  std::vector<double> weights;
};

std::vector<Tap> taps_of(std::uint32_t source, std::uint32_t result) {
  const double scale = static_cast<double>(source) / result;
  const double support = std::max(scale, 1.0);
  std::vector<Tap> taps;
  for (std::uint32_t i = 0; i < result; ++i) {
    const double centre = (i + 0.5) * scale;
    const int first = std::max(0, static_cast<int>(centre - support + 0.5));
    const int last = std::min(static_cast<int>(source), static_cast<int>(centre + support + 0.5));
    Tap tap{static_cast<std::uint32_t>(first), {}};
    double sum = 0;
    for (int x = first; x < last; ++x) {
      tap.weights.push_back(std::max(0.0, 1.0 - std::abs((x - centre + 0.5) / support)));
      sum += tap.weights.back();
    }
    for (double& weight : tap.weights) weight /= sum;
    taps.push_back(std::move(tap));
  }
  return taps;
}

double byte_of(double value) { return std::clamp(std::floor(value + 0.5), 0.0, 255.0); }

}  // namespace

Pixels plain_decode(std::span<const std::byte> jpeg) {
  jpeg_decompress_struct info;
  jpeg_error_mgr errors;
  info.err = jpeg_std_error(&errors);
  errors.emit_message = [](j_common_ptr, int) {};
  jpeg_create_decompress(&info);
  jpeg_mem_src(&info, reinterpret_cast<const unsigned char*>(jpeg.data()), jpeg.size());
  jpeg_read_header(&info, TRUE);
  const bool cmyk = info.num_components == 4;
  info.out_color_space = cmyk ? JCS_CMYK : JCS_RGB;
  jpeg_start_decompress(&info);
  const std::size_t channels = cmyk ? 4 : 3;
  std::vector<std::uint8_t> row(std::size_t{info.output_width} * channels);
  Pixels pixels{info.output_width, info.output_height, {}};
  pixels.rgb.resize(std::size_t{info.output_width} * info.output_height * 3);
  for (std::uint32_t y = 0; y < pixels.height; ++y) {
    JSAMPROW to = row.data();
    jpeg_read_scanlines(&info, &to, 1);
    for (std::uint32_t x = 0; x < pixels.width; ++x) {
      for (std::size_t c = 0; c < 3; ++c) {
        int value = row[x * channels + c];
        if (cmyk) {
          const int black = row[x * 4 + 3];
          const int product = (255 - value) * black + 128;
          value = black - (((product >> 8) + product) >> 8);
        }
        pixels.at(x, y, c) = value;
      }
    }
  }
  jpeg_finish_decompress(&info);
  jpeg_destroy_decompress(&info);
  return pixels;
}

Pixels plain_crop(const Pixels& picture, const decode::PixelBox& box) {
  Pixels crop{box.width, box.height, std::vector<double>(std::size_t{box.width} * box.height * 3)};
  for (std::uint32_t y = 0; y < box.height; ++y) {
    for (std::uint32_t x = 0; x < box.width; ++x) {
      for (std::size_t c = 0; c < 3; ++c)
        crop.at(x, y, c) = picture.at(box.left + x, box.top + y, c);
    }
  }
  return crop;
}

Pixels plain_resize(const Pixels& picture, std::uint32_t width, std::uint32_t height) {
  const auto columns = taps_of(picture.width, width);
  const auto lines = taps_of(picture.height, height);
  Pixels wide{width, picture.height, std::vector<double>(std::size_t{width} * picture.height * 3)};
  for (std::uint32_t y = 0; y < picture.height; ++y) {
    for (std::uint32_t x = 0; x < width; ++x) {
      for (std::size_t c = 0; c < 3; ++c) {
        double sum = 0;
        for (std::uint32_t t = 0; t < columns[x].weights.size(); ++t) {
          sum += picture.at(columns[x].first + t, y, c) * columns[x].weights[t];
        }
        wide.at(x, y, c) = byte_of(sum);
      }
    }
  }
  Pixels result{width, height, std::vector<double>(std::size_t{width} * height * 3)};
  for (std::uint32_t y = 0; y < height; ++y) {
    for (std::uint32_t x = 0; x < width; ++x) {
      for (std::size_t c = 0; c < 3; ++c) {
        double sum = 0;
        for (std::uint32_t t = 0; t < lines[y].weights.size(); ++t) {
          sum += wide.at(x, lines[y].first + t, c) * lines[y].weights[t];
        }
        result.at(x, y, c) = byte_of(sum);
      }
    }
  }
  return result;
}

Pixels plain_view(const Pixels& picture, const decode::View& view) {
  Pixels crop = plain_crop(picture, {view.x.first, view.y.first, view.x.length, view.y.length});
  Pixels resized = plain_resize(crop, view.x.resized, view.y.resized);
  Pixels cut =
      plain_crop(resized, {view.x.cut_first, view.y.cut_first, view.x.cut_count, view.y.cut_count});
  return view.x.mirrored ? plain_turn(cut, 2) : cut;
}

Pixels plain_turn(const Pixels& picture, int orientation) {
  const bool exchange = orientation >= 5;
  Pixels turned{exchange ? picture.height : picture.width,
                exchange ? picture.width : picture.height, std::vector<double>(picture.rgb.size())};
  for (std::uint32_t y = 0; y < turned.height; ++y) {
    for (std::uint32_t x = 0; x < turned.width; ++x) {
      const std::uint32_t back_x = turned.width - 1 - x, back_y = turned.height - 1 - y;
      std::uint32_t from_x = x, from_y = y;
      switch (orientation) {
        case 2:
          from_x = back_x;
          break;  // FLIP_LEFT_RIGHT
        case 3:
          from_x = back_x, from_y = back_y;
          break;  // ROTATE_180
        case 4:
          from_y = back_y;
          break;  // FLIP_TOP_BOTTOM
        case 5:
          from_x = y, from_y = x;
          break;  // TRANSPOSE
        case 6:
          from_x = y, from_y = back_x;
          break;  // ROTATE_270
        case 7:
          from_x = back_y, from_y = back_x;
          break;  // TRANSVERSE
        case 8:
          from_x = back_y, from_y = x;
          break;  // ROTATE_90
        default:
          break;
      }
      for (std::size_t c = 0; c < 3; ++c) turned.at(x, y, c) = picture.at(from_x, from_y, c);
    }
  }
  return turned;
}

Difference difference(const Pixels& reference, std::span<const std::byte> shown) {
  std::vector<double> apart(reference.rgb.size());
  double sum = 0;
  for (std::size_t i = 0; i < apart.size(); ++i) {
    apart[i] = std::abs(reference.rgb[i] - std::to_integer<int>(shown[i]));
    sum += apart[i];
  }
  std::sort(apart.begin(), apart.end());
  return {sum / static_cast<double>(apart.size()), apart[apart.size() * 999 / 1000], apart.back()};
}

}  // namespace headpond
