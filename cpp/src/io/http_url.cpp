#include "io/http_url.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>

#include "io/http_headers.h"
#include "io/text.h"

namespace headpond {
namespace {

constexpr std::size_t kOpenValueMax = 40;

bool is_hex(char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; }

// RFC 3986, 2.2 and 2.3, without "#".
bool may_stand(unsigned char c) {
  constexpr std::string_view kMarks = "-._~:/?[]@!$&'()*+,;=";
  return c < 0x80 && (std::isalnum(c) != 0 || kMarks.find(static_cast<char>(c)) != kMarks.npos);
}

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

bool is_secret(std::string_view name, std::string_view value) {
  if (value.size() > kOpenValueMax) return true;
  constexpr std::array<std::string_view, 9> kWords = {
      "sig", "token", "key", "secret", "pass", "auth", "cred", "accesskeyid", "jwt"};
  const std::string known = lower(name);
  return std::any_of(kWords.begin(), kWords.end(),
                     [&](std::string_view word) { return known.find(word) != known.npos; });
}

std::string printable_query(std::string_view query) {
  std::string text;
  for (std::size_t at = 0; at <= query.size();) {
    const auto stop = std::min(query.find('&', at), query.size());
    const auto part = query.substr(at, stop - at);
    const auto equals = std::min(part.find('='), part.size());
    const auto value = part.substr(std::min(equals + 1, part.size()));
    if (at > 0) text += '&';
    if (is_secret(part.substr(0, equals), value)) {
      text += printable(part.substr(0, std::min(equals, kOpenValueMax))) + "=...";
    } else {
      text += part.size() > kOpenValueMax && equals == part.size() ? "..." : printable(part);
    }
    at = stop + 1;
  }
  return text;
}

bool is_local_v4(std::uint32_t address) {  // host order
  return address >> 24 == 127 || address >> 16 == 0xA9FE || address >> 24 == 0;
}

bool is_local_v6(const in6_addr& address) {
  if (IN6_IS_ADDR_LOOPBACK(&address) || IN6_IS_ADDR_LINKLOCAL(&address) ||
      IN6_IS_ADDR_UNSPECIFIED(&address))
    return true;
  if (IN6_IS_ADDR_V4MAPPED(&address) || IN6_IS_ADDR_V4COMPAT(&address)) {
    std::uint32_t inner = 0;
    std::memcpy(&inner, address.s6_addr + 12, sizeof inner);
    return is_local_v4(ntohl(inner));
  }
  constexpr unsigned char kMetadata[16] = {0xFD, 0x00, 0x0E, 0xC2, 0, 0, 0,    0,
                                           0,    0,    0,    0,    0, 0, 0x02, 0x54};
  return std::memcmp(address.s6_addr, kMetadata, sizeof kMetadata) == 0;
}

bool is_good_host(std::string_view host) {
  if (host.empty()) return false;
  if (host.front() == '[') {
    return host.size() > 2 && host.back() == ']' &&
           std::all_of(host.begin() + 1, host.end() - 1, [](char c) {
             return is_hex(c) || c == ':' || c == '.' || c == '%' ||
                    std::isalnum(static_cast<unsigned char>(c)) != 0;
           });
  }
  return std::all_of(host.begin(), host.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '.' || c == '_' || c >= 0x80;
  });
}

}  // namespace

std::string escape_url(std::string_view text) {
  constexpr char kHex[] = "0123456789ABCDEF";
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool escape =
        c == '%' && i + 2 < text.size() && is_hex(text[i + 1]) && is_hex(text[i + 2]);
    const auto byte = static_cast<unsigned char>(c);
    if (escape || may_stand(byte)) {
      out += c;
    } else {
      out.append(1, '%').append(1, kHex[byte >> 4]).append(1, kHex[byte & 15]);
    }
  }
  return out;
}

std::string_view without_signature(std::string_view name) {
  const auto question = name.find('?');
  if (question == name.npos) return name;
  for (std::size_t at = question + 1; at <= name.size();) {
    const auto stop = std::min(name.find('&', at), name.size());
    const auto part = name.substr(at, stop - at);
    const auto equals = std::min(part.find('='), part.size());
    if (is_secret(part.substr(0, equals), part.substr(std::min(equals + 1, part.size()))))
      return name.substr(0, question);
    at = stop + 1;
  }
  return name;
}

std::string printable_url(std::string_view url) {
  std::string text;
  if (const auto scheme = url.find("://"); scheme != url.npos) {
    text = printable(url.substr(0, scheme + 3));
    url.remove_prefix(scheme + 3);
    const auto authority = url.substr(0, url.find_first_of("/?#"));
    if (const auto at = authority.rfind('@'); at != authority.npos) url.remove_prefix(at + 1);
  }
  const auto question = std::min(url.find('?'), url.size());
  text += printable(url.substr(0, question));
  if (question < url.size()) text += "?" + printable_query(url.substr(question + 1));
  return text;
}

