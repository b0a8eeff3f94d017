#include <utility>

#include "data/arguments.h"
#include "data/numbers_source.h"
#include "data/source.h"
#include "format/formats.h"

namespace headpond {
namespace {

std::string shape_text(const Shape& shape) {
  std::string text = "(";
  for (std::size_t i = 0; i < shape.size(); ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + (shape.size() == 1 ? ",)" : ")");
}

struct Layout {
  StoredType type;
  Shape shape;  // of one record
};

// What the options say; nothing where they leave it to the files.
std::optional<Layout> layout_of(const RecordsOptions& options) {
  if (!options.dtype) return std::nullopt;
  return Layout{{*options.dtype, options.swapped}, options.shape};
}

Result<void> check_options(const RecordsOptions& options) {
  if (options.dtype == DType::bytes) {
    return Error(ErrorCode::invalid_argument,
                 "records are numbers: dtype \"uint8\" gives their bytes");
  }
  const auto bytes = byte_size(options.shape, options.dtype.value_or(DType::uint8));
  if (!bytes)
    return Error(ErrorCode::invalid_argument,
                 "shape " + shape_text(options.shape) + " is too large");
  if (*bytes == 0) {
    return Error(ErrorCode::invalid_argument,
                 "a record of shape " + shape_text(options.shape) + " has no bytes");
  }
  return {};
}

// Takes the layout of one .npy file for the dataset, or compares it with what is known.
Result<RecordFile> take_npy(const NpyHeader& header, std::optional<Layout>& layout) {
  if (header.shape.empty()) {
    return Error(ErrorCode::invalid_argument,
                 "this .npy file holds one number, no rows of records");
  }
  const Layout found{header.type, Shape(header.shape.begin() + 1, header.shape.end())};
  if (!layout) layout = found;
  if (found.type != layout->type || found.shape != layout->shape) {
    return Error(ErrorCode::invalid_argument,
                 "its records are " + describe(found.type) + " " + shape_text(found.shape) +
                     ", expected are " + describe(layout->type) + " " + shape_text(layout->shape));
  }
  return RecordFile{header.data_offset, header.shape[0]};
}

Result<RecordFile> count_raw(std::uint64_t file_bytes, std::uint64_t header_bytes,
                             const Layout& layout) {
  const auto record_bytes = byte_size(layout.shape, layout.type.dtype);
  if (!record_bytes) return record_bytes.error();
  if (file_bytes < header_bytes) {
    return Error(ErrorCode::corrupt_data, std::to_string(file_bytes) +
                                              " bytes are fewer than the header's " +
                                              std::to_string(header_bytes));
  }
  const std::uint64_t data = file_bytes - header_bytes;
  if (const std::uint64_t rest = data % *record_bytes; rest != 0) {
    return Error(ErrorCode::corrupt_data,
                 std::to_string(data) + " bytes of data are no multiple of the record's " +
                     std::to_string(*record_bytes) + ": " + std::to_string(rest) +
                     " bytes remain (check dtype, shape and header_bytes)");
  }
  return RecordFile{header_bytes, data / *record_bytes};
}

class RecordFiles {
 public:
  RecordFiles(const Manifest& manifest, const RecordsOptions& options, OpenContext& context)
      : manifest_(manifest), options_(options), context_(context), layout_(layout_of(options)) {}

  Result<void> open_all() {
    std::string name;
    for (std::uint64_t i = 0; i < manifest_.size(); ++i) {
      manifest_.name(i, name);
      auto file = has_npy_suffix(name) ? open_npy(i) : open_raw(i);
      if (!file) return std::move(file).error().at_uri(object_uri(manifest_, i));
      total_ += file->records;
      files_.push_back(*file);
      if (context_.progress && i % 256 == 255 &&
          !context_.progress("opening", i + 1, manifest_.size())) {
        return Error(ErrorCode::cancelled, "opening was stopped");
      }
    }
    if (total_ == 0) {
      return Error(ErrorCode::invalid_argument, "there is no record: every file is empty")
          .at_uri(manifest_.root().to_string());
    }
    return {};
  }

  const Layout& layout() const { return *layout_; }
  std::vector<RecordFile> take_files() { return std::move(files_); }

 private:
  Result<RecordFile> open_npy(std::uint64_t index) {
    if (!store_) {
      auto store = context_.stores->open(manifest_.root());
      if (!store) return std::move(store).error();
      store_ = *std::move(store);
    }
    const auto header = read_npy_header(*store_, manifest_, index,
                                        go_on_with(context_, "opening", index, manifest_.size()));
    if (!header) return header.error();
    return take_npy(*header, layout_);
  }

  Result<RecordFile> open_raw(std::uint64_t index) {
    if (!options_.dtype) {
      return Error(ErrorCode::invalid_argument,
                   "only .npy files say their dtype and shape: pass both for files of raw records");
    }
    return count_raw(manifest_.object_size(index), options_.header_bytes, *layout_);
  }

  const Manifest& manifest_;
  const RecordsOptions& options_;
  OpenContext& context_;
  std::shared_ptr<Store> store_;
  std::optional<Layout> layout_;
  std::vector<RecordFile> files_;
  std::uint64_t total_ = 0;
};

}  // namespace

Result<std::shared_ptr<const Dataset>> open_records(const Source& source,
                                                    const RecordsOptions& options,
                                                    OpenContext& context) {
  if (auto checked = check_options(options); !checked) return std::move(checked).error();
  auto manifest = resolve_source(source, {}, context);
  if (!manifest) return std::move(manifest).error();
  Dataset::Parts parts;
  parts.caching = context.caching;
  parts.manifest = *std::move(manifest);
  RecordFiles files(*parts.manifest, options, context);
  if (auto opened = files.open_all(); !opened) return std::move(opened).error();
  const Layout layout = files.layout();
  auto format = make_records_format(parts.manifest, files.take_files(), layout.type, layout.shape);
  if (!format) return std::move(format).error().at_uri(parts.manifest->root().to_string());
  parts.format = *std::move(format);
  parts.arguments = arguments_text({{"format", "records"},
                                    {"dtype", name_of(layout.type.dtype)},
                                    {"swapped", layout.type.swapped},
                                    {"shape", layout.shape},
                                    {"header_bytes", options.header_bytes}});
  return std::make_shared<const Dataset>(std::move(parts));
}

}  // namespace headpond
