#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "decode/crop.h"
#include "decode/jpeg_reader.h"
#include "decode/pixel_writer.h"
#include "decode/resize.h"
#include "headpond/decoder.h"
#include "headpond/sampler.h"

namespace headpond {
namespace {

using namespace decode;

enum Slot : std::size_t {
  kColumns = Scratch::kDecoderSlots,  // two slots each
  kLines = kColumns + 2,
  kRows = kLines + 2,
  kPointers,
  kWords,
  kPixels,
};

// libjpeg decodes at 1/2, 1/4, 1/8 at less cost; what remains must be three times
// the result, or fine detail would differ from a resize of the whole picture.
std::uint32_t shrink_for(const View& view) {
  for (std::uint32_t shrink = 8; shrink > 1; shrink /= 2) {
    const auto large_enough = [shrink](const AxisView& axis) {
      return axis.length / shrink >= std::uint64_t{3} * axis.resized;
    };
    if (large_enough(view.x) && large_enough(view.y)) return shrink;
  }
  return 1;
}

AxisRequest request_for(const AxisView& axis, std::uint32_t shrink) {
  AxisRequest request;
  request.first = static_cast<double>(axis.first) / shrink;
  request.last = static_cast<double>(axis.first + axis.length) / shrink;
  request.resized = axis.resized;
  request.cut_first = axis.cut_first;
  request.cut_count = axis.cut_count;
  return request;
}

// The last few decoded rows, as many as one row of the result is made of. Rows are
// counted from the region's first.
class RowWindow {
 public:
  RowWindow(JpegReader& reader, const JpegReader::Rows& rows, const Axis& lines, Scratch& scratch)
      : reader_(reader),
        skip_bytes_(std::size_t{rows.skip} * 4),
        row_bytes_((std::size_t{rows.width} * 4 + kSlackBytes + 63) / 64 * 64),
        capacity_(lines.taps),
        height_(lines.end - lines.begin),
        data_(reinterpret_cast<std::uint8_t*>(
            scratch.get(kRows, row_bytes_ * capacity_ + kSlackBytes).data())),
        pointers_(reinterpret_cast<std::uint8_t**>(
            scratch.get(kPointers, sizeof(std::uint8_t*) * capacity_).data())) {}

  // Pointers to rows first ... first + taps - 1 at the region's left edge; those past
  // the region's end, which weigh nothing, are some row. `first` never goes back.
  Result<const std::uint8_t* const*> at(std::uint32_t first) {
    const std::uint32_t end = std::min(first + capacity_, height_);
    while (read_ < end) {
      const std::uint32_t count = std::min(end - read_, capacity_);
      for (std::uint32_t i = 0; i < count; ++i) pointers_[i] = row(read_ + i);
      if (auto done = reader_.read(pointers_, count); !done) return std::move(done).error();
      read_ += count;
    }
    for (std::uint32_t t = 0; t < capacity_; ++t) {
      pointers_[t] = row(std::min(first + t, end - 1)) + skip_bytes_;
    }
    return pointers_;
  }

 private:
  // Never aligned to 16 bytes: libjpeg-turbo's colour conversion writes aligned rows
  // past the caches, and they are read at once.
  std::uint8_t* row(std::uint32_t number) const {
    return data_ + number % capacity_ * row_bytes_ + kOffAlignment;
  }

  static constexpr std::size_t kOffAlignment = 8;

  JpegReader& reader_;
  std::size_t skip_bytes_;
  std::size_t row_bytes_;
  std::uint32_t capacity_;
  std::uint32_t height_;
  std::uint8_t* data_;
  std::uint8_t** pointers_;
  std::uint32_t read_ = 0;
};

struct Closer {
  JpegReader& reader;
  ~Closer() { reader.close(); }
};

class ImageDecoder final : public Decoder {
 public:
  explicit ImageDecoder(ImageOptions options)
      : options_(std::move(options)), kernels_(best_kernels()), writer_(options_, kernels_) {
    const std::uint64_t height = options_.height, width = options_.width;
    output_.dtype = options_.dtype;
    output_.shape = options_.layout == ImageOptions::Layout::nhwc ? Shape{height, width, 3}
                                                                  : Shape{3, height, width};
  }

  const Field& output() const override { return output_; }
  std::uint64_t output_bytes_max(std::uint64_t) const override { return writer_.bytes(); }

  Result<std::uint64_t> decode(std::span<const std::byte> record, const SampleContext& context,
                               std::span<std::byte> out, Scratch& scratch) const override {
    if (out.size() < writer_.bytes()) {
      return Error(ErrorCode::internal, "the place for a picture is too small");
    }
    auto& reader = scratch.object<JpegReader>();
    const Closer closer{reader};
    const auto stored =
        reader.open(record, options_.exif ? JpegReader::Exif::keep : JpegReader::Exif::skip);
    if (!stored) return std::move(stored).error();
    const int orientation = options_.exif ? reader.orientation() : 1;
    const PixelSize shown = shown_size(*stored, orientation);
    SampleRandom random(context.seed, context.epoch, context.sample);
    const View view = stored_view(choose_view(options_, shown, random), shown, orientation);
    auto drawn = draw(view, reader, out.data(), scratch);
    if (!drawn) return std::move(drawn).error();
    return writer_.bytes();
  }

