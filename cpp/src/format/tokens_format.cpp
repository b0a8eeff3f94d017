#include "format/formats.h"
#include "format/strided_format.h"

namespace headpond {

Result<std::unique_ptr<const Format>> make_tokens_format(std::shared_ptr<const Manifest> manifest,
                                                         std::vector<TokenFile> files,
                                                         StoredType type, TokenWindows windows) {
  const auto window_bytes = byte_size({windows.window}, type.dtype);
  if (!window_bytes) return window_bytes.error();
  const auto step_bytes = byte_size({windows.stride}, type.dtype);
  if (!step_bytes) return step_bytes.error();
  std::vector<StridedFormat::File> strided;
  strided.reserve(files.size());
  for (const auto& file : files) strided.push_back({file.header_bytes, file.windows});
  return StridedFormat::make(std::move(manifest), std::move(strided),
                             Field{"tokens", type.dtype, Shape{windows.window}, type.swapped},
                             *window_bytes, *step_bytes);
}

}  // namespace headpond
