#include "format/formats.h"
#include "format/strided_format.h"

namespace headpond {

Result<std::unique_ptr<const Format>> make_records_format(std::shared_ptr<const Manifest> manifest,
                                                          std::vector<RecordFile> files,
                                                          StoredType type, Shape shape) {
  const auto bytes = byte_size(shape, type.dtype);
  if (!bytes) return bytes.error();
  std::vector<StridedFormat::File> strided;
  strided.reserve(files.size());
  for (const auto& file : files) strided.push_back({file.header_bytes, file.records});
  return StridedFormat::make(std::move(manifest), std::move(strided),
                             Field{"data", type.dtype, std::move(shape), type.swapped}, *bytes,
                             *bytes);
}

}  // namespace headpond
