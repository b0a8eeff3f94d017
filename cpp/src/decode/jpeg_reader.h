#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "decode/crop.h"
#include "headpond/result.h"

namespace headpond::decode {

// A picture of more pixels is refused (corrupt_data): twice what PIL warns about. A
// small hostile file may claim 4 gigapixels.
inline constexpr std::uint64_t kPixelsMax = 178'956'970;

// One JPEG at a time, rows from top to bottom: header, then the rows and columns of
// one region. Nothing of a picture survives into the next one. Used by one thread.
//
// Errors of all calls: wrong_type (not a JPEG, or of a kind that PIL does not read
// either); corrupt_data (a fatal error, or data that end early or hold bad codes
// where they are needed; warnings about anything else are ignored, as PIL does).
class JpegReader {
 public:
  JpegReader();
  ~JpegReader();

  // Reads the header. `record` must outlive the reading.
  enum class Exif : std::uint8_t { skip, keep };
  Result<PixelSize> open(std::span<const std::byte> record, Exif exif = Exif::skip);
  // EXIF orientation of a picture opened with Exif::keep, 1 to 8; 1 where it says nothing.
  int orientation() const;

  // Starts decoding at 1/`shrink` (1, 2, 4 or 8) of the size. `region` counts pixels
  // of the shrunken picture, which is ceil(size / shrink) large.
  struct Rows {
    std::uint32_t width;  // pixels of each row that read() makes,
    std::uint32_t skip;   // of which so many lie left of the region
  };
  Result<Rows> start(const PixelBox& region, std::uint32_t shrink);

  // The next `count` rows, four bytes a pixel: R, G, B and one without meaning.
  // Equal to those of a decode of the whole picture.
  Result<void> read(std::uint8_t* const* rows, std::uint32_t count);

  // Drops the picture; rows below the last one read are not decoded.
  void close();

 private:
  struct Decompressor;  // libjpeg's state
  std::unique_ptr<Decompressor> jpeg_;
};

}  // namespace headpond::decode
