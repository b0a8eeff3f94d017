#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <vector>

#include "decode/jpeg_reader.h"
#include "headpond/decoder.h"

using namespace headpond;

namespace {

std::shared_ptr<const Decoder> decoder_for(ImageOptions::Crop crop) {
  ImageOptions options;
  options.crop = crop;
  options.height = 9;
  options.width = 14;
  options.exif = true;
  options.flip = true;
  return *make_image_decoder(options);
}

// One worker for all inputs: what a picture leaves behind must not change the next.
struct Worker {
  std::array<std::shared_ptr<const Decoder>, 3> decoders{
      decoder_for(ImageOptions::Crop::random_resized), decoder_for(ImageOptions::Crop::center),
      decoder_for(ImageOptions::Crop::none)};
  Scratch scratch;
};

bool is_printable(const Error& error) {
  for (const char c : error.to_string()) {
    if (c < ' ' || c > '~') return false;
  }
  return true;
}

// Sizes that cost seconds of honest work find nothing that small ones do not.
bool is_small(std::span<const std::byte> record) {
  decode::JpegReader reader;
  const auto size = reader.open(record);
  return !size || std::uint64_t{size->width} * size->height < 1'000'000;
}

}  // namespace

// Any bytes give a whole picture or one of two errors, and twice the same.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static Worker worker;
  const auto record = std::as_bytes(std::span(data, size));
  if (!is_small(record)) return 0;
  for (const auto& decoder : worker.decoders) {
    // Of exactly the size that was asked for, so that the sanitizer sees a byte too many.
    std::vector<std::byte> first(decoder->output_bytes_max(size)), second(first.size());
    const SampleContext context{1, 2, size};
    const auto written = decoder->decode(record, context, first, worker.scratch);
    const auto again = decoder->decode(record, context, second, worker.scratch);
    if (written.has_value() != again.has_value()) std::abort();
    if (written) {
      if (*written != first.size() || first != second) std::abort();
      continue;
    }
    const ErrorCode code = written.error().code();
    if (code != ErrorCode::corrupt_data && code != ErrorCode::wrong_type) std::abort();
    if (!is_printable(written.error())) std::abort();
  }
  return 0;
}
