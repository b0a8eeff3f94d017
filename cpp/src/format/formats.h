#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "format/stored_type.h"
#include "headpond/format.h"
#include "headpond/manifest.h"

namespace headpond {

class TarIndex;
class TarIndexFolder;

// The formats there are. Each is a pure function of its arguments.

// Files of one class that follow each other in the manifest.
struct LabelRun {
  std::uint64_t first = 0;  // object; the run ends where the next begins
  std::int64_t label = 0;
};
// One object is one sample: field data, and with `runs` field label.
// `runs` are in order and begin at object 0; none: no labels.
std::unique_ptr<const Format> make_files_format(std::shared_ptr<const Manifest> manifest,
                                                std::optional<std::vector<LabelRun>> runs);

// Fixed-size records of one file.
struct RecordFile {
  std::uint64_t header_bytes = 0;
  std::uint64_t records = 0;
};
// `files` are the manifest's objects in order. Errors: corrupt_data (sizes that overflow).
Result<std::unique_ptr<const Format>> make_records_format(std::shared_ptr<const Manifest> manifest,
                                                          std::vector<RecordFile> files,
                                                          StoredType type, Shape shape);

// Windows over token files: window w of a file begins at token w * stride.
struct TokenFile {
  std::uint64_t header_bytes = 0;
  std::uint64_t windows = 0;
};
struct TokenWindows {
  std::uint64_t window = 0;  // tokens
  std::uint64_t stride = 0;  // tokens, not 0
};
Result<std::unique_ptr<const Format>> make_tokens_format(std::shared_ptr<const Manifest> manifest,
                                                         std::vector<TokenFile> files,
                                                         StoredType type, TokenWindows windows);

// One array per field; row i of each is sample i.
struct ArrayField {
  Field field;               // its shape is that of one row
  std::uint32_t object = 0;  // in the manifest
  std::uint64_t row_bytes = 0;
};
std::unique_ptr<const Format> make_arrays_format(std::vector<ArrayField> fields,
                                                 std::uint64_t rows);

// Tar shards: `indexes` belong to the manifest's objects in order, and one of them
// at least has a sample. Fields are those of the first sample.
std::unique_ptr<const Format> make_webdataset_format(
    std::shared_ptr<const Manifest> manifest, std::vector<std::shared_ptr<const TarIndex>> indexes);
// What a list beside the shards says of their counts; empty: there is none.
struct ShardPromises {
  std::string list;  // which, for messages
  std::vector<std::optional<std::uint64_t>> counts;
};
// Those whose indexes come while they are read; they are kept in `folder`.
std::unique_ptr<const Format> make_late_webdataset_format(
    std::vector<Field> fields, std::shared_ptr<const Manifest> manifest,
    std::shared_ptr<const TarIndexFolder> folder, ShardPromises promises = {});
// Does the shard hold what was promised? Errors: corrupt_data, naming both counts.
Result<void> check_promise(const ShardPromises& promises, std::uint64_t shard, std::uint64_t count);

}  // namespace headpond
