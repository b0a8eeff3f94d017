#include <bit>
#include <cstring>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "decode/element.h"
#include "headpond/decoder.h"

namespace headpond {
namespace {

using namespace decode;

template <class T>
T swap_bytes(T value) {
  if constexpr (sizeof(T) == 2) {
    return std::bit_cast<T>(__builtin_bswap16(std::bit_cast<std::uint16_t>(value)));
  } else if constexpr (sizeof(T) == 4) {
    return std::bit_cast<T>(__builtin_bswap32(std::bit_cast<std::uint32_t>(value)));
  } else {
    return std::bit_cast<T>(__builtin_bswap64(std::bit_cast<std::uint64_t>(value)));
  }
}

// memcpy, because records may lie at any address.
template <class From, class To, bool kSwap>
void convert(const std::byte* from, std::byte* to, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    From value;
    std::memcpy(&value, from + i * sizeof(From), sizeof(From));
    if constexpr (kSwap) value = swap_bytes(value);
    const To result = from_number<To>(to_number(value));
    std::memcpy(to + i * sizeof(To), &result, sizeof(To));
  }
}

using Convert = void (*)(const std::byte*, std::byte*, std::size_t);

template <class T>
void copy(const std::byte* from, std::byte* to, std::size_t count) {
  if (count != 0) std::memcpy(to, from, count * sizeof(T));
}

Convert converter(DType from, DType to, bool swapped) {
  return with_type(from, [&](auto* source) {
    using From = std::remove_pointer_t<decltype(source)>;
    return with_type(to, [&](auto* target) -> Convert {
      using To = std::remove_pointer_t<decltype(target)>;
      if constexpr (sizeof(From) > 1) {
        if (swapped) return convert<From, To, true>;
      }
      if constexpr (std::is_same_v<From, To>)
        return copy<From>;
      else
        return convert<From, To, false>;
    });
  });
}

class ConvertDecoder final : public Decoder {
 public:
  ConvertDecoder(const Field& from, DType to, std::optional<std::uint64_t> record_bytes)
      : from_(from.dtype),
        record_bytes_(record_bytes),
        convert_(converter(from.dtype, to, from.swapped)) {
    output_.name = from.name;
    output_.dtype = to;
    output_.shape = from.shape;
  }

  const Field& output() const override { return output_; }

  std::uint64_t output_bytes_max(std::uint64_t record_bytes) const override {
    return record_bytes_.value_or(record_bytes) / item_size(from_) * item_size(output_.dtype);
  }

  Result<std::uint64_t> decode(std::span<const std::byte> record, const SampleContext&,
                               std::span<std::byte> out, Scratch&) const override {
    if (record_bytes_ && record.size() != *record_bytes_) {
      return Error(ErrorCode::corrupt_data, "a record of " + std::to_string(record.size()) +
                                                " bytes; its field has " +
                                                std::to_string(*record_bytes_));
    }
    if (record.size() % item_size(from_) != 0) {
      return Error(ErrorCode::corrupt_data, "a record of " + std::to_string(record.size()) +
                                                " bytes does not hold whole " +
                                                std::string(name_of(from_)) + " numbers");
    }
    const std::uint64_t written = output_bytes_max(record.size());
    if (written > out.size())
      return Error(ErrorCode::internal, "the place for numbers is too small");
    convert_(record.data(), out.data(), record.size() / item_size(from_));
    return written;
  }

 private:
  DType from_;
  std::optional<std::uint64_t> record_bytes_;  // where the shape is fixed
  Convert convert_;
  Field output_;
};

}  // namespace

Result<std::shared_ptr<const Decoder>> make_convert_decoder(const Field& from, DType to) {
  if (from.dtype == DType::bytes || to == DType::bytes) {
    return Error(ErrorCode::invalid_argument, "only numbers can be converted, not " +
                                                  std::string(name_of(from.dtype)) + " to " +
                                                  std::string(name_of(to)));
  }
  std::optional<std::uint64_t> record_bytes;
  if (from.shape) {
    const auto bytes = byte_size(*from.shape, from.dtype);
    const auto converted = byte_size(*from.shape, to);
    if (!bytes) return std::move(bytes).error();
    if (!converted) return std::move(converted).error();
    record_bytes = *bytes;
  }
  return std::shared_ptr<const Decoder>(std::make_shared<ConvertDecoder>(from, to, record_bytes));
}

}  // namespace headpond
