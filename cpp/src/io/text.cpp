#include "io/text.h"

#include <cstddef>

namespace headpond {
namespace {

bool is_continuation(unsigned char c) { return (c & 0xC0) == 0x80; }

// Length of the well-formed UTF-8 sequence at `at` (Unicode 15, table 3-7), else 0.
std::size_t sequence_length(std::string_view s, std::size_t at) {
  const auto byte = [&](std::size_t i) {
    return at + i < s.size() ? static_cast<unsigned char>(s[at + i])
                             : static_cast<unsigned char>(0);
  };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return is_continuation(byte(1)) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    const unsigned char low = first == 0xE0 ? 0xA0 : 0x80;
    const unsigned char high = first == 0xED ? 0x9F : 0xBF;
    return byte(1) >= low && byte(1) <= high && is_continuation(byte(2)) ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    const unsigned char low = first == 0xF0 ? 0x90 : 0x80;
    const unsigned char high = first == 0xF4 ? 0x8F : 0xBF;
    return byte(1) >= low && byte(1) <= high && is_continuation(byte(2)) && is_continuation(byte(3))
               ? 4
               : 0;
  }
  return 0;
}

// C0, DEL and the two-byte C1 controls (U+0080 to U+009F).
bool is_control(std::string_view s, std::size_t at, std::size_t length) {
  const auto first = static_cast<unsigned char>(s[at]);
  if (length == 1) return first < 0x20 || first == 0x7F;
  return length == 2 && first == 0xC2 && static_cast<unsigned char>(s[at + 1]) < 0xA0;
}

}  // namespace

std::string printable(std::string_view bytes) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string text;
  text.reserve(bytes.size());
  for (std::size_t i = 0; i < bytes.size();) {
    const std::size_t length = sequence_length(bytes, i);
    if (length > 0 && !is_control(bytes, i, length)) {
      text.append(bytes.substr(i, length));
      i += length;
      continue;
    }
    const auto byte = static_cast<unsigned char>(bytes[i]);
    text.append("\\x").append(1, kHex[byte >> 4]).append(1, kHex[byte & 15]);
    ++i;
  }
  return text;
}

std::string one_line(std::string_view text) {
  std::string line;
  for (const char c : text) {
    const bool space = c == ' ' || (c >= '\t' && c <= '\r');
    if (!space) {
      line += c;
    } else if (!line.empty() && line.back() != ' ') {
      line += ' ';
    }
  }
  while (!line.empty() && line.back() == ' ') line.pop_back();
  return printable(line);
}

}  // namespace headpond
