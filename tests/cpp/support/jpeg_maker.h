#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "decode/libjpeg.h"

namespace headpond {

// JPEGs for tests: any size, sampling, colour space and kind of scan, of a picture
// with gradients, edges and texture that is the same in every run.
struct JpegRecipe {
  unsigned width = 100;
  unsigned height = 80;
  int channels = 3;  // 1 grey, 3 colour, 4 CMYK
  int quality = 90;
  int horizontal = 2, vertical = 2;  // luma's sampling factors (4:2:0: 2, 2); chroma has 1, 1
  bool progressive = false;
  bool arithmetic = false;
  bool ycck = false;    // four channels: YCCK, not CMYK
  bool as_rgb = false;  // three channels: stored without the change to YCbCr
  unsigned restart_rows = 0;
  int orientation = 0;  // EXIF, 1 to 8; 0: none
  unsigned seed = 1;
};

inline std::vector<std::uint8_t> made_pixels(const JpegRecipe& recipe) {
  const auto channels = static_cast<unsigned>(recipe.channels);
  std::vector<std::uint8_t> pixels(std::size_t{recipe.width} * recipe.height * channels);
  std::mt19937 random(recipe.seed);
  std::size_t i = 0;
  for (unsigned y = 0; y < recipe.height; ++y) {
    for (unsigned x = 0; x < recipe.width; ++x) {
      for (unsigned c = 0; c < channels; ++c, ++i) {
        unsigned value = c == 0   ? x * 255 / recipe.width
                         : c == 1 ? y * 255 / recipe.height
                                  : 255 - (x + y) % 256;
        if ((x / 13 + y / 9) % 3 == c % 3) value = value / 2 + 100;
        value += static_cast<unsigned>(random() % 24);
        pixels[i] = static_cast<std::uint8_t>(std::min(value, 255u));
      }
    }
  }
  return pixels;
}

inline std::vector<std::byte> exif_segment(int orientation) {
  const unsigned char head[] = {
      'E', 'x', 'i', 'f',  0,    0, 'M', 'M', 0, 42, 0, 0, 0,
      8,   0,   1,   0x01, 0x12, 0, 3,   0,   0, 0,  1, 0, static_cast<unsigned char>(orientation),
      0,   0,   0,   0,    0,    0};
  const auto* bytes = reinterpret_cast<const std::byte*>(head);
  return {bytes, bytes + sizeof head};
}

inline std::vector<std::byte> make_jpeg(const JpegRecipe& recipe) {
  const std::vector<std::uint8_t> pixels = made_pixels(recipe);
  jpeg_compress_struct info;
  jpeg_error_mgr errors;
  info.err = jpeg_std_error(&errors);  // prints and exits: a bad recipe is a bug of the test
  jpeg_create_compress(&info);
  unsigned char* data = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &data, &size);
  info.image_width = recipe.width;
  info.image_height = recipe.height;
  info.input_components = recipe.channels;
  info.in_color_space = recipe.channels == 1   ? JCS_GRAYSCALE
                        : recipe.channels == 3 ? JCS_RGB
                                               : JCS_CMYK;
  jpeg_set_defaults(&info);
  if (recipe.ycck) jpeg_set_colorspace(&info, JCS_YCCK);
  if (recipe.as_rgb) jpeg_set_colorspace(&info, JCS_RGB);
  jpeg_set_quality(&info, recipe.quality, TRUE);
  info.comp_info[0].h_samp_factor = recipe.horizontal;
  info.comp_info[0].v_samp_factor = recipe.vertical;
  if (recipe.channels == 4) {  // black is sampled as the first channel
    info.comp_info[3].h_samp_factor = recipe.horizontal;
    info.comp_info[3].v_samp_factor = recipe.vertical;
  }
  if (recipe.progressive) jpeg_simple_progression(&info);
  info.arith_code = recipe.arithmetic ? TRUE : FALSE;
  info.optimize_coding = recipe.arithmetic ? FALSE : TRUE;
  info.restart_in_rows = static_cast<int>(recipe.restart_rows);
  jpeg_start_compress(&info, TRUE);
  if (recipe.orientation != 0) {
    const auto segment = exif_segment(recipe.orientation);
    jpeg_write_marker(&info, JPEG_APP0 + 1, reinterpret_cast<const JOCTET*>(segment.data()),
                      static_cast<unsigned>(segment.size()));
  }
  const std::size_t stride = std::size_t{recipe.width} * static_cast<unsigned>(recipe.channels);
  while (info.next_scanline < info.image_height) {
    JSAMPROW row = const_cast<JSAMPROW>(pixels.data() + info.next_scanline * stride);
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  std::vector<std::byte> jpeg(bytes, bytes + size);
  std::free(data);
  return jpeg;
}

}  // namespace headpond
