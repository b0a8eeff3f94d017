#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace headpond {

// Makes tar archives byte by byte, wrong ones too.
class TarWriter {
 public:
  static constexpr std::size_t kBlock = 512;

  struct Header {
    std::string name;
    std::uint64_t size = 0;
    char type = '0';
    std::string prefix{};
    std::string magic = std::string(
        "ustar\0"
        "00",
        8);
    std::string size_field{};  // instead of `size`
    bool signed_sum = false;
    int sum_error = 0;
  };

  static std::string header(const Header& h) {
    std::string block(kBlock, '\0');
    put(block, 0, h.name.substr(0, 100));
    put(block, 100, "0000644");
    put(block, 108, "0000000");
    put(block, 116, "0000000");
    put(block, 124, h.size_field.empty() ? octal(h.size, 11) : h.size_field);
    put(block, 136, "00000000000");
    put(block, 148, "        ");
    block[156] = h.type;
    put(block, 257, h.magic);
    put(block, 345, h.prefix);
    long sum = h.sum_error;
    for (const char c : block)
      sum += h.signed_sum ? static_cast<signed char>(c) : static_cast<unsigned char>(c);
    put(block, 148, octal(static_cast<std::uint64_t>(sum), 6));
    block[154] = '\0';
    block[155] = ' ';
    return block;
  }

  static std::string padded(std::string_view data) {
    std::string bytes(data);
    bytes.resize((bytes.size() + kBlock - 1) / kBlock * kBlock);
    return bytes;
  }

  static std::string pax_record(std::string_view key, std::string_view value) {
    const std::string rest = " " + std::string(key) + "=" + std::string(value) + "\n";
    std::size_t size = rest.size() + 1;
    while (std::to_string(size).size() + rest.size() != size) ++size;
    return std::to_string(size) + rest;
  }

  TarWriter& file(const std::string& name, std::string_view data) {
    offset_ = bytes_.size() + kBlock;
    return raw(header({.name = name, .size = data.size()})).raw(padded(data));
  }
  // A member of another type, with data behind its header.
  TarWriter& member(char type, const std::string& name, std::string_view data = {}) {
    return raw(header({.name = name, .size = data.size(), .type = type})).raw(padded(data));
  }
  TarWriter& raw(std::string_view bytes) {
    bytes_ += bytes;
    return *this;
  }
  TarWriter& end() { return raw(std::string(2 * kBlock, '\0')); }

  const std::string& bytes() const { return bytes_; }
  std::size_t last_offset() const { return offset_; }  // of the data of the last file

 private:
  static void put(std::string& block, std::size_t at, std::string_view text) {
    block.replace(at, text.size(), text);
  }
  static std::string octal(std::uint64_t value, int digits) {
    char text[32];
    std::snprintf(text, sizeof text, "%0*llo", digits, static_cast<unsigned long long>(value));
    return text;
  }

  std::string bytes_;
  std::size_t offset_ = 0;
};

}  // namespace headpond
