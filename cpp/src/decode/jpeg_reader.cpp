#include "decode/jpeg_reader.h"

#include <csetjmp>
#include <string>
#include <utility>

#include "decode/exif.h"
#include "decode/libjpeg.h"
#include "decode/record_kind.h"

namespace headpond::decode {
namespace {

constexpr int kScansMax = 500;  // of a progressive file: each costs a pass over all coefficients

// Warnings that mean that pixels are lost, where others only remark on the file.
bool is_damage(int warning) {
  switch (warning) {
    case JWRN_HIT_MARKER:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_ARITH_BAD_CODE:
    case JWRN_JPEG_EOF:
    case JWRN_MUST_RESYNC:
      return true;
    default:
      return false;
  }
}

// Well-formed files of a kind that libjpeg-turbo, as built here, does not decode.
bool is_foreign(int error) {
  switch (error) {
    case JERR_ARITH_NOTIMPL:
    case JERR_BAD_PRECISION:
    case JERR_CONVERSION_NOTIMPL:
    case JERR_SOF_UNSUPPORTED:
      return true;
    default:
      return false;
  }
}

// As PIL: four channels are taken as inverted (Adobe's way), then
// Convert.c's cmyk2rgb.
void inverted_cmyk_to_rgb(std::uint8_t* pixels, std::size_t count) {
  for (std::uint8_t* p = pixels; p != pixels + count * 4; p += 4) {
    const unsigned black = p[3];
    for (int c = 0; c < 3; ++c) {
      const unsigned product = (255u - p[c]) * black + 128;
      p[c] = static_cast<std::uint8_t>(black - ((product + (product >> 8)) >> 8));
    }
  }
}

}  // namespace

// libjpeg reports a fatal error by calling error_exit, which must not return: it
// jumps back to guarded(), over frames of libjpeg only, which own nothing outside
// its pools.
struct JpegReader::Decompressor {
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  jpeg_source_mgr source{};
  jpeg_progress_mgr progress{};
  std::jmp_buf escape;
  bool live = false;       // `info` is created
  bool cut_short = false;  // the record ended before its end marker
  bool cmyk = false;

  Decompressor() {
    jpeg_std_error(&errors);
    errors.error_exit = [](j_common_ptr common) { std::longjmp(of(common).escape, 1); };
    errors.emit_message = [](j_common_ptr common, int level) {
      if (level < 0 && is_damage(common->err->msg_code)) std::longjmp(of(common).escape, 1);
    };
    errors.output_message = [](j_common_ptr) {};
    source.init_source = [](j_decompress_ptr) {};
    source.term_source = [](j_decompress_ptr) {};
    source.resync_to_restart = jpeg_resync_to_restart;
    source.fill_input_buffer = [](j_decompress_ptr info) -> boolean {
      // An end marker stands in: decoding that needs bits behind it says so itself.
      static constexpr JOCTET kEnd[] = {0xFF, JPEG_EOI};
      of(reinterpret_cast<j_common_ptr>(info)).cut_short = true;
      info->src->next_input_byte = kEnd;
      info->src->bytes_in_buffer = sizeof kEnd;
      return TRUE;
    };
    source.skip_input_data = [](j_decompress_ptr info, long count) {
      jpeg_source_mgr& src = *info->src;
      if (count <= 0) return;
      if (static_cast<std::size_t>(count) >= src.bytes_in_buffer) {
        src.fill_input_buffer(info);
        return;
      }
      src.next_input_byte += count;
      src.bytes_in_buffer -= static_cast<std::size_t>(count);
    };
    progress.progress_monitor = [](j_common_ptr common) {
      auto* info = reinterpret_cast<j_decompress_ptr>(common);
      if (info->input_scan_number > kScansMax) ERREXIT(common, JERR_BAD_PROG_SCRIPT);
    };
  }
  Decompressor(const Decompressor&) = delete;
  Decompressor& operator=(const Decompressor&) = delete;
  ~Decompressor() { destroy(); }

  static Decompressor& of(j_common_ptr common) {
    return *static_cast<Decompressor*>(common->client_data);
  }

  // Runs calls into libjpeg; false when one failed. `call` must own nothing that
  // needs a destructor.
  template <class Call>
  bool guarded(Call call) {
    if (setjmp(escape) != 0) return false;
    call();
    return true;
  }

  // A new one for each picture: libjpeg keeps tables from picture to picture, so that
  // one without tables would be decoded with those of whichever came before it.
  bool create(std::span<const std::byte> record) {
    destroy();
    cut_short = false;
    info.err = &errors;
    info.client_data = this;
    return guarded([&] {
      jpeg_create_decompress(&info);
      live = true;
      info.src = &source;
      info.progress = &progress;
      source.next_input_byte = reinterpret_cast<const JOCTET*>(record.data());
      source.bytes_in_buffer = record.size();
    });
  }

