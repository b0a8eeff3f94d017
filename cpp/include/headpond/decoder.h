#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "headpond/field.h"
#include "headpond/result.h"

namespace headpond {

// Memory of one worker that decoders use for as long as one call: grown when
// needed and kept, so that steady state allocates nothing. Not shared.
class Scratch {
 public:
  // Slots below this one belong to who calls a decoder (for the record, say), the
  // others to the decoder.
  static constexpr std::size_t kDecoderSlots = 8;

  // At least `bytes`, 64-byte aligned, uninitialised; a later call with the same
  // `slot` invalidates it.
  std::span<std::byte> get(std::size_t slot, std::size_t bytes);
  // A worker-long object of a decoder (a decompressor): made once per type and worker.
  template <class T>
  T& object() {
    for (auto& held : objects_) {
      if (auto* typed = dynamic_cast<Holder<T>*>(held.get())) return typed->value;
    }
    objects_.push_back(std::make_unique<Holder<T>>());
    return static_cast<Holder<T>*>(objects_.back().get())->value;
  }
  std::uint64_t allocations() const { return allocations_; }

 private:
  struct HolderBase {
    virtual ~HolderBase() = default;
  };
  template <class T>
  struct Holder final : HolderBase {
    T value;
  };
  struct Free {
    void operator()(std::byte* p) const;
  };
  struct Buffer {
    std::unique_ptr<std::byte, Free> data;
    std::size_t size = 0;
  };
  std::vector<Buffer> buffers_;
  std::vector<std::unique_ptr<HolderBase>> objects_;
  std::uint64_t allocations_ = 0;
};

// The sample that is being decoded; with `seed` and `epoch` all the randomness there is.
struct SampleContext {
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;
  std::uint64_t sample = 0;
};

// Record bytes to a field value, written straight into the batch. Does no I/O;
// const calls are safe from any thread, each with a Scratch of its own.
class Decoder {
 public:
  virtual ~Decoder() = default;

  // The field it makes: dtype, and the shape of one sample (none: varying, one
  // run of elements per sample).
  virtual const Field& output() const = 0;

  // Bytes that a record of `record_bytes` may need at most; the exact size for
  // a fixed shape.
  virtual std::uint64_t output_bytes_max(std::uint64_t record_bytes) const = 0;

  // Writes at most out.size() (= output_bytes_max) bytes and returns how many.
  // Errors: corrupt_data; wrong_type (another kind of record; named by its bytes).
  virtual Result<std::uint64_t> decode(std::span<const std::byte> record,
                                       const SampleContext& context, std::span<std::byte> out,
                                       Scratch& scratch) const = 0;
};

struct ImageOptions {
  enum class Crop : std::uint8_t { random_resized, center, none };
  enum class Layout : std::uint8_t { nhwc, nchw };

  std::uint32_t height = 224;
  std::uint32_t width = 224;
  Crop crop = Crop::random_resized;
  // center: what the shorter side becomes, at least the longer side of the size;
  // none: that side * 256 / 224.
  std::optional<std::uint32_t> resize;
  double scale_min = 0.08, scale_max = 1.0;             // of the area
  double ratio_min = 3.0 / 4.0, ratio_max = 4.0 / 3.0;  // width / height
  bool flip = false;                                    // horizontally, with probability 1/2
  bool exif = false;                                    // turn by EXIF orientation
  Layout layout = Layout::nhwc;
  DType dtype = DType::uint8;    // uint8, float32, float16
  std::vector<float> mean, std;  // of 0..255, 3 numbers each or none
};

// JPEG to pixels as PIL shows them; only the rows and columns of the crop are
// decoded, so only damage there is an error. `decode` refuses, beside what Decoder
// says, pictures of more than 178,956,970 pixels (corrupt_data): PIL's limit.
// Errors: invalid_argument.
Result<std::shared_ptr<const Decoder>> make_image_decoder(const ImageOptions& options);

// Numbers stored as `from` (a fixed shape, or varying: 1-D) to `to`. No copy is
// saved here: the pipeline reads straight into the batch when nothing changes.
Result<std::shared_ptr<const Decoder>> make_convert_decoder(const Field& from, DType to);

// A decimal number as text ("7\n") to one scalar.
Result<std::shared_ptr<const Decoder>> make_text_number_decoder(DType to);

// An .npy record. `first` is one record of the dataset: its dtype and shape are
// expected of the others too; only the first dimension of a 1-D array may vary.
Result<std::shared_ptr<const Decoder>> make_npy_decoder(std::span<const std::byte> first);

// The one list of decoders by name for `.decode(field="...")` (builtin_decoders.cpp):
// "raw", "utf8", "json" give none (the bytes stay as they are); a NumPy dtype gives
// text or convert, "npy" the above. Errors: invalid_argument naming what there is.
Result<std::shared_ptr<const Decoder>> make_named_decoder(std::string_view name, const Field& from,
                                                          std::span<const std::byte> first);

}  // namespace headpond
