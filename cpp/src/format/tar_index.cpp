#include "format/tar_index.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace headpond {
namespace {

// The file, all integers little-endian:
//
//   0  "HPTARIX\n"          40  bytes of suffixes      80  bytes of the shard
//   8  u32 version          48  bytes of keys          88  bytes behind the end mark
//  12  u32 CRC32C of header 56  u32 CRC32C of body     96  skipped: folders, metadata,
//  16  samples              60  u32 is the end marked      hidden, without field, other
//  24  members              64  digest of the shard's 136  zero to 144
//  32  suffixes                 version (16)
//
// then offsets, sizes (8 bytes a member), offsets of the key groups, ends of the
// suffixes (8 bytes each), suffix numbers (4 bytes a member), first members (4 bytes a
// sample and one more), suffixes, keys.
constexpr char kMagic[] = "HPTARIX\n";
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kHeaderBytes = 144;
constexpr std::uint64_t kMembersMax = 0xFFFFFFF0;

std::uint32_t header_crc(std::span<const std::byte> header) {
  constexpr std::array<std::byte, 4> kZero{};
  return crc32c(header.subspan(16, kHeaderBytes - 16), crc32c(kZero, crc32c(header.first(12))));
}

Error damaged(const char* what) {
  return Error(ErrorCode::corrupt_data, std::string("not an index of this shard: ") + what);
}

}  // namespace

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + ('a' - 'A'));
  }
  return lower;
}

void seal_tar_index(std::span<std::byte> image) {
  if (image.size() < kHeaderBytes) return;
  write_le(image, 56, crc32c(image.subspan(kHeaderBytes)));
  write_le(image, 12, header_crc(image));
}

void stamp_tar_index(std::span<std::byte> image, const Digest& version) {
  write_le(image, 64, version.high);
  write_le(image, 72, version.low);
  seal_tar_index(image);
}

Result<std::shared_ptr<const TarIndex>> TarIndex::open(Image image, std::uint64_t shard_bytes,
                                                       const Digest& version) {
  auto index = std::shared_ptr<TarIndex>(new TarIndex());
  index->image_ = std::move(image);
  const auto file = index->image_.bytes();
  if (file.size() < kHeaderBytes || std::memcmp(file.data(), kMagic, 8) != 0)
    return damaged("no header");
  if (read_le<std::uint32_t>(file, 8) != kVersion) return damaged("another format");
  if (header_crc(file) != read_le<std::uint32_t>(file, 12))
    return damaged("the header's checksum is wrong");
  if (read_le<std::uint64_t>(file, 64) != version.high ||
      read_le<std::uint64_t>(file, 72) != version.low ||
      read_le<std::uint64_t>(file, 80) != shard_bytes) {
    return damaged("the shard has another version");
  }
  if (crc32c(file.subspan(kHeaderBytes)) != read_le<std::uint32_t>(file, 56))
    return damaged("its checksum is wrong");
  if (auto read = index->read_parts(); !read) return std::move(read).error();
  if (auto checked = index->check_contents(shard_bytes); !checked)
    return std::move(checked).error();
  return std::shared_ptr<const TarIndex>(std::move(index));
}

Result<void> TarIndex::read_parts() {
  const auto file = image_.bytes();
  const auto number = [&](std::size_t at) { return read_le<std::uint64_t>(file, at); };
  const std::uint64_t samples = number(16), members = number(24), suffixes = number(32),
                      suffix_bytes = number(40), key_bytes = number(48);
  // Each is at most the file's size, so that their sum cannot wrap.
  const std::uint64_t most = file.size();
  if (samples > members || members > std::min(kMembersMax, most) || suffixes > most ||
      suffix_bytes > most || key_bytes > most) {
    return damaged("its parts do not fit");
  }
  const std::uint64_t sizes[] = {8 * members,  8 * members, 8 * (name_groups(samples) + 1),
                                 8 * suffixes, 4 * members, 4 * (samples + 1),
                                 suffix_bytes, key_bytes};
  std::span<const std::byte> parts[8];
  std::uint64_t at = kHeaderBytes;
  for (std::size_t i = 0; i < 8; ++i) {
    if (sizes[i] > most - at) return damaged("its parts do not fit");
    parts[i] = file.subspan(at, sizes[i]);
    at += sizes[i];
  }
  if (at != most) return damaged("its parts do not add up");
  offsets_ = Column<std::uint64_t>(parts[0]);
  sizes_ = Column<std::uint64_t>(parts[1]);
  suffix_ends_ = Column<std::uint64_t>(parts[3]);
  suffixes_ = Column<std::uint32_t>(parts[4]);
  first_ = Column<std::uint32_t>(parts[5]);
  suffix_text_ = parts[6];
  keys_ = FrontCodedNames(samples, Column<std::uint64_t>(parts[2]), parts[7]);
  end_marked_ = read_le<std::uint32_t>(file, 60) != 0;
  bytes_behind_end_ = number(88);
  skipped_ = {number(96), number(104), number(112), number(120), number(128)};
  return {};
}

