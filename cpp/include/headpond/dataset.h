#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "headpond/format.h"
#include "headpond/log.h"
#include "headpond/manifest.h"
#include "headpond/memory_store.h"
#include "headpond/store.h"

namespace headpond {

// `sample 812 (key "a/b")`, or without a number that is not known.
std::string sample_name(std::optional<std::uint64_t> number, std::string_view key);

struct Beside;

struct SampleRange {
  std::string uri;
  ByteRange range;
};

// Many objects seen as one sequence of samples: random access, known size.
//
// Immutable after opening; holds no handle and no thread. Safe to call from any
// thread. Made by the open_... functions below.
class Dataset {
 public:
  struct Parts {
    std::shared_ptr<const Manifest> manifest;  // objects, relative to its root
    std::unique_ptr<const Format> format;
    std::string arguments;             // JSON of what defines the samples: in the fingerprint
    std::vector<std::string> classes;  // folder labels, else empty
    std::shared_ptr<Store> store;      // set for in-memory data, else null: by the root's scheme
    std::vector<std::string> notes;    // what was left out and counted, for the log
    Caching caching = Caching::if_remote;
    std::vector<Extent> first_sample;      // its fields, where the format does not know them yet
    std::shared_ptr<const Beside> beside;  // what was found beside shards that are not known yet
  };
  explicit Dataset(Parts parts);

  // Samples; Format::kUnknownSize while the counts of shards are still to come.
  std::uint64_t size() const { return parts_.format->size(); }
  bool size_is_known() const { return size() != Format::kUnknownSize; }
  // The same, and where a list beside the shards promises their counts, what it says.
  std::optional<std::uint64_t> promised_size() const;
  // Null: nothing.
  const Beside* beside() const { return parts_.beside.get(); }
  // Does index_shards have little to read, since each shard's index lies beside it?
  bool indexes_lie_beside() const;
  std::span<const Field> fields() const { return parts_.format->fields(); }
  // Position in fields(); invalid_argument names the fields there are.
  Result<std::size_t> field_index(std::string_view name) const;
  const Format& format() const { return *parts_.format; }
  const Manifest& manifest() const { return *parts_.manifest; }
  // Of an object: as of opening, or of when its shard became known.
  ObjectVersion version(std::uint32_t object) const;
  const std::vector<std::string>& classes() const { return parts_.classes; }
  const std::vector<std::string>& notes() const { return parts_.notes; }

  // Is this the number of a sample whose place is known? By shard, too; see reach_samples.
  bool holds(std::uint64_t index) const;
  // The ranges of all fields of a sample. Errors: invalid_argument (index).
  Result<std::vector<SampleRange>> locate(std::uint64_t index) const;
  // Where a field of the first sample lies, also while counts are to come; none: there is no
  // sample, or it has no such field.
  std::optional<Extent> first_extent(std::size_t field) const;
  std::string key(std::uint64_t index) const { return parts_.format->key(index); }

  // 32 hex digits: names and arguments / sizes and counts / versions too (design: order and state).
  // The latter two are empty where counts were to come at opening.
  const std::string& fingerprint() const { return fingerprint_; }
  const std::string& size_digest() const { return size_digest_; }
  const std::string& snapshot() const { return snapshot_; }

  Caching caching() const { return parts_.caching; }
  // The store that reads this dataset's objects, through the node's cache where it is to.
  Result<std::shared_ptr<Store>> store(StoreRegistry& registry) const;

  // The number of a sample that is given by its shard (or by its number already), once all
  // counts are known.
  std::optional<std::uint64_t> number_of(std::uint64_t sample) const;

  // `sample 812 (key "a/b")`; for messages.
  std::string name_of(std::uint64_t sample) const;
  // "sample 812 (key "a/b") of URI[a, b)" put before `error`. Field: the one that failed.
  Error describe(Error error, std::uint64_t index, std::optional<std::size_t> field) const;

 private:
  bool is_by_shard(std::uint64_t sample) const;