// A text that is no URL may hold a password anywhere before its last "@".
std::string printable_ruin(std::string_view text) {
  const auto colon = text.find("://");
  const std::string scheme =
      colon == text.npos ? std::string() : printable(text.substr(0, colon + 3));
  if (colon != text.npos) text.remove_prefix(colon + 3);
  if (const auto at = text.rfind('@'); at != text.npos) text.remove_prefix(at + 1);
  return scheme + printable(text.substr(0, text.find('?')));
}

Result<UrlParts> UrlParts::parse(std::string_view url) {
  const auto bad = [whole = url](const char* what) {
    return Error(ErrorCode::invalid_argument, std::string(what) + " in " + printable_ruin(whole));
  };
  UrlParts parts;
  const auto colon = url.find("://");
  if (colon == url.npos) return bad("no scheme");
  parts.scheme = lower(url.substr(0, colon));
  if (parts.scheme != "http" && parts.scheme != "https") return bad("neither http:// nor https://");
  url.remove_prefix(colon + 3);
  const auto end = std::min(url.find_first_of("/?#"), url.size());
  auto authority = url.substr(0, end);
  parts.rest = escape_url(url.substr(end));
  if (parts.rest.empty() || parts.rest.front() != '/') parts.rest.insert(0, 1, '/');
  if (const auto at = authority.rfind('@'); at != authority.npos) {
    parts.userinfo = escape_url(authority.substr(0, at));
    authority.remove_prefix(at + 1);
  }
  const auto bracket = authority.rfind(']');
  const auto port = authority.find(':', bracket == authority.npos ? 0 : bracket);
  parts.host = lower(authority.substr(0, port));
  if (!is_good_host(parts.host)) return bad("no host that can be");
  parts.port = port == authority.npos ? "" : std::string(authority.substr(port + 1));
  if (parts.port.empty()) parts.port = parts.scheme == "https" ? "443" : "80";
  const auto number = parse_decimal(parts.port);
  if (!number || *number == 0 || *number > 65535) return bad("no port that can be");
  parts.port = std::to_string(*number);
  return parts;
}

std::string UrlParts::text() const {
  const bool usual = port == (scheme == "https" ? "443" : "80");
  return scheme + "://" + (userinfo.empty() ? "" : userinfo + "@") + host +
         (usual ? "" : ":" + port) + rest;
}

Result<UrlParts> redirect_target(const UrlParts& base, std::string_view location) {
  location = location.substr(0, location.find('#'));
  const auto unreadable = [&] {
    return Error(ErrorCode::corrupt_data, "a redirect to \"" + printable_ruin(location) + "\"");
  };
  if (location.empty()) return unreadable();
  const auto colon = location.find_first_of(":/?");
  const bool has_scheme = colon != location.npos && location[colon] == ':' && colon > 0;
  if (has_scheme) {
    const std::string scheme = lower(location.substr(0, colon));
    if (scheme != "http" && scheme != "https") {
      return Error(ErrorCode::access_denied,
                   "a redirect to " + printable(scheme) + ": is not followed");
    }
  }
  UrlParts target = base;
  if (has_scheme || location.starts_with("//")) {
    const std::string text =
        has_scheme ? std::string(location) : base.scheme + ":" + std::string(location);
    auto parsed = UrlParts::parse(text);
    if (!parsed) return unreadable();
    target = *std::move(parsed);
  } else if (location.front() == '/') {
    target.rest = escape_url(location);
  } else {
    const auto path = target.rest.substr(0, target.rest.find('?'));
    const auto kept = location.front() == '?' ? path : path.substr(0, path.rfind('/') + 1);
    target.rest = kept + escape_url(location);
  }
  target.userinfo.clear();
  if (base.scheme == "https" && target.scheme == "http") {
    return Error(ErrorCode::access_denied, "a redirect from https to http is not followed (" +
                                               printable_url(target.text()) + ")");
  }
  return target;
}

bool is_local_address(const sockaddr& address) {
  if (address.sa_family == AF_INET) {
    sockaddr_in v4 = {};
    std::memcpy(&v4, &address, sizeof v4);
    return is_local_v4(ntohl(v4.sin_addr.s_addr));
  }
  if (address.sa_family == AF_INET6) {
    sockaddr_in6 v6 = {};
    std::memcpy(&v6, &address, sizeof v6);
    return is_local_v6(v6.sin6_addr);
  }
  return true;  // a unix socket, say
}

bool is_local_address(const char* numeric) {
  in_addr v4 = {};
  if (inet_pton(AF_INET, numeric, &v4) == 1) return is_local_v4(ntohl(v4.s_addr));
  in6_addr v6 = {};
  if (inet_pton(AF_INET6, numeric, &v6) == 1) return is_local_v6(v6);
  return true;
}

}  // namespace headpond
