#include "format/npy.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "format/little_endian.h"

namespace headpond {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";

Error corrupt(std::string message) {
  return Error(ErrorCode::corrupt_data, ".npy header: " + std::move(message));
}

// The Python literal of the header: a dict of three known keys with a string, a
// bool and a tuple of integers. Nothing else is accepted, nothing is evaluated.
class HeaderGrammar {
 public:
  explicit HeaderGrammar(std::string_view text) : text_(text) {}

  Result<NpyHeader> parse() {
    if (!take('{')) return expected("'{'");
    while (!take('}')) {
      if (auto entry = parse_entry(); !entry) return std::move(entry).error();
      if (take(',')) continue;
      if (!take('}')) return expected("',' or '}'");
      break;
    }
    skip_space();
    if (at_ != text_.size()) return expected("the end of the header");
    if (!seen_descr_ || !seen_order_ || !seen_shape_) {
      return corrupt("descr, fortran_order and shape are needed");
    }
    return finish();
  }

 private:
  void skip_space() {
    while (at_ < text_.size() &&
           std::string_view(" \n\t\r").find(text_[at_]) != std::string_view::npos)
      ++at_;
  }
  bool take(char c) {
    skip_space();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool take_word(std::string_view word) {
    skip_space();
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }
  Error expected(const char* what) const {
    return corrupt(std::string(what) + " expected at character " + std::to_string(at_));
  }

  Result<std::string_view> parse_string() {
    skip_space();
    const char quote = at_ < text_.size() ? text_[at_] : '\0';
    if (quote != '\'' && quote != '"') return expected("a quoted string");
    const auto stop = text_.find(quote, at_ + 1);
    if (stop == std::string_view::npos) return expected("a closed string");
    const auto value = text_.substr(at_ + 1, stop - at_ - 1);
    if (value.find('\\') != std::string_view::npos) return expected("a string without escapes");
    at_ = stop + 1;
    return value;
  }

  Result<std::uint64_t> parse_number() {
    skip_space();
    std::uint64_t value = 0;
    const std::size_t start = at_;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      const auto digit = static_cast<std::uint64_t>(text_[at_] - '0');
      if (value > (~std::uint64_t{0} - digit) / 10)
        return corrupt("a dimension does not fit 64 bits");
      value = value * 10 + digit;
    }
    if (at_ == start) return expected("a dimension (not negative)");
    if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // written by Python 2
    return value;
  }

  Result<void> parse_entry() {
    const auto key = parse_string();
    if (!key) return key.error();
    if (!take(':')) return expected("':'");
    if (*key == "descr") return parse_descr();
    if (*key == "fortran_order") return parse_order();
    if (*key == "shape") return parse_shape();
    return corrupt("unknown key \"" + std::string(*key) + "\"");
  }

  Result<void> parse_descr() {
    skip_space();
    seen_descr_ = true;
    if (at_ < text_.size() && text_[at_] == '[') {
      return Error(
          ErrorCode::unsupported,
          "structured .npy dtypes are not read: save each of its fields as an array of its own");
    }
    const auto descr = parse_string();
    if (!descr) return descr.error();
    descr_ = *descr;
    return {};
  }

  Result<void> parse_order() {
    seen_order_ = true;
    fortran_ = take_word("True");
    if (!fortran_ && !take_word("False")) return expected("True or False");
    return {};
  }

  Result<void> parse_shape() {
    seen_shape_ = true;
    header_.shape.clear();
    if (!take('(')) return expected("'('");
    while (!take(')')) {
      const auto extent = parse_number();
      if (!extent) return extent.error();
      header_.shape.push_back(*extent);
      if (header_.shape.size() > 64) return corrupt("more than 64 dimensions");
      if (take(',')) continue;
      if (!take(')')) return expected("',' or ')'");
      break;
    }
    return {};
  }

  Result<NpyHeader> finish() {
    if (descr_.find('O') != std::string_view::npos) {
      return Error(ErrorCode::unsupported,
                   "an .npy file of Python objects is a pickle and is not read: save numbers, for "
                   "example with "
                   "array.astype(\"float32\")");
    }
    const auto type = find_stored_type(descr_);
    if (!type || type->dtype == DType::bytes) {
      return Error(ErrorCode::unsupported, ".npy dtype \"" + std::string(descr_) +
                                               "\" is not read: save integers, floats or booleans");
    }
    if (fortran_ && header_.shape.size() > 1) {
      return Error(ErrorCode::unsupported,
                   "this .npy array is in Fortran order: save it again with np.save(path, "
                   "np.ascontiguousarray(array))");
    }
    header_.type = *type;
    auto bytes = byte_size(header_.shape, type->dtype);
    if (!bytes) return std::move(bytes).error().in(".npy header");
    header_.data_bytes = *bytes;
    return std::move(header_);
  }

  std::string_view text_;
  std::size_t at_ = 0;
  NpyHeader header_;
  std::string_view descr_;
  bool fortran_ = false;
  bool seen_descr_ = false, seen_order_ = false, seen_shape_ = false;
};

}  // namespace

bool is_npy(std::span<const std::byte> start) {
  return start.size() >= kMagic.size() &&
         std::memcmp(start.data(), kMagic.data(), kMagic.size()) == 0;
}

Result<NpyHeader> parse_npy_header(std::span<const std::byte> start) {
  if (!is_npy(start))
    return Error(ErrorCode::corrupt_data, "not an .npy file: it does not begin with \\x93NUMPY");
  if (start.size() < 10) return corrupt("cut off");
  const auto major = std::to_integer<unsigned>(start[6]);
  if (major < 1 || major > 3)
    return Error(ErrorCode::unsupported, ".npy format version " + std::to_string(major));
  const std::size_t text_at = major == 1 ? 10 : 12;
  if (start.size() < text_at) return corrupt("cut off");
  const std::uint64_t size =
      major == 1 ? read_le<std::uint16_t>(start, 8) : read_le<std::uint32_t>(start, 8);
  if (size > kNpyHeaderMax - text_at) {
    return corrupt("longer than " + std::to_string(kNpyHeaderMax) + " bytes");
  }
  if (start.size() - text_at < size) return corrupt("cut off");
  const auto* text = reinterpret_cast<const char*>(start.data()) + text_at;
  auto header = HeaderGrammar({text, static_cast<std::size_t>(size)}).parse();
  if (header) header->data_offset = text_at + size;
  return header;
}

}  // namespace headpond
