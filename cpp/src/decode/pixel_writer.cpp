#include "decode/pixel_writer.h"

#include <cstring>

#include "decode/half.h"

namespace headpond::decode {
namespace {

template <class T, class Convert>
std::array<std::array<T, 256>, 3> make_table(const ImageOptions& options, Convert convert) {
  std::array<std::array<T, 256>, 3> table;
  for (std::size_t c = 0; c < 3; ++c) {
    const float mean = options.mean.empty() ? 0.0f : options.mean[c];
    const float deviation = options.std.empty() ? 1.0f : options.std[c];
    for (std::size_t level = 0; level < 256; ++level) {
      table[c][level] = convert((static_cast<float>(level) - mean) / deviation);
    }
  }
  return table;
}

}  // namespace

PixelWriter::PixelWriter(const ImageOptions& options, const ResizeKernels& kernels)
    : width_(options.width), height_(options.height), layout_(options.layout), kernels_(&kernels) {
  switch (options.dtype) {
    case DType::float32:
      tables_ = make_table<float>(options, [](float value) { return value; });
      break;
    case DType::float16:
      tables_ = make_table<std::uint16_t>(options, float_to_half);
      break;
    default:
      tables_ = make_table<std::uint8_t>(
          ImageOptions{}, [](float value) { return static_cast<std::uint8_t>(value); });
  }
}

std::uint64_t PixelWriter::bytes() const {
  const auto item = std::visit([](const auto& table) { return sizeof table[0][0]; }, tables_);
  return width_ * height_ * 3 * item;
}

void PixelWriter::write(std::span<const std::uint8_t> pixels, std::uint32_t y, bool transposed,
                        std::byte* out) const {
  const bool plain = tables_.index() == 0 && layout_ == ImageOptions::Layout::nhwc && !transposed;
  if (plain) {
    auto* row = reinterpret_cast<std::uint8_t*>(out) + y * width_ * 3;
    return kernels_->pack_rgb(pixels.data(), width_, row);
  }
  std::visit([&](const auto& table) { look_up(table, pixels, y, transposed, out); }, tables_);
}

template <class T>
void PixelWriter::look_up(const Table<T>& table, std::span<const std::uint8_t> pixels,
                          std::uint32_t y, bool transposed, std::byte* out) const {
  const bool nhwc = layout_ == ImageOptions::Layout::nhwc;
  const std::size_t column = (nhwc ? 3 : 1) * sizeof(T);
  const std::size_t row = column * width_;
  const std::size_t channel = nhwc ? sizeof(T) : row * height_;
  const std::size_t step = transposed ? row : column;
  for (std::size_t c = 0; c < 3; ++c) {
    std::byte* to = out + c * channel + y * (transposed ? column : row);
    for (std::size_t x = 0; x * 4 < pixels.size(); ++x) {
      std::memcpy(to + x * step, &table[c][pixels[x * 4 + c]], sizeof(T));
    }
  }
}

}  // namespace headpond::decode
