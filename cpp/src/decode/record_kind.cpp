#include "decode/record_kind.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace headpond::decode {
namespace {

using namespace std::string_view_literals;

struct Signature {
  std::size_t offset;
  std::string_view bytes;
  std::string_view name;
};

constexpr std::array kSignatures{
    Signature{0, "\x89PNG\r\n\x1A\n"sv, "a PNG picture"},
    Signature{0, "GIF87a"sv, "a GIF picture"},
    Signature{0, "GIF89a"sv, "a GIF picture"},
    Signature{8, "WEBP"sv, "a WebP picture"},
    Signature{0, "BM"sv, "a BMP picture"},
    Signature{0, "II*\0"sv, "a TIFF picture"},
    Signature{0, "MM\0*"sv, "a TIFF picture"},
    Signature{4, "ftypavif"sv, "an AVIF picture"},
    Signature{4, "ftypheic"sv, "a HEIC picture"},
    Signature{4, "ftypheix"sv, "a HEIC picture"},
    Signature{4, "ftypmif1"sv, "a HEIC picture"},
    Signature{4, "ftyp"sv, "an MP4 file"},
    Signature{0, "\0\0\0\x0CjP  "sv, "a JPEG 2000 picture"},
    Signature{0, "\xFF\x4F\xFF\x51"sv, "a JPEG 2000 picture"},
    Signature{0, "\0\0\0\x0CJXL "sv, "a JPEG XL picture"},
    Signature{0, "\xFF\x0A"sv, "a JPEG XL picture"},
    Signature{0, "%PDF"sv, "a PDF document"},
    Signature{0, "PK\x03\x04"sv, "a ZIP archive"},
    Signature{0, "\x1F\x8B"sv, "gzip data"},
    Signature{0, "\x93NUMPY"sv, "an .npy array"},
};

std::string_view text_of(std::span<const std::byte> record) {
  return {reinterpret_cast<const char*>(record.data()), record.size()};
}

bool looks_like_markup(std::string_view text) {
  const std::size_t start = text.substr(0, 64).find_first_not_of(" \t\r\n\xEF\xBB\xBF");
  if (start == std::string_view::npos || text[start] != '<') return false;
  return start + 1 < text.size() && (text[start + 1] == '!' || text[start + 1] == '?' ||
                                     (text[start + 1] >= 'A' && text[start + 1] <= 'z'));
}

std::string first_bytes(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string hex = "bytes";
  for (const char c : text.substr(0, 8)) {
    const auto byte = static_cast<unsigned char>(c);
    hex += ' ';
    hex += kDigits[byte >> 4];
    hex += kDigits[byte & 15];
  }
  return hex;
}

}  // namespace

std::string describe_record(std::span<const std::byte> record) {
  const std::string_view text = text_of(record);
  if (text.empty()) return "an empty record";
  for (const Signature& signature : kSignatures) {
    if (text.size() >= signature.offset &&
        text.substr(signature.offset).substr(0, signature.bytes.size()) == signature.bytes) {
      return std::string(signature.name);
    }
  }
  if (looks_like_markup(text)) return "an HTML or XML text";
  if (std::all_of(text.begin(), text.end(), [](char c) { return c == '\0'; })) return "zeros only";
  return first_bytes(text);
}

}  // namespace headpond::decode
