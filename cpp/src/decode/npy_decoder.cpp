#include <algorithm>
#include <string>
#include <utility>

#include "format/npy.h"
#include "headpond/decoder.h"

namespace headpond {
namespace {

std::string text_of(const NpyHeader& header) {
  std::string text = header.type.swapped ? "big-endian " : "";
  text += name_of(header.type.dtype);
  text += " (";
  for (std::size_t i = 0; i < header.shape.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(header.shape[i]);
  }
  return text + ")";
}

Result<NpyHeader> read_header(std::span<const std::byte> record) {
  auto header = parse_npy_header(record.first(std::min(record.size(), kNpyHeaderMax)));
  if (!header) return header;
  if (header->data_bytes > record.size() ||
      header->data_offset > record.size() - header->data_bytes) {
    return Error(ErrorCode::corrupt_data, "an .npy record of " + text_of(*header) + " ends after " +
                                              std::to_string(record.size()) + " bytes");
  }
  return header;
}

class NpyDecoder final : public Decoder {
 public:
  explicit NpyDecoder(NpyHeader expected, std::shared_ptr<const Decoder> numbers)
      : expected_(std::move(expected)), numbers_(std::move(numbers)) {}

  const Field& output() const override { return numbers_->output(); }

  std::uint64_t output_bytes_max(std::uint64_t record_bytes) const override {
    return numbers_->output_bytes_max(record_bytes);
  }

  Result<std::uint64_t> decode(std::span<const std::byte> record, const SampleContext& context,
                               std::span<std::byte> out, Scratch& scratch) const override {
    const auto header = read_header(record);
    if (!header) return std::move(header).error();
    const bool varying = !output().shape && header->shape.size() == 1;
    if (!(header->type == expected_.type) || (header->shape != expected_.shape && !varying)) {
      return Error(ErrorCode::corrupt_data, "an .npy record of " + text_of(*header) +
                                                "; the dataset's first is " + text_of(expected_));
    }
    return numbers_->decode(record.subspan(header->data_offset, header->data_bytes), context, out,
                            scratch);
  }

 private:
  NpyHeader expected_;
  std::shared_ptr<const Decoder> numbers_;  // the header taken off
};

}  // namespace

Result<std::shared_ptr<const Decoder>> make_npy_decoder(std::span<const std::byte> first) {
  auto header = read_header(first);
  if (!header) return std::move(header).error().in("the dataset's first record");
  Field stored;
  stored.dtype = header->type.dtype;
  stored.swapped = header->type.swapped;
  if (header->shape.size() != 1) stored.shape = header->shape;
  auto numbers = make_convert_decoder(stored, stored.dtype);
  if (!numbers) return numbers;
  return std::shared_ptr<const Decoder>(
      std::make_shared<NpyDecoder>(*std::move(header), *std::move(numbers)));
}

}  // namespace headpond