// After this no number in the index can lead outside of it or of the shard.
Result<void> TarIndex::check_contents(std::uint64_t shard_bytes) const {
  if (!keys_.offsets_valid()) return damaged("its keys are out of order");
  std::uint64_t end = 0;
  for (std::uint64_t i = 0; i < suffix_count(); ++i) {
    if (suffix_ends_[i] < end || suffix_ends_[i] > suffix_text_.size())
      return damaged("its suffixes are out of order");
    end = suffix_ends_[i];
  }
  if (first_[0] != 0 || first_[samples()] != members())
    return damaged("its samples do not cover its members");
  for (std::uint64_t i = 0; i < samples(); ++i) {
    if (first_[i] >= first_[i + 1]) return damaged("a sample has no member");
  }
  std::uint64_t stop = 0;
  for (std::uint64_t i = 0; i < members(); ++i) {
    const std::uint64_t offset = offsets_[i];
    if (offset < stop || offset > shard_bytes || sizes_[i] > shard_bytes - offset) {
      return damaged("its members overlap or leave the shard");
    }
    stop = offset + sizes_[i];
    if (suffixes_[i] >= suffix_count()) return damaged("a suffix is missing");
  }
  return {};
}

std::string_view TarIndex::suffix(std::uint64_t number) const {
  const std::uint64_t start = number == 0 ? 0 : suffix_ends_[number - 1];
  const auto bytes = suffix_text_.subspan(start, suffix_ends_[number] - start);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

namespace {

struct DigestHash {
  std::size_t operator()(const Digest& digest) const noexcept { return digest.low; }
};

// Groups members into samples and gathers the index's columns.
class IndexBuilder {
 public:
  Result<void> add(const TarMember& member) {
    if (member.kind == TarMember::Kind::sparse) {
      return refuse(ErrorCode::unsupported, member,
                    "is sparse: store it as an ordinary file (tar without --sparse)");
    }
    const TarName name = split_tar_name(member.name);
    if (member.kind == TarMember::Kind::folder) return skip(skipped_.folders);
    if (name.metadata) return skip(skipped_.metadata);
    if (name.hidden) return skip(skipped_.hidden);
    if (member.kind == TarMember::Kind::link) {
      return refuse(ErrorCode::unsupported, member,
                    "is a link: store the file itself (tar --dereference --hard-dereference)");
    }
    if (member.kind == TarMember::Kind::device)
      return refuse(ErrorCode::unsupported, member, "is a device or a pipe");
    if (member.kind == TarMember::Kind::other) return skip(skipped_.other);
    if (!name.field) return skip(skipped_.without_field);
    return add_field(member, name);
  }

  std::uint64_t samples() const { return first_.size(); }

  // The first one, as far as it has come.
  FirstSample first_sample() const {
    FirstSample first;
    const std::size_t members = first_.size() > 1 ? first_[1] : suffixes_.size();
    for (std::size_t member = 0; member < members; ++member) {
      const std::uint32_t suffix = suffixes_[member];
      const std::uint64_t start = suffix == 0 ? 0 : suffix_ends_[suffix - 1];
      first.fields.push_back(
          {lower_case(std::string_view(suffix_text_).substr(start, suffix_ends_[suffix] - start)),
           DType::bytes, std::nullopt, false});
      first.ranges.push_back({offsets_[member], offsets_[member] + sizes_[member]});
    }
    return first;
  }

  // The shard ended.
  std::vector<std::byte> finish(std::uint64_t shard_bytes, const Digest& version, bool end_marked,
                                std::uint64_t bytes_behind_end) const {
    std::vector<std::byte> image;
    image.reserve(kHeaderBytes + 20 * offsets_.size() + 4 * first_.size() + keys_.blob().size() +
                  suffix_text_.size());
    image.resize(kHeaderBytes);
    std::memcpy(image.data(), kMagic, 8);
    write_le<std::uint32_t>(image, 8, kVersion);
    write_le<std::uint32_t>(image, 60, end_marked ? 1 : 0);
    const std::uint64_t numbers[] = {first_.size(), offsets_.size(), suffix_ends_.size(),
                                     suffix_text_.size(), keys_.blob().size()};
    for (std::size_t i = 0; i < 5; ++i) write_le(image, 16 + 8 * i, numbers[i]);
    const std::uint64_t more[] = {
        version.high,     version.low,       shard_bytes,     bytes_behind_end,
        skipped_.folders, skipped_.metadata, skipped_.hidden, skipped_.without_field,
        skipped_.other};
    for (std::size_t i = 0; i < 9; ++i) write_le(image, 64 + 8 * i, more[i]);
    append_all(image, offsets_);
    append_all(image, sizes_);
    append_all(image, keys_.group_offsets());
    append_all(image, suffix_ends_);
    append_all(image, suffixes_);
    append_all(image, first_);
    append(image, static_cast<std::uint32_t>(offsets_.size()));
    append(image, std::as_bytes(std::span(suffix_text_)));
    append(image, keys_.blob());
    seal_tar_index(image);
    return image;
  }

 private:
  template <class T>
  static void append_all(std::vector<std::byte>& image, const std::vector<T>& column) {
    append(image, std::as_bytes(std::span(column)));
  }

  static Result<void> skip(std::uint64_t& count) {
    ++count;
    return {};
  }

  static Error refuse(ErrorCode code, const TarMember& member, const std::string& why) {
    return Error(code, "member \"" + member.name + "\" " + why)
        .at_range({member.header_offset, member.data_offset});
  }

  Result<void> add_field(const TarMember& member, const TarName& name) {
    if (offsets_.size() >= kMembersMax)
      return refuse(ErrorCode::unsupported, member, "is one too many for an index");
    if (first_.empty() || name.key != key_) {
      // 128 bits: two different keys do not meet.
      if (!seen_.insert(digest(name.key)).second) {
        return refuse(
            ErrorCode::corrupt_data, member,
            "has the key \"" + std::string(name.key) +
                "\" of a sample that ended before: the members of a sample must follow each other");
      }
      key_ = name.key;
      keys_.add(key_);
      first_.push_back(static_cast<std::uint32_t>(offsets_.size()));
    }
    const std::uint32_t suffix = number_of_suffix(*name.field);
    std::uint64_t& last_sample = field_seen_[field_of_suffix_[suffix]];
    if (last_sample == first_.size()) {
      return refuse(ErrorCode::corrupt_data, member,
                    "gives its sample the field \"" + lower_case(*name.field) + "\" a second time");
    }
    last_sample = first_.size();
    offsets_.push_back(member.data_offset);
    sizes_.push_back(member.size);
    suffixes_.push_back(suffix);
    return {};
  }

  std::uint32_t number_of_suffix(std::string_view text) {
    const auto found = suffix_numbers_.find(std::string(text));
    if (found != suffix_numbers_.end()) return found->second;
    const auto number = static_cast<std::uint32_t>(suffix_ends_.size());
    suffix_numbers_.emplace(text, number);
    suffix_text_ += text;
    suffix_ends_.push_back(suffix_text_.size());
    const auto field = fields_.try_emplace(lower_case(text), fields_.size()).first->second;
    field_of_suffix_.push_back(field);
    field_seen_.resize(fields_.size(), 0);
    return number;
  }

  FrontCodedWriter keys_;
  std::string key_;
  std::unordered_set<Digest, DigestHash> seen_;
  std::vector<std::uint64_t> offsets_, sizes_, suffix_ends_;
  std::vector<std::uint32_t> suffixes_, first_;
  std::string suffix_text_;
  std::unordered_map<std::string, std::uint32_t> suffix_numbers_;
  std::unordered_map<std::string, std::size_t> fields_;  // lower case
  std::vector<std::size_t> field_of_suffix_;
  std::vector<std::uint64_t> field_seen_;  // samples when the field was last seen
  TarSkipped skipped_;
};

// Looks for bytes that are not zero behind the end mark (another archive, say), 16 MiB at
// most. Can be called again after an error of `read`: it goes on where it stopped.
class TailScan {
 public:
  void begin(std::uint64_t from, std::uint64_t size) {
    at_ = from;
    size_ = size;
    stop_ = std::min(size, from + (std::uint64_t{16} << 20));
  }
  std::uint64_t position() const { return at_; }

  // Bytes from the first that is not zero to the end of the file.
  Result<std::uint64_t> run(const TarWalker::Read& read) {
    while (at_ < stop_) {
      buffer_.resize(std::min<std::uint64_t>(64u << 10, stop_ - at_));
      if (auto done = read(at_, buffer_); !done) return std::move(done).error();
      const auto found = std::find_if(buffer_.begin(), buffer_.end(),
                                      [](std::byte b) { return b != std::byte{0}; });
      if (found != buffer_.end())
        return size_ - at_ - static_cast<std::uint64_t>(found - buffer_.begin());
      at_ += buffer_.size();
    }
    return std::uint64_t{0};
  }

 private:
  std::uint64_t at_ = 0, size_ = 0, stop_ = 0;
  std::vector<std::byte> buffer_;
};

}  // namespace

struct TarIndexing::State {
  State(std::uint64_t shard_bytes, const Digest& shard_version, TarWalker::Read read_all)
      : bytes(shard_bytes),
        version(shard_version),
        read([this, inner = std::move(read_all)](std::uint64_t offset, std::span<std::byte> out) {
          if (offset + out.size() <= available) return inner(offset, out);
          starved = true;
          return Result<void>(Error(ErrorCode::cancelled, "the bytes have not arrived"));
        }),
        walker(bytes, read) {}

  const std::uint64_t bytes;
  const Digest version;
  std::uint64_t available = 0;
  bool starved = false;  // the last error says only that bytes are missing
  bool walked = false;
  TailScan tail;
  const TarWalker::Read read;
  TarWalker walker;
  IndexBuilder builder;
};

TarIndexing::TarIndexing(std::uint64_t shard_bytes, const Digest& version, TarWalker::Read read)
    : state_(std::make_unique<State>(shard_bytes, version, std::move(read))) {}
TarIndexing::~TarIndexing() = default;
TarIndexing::TarIndexing(TarIndexing&&) noexcept = default;

std::uint64_t TarIndexing::needed() const {
  return state_->walked ? state_->tail.position() : state_->walker.position();
}

Result<std::optional<std::vector<std::byte>>> TarIndexing::advance(std::uint64_t available,
                                                                   std::uint64_t members) {
  State& s = *state_;
  s.available = available;
  s.walker.limit_read_ahead(available);
  TarMember member;
  while (!s.walked) {
    if (members-- == 0) return std::nullopt;
    s.starved = false;
    const auto more = s.walker.next(member);
    if (!more && s.starved) return std::nullopt;
    if (!more) return more.error();
    if (!*more) {
      s.walked = true;
      s.tail.begin(s.walker.end_offset(), s.bytes);
      break;
    }
    if (auto added = s.builder.add(member); !added) return std::move(added).error();
  }
  s.starved = false;
  const auto behind = s.tail.run(s.read);
  if (!behind && s.starved) return std::nullopt;
  if (!behind) return behind.error();
  return s.builder.finish(s.bytes, s.version, s.walker.end_marked(), *behind);
}

Result<FirstSample> find_first_sample(std::uint64_t shard_bytes, TarWalker::Read read) {
  TarWalker walker(shard_bytes, std::move(read));
  IndexBuilder builder;
  TarMember member;
  for (;;) {
    const auto more = walker.next(member);
    if (!more) return more.error();
    if (!*more) return builder.first_sample();
    if (auto added = builder.add(member); !added) return std::move(added).error();
    if (builder.samples() > 1) return builder.first_sample();
  }
}

Result<std::vector<std::byte>> build_tar_index(std::uint64_t shard_bytes, const Digest& version,
                                               TarWalker::Read read,
                                               const std::function<bool()>& proceed) {
  TarIndexing indexing(shard_bytes, version, std::move(read));
  for (;;) {
    if (proceed && !proceed()) return Error(ErrorCode::cancelled, "indexing was stopped");
    auto image = indexing.advance(shard_bytes, 256);
    if (!image) return std::move(image).error();
    if (*image) return **std::move(image);
  }
}

Result<std::vector<std::byte>> make_tar_index(std::span<const TarMember> members,
                                              std::uint64_t shard_bytes, const Digest& version) {
  IndexBuilder builder;
  for (const auto& member : members) {
    if (auto added = builder.add(member); !added) return std::move(added).error();
  }
  return builder.finish(shard_bytes, version, true, 0);
}

}  // namespace headpond
