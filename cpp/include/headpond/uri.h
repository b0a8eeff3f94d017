#pragma once

#include <compare>
#include <string>
#include <string_view>

#include "headpond/result.h"

namespace headpond {

// scheme://authority/path?query, or a bare path, which means file://.
//
// A value. `path` holds bytes as the store names them: percent-escapes are
// decoded for file://, kept for other schemes. Printing leaves out userinfo and
// the query (signatures live there), so a Uri may appear in messages.
struct Uri {
  std::string scheme = "file";
  std::string authority;  // host[:port], with userinfo if given
  std::string path;
  std::string query;

  // Errors: invalid_argument (empty; a scheme without "//"; NUL bytes).
  static Result<Uri> parse(std::string_view text);

  // The object `name` under this directory-like URI. Other schemes than file:// may bring
  // a query in the name, behind "?".
  Uri join(std::string_view name) const;

  // For people and keys: no userinfo, no query.
  std::string to_string() const;

  auto operator<=>(const Uri&) const = default;
};

}  // namespace headpond

template <>
struct std::hash<headpond::Uri> {
  std::size_t operator()(const headpond::Uri& uri) const noexcept {
    return std::hash<std::string>()(uri.scheme + "\n" + uri.authority + "\n" + uri.path + "\n" +
                                    uri.query);
  }
};
