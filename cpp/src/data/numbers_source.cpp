#include "data/numbers_source.h"

#include <algorithm>
#include <cctype>
#include <vector>

#include "format/store_reading.h"

namespace headpond {

bool has_npy_suffix(std::string_view name) {
  if (name.size() < 4) return false;
  std::string suffix(name.substr(name.size() - 4));
  std::transform(suffix.begin(), suffix.end(), suffix.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return suffix == ".npy";
}

std::string describe(const StoredType& type) {
  return (type.swapped ? "big-endian " : "") + std::string(name_of(type.dtype));
}

Result<NpyHeader> read_npy_header(Store& store, const Manifest& manifest, std::uint64_t index,
                                  const GoOn& go_on) {
  std::string name;
  manifest.name(index, name);
  const std::uint64_t size = manifest.object_size(index);
  std::vector<std::byte> start(std::min<std::uint64_t>(size, kNpyHeaderMax));
  if (auto read = read_exactly(store, name, manifest.version(index), 0, start, go_on); !read) {
    return std::move(read).error().at_uri(object_uri(manifest, index));
  }
  auto header = parse_npy_header(start);
  if (!header) return std::move(header).error().at_uri(object_uri(manifest, index));
  if (const std::uint64_t there = size - header->data_offset; there != header->data_bytes) {
    return Error(ErrorCode::corrupt_data,
                 "the .npy header announces " + std::to_string(header->data_bytes) +
                     " bytes of data, the file holds " + std::to_string(there))
        .at_uri(object_uri(manifest, index));
  }
  return header;
}

}  // namespace headpond
