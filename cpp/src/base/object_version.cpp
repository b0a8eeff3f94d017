#include "headpond/object_version.h"

namespace headpond {

bool ObjectVersion::accepts(const ObjectVersion& actual) const {
  return (size == kAnySize || size == actual.size) &&
         (mtime_ns == 0 || mtime_ns == actual.mtime_ns) && (inode == 0 || inode == actual.inode) &&
         (etag.empty() || etag == actual.etag);
}

std::string to_string(const ObjectVersion& version) {
  if (version.is_any()) return "any version";
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  if (version.size != ObjectVersion::kAnySize) add(std::to_string(version.size) + " bytes");
  if (version.mtime_ns != 0) add("mtime " + std::to_string(version.mtime_ns) + " ns");
  if (version.inode != 0) add("inode " + std::to_string(version.inode));
  if (!version.etag.empty()) add("ETag " + version.etag);
  return text;
}

}  // namespace headpond
