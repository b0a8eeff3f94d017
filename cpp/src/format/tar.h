#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headpond/result.h"

namespace headpond {

struct TarMember {
  enum class Kind : std::uint8_t { file, folder, link, device, sparse, other };

  std::string name;  // bytes, from pax or GNU long names where there are some
  Kind kind = Kind::file;
  std::uint64_t header_offset = 0;  // of its first header, extended ones included
  std::uint64_t data_offset = 0;
  std::uint64_t size = 0;  // of its data; 0 for kinds without
};

// Walks the members of a tar archive: ustar, pax (path, size), GNU long names,
// base-256 sizes, v7. Reads headers only and jumps over data.
//
// Hostile input costs bounded memory: long names are at most 64 KiB, pax headers
// 1 MiB, all headers before one member 1.5 MiB; every size is checked against the
// archive before it is used.
class TarWalker {
 public:
  static constexpr std::uint64_t kBlock = 512;
  static constexpr std::uint64_t kNameMax = 64u << 10;
  static constexpr std::uint64_t kPaxMax = 1u << 20;
  static constexpr std::uint64_t kExtendedMax = 3u << 19;  // of all before one member

  // Fills `out` from `offset`; asked only for bytes before `size`.
  using Read = std::function<Result<void>(std::uint64_t offset, std::span<std::byte> out)>;

  TarWalker(std::uint64_t size, Read read);

  // The next member, or false at the end of the archive. After an error it stands where
  // it stood before: where `read` had no bytes yet, it can be called again.
  // Errors: those of `read`; corrupt_data (cut, bad checksum or number, sizes past
  // the end), unsupported (compressed); with the range of the header.
  Result<bool> next(TarMember& member);

  // After the end. Was there an end-of-archive block? Without one the archive may
  // have been cut between two members.
  bool end_marked() const { return end_marked_; }
  // Where the archive ends; anything behind it is not read.
  std::uint64_t end_offset() const { return at_; }
  // Nothing before it is asked for again.
  std::uint64_t position() const { return at_; }
  // From now on read ahead to this offset at most; it never falls.
  void limit_read_ahead(std::uint64_t offset) { read_ahead_stop_ = offset; }

 private:
  struct Extended {  // what headers before a member say about it
    std::optional<std::string> path;
    std::optional<std::uint64_t> size;
    bool sparse = false;
  };

  Result<bool> find_next(TarMember& member);
  Result<std::span<const std::byte>> block_at(std::uint64_t offset);
  Result<std::vector<std::byte>> payload(std::uint64_t size, std::uint64_t most, const char* what);
  Result<bool> read_end();
  Result<bool> read_tail();
  Result<void> read_extended(char type, std::uint64_t size);
  Result<void> read_pax(std::uint64_t size, Extended& into);
  Result<void> finish_member(std::span<const std::byte> header, char type, TarMember& member);
  Error corrupt(std::string message) const;

  std::uint64_t size_;
  Read read_;
  std::uint64_t at_ = 0;
  std::vector<std::byte> buffer_;
  std::uint64_t buffer_start_ = 0;
  std::uint64_t read_ahead_stop_ = ~std::uint64_t{0};
  Extended pending_, global_;
  bool has_pending_ = false;
  bool ended_ = false;
  bool end_marked_ = false;
};

// What WebDataset makes of a name: key up to the first dot of the last part, field
// the rest (as written). No field: `field` is none.
struct TarName {
  std::string_view key;
  std::optional<std::string_view> field;
  bool metadata = false;  // "__x__/...", "__x__"
  bool hidden = false;    // the last part begins with "."
};
TarName split_tar_name(std::string_view name);

// Is this block the header right before the data of a file of this name and size? Names that a
// header of its own cannot hold (more than 100 bytes, not ASCII) are not compared.
bool is_header_of(std::span<const std::byte> block, std::string_view name, std::uint64_t size);
bool is_zero_block(std::span<const std::byte> block);

}  // namespace headpond
