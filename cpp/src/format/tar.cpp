#include "format/tar.h"

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>

namespace headpond {
namespace {

// POSIX pax interchange format, "ustar Header Block" (IEEE 1003.1, pax).
constexpr std::size_t kNameAt = 0, kNameSize = 100, kSizeAt = 124, kSizeSize = 12, kSumAt = 148,
                      kSumSize = 8, kTypeAt = 156, kMagicAt = 257, kPrefixAt = 345,
                      kPrefixSize = 155;

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string_view until_nul(std::string_view text) { return text.substr(0, text.find('\0')); }

bool all_zero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

// Octal with leading spaces, ended by NUL or space; or base-256 (first bit set).
// Nothing for another letter, a negative number, or one that exceeds 63 bits.
std::optional<std::uint64_t> parse_number(std::span<const std::byte> bytes) {
  constexpr std::uint64_t kMost = ~std::uint64_t{0} >> 1;
  const auto first = std::to_integer<unsigned>(bytes[0]);
  std::uint64_t value = 0;
  if ((first & 0x80u) != 0) {
    if (first != 0x80u) return std::nullopt;  // negative, or more than 88 bits
    for (const std::byte byte : bytes.subspan(1)) {
      if (value > (kMost >> 8)) return std::nullopt;
      value = value << 8 | std::to_integer<std::uint64_t>(byte);
    }
    return value;
  }
  const std::string_view text = text_of(bytes);
  std::size_t at = std::min(text.find_first_not_of(' '), text.size());
  for (; at < text.size() && text[at] >= '0' && text[at] <= '7'; ++at) {
    value = value << 3 | static_cast<std::uint64_t>(text[at] - '0');  // 12 digits: 36 bits
  }
  if (at < text.size() && text[at] != '\0' && text[at] != ' ') return std::nullopt;
  return value;
}

// Some old programs summed signed bytes; both sums are accepted, as everywhere.
bool checksum_matches(std::span<const std::byte> header) {
  const auto stored = parse_number(header.subspan(kSumAt, kSumSize));
  if (!stored) return false;
  std::int64_t plain = 8 * ' ', with_sign = 8 * ' ';
  for (std::size_t i = 0; i < header.size(); ++i) {
    if (i >= kSumAt && i < kSumAt + kSumSize) continue;
    plain += std::to_integer<unsigned char>(header[i]);
    with_sign += static_cast<signed char>(header[i]);
  }
  const auto expected = static_cast<std::int64_t>(*stored);
  return expected == plain || expected == with_sign;
}

struct Signature {
  std::string_view bytes;
  const char* name;
};
constexpr Signature kCompressed[] = {
    {"\x1f\x8b", "gzip"},
    {"\x28\xb5\x2f\xfd", "zstd"},
    {"\xfd"
     "7zXZ",
     "xz"},
    {"BZh", "bzip2"},
    {"\x04\x22\x4d\x18", "lz4"},
};
constexpr Signature kOther[] = {
    {"PK\x03\x04", "a zip archive"}, {"<", "HTML or XML"}, {"{", "JSON"},
    {"\xff\xd8\xff", "a JPEG"},      {"\x89PNG", "a PNG"}, {"\x93NUMPY", "an .npy file"},
};

// Why the first block is no header.
Error not_a_tar(std::span<const std::byte> block) {
  const std::string_view start = text_of(block);
  for (const auto& signature : kCompressed) {
    if (!start.starts_with(signature.bytes)) continue;
    return Error(ErrorCode::unsupported,
                 std::string("this shard is compressed with ") + signature.name +
                     ", so no sample in it can be reached alone: store it uncompressed");
  }
  for (const auto& signature : kOther) {
    if (start.starts_with(signature.bytes)) {
      return Error(ErrorCode::corrupt_data,
                   std::string("not a tar archive; it looks like ") + signature.name);
    }
  }
  return Error(ErrorCode::corrupt_data, "not a tar archive: the first header's checksum is wrong");
}

std::string header_name(std::span<const std::byte> header) {
  const std::string name(until_nul(text_of(header.subspan(kNameAt, kNameSize))));
  // Only POSIX archives have a prefix; GNU keeps times there.
  if (text_of(header.subspan(kMagicAt, 6)) != std::string_view("ustar\0", 6)) return name;
  const auto prefix = until_nul(text_of(header.subspan(kPrefixAt, kPrefixSize)));
  return prefix.empty() ? name : std::string(prefix) + "/" + name;
}

TarMember::Kind kind_of(char type, std::string_view name) {
  using Kind = TarMember::Kind;
  switch (type) {
    case '\0':
      return name.ends_with('/') ? Kind::folder : Kind::file;  // v7 had no type for folders
    case '0':
    case '7':
      return Kind::file;
    case '1':
    case '2':
      return Kind::link;
    case '3':
    case '4':
    case '6':
      return Kind::device;
    case '5':
      return Kind::folder;
    case 'S':
      return Kind::sparse;
    default:
      return Kind::other;
  }
}

bool has_data(TarMember::Kind kind) {
  return kind == TarMember::Kind::file || kind == TarMember::Kind::sparse ||
         kind == TarMember::Kind::other;
}

std::optional<std::uint64_t> parse_decimal(std::string_view text) {
  constexpr std::uint64_t kMost = ~std::uint64_t{0} >> 1;
  if (text.empty()) return std::nullopt;
  std::uint64_t value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    const auto digit = static_cast<std::uint64_t>(c - '0');
    if (value > (kMost - digit) / 10) return std::nullopt;
    value = value * 10 + digit;
  }
  return value;
}

}  // namespace

