#include "format/shipped_index.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include "format/tar_index.h"
#include "format/tar_index_folder.h"

namespace headpond {
namespace {

constexpr std::uint64_t kBlock = TarWalker::kBlock;

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Error refused(std::string why) { return Error(ErrorCode::corrupt_data, std::move(why)); }

std::optional<std::uint64_t> parse_number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Cuts the first word off, which ends at a blank.
std::string_view take_word(std::string_view& line) {
  const auto stop = std::min(line.find(' '), line.size());
  const auto word = line.substr(0, stop);
  line.remove_prefix(std::min(stop + 1, line.size()));
  return word;
}

std::string_view take_line(std::string_view& text) {
  const auto stop = std::min(text.find('\n'), text.size());
  auto line = text.substr(0, stop);
  text.remove_prefix(std::min(stop + 1, text.size()));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

std::string in_line(std::uint64_t line) { return "line " + std::to_string(line) + " "; }

// A line's members go to `members`. Why it is none, if so.
std::optional<std::string> parse_members(std::string_view line, std::vector<TarMember>& members) {
  if (line.empty()) return "is empty";
  while (!line.empty()) {
    const auto extension = take_word(line);
    const auto offset = parse_number(take_word(line));
    const auto size = parse_number(take_word(line));
    const auto name = take_word(line);
    if (!offset || !size || name.empty() || name.size() > TarWalker::kNameMax)
      return "is no row of extension, offset, size and name";
    if (!name.ends_with(extension)) return "gives an extension that is not its name's";
    const std::uint64_t before = members.empty() ? 0 : members.back().data_offset;
    const std::uint64_t used = members.empty() ? 0 : members.back().size;
    // After `before` lie the bytes of that member and this one's header.
    if (*offset % kBlock != 0 || *offset < before || *offset - before < kBlock ||
        *offset - before - kBlock < used) {
      return "gives an offset where no member of a tar can begin";
    }
    members.push_back({std::string(name), TarMember::Kind::file, *offset - kBlock, *offset, *size});
  }
  return std::nullopt;
}

std::string name_of_member(const TarIndex& index, std::uint64_t sample, std::uint64_t member) {
  std::string name;
  index.key(sample, name);
  name += '.';
  name += index.suffix(index.suffix_of(member));
  return name;
}

// Do headers stand where the index says? Looks at the middle and at the end: in another archive
// of the same size all places have moved.
Result<void> compare(const TarIndex& index, std::uint64_t shard_bytes,
                     const TarWalker::Read& read) {
  std::array<std::byte, kBlock> block;
  std::uint64_t stop = 0;
  for (const std::uint64_t sample : {index.samples() / 2, index.samples() - 1}) {
    if (index.samples() == 0) break;
    const std::uint64_t number = index.first_member(sample + 1) - 1;
    const auto member = index.member(number);
    stop = (member.offset + member.size + kBlock - 1) / kBlock * kBlock;
    const auto name = name_of_member(index, sample, number);
    if (member.offset < kBlock) return refused("member \"" + name + "\" has no room for a header");
    if (auto done = read(member.offset - kBlock, block); !done) return done;
    if (!is_header_of(block, name, member.size))
      return refused("member \"" + name + "\" does not stand in the shard where the index says");
  }
  if (index.skipped().total() > 0 || shard_bytes < stop || shard_bytes - stop < kBlock) return {};
  if (auto done = read(stop, block); !done) return done;
  if (!is_zero_block(block)) return refused("the shard goes on where the index ends");
  return {};
}

Result<std::vector<std::byte>> image_of(ShippedKind kind, std::vector<std::byte> file,
                                        std::uint64_t shard_bytes) {
  if (kind == ShippedKind::headpond) return file;
  const auto members = parse_dali_index(text_of(file));
  if (!members) return members.error();
  return make_tar_index(*members, shard_bytes, {});
}

}  // namespace

std::string_view name_of(ShippedKind kind) {
  return kind == ShippedKind::headpond ? "headpond's" : "DALI's";
}

std::string shipped_name(ShippedKind kind, std::string_view shard) {
  if (kind == ShippedKind::headpond) return std::string(shard) + ".hpindex";
  // As wds2idx without a name for its output: before the first dot of the last part, its first
  // letter left aside.
  const auto slash = shard.rfind('/');
  const auto base = slash == std::string_view::npos ? 0 : slash + 1;
  return std::string(shard.substr(0, shard.find('.', base + 1))) + ".idx";
}

bool is_shipped_index(ShippedKind kind, std::span<const std::byte> start) {
  return text_of(start).starts_with(kind == ShippedKind::headpond ? "HPTARIX\n" : "v1.");
}

Result<std::vector<TarMember>> parse_dali_index(std::string_view text) {
  auto first = take_line(text);
  const auto version = take_word(first);
  if (version == "v1.1")
    return Error(ErrorCode::unsupported, "version v1.1 has no names of members: make it again");
  const auto samples = parse_number(first);
  if (version != "v1.2" || !samples) return refused("it does not begin with \"v1.2\" and a number");
  std::vector<TarMember> members;
  std::uint64_t line = 1;
  while (!text.empty()) {
    ++line;
    if (auto why = parse_members(take_line(text), members)) return refused(in_line(line) + *why);
  }
  if (line - 1 != *samples) {
    return refused("it has " + std::to_string(line - 1) + " samples and says " +
                   std::to_string(*samples) + ": cut off?");
  }
  return members;
}

Result<std::vector<std::byte>> take_shipped_index(ShippedKind kind, std::vector<std::byte> file,
                                                  const ObjectVersion& version,
                                                  const TarWalker::Read& read) {
  auto image = image_of(kind, std::move(file), version.size);
  if (!image) return image;
  const auto index = TarIndex::open(Image(*image), version.size, {});
  if (!index) return index.error();
  if (auto same = compare(**index, version.size, read); !same) return std::move(same).error();
  stamp_tar_index(*image, digest_of(version));
  return image;
}

std::vector<std::byte> shipped_index(std::span<const std::byte> index_image) {
  std::vector<std::byte> image(index_image.begin(), index_image.end());
  stamp_tar_index(image, {});
  return image;
}

}  // namespace headpond