 private:
  Result<void> draw(const View& view, JpegReader& reader, std::byte* out, Scratch& scratch) const {
    const std::uint32_t shrink = shrink_for(view);
    AxisRequest across = request_for(view.x, shrink);
    across.mirrored = view.x.mirrored;  // mirrored weights cost nothing
    const Axis columns = plan_axis(across, scratch, kColumns);
    const Axis lines = plan_axis(request_for(view.y, shrink), scratch, kLines);
    const PixelBox region{columns.begin, lines.begin, columns.end - columns.begin,
                          lines.end - lines.begin};
    const auto rows = reader.start(region, shrink);
    if (!rows) return std::move(rows).error();

    RowWindow window(reader, *rows, lines, scratch);
    const std::size_t words_bytes =
        (std::size_t{region.width} + columns.taps) * 4 * sizeof(std::int16_t) + 2 * kSlackBytes;
    auto* words = reinterpret_cast<std::int16_t*>(scratch.get(kWords, words_bytes).data());
    const std::size_t pixels_bytes = std::size_t{view.x.cut_count} * 4;
    auto* pixels = reinterpret_cast<std::uint8_t*>(scratch.get(kPixels, pixels_bytes).data());
    for (std::uint32_t y = 0; y < view.y.cut_count; ++y) {
      const auto taps = window.at(lines.starts[y]);
      if (!taps) return std::move(taps).error();
      kernels_.vertical(*taps, lines.weights.data() + std::size_t{y} * lines.taps, lines.taps,
                        std::size_t{region.width} * 4, words);
      kernels_.horizontal(words, columns, pixels);
      writer_.write({pixels, pixels_bytes}, view.y.mirrored ? view.y.cut_count - 1 - y : y,
                    view.transposed, out);
    }
    return {};
  }

  ImageOptions options_;
  const ResizeKernels& kernels_;
  PixelWriter writer_;
  Field output_;
};

Error invalid(std::string message) { return {ErrorCode::invalid_argument, std::move(message)}; }

bool is_range(double low, double high) {
  return std::isfinite(low) && std::isfinite(high) && low > 0 && low <= high;
}

Result<void> check_normalisation(const ImageOptions& options) {
  for (const auto* numbers : {&options.mean, &options.std}) {
    if (!numbers->empty() && numbers->size() != 3) {
      return invalid("mean and std take three numbers each, one a channel");
    }
    if (!std::all_of(numbers->begin(), numbers->end(), [](float x) { return std::isfinite(x); })) {
      return invalid("mean and std take finite numbers");
    }
  }
  if (std::find(options.std.begin(), options.std.end(), 0.0f) != options.std.end()) {
    return invalid("std must not be 0");
  }
  const bool normalised = !options.mean.empty() || !options.std.empty();
  if (normalised && options.dtype == DType::uint8) {
    return invalid("mean and std need dtype float32 or float16, not uint8");
  }
  return {};
}

Result<void> check(const ImageOptions& options) {
  constexpr std::uint32_t kSideMax = 65'535;
  const std::uint32_t longer = std::max(options.height, options.width);
  if (std::min(options.height, options.width) == 0 || longer > kSideMax) {
    return invalid("size must be 1 to 65535 pixels a side");
  }
  if (options.resize && options.crop != ImageOptions::Crop::center) {
    return invalid("resize goes with crop \"center\" only");
  }
  if (options.resize && (*options.resize < longer || *options.resize > kSideMax)) {
    return invalid("resize must be " + std::to_string(longer) +
                   " (the longer side of size) to 65535, not " + std::to_string(*options.resize));
  }
  if (!is_range(options.scale_min, options.scale_max)) {
    return invalid("scale must be two numbers above 0, the smaller one first");
  }
  if (!is_range(options.ratio_min, options.ratio_max)) {
    return invalid("ratio must be two numbers above 0, the smaller one first");
  }
  if (options.dtype != DType::uint8 && options.dtype != DType::float32 &&
      options.dtype != DType::float16) {
    return invalid("an image's dtype is uint8, float32 or float16, not " +
                   std::string(name_of(options.dtype)));
  }
  return check_normalisation(options);
}

}  // namespace

Result<std::shared_ptr<const Decoder>> make_image_decoder(const ImageOptions& options) {
  if (auto good = check(options); !good) return std::move(good).error();
  ImageOptions complete = options;
  if (options.crop == ImageOptions::Crop::center && !options.resize) {
    complete.resize = std::max(options.height, options.width) * 256 / 224;
  }
  return std::shared_ptr<const Decoder>(std::make_shared<ImageDecoder>(std::move(complete)));
}

}  // namespace headpond