TarWalker::TarWalker(std::uint64_t size, Read read) : size_(size), read_(std::move(read)) {}

Error TarWalker::corrupt(std::string message) const {
  return Error(ErrorCode::corrupt_data, std::move(message))
      .at_range({at_, std::min(size_, at_ + kBlock)});
}

// The block at `offset`, of which the archive holds all 512 bytes.
Result<std::span<const std::byte>> TarWalker::block_at(std::uint64_t offset) {
  constexpr std::uint64_t kLarge = 64u << 10, kSmall = 4u << 10;
  const std::uint64_t stop = buffer_start_ + buffer_.size();
  if (offset < buffer_start_ || offset + kBlock > stop) {
    // After a jump over large data the next header is far behind this one, too: a
    // long read would fetch data nobody asked for.
    const bool jumped = offset > stop && offset - stop > kLarge;
    const std::uint64_t ahead = std::max(read_ahead_stop_, offset + kBlock);
    buffer_.resize(std::min({jumped ? kSmall : kLarge, size_ - offset, ahead - offset}));
    buffer_start_ = offset;
    if (auto read = read_(offset, buffer_); !read) {
      buffer_.clear();
      return std::move(read).error();
    }
  }
  return std::span<const std::byte>(buffer_).subspan(offset - buffer_start_, kBlock);
}

// The data of an extended header at `at_`; moves behind it.
Result<std::vector<std::byte>> TarWalker::payload(std::uint64_t size, std::uint64_t most,
                                                  const char* what) {
  if (size > most) {
    return corrupt(std::string(what) + " of " + std::to_string(size) + " bytes; " +
                   std::to_string(most) + " are allowed");
  }
  const std::uint64_t data = at_ + kBlock;
  const std::uint64_t padded = (size + kBlock - 1) / kBlock * kBlock;
  if (padded > size_ - data) return corrupt(std::string("cut off in ") + what);
  std::vector<std::byte> bytes(padded);
  for (std::uint64_t done = 0; done < padded; done += kBlock) {
    const auto block = block_at(data + done);
    if (!block) return block.error();
    std::memcpy(bytes.data() + done, block->data(), kBlock);
  }
  bytes.resize(size);
  at_ = data + padded;
  has_pending_ = true;
  return bytes;
}

// Records "LENGTH key=value\n", where LENGTH counts itself.
Result<void> TarWalker::read_pax(std::uint64_t size, Extended& into) {
  const std::uint64_t header = at_;
  auto bytes = payload(size, kPaxMax, "a pax header");
  if (!bytes) return std::move(bytes).error();
  const auto bad = [&](const char* what) {
    return Error(ErrorCode::corrupt_data, std::string("a pax header with ") + what)
        .at_range({header, header + kBlock});
  };
  for (std::string_view rest = text_of(*bytes); !rest.empty();) {
    const auto space = rest.find(' ');
    const auto length = parse_decimal(rest.substr(0, space));
    if (space == std::string_view::npos || !length || *length <= space + 1 ||
        *length > rest.size() || rest[*length - 1] != '\n') {
      // Padding of NULs after the last record is tolerated by every reader.
      if (rest.find_first_not_of('\0') == std::string_view::npos) break;
      return bad("a record whose length is wrong");
    }
    const auto record = rest.substr(space + 1, *length - space - 2);
    rest.remove_prefix(*length);
    const auto equals = record.find('=');
    if (equals == std::string_view::npos) return bad("a record without '='");
    const auto key = record.substr(0, equals);
    const auto value = record.substr(equals + 1);
    if (key == "path") {
      if (value.find('\0') != std::string_view::npos) return bad("a NUL byte in a path");
      if (value.size() > kNameMax) return bad("a path over 64 KiB");
      into.path = std::string(value);
    } else if (key == "size") {
      into.size = parse_decimal(value);
      if (!into.size) return bad("a size that is no number");
    } else if (key.starts_with("GNU.sparse.")) {
      into.sparse = true;
    }
  }
  return {};
}

// One zero block between members is tolerated, two are the end; so is one before
// the end of the file.
Result<bool> TarWalker::read_end() {
  at_ += kBlock;
  if (size_ - at_ >= kBlock) {
    const auto second = block_at(at_);
    if (!second) return second.error();
    if (!all_zero(*second)) return false;
    at_ += kBlock;
  }
  ended_ = true;
  end_marked_ = true;
  return true;
}

// Less than a block is left: nothing, zeros (a cut end mark), or part of a header.
Result<bool> TarWalker::read_tail() {
  std::vector<std::byte> tail(size_ - at_);
  if (!tail.empty()) {
    if (auto read = read_(at_, tail); !read) return std::move(read).error();
  }
  if (!all_zero(tail)) return corrupt("cut off in a header");
  if (has_pending_) return corrupt("cut off between an extended header and its member");
  ended_ = true;
  return false;
}

