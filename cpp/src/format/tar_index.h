#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/digest.h"
#include "format/front_coded.h"
#include "format/image.h"
#include "format/little_endian.h"
#include "format/tar.h"
#include "headpond/field.h"
#include "headpond/result.h"

namespace headpond {

// What a shard holds that is no sample's.
struct TarSkipped {
  std::uint64_t folders = 0, metadata = 0, hidden = 0, without_field = 0, other = 0;
  std::uint64_t total() const { return folders + metadata + hidden + without_field + other; }
};

// Where the samples of one tar shard lie: per sample a key and its first member,
// per member offset, size and suffix. Memory-mapped, or in memory.
//
// 24 bytes a member at most (20, and 4 a sample), beside the keys, which are
// front-coded. Immutable; safe from any thread.
class TarIndex {
 public:
  struct Member {
    std::uint64_t offset = 0;  // of its data in the shard
    std::uint64_t size = 0;
    std::uint32_t suffix = 0;
  };

  // Checks everything once. Errors: corrupt_data (damaged, or made for another
  // version or size of the shard).
  static Result<std::shared_ptr<const TarIndex>> open(Image image, std::uint64_t shard_bytes,
                                                      const Digest& version);

  std::uint64_t samples() const { return first_.size() - 1; }
  std::uint64_t members() const { return offsets_.size(); }
  // Members [first_member(i), first_member(i + 1)) are those of sample i.
  std::uint32_t first_member(std::uint64_t sample) const { return first_[sample]; }
  Member member(std::uint64_t index) const {
    return {offsets_[index], sizes_[index], suffixes_[index]};
  }
  std::uint32_t suffix_of(std::uint64_t member) const { return suffixes_[member]; }
  void key(std::uint64_t sample, std::string& key) const { keys_.get(sample, key); }

  // The different suffixes, as written: "jpg", "JPG", "seg.png".
  std::uint64_t suffix_count() const { return suffix_ends_.size(); }
  std::string_view suffix(std::uint64_t number) const;

  const TarSkipped& skipped() const { return skipped_; }
  bool end_marked() const { return end_marked_; }
  std::uint64_t bytes_behind_end() const { return bytes_behind_end_; }
  std::span<const std::byte> image() const { return image_.bytes(); }

 private:
  TarIndex() = default;
  Result<void> read_parts();
  Result<void> check_contents(std::uint64_t shard_bytes) const;

  Image image_;
  Column<std::uint64_t> offsets_, sizes_, suffix_ends_;
  Column<std::uint32_t> suffixes_, first_;
  std::span<const std::byte> suffix_text_;
  FrontCodedNames keys_;
  TarSkipped skipped_;
  bool end_marked_ = false;
  std::uint64_t bytes_behind_end_ = 0;
};

// Makes a shard's index while the shard arrives from its start.
class TarIndexing {
 public:
  // `read` is asked for bytes before `available` only.
  TarIndexing(std::uint64_t shard_bytes, const Digest& version, TarWalker::Read read);
  ~TarIndexing();
  TarIndexing(TarIndexing&&) noexcept;

  // Goes on as far as the first `available` bytes allow (the last call: all of them).
  // The finished index's image, or nothing as long as bytes are missing. `members` at
  // most in one call. Errors: as build_tar_index.
  Result<std::optional<std::vector<std::byte>>> advance(std::uint64_t available,
                                                        std::uint64_t members);
  // Nothing before it is asked for again.
  std::uint64_t needed() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Walks a shard and writes its index. `proceed` is asked now and then; false: cancelled.
// Errors: those of TarWalker; corrupt_data (a field twice in a sample, a key that
// returns after its sample ended), unsupported (links, devices, sparse members),
// naming the member.
Result<std::vector<std::byte>> build_tar_index(std::uint64_t shard_bytes, const Digest& version,
                                               TarWalker::Read read,
                                               const std::function<bool()>& proceed);

// A sample's fields, in the order of its members, and where their bytes lie.
struct FirstSample {
  std::vector<Field> fields;  // none: there is no sample
  std::vector<ByteRange> ranges;
};
// The first sample of a shard. Reads headers up to its end. Errors: as build_tar_index.
Result<FirstSample> find_first_sample(std::uint64_t shard_bytes, TarWalker::Read read);

// The index of these members, which somebody else found in a shard; in their order.
// Errors: as build_tar_index. Nothing of the shard is looked at.
Result<std::vector<std::byte>> make_tar_index(std::span<const TarMember> members,
                                              std::uint64_t shard_bytes, const Digest& version);

// Writes the checksums of an image whose other bytes are set.
void seal_tar_index(std::span<std::byte> image);
// Makes an index, which TarIndex::open took, one of another version of the same bytes.
void stamp_tar_index(std::span<std::byte> image, const Digest& version);

// ASCII lower case: fields are compared so.
std::string lower_case(std::string_view text);

}  // namespace headpond
