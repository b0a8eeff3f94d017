#include <string>
#include <string_view>

#include "headpond/decoder.h"

namespace headpond {
namespace {

Error unknown_name(std::string_view name) {
  return {ErrorCode::invalid_argument,
          "unknown decoder \"" + std::string(name) +
              "\"; there are raw, utf8, json, npy and the dtypes bool, int8 to int64, uint8 to "
              "uint64, float16, bfloat16, float32, float64"};
}

bool stays_bytes(std::string_view name) {
  return name == "raw" || name == "utf8" || name == "json";
}

}  // namespace

Result<std::shared_ptr<const Decoder>> make_named_decoder(std::string_view name, const Field& from,
                                                          std::span<const std::byte> first) {
  const bool is_bytes = from.dtype == DType::bytes;
  const auto dtype = parse_dtype(name);
  const bool is_dtype = dtype && *dtype != DType::bytes;
  if (!is_dtype && name != "npy" && !stays_bytes(name)) return unknown_name(name);
  if (is_dtype)
    return is_bytes ? make_text_number_decoder(*dtype) : make_convert_decoder(from, *dtype);
  if (!is_bytes && name != "raw") {
    return Error(ErrorCode::invalid_argument, "field \"" + from.name + "\" holds " +
                                                  std::string(name_of(from.dtype)) +
                                                  " numbers, not " + std::string(name));
  }
  if (name == "npy") return make_npy_decoder(first);
  return std::shared_ptr<const Decoder>();
}

}  // namespace headpond