Result<void> TarWalker::finish_member(std::span<const std::byte> header, char type,
                                      TarMember& member) {
  member.name = pending_.path ? *pending_.path : global_.path ? *global_.path : header_name(header);
  member.kind =
      pending_.sparse || global_.sparse ? TarMember::Kind::sparse : kind_of(type, member.name);
  member.data_offset = at_ + kBlock;
  member.size = 0;
  std::uint64_t padded = 0;
  if (has_data(member.kind)) {
    auto size = pending_.size ? pending_.size : global_.size;
    if (!size) size = parse_number(header.subspan(kSizeAt, kSizeSize));
    if (!size) return corrupt("member \"" + member.name + "\": its size is no number of tar's");
    const std::uint64_t rest = size_ - member.data_offset;
    if (*size > rest) {
      return corrupt("cut off in member \"" + member.name + "\": " + std::to_string(*size) +
                     " bytes announced, " + std::to_string(rest) + " there");
    }
    member.size = *size;
    // Missing padding behind the last member harms nobody.
    padded = std::min((*size + kBlock - 1) / kBlock * kBlock, rest);
  }
  at_ = member.data_offset + padded;
  pending_ = {};
  has_pending_ = false;
  return {};
}

Result<void> TarWalker::read_extended(char type, std::uint64_t size) {
  if (type == 'g') {
    // Stands for itself: an archive may end after it.
    const bool before = has_pending_;
    auto read = read_pax(size, global_);
    has_pending_ = before;
    return read;
  }
  if (type == 'x' || type == 'X') return read_pax(size, pending_);
  auto bytes = payload(size, kNameMax, "a GNU long name");
  if (!bytes) return std::move(bytes).error();
  if (type == 'L')
    pending_.path = std::string(until_nul(text_of(*bytes)));  // 'K' is a link's target
  return {};
}

Result<bool> TarWalker::next(TarMember& member) {
  const auto before = std::tuple(at_, pending_, global_, has_pending_);
  auto found = find_next(member);
  if (!found) std::tie(at_, pending_, global_, has_pending_) = before;
  return found;
}

Result<bool> TarWalker::find_next(TarMember& member) {
  if (size_ == 0) return Error(ErrorCode::corrupt_data, "the shard is empty: 0 bytes");
  std::optional<std::uint64_t> first;  // header
  while (!ended_) {
    if (size_ - at_ < kBlock) return read_tail();
    const auto block = block_at(at_);
    if (!block) return block.error();
    const auto header = *block;
    if (all_zero(header)) {
      if (has_pending_) return corrupt("an extended header without its member");
      const auto end = read_end();
      if (!end) return end.error();
      continue;
    }
    if (!checksum_matches(header)) {
      if (at_ == 0) return not_a_tar(header).at_range({0, std::min(size_, kBlock)});
      return corrupt("a header's checksum is wrong");
    }
    if (!first) first = at_;
    if (at_ - *first > kExtendedMax) return corrupt("too many extended headers before a member");
    const char type = static_cast<char>(header[kTypeAt]);
    if (type != 'L' && type != 'K' && type != 'x' && type != 'X' && type != 'g') {
      member.header_offset = *first;
      if (auto finished = finish_member(header, type, member); !finished)
        return std::move(finished).error();
      return true;
    }
    const auto size = parse_number(header.subspan(kSizeAt, kSizeSize));
    if (!size) return corrupt("an extended header's size is no number of tar's");
    if (auto read = read_extended(type, *size); !read) return std::move(read).error();
  }
  return false;
}

bool is_header_of(std::span<const std::byte> block, std::string_view name, std::uint64_t size) {
  if (block.size() != TarWalker::kBlock || !checksum_matches(block)) return false;
  const auto found = header_name(block);
  if (kind_of(static_cast<char>(block[kTypeAt]), found) != TarMember::Kind::file) return false;
  if (parse_number(block.subspan(kSizeAt, kSizeSize)) != size) return false;
  const bool ascii = std::all_of(name.begin(), name.end(),
                                 [](char c) { return static_cast<unsigned char>(c) < 0x80; });
  return found == name || name.size() > kNameSize || !ascii;
}

bool is_zero_block(std::span<const std::byte> block) { return all_zero(block); }

TarName split_tar_name(std::string_view name) {
  TarName split;
  // WebDataset's own rule: ^__[^/]*__($|/)
  const auto first_part = name.substr(0, name.find('/'));
  split.metadata =
      first_part.size() >= 4 && first_part.starts_with("__") && first_part.ends_with("__");
  const auto slash = name.rfind('/');
  const std::size_t base = slash == std::string_view::npos ? 0 : slash + 1;
  split.hidden = name.substr(base).starts_with('.');
  const auto dot = name.find('.', base);
  split.key = name.substr(0, dot);
  if (dot != std::string_view::npos && dot > base) split.field = name.substr(dot + 1);
  return split;
}

}  // namespace headpond
