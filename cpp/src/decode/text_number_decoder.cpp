#include <charconv>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "decode/element.h"
#include "headpond/decoder.h"

namespace headpond {
namespace {

using namespace decode;

std::string_view trimmed(std::span<const std::byte> record) {
  constexpr std::string_view kSpace = " \t\r\n\v\f";
  std::string_view text(reinterpret_cast<const char*>(record.data()), record.size());
  const std::size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  text = text.substr(first, text.find_last_not_of(kSpace) - first + 1);
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  return text;
}

// The start of a text for an error's message, in printable ASCII.
std::string quoted(std::string_view text) {
  std::string result(text.substr(0, 40));
  for (char& c : result) {
    if (c < ' ' || c > '~') c = '?';
  }
  return '"' + result + (text.size() > 40 ? "...\"" : "\"");
}

// A number that the whole text spells and that fits T.
template <class T>
std::optional<T> parse(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Writes the number as T; false where the text is not one of its values.
template <class T>
bool write_number(std::string_view text, std::byte* out) {
  using Number = decltype(to_number(T{}));
  const auto number = parse<Number>(text);
  if (!number) return false;
  if constexpr (std::is_same_v<T, Bool>) {
    if (*number > 1) return false;
  }
  const T value = from_number<T>(*number);
  std::memcpy(out, &value, sizeof value);
  return true;
}

class TextNumberDecoder final : public Decoder {
 public:
  explicit TextNumberDecoder(DType to)
      : write_(with_type(to, [](auto* type) -> Write {
          return write_number<std::remove_pointer_t<decltype(type)>>;
        })) {
    output_.dtype = to;
    output_.shape = Shape{};
  }

  const Field& output() const override { return output_; }
  std::uint64_t output_bytes_max(std::uint64_t) const override { return item_size(output_.dtype); }

  Result<std::uint64_t> decode(std::span<const std::byte> record, const SampleContext&,
                               std::span<std::byte> out, Scratch&) const override {
    const std::uint64_t bytes = item_size(output_.dtype);
    if (out.size() < bytes)
      return Error(ErrorCode::internal, "the place for a number is too small");
    const std::string_view text = trimmed(record);
    if (!write_(text, out.data())) {
      return Error(ErrorCode::corrupt_data, "expected a number of type " +
                                                std::string(name_of(output_.dtype)) + ", found " +
                                                quoted(text));
    }
    return bytes;
  }

 private:
  using Write = bool (*)(std::string_view, std::byte*);
  Write write_;
  Field output_;
};

}  // namespace

Result<std::shared_ptr<const Decoder>> make_text_number_decoder(DType to) {
  if (to == DType::bytes) {
    return Error(ErrorCode::invalid_argument,
                 "text becomes a number: name its dtype, not \"bytes\"");
  }
  return std::shared_ptr<const Decoder>(std::make_shared<TextNumberDecoder>(to));
}

}  // namespace headpond
