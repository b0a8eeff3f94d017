#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>

#include "decode/resize.h"
#include "headpond/decoder.h"

namespace headpond::decode {

// The last pass: rows of four-byte pixels into the sample's place in the batch, in
// its layout and dtype, normalised. Immutable.
class PixelWriter {
 public:
  PixelWriter(const ImageOptions& options, const ResizeKernels& kernels);

  std::uint64_t bytes() const;

  // Writes row `y` (or, transposed, column `y`) of the sample at `out`.
  void write(std::span<const std::uint8_t> pixels, std::uint32_t y, bool transposed,
             std::byte* out) const;

 private:
  // A grey level has 256 values, so that converting and normalising is a look-up.
  template <class T>
  using Table = std::array<std::array<T, 256>, 3>;

  template <class T>
  void look_up(const Table<T>& table, std::span<const std::uint8_t> pixels, std::uint32_t y,
               bool transposed, std::byte* out) const;

  std::uint64_t width_;
  std::uint64_t height_;
  ImageOptions::Layout layout_;
  const ResizeKernels* kernels_;
  std::variant<Table<std::uint8_t>, Table<std::uint16_t>, Table<float>> tables_;
};

}  // namespace headpond::decode
