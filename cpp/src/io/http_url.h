#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "headpond/result.h"

struct sockaddr;

namespace headpond {

// Percent-encodes the bytes of a path and query that may not stand in a URL: space,
// controls, non-ASCII, "<>\^`{|}, a "%" that begins no escape, and "#", because what
// is behind it would never be sent. Everything else goes as it was written.
std::string escape_url(std::string_view text);

// For messages: without userinfo, and with "..." for the values of query parameters
// that are secrets by their name (signature, token, key...) or their length.
std::string printable_url(std::string_view url);

// An object's name as what tells it tomorrow: without its query where that holds secrets
// (the parameters of a signature change from day to day).
std::string_view without_signature(std::string_view name);

// scheme://[userinfo@]host[:port] and what follows.
struct UrlParts {
  std::string scheme;  // lower case
  std::string userinfo;
  std::string host;  // lower case; IPv6 in brackets
  std::string port;  // of the scheme if not given
  std::string rest;  // path and query, begins with "/"

  // Errors: invalid_argument.
  static Result<UrlParts> parse(std::string_view url);
  std::string text() const;
  // "https://host:443": whom credentials and connections belong to.
  std::string origin() const { return scheme + "://" + host + ":" + port; }
};

// Where a redirect from `base` leads (RFC 3986, 5.2), userinfo and fragment left out.
// Errors: corrupt_data, of a target that cannot be read; access_denied, of one that may
// not be followed: another scheme than http and https, or https to http.
Result<UrlParts> redirect_target(const UrlParts& base, std::string_view location);

// Loopback, link-local, unspecified, or the address of a cloud's metadata service.
bool is_local_address(const sockaddr& address);
bool is_local_address(const char* numeric);

}  // namespace headpond
