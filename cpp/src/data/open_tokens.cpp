#include <utility>

#include "data/arguments.h"
#include "data/numbers_source.h"
#include "data/source.h"
#include "format/formats.h"

namespace headpond {
namespace {

Result<TokenWindows> windows_of(const TokensOptions& options) {
  if (options.dtype == DType::bytes) {
    return Error(ErrorCode::invalid_argument,
                 "tokens are numbers: dtype \"uint16\" or \"uint32\", say");
  }
  if (options.window == 0)
    return Error(ErrorCode::invalid_argument, "window must be at least 1 token");
  const TokenWindows windows{options.window, options.stride == 0 ? options.window : options.stride};
  if (!byte_size({windows.window}, options.dtype) || !byte_size({windows.stride}, options.dtype)) {
    return Error(ErrorCode::invalid_argument, "window or stride is too large");
  }
  return windows;
}

struct Counts {
  std::uint64_t windows = 0, tokens = 0, left_out = 0, files_with_tail = 0;
};

TokenFile cut(std::uint64_t header_bytes, std::uint64_t tokens, const TokenWindows& windows,
              Counts& counts) {
  TokenFile file{header_bytes,
                 tokens < windows.window ? 0 : (tokens - windows.window) / windows.stride + 1};
  // With gaps between windows (stride > window) only the tail counts as left out.
  const std::uint64_t used =
      file.windows == 0 ? 0 : (file.windows - 1) * windows.stride + windows.window;
  counts.windows += file.windows;
  counts.tokens += tokens;
  counts.left_out += tokens - used;
  counts.files_with_tail += tokens != used ? 1 : 0;
  return file;
}

struct Tokens {
  std::uint64_t header_bytes = 0;
  std::uint64_t count = 0;
};

Result<Tokens> raw_tokens(std::uint64_t file_bytes, DType dtype) {
  const std::uint64_t item = item_size(dtype);
  if (file_bytes % item != 0) {
    return Error(ErrorCode::corrupt_data,
                 std::to_string(file_bytes) + " bytes are no multiple of the " +
                     std::to_string(item) + " bytes of a " + std::string(name_of(dtype)) + ": " +
                     std::to_string(file_bytes % item) + " remain (check dtype)");
  }
  return Tokens{0, file_bytes / item};
}

Result<Tokens> npy_tokens(const NpyHeader& header, const TokensOptions& options) {
  const StoredType expected{options.dtype, options.swapped};
  if (header.type != expected) {
    return Error(ErrorCode::invalid_argument, "this .npy file holds " + describe(header.type) +
                                                  ", asked for is " + describe(expected));
  }
  if (header.shape.size() != 1) {
    return Error(ErrorCode::invalid_argument,
                 "an .npy file of tokens has one dimension, this one has " +
                     std::to_string(header.shape.size()));
  }
  return Tokens{header.data_offset, header.shape[0]};
}

Result<Tokens> count_tokens(const Manifest& manifest, std::uint64_t index,
                            const TokensOptions& options, OpenContext& context) {
  std::string name;
  manifest.name(index, name);
  if (!has_npy_suffix(name)) return raw_tokens(manifest.object_size(index), options.dtype);
  auto store = context.stores->open(manifest.root());
  if (!store) return std::move(store).error();
  const auto header = read_npy_header(**store, manifest, index,
                                      go_on_with(context, "opening", index, manifest.size()));
  if (!header) return header.error();
  return npy_tokens(*header, options);
}

}  // namespace

Result<std::shared_ptr<const Dataset>> open_tokens(const Source& source,
                                                   const TokensOptions& options,
                                                   OpenContext& context) {
  const auto windows = windows_of(options);
  if (!windows) return windows.error();
  auto manifest = resolve_source(source, {}, context);
  if (!manifest) return std::move(manifest).error();
  Dataset::Parts parts;
  parts.caching = context.caching;
  parts.manifest = *std::move(manifest);
  Counts counts;
  std::vector<TokenFile> files;
  for (std::uint64_t i = 0; i < parts.manifest->size(); ++i) {
    auto tokens = count_tokens(*parts.manifest, i, options, context);
    if (!tokens) return std::move(tokens).error().at_uri(object_uri(*parts.manifest, i));
    files.push_back(cut(tokens->header_bytes, tokens->count, *windows, counts));
    if (context.progress && i % 256 == 255 &&
        !context.progress("opening", i + 1, parts.manifest->size())) {
      return Error(ErrorCode::cancelled, "opening was stopped");
    }
  }
  if (counts.windows == 0) {
    return Error(ErrorCode::invalid_argument,
                 "no file holds a window of " + std::to_string(windows->window) +
                     " tokens; there are " + std::to_string(counts.tokens) + " tokens in " +
                     std::to_string(files.size()) + " files")
        .at_uri(parts.manifest->root().to_string());
  }
  if (counts.left_out > 0) {
    parts.notes.push_back(std::to_string(counts.left_out) + " tokens at the end of " +
                          std::to_string(counts.files_with_tail) +
                          " files left out: shorter than a window");
  }
  auto format = make_tokens_format(parts.manifest, std::move(files),
                                   {options.dtype, options.swapped}, *windows);
  if (!format) return std::move(format).error().at_uri(parts.manifest->root().to_string());
  parts.format = *std::move(format);
  parts.arguments = arguments_text({{"format", "tokens"},
                                    {"dtype", name_of(options.dtype)},
                                    {"swapped", options.swapped},
                                    {"window", windows->window},
                                    {"stride", windows->stride}});
  return std::make_shared<const Dataset>(std::move(parts));
}

}  // namespace headpond