  Parts parts_;
  std::string fingerprint_;
  std::string size_digest_;
  std::string snapshot_;
  std::shared_ptr<const BlockMap> blocks_;  // null: sizes of shards come late
};

// What opening may use and tell.
struct OpenContext {
  StoreRegistry* stores = nullptr;       // not owned; outlives the call
  std::string index_folder;              // tar indexes live below it; "": keep them in memory
  Caching caching = Caching::if_remote;  // of the dataset's reads
  std::shared_ptr<LogQueue> log;
  // Called now and then from the calling thread, with what is done and (if known,
  // else 0) what there is; returning false stops with `cancelled`.
  std::function<bool(const char* what, std::uint64_t done, std::uint64_t total)> progress;
};

// Where data lie: one or several paths, URIs, globs, brace lists; a manifest.
struct Source {
  std::vector<std::string> paths;
  std::shared_ptr<const Manifest> manifest;  // instead of paths
};

// The objects that a source names: every file of a directory, parts that begin with
// "." left out. The root is the longest common directory. For Manifest.build.
// Errors: invalid_argument; not_found; cancelled; those of the stores.
Result<std::shared_ptr<const Manifest>> list_source(const Source& source, OpenContext& context);

struct FilesOptions {
  std::string pattern = "**/*";  // of the path under the root; case is ignored
  bool folder_labels =
      true;  // field label: index of the first path component in the sorted classes
};
// One object is one sample: fields data (bytes) and label (int64).
Result<std::shared_ptr<const Dataset>> open_files(const Source& source, const FilesOptions& options,
                                                  OpenContext& context);

// Tar shards; one field per extension.
Result<std::shared_ptr<const Dataset>> open_webdataset(const Source& shards, OpenContext& context);

// Counts what open_webdataset left to be counted. Where each shard's index lies beside it these
// are read; else the headers of all shards, and whole shards where members are small. One process
// of a machine reads a shard, others wait. Errors: of the store; corrupt_data; cancelled.
Result<void> index_shards(const Dataset& dataset, OpenContext& context);

// The numbers under which a dataset gives samples 0 <= i < promised_size(): where counts are only
// promised, by shard, after these shards were indexed. Errors: invalid_argument; as index_shards.
Result<std::vector<std::uint64_t>> reach_samples(const Dataset& dataset,
                                                 std::span<const std::uint64_t> samples,
                                                 OpenContext& context);

struct ShardIndexesWritten {
  std::uint64_t shards = 0, samples = 0;
  std::uint64_t bytes = 0;  // of the indexes
};
// Writes the index of every shard to be shipped beside it: NAME.hpindex, below `folder` ("": beside
// the shards, which are local then). Errors: invalid_argument; of the store; corrupt_data;
// cancelled; those of writing.
Result<ShardIndexesWritten> write_shard_indexes(const Source& shards, const std::string& folder,
                                                OpenContext& context);

struct RecordsOptions {
  std::optional<DType> dtype;  // none: .npy files say it
  bool swapped = false;        // the stored bytes are big-endian
  Shape shape;                 // of one record
  std::uint64_t header_bytes = 0;
};
// Fixed-size records in one or many files: field data. `.npy` files bring dtype and shape.
Result<std::shared_ptr<const Dataset>> open_records(const Source& source,
                                                    const RecordsOptions& options,
                                                    OpenContext& context);

struct TokensOptions {
  DType dtype = DType::uint16;
  bool swapped = false;
  std::uint64_t window = 0;  // tokens
  std::uint64_t stride = 0;  // tokens; 0: window
};
// Windows over token files: field tokens [window]. Windows never cross files.
Result<std::shared_ptr<const Dataset>> open_tokens(const Source& source,
                                                   const TokensOptions& options,
                                                   OpenContext& context);

struct ArrayColumn {
  std::string name;
  DType dtype = DType::uint8;
  bool swapped = false;
  Shape shape;  // of one row
  std::uint64_t rows = 0;
  std::span<const std::byte> bytes;  // C order
  std::shared_ptr<const void> hold;
};
// Arrays in memory, held and not copied. Errors: unequal lengths, naming both.
Result<std::shared_ptr<const Dataset>> open_arrays(std::vector<ArrayColumn> columns);

}  // namespace headpond