  void destroy() {
    if (live) jpeg_destroy_decompress(&info);
    live = false;
  }

  Error failure() {
    char text[JMSG_LENGTH_MAX];
    errors.format_message(reinterpret_cast<j_common_ptr>(&info), text);
    const bool foreign = is_foreign(errors.msg_code);
    if (cut_short && !foreign) return {ErrorCode::corrupt_data, "the JPEG ends early"};
    return {foreign ? ErrorCode::wrong_type : ErrorCode::corrupt_data,
            std::string(foreign ? "a JPEG of a kind that cannot be read: " : "a damaged JPEG: ") +
                text};
  }
};

JpegReader::JpegReader() : jpeg_(std::make_unique<Decompressor>()) {}
JpegReader::~JpegReader() = default;

void JpegReader::close() { jpeg_->destroy(); }

int JpegReader::orientation() const {
  for (auto* marker = jpeg_->info.marker_list; marker != nullptr; marker = marker->next) {
    const std::span data(reinterpret_cast<const std::byte*>(marker->data), marker->data_length);
    if (is_exif(data)) return exif_orientation(data);
  }
  return 1;
}

Result<PixelSize> JpegReader::open(std::span<const std::byte> record, Exif exif) {
  if (record.size() < 2 || record[0] != std::byte{0xFF} || record[1] != std::byte{0xD8}) {
    return Error(ErrorCode::wrong_type, "expected a JPEG, found " + describe_record(record));
  }
  Decompressor& jpeg = *jpeg_;
  if (!jpeg.create(record) || !jpeg.guarded([&] {
        if (exif == Exif::keep) jpeg_save_markers(&jpeg.info, JPEG_APP0 + 1, 0xFFFF);
        jpeg_read_header(&jpeg.info, TRUE);
      })) {
    return jpeg.failure();
  }
  const jpeg_decompress_struct& info = jpeg.info;
  if (jpeg.cut_short) return jpeg.failure();
  if (std::uint64_t{info.image_width} * info.image_height > kPixelsMax) {
    return Error(ErrorCode::corrupt_data, "a JPEG of " + std::to_string(info.image_width) + "x" +
                                              std::to_string(info.image_height) +
                                              " pixels; the limit is " +
                                              std::to_string(kPixelsMax));
  }
  if (info.num_components != 1 && info.num_components != 3 && info.num_components != 4) {
    return Error(ErrorCode::wrong_type, "a JPEG of " + std::to_string(info.num_components) +
                                            " components; expected 1, 3 or 4");
  }
  return PixelSize{info.image_width, info.image_height};
}

Result<JpegReader::Rows> JpegReader::start(const PixelBox& region, std::uint32_t shrink) {
  Decompressor& jpeg = *jpeg_;
  jpeg_decompress_struct& info = jpeg.info;
  jpeg.cmyk = info.num_components == 4;
  info.out_color_space = jpeg.cmyk ? JCS_CMYK : JCS_EXT_RGBX;
  info.scale_num = 1;
  info.scale_denom = shrink;
  JDIMENSION left = 0;
  const bool done = jpeg.guarded([&] {
    jpeg_start_decompress(&info);
    // One iMCU more on each side: at the sides of what it decodes, libjpeg cannot
    // interpolate chroma from the neighbours that a decode of the whole picture has.
    const auto unit = static_cast<JDIMENSION>(info.max_h_samp_factor * info.min_DCT_scaled_size);
    left = region.left < unit ? 0 : region.left - unit;
    const JDIMENSION right = region.left + region.width;
    JDIMENSION width = (info.output_width - right < unit ? info.output_width : right + unit) - left;
    if (width < info.output_width) jpeg_crop_scanline(&info, &left, &width);
    if (region.top > 0) jpeg_skip_scanlines(&info, region.top);
  });
  // A progressive or multi-scan file has been read whole by now.
  if (!done || (jpeg.cut_short && jpeg_has_multiple_scans(&info))) {
    return jpeg.failure();
  }
  return Rows{info.output_width, region.left - left};
}

Result<void> JpegReader::read(std::uint8_t* const* rows, std::uint32_t count) {
  Decompressor& jpeg = *jpeg_;
  const bool done = jpeg.guarded([&] {
    for (volatile std::uint32_t have = 0; have < count;) {
      have =
          have + jpeg_read_scanlines(&jpeg.info, const_cast<JSAMPARRAY>(rows + have), count - have);
    }
  });
  if (!done) return jpeg.failure();
  if (jpeg.cmyk) {
    for (std::uint32_t i = 0; i < count; ++i) inverted_cmyk_to_rgb(rows[i], jpeg.info.output_width);
  }
  return {};
}

}  // namespace headpond::decode
