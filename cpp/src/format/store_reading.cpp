#include "format/store_reading.h"

#include "io/http_url.h"

namespace headpond {

Result<void> read_exactly(Store& store, std::string_view object, const ObjectVersion& expected,
                          std::uint64_t offset, std::span<std::byte> out, const GoOn& go_on) {
  const Piece piece{offset, out};
  const auto filled = store.read_now(object, expected, {&piece, 1}, Wait::allowed);
  if (!filled) return filled.error();
  if (*filled == 1) return {};
  const auto outcome = read_blocking(store, object, offset, out, expected, go_on);
  if (!outcome) return outcome.error();
  if (outcome->bytes != out.size()) {
    return Error(ErrorCode::corrupt_data, "the object ends after " +
                                              std::to_string(offset + outcome->bytes) +
                                              " bytes, earlier than its size says");
  }
  return {};
}

std::string object_uri(const Manifest& manifest, std::uint64_t index) {
  std::string name;
  manifest.name(index, name);
  return manifest.root().join(name).to_string();
}

std::string object_key(const Manifest& manifest, std::uint64_t index) {
  std::string name;
  manifest.name(index, name);
  std::string key = manifest.root().join(name).to_string();
  if (manifest.root().scheme == "file") return key;
  const std::string_view lasting = without_signature(name);
  if (const auto question = lasting.find('?'); question != lasting.npos)
    key += lasting.substr(question);
  return key;
}

}  // namespace headpond
