#include "headpond/uri.h"

#include <algorithm>
#include <cctype>
#include <utility>

namespace headpond {
namespace {

bool is_scheme(std::string_view text) {
  if (text.empty() || std::isalpha(static_cast<unsigned char>(text[0])) == 0) return false;
  return std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '+' || c == '-' || c == '.';
  });
}

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// RFC 3986, 2.1. A "%" without two hex digits stays as it is.
std::string percent_decode(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && hex_value(text[i + 1]) >= 0 &&
        hex_value(text[i + 2]) >= 0) {
      out += static_cast<char>(hex_value(text[i + 1]) * 16 + hex_value(text[i + 2]));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace

Result<Uri> Uri::parse(std::string_view text) {
  if (text.empty()) return Error(ErrorCode::invalid_argument, "empty path or URI");
  if (text.find('\0') != std::string_view::npos) {
    return Error(ErrorCode::invalid_argument, "a path or URI may not hold NUL bytes");
  }
  const auto colon = text.find("://");
  if (colon == std::string_view::npos || !is_scheme(text.substr(0, colon))) {
    Uri uri;
    uri.path = text;
    return uri;
  }
  Uri uri;
  uri.scheme = text.substr(0, colon);
  std::transform(uri.scheme.begin(), uri.scheme.end(), uri.scheme.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  std::string_view rest = text.substr(colon + 3);
  const auto slash = rest.find('/');
  uri.authority = rest.substr(0, slash);
  rest = slash == std::string_view::npos ? std::string_view{} : rest.substr(slash);
  if (uri.scheme == "file") {
    if (uri.authority == "localhost") uri.authority.clear();
    if (!uri.authority.empty()) {
      return Error(ErrorCode::invalid_argument, "file:// takes no host: write file:///" +
                                                    uri.authority + std::string(rest) +
                                                    " for an absolute path");
    }
    uri.path = percent_decode(rest);
    return uri;
  }
  const auto question = rest.find('?');
  uri.path = rest.substr(0, question);
  if (question != std::string_view::npos) uri.query = rest.substr(question + 1);
  return uri;
}

Uri Uri::join(std::string_view name) const {
  Uri joined = *this;
  if (name.empty()) return joined;
  if (!joined.path.empty() && joined.path.back() != '/') joined.path += '/';
  joined.path += name;
  if (joined.scheme == "file") return joined;
  if (const auto question = joined.path.find('?'); question != std::string::npos) {
    joined.query = joined.path.substr(question + 1);
    joined.path.resize(question);
  }
  return joined;
}

std::string Uri::to_string() const {
  if (scheme == "file") return path;
  const auto at = authority.rfind('@');
  return scheme + "://" + (at == std::string::npos ? authority : authority.substr(at + 1)) + path;
}

}  // namespace headpond
