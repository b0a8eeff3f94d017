#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "headpond/object_version.h"

namespace headpond {

// "bytes 0-99/1000": the first and last byte sent, of how many. "bytes */1000" has no
// range, "bytes 0-99/*" no total.
struct ContentRange {
  struct Span {
    std::uint64_t first = 0;
    std::uint64_t last = 0;
    bool operator==(const Span&) const = default;
  };
  std::optional<Span> span;
  std::optional<std::uint64_t> total;
  bool operator==(const ContentRange&) const = default;
};

// RFC 9110, 14.4. Nothing where a part is missing, out of order or too large.
std::optional<ContentRange> parse_content_range(std::string_view text);

// Digits and nothing else.
std::optional<std::uint64_t> parse_decimal(std::string_view text);

// Is it an entity tag (RFC 9110, 8.8.3), so that it can stand in a header?
bool is_entity_tag(std::string_view text);

// Seconds since 1970 of an HTTP date (RFC 9110, 5.6.7; the three forms).
std::optional<std::int64_t> parse_http_date(std::string_view text);

// What the head of an answer says, of the fields that matter here.
//
// Fed line by line; a status line begins a new head, so that of several (1xx, the end
// of a proxy's) the last one counts. A field twice with different values is `malformed`.
class ResponseHead {
 public:
  void add_line(std::string_view line);  // with or without its end

  int status() const { return status_; }
  std::string_view reason() const { return reason_; }
  // Nothing where the length is said in another way too, which then counts (RFC 9112, 6.3).
  std::optional<std::uint64_t> content_length() const {
    return chunked_ ? std::nullopt : content_length_;
  }
  const std::optional<ContentRange>& content_range() const { return content_range_; }
  const std::string& etag() const { return etag_; }  // as sent: "..." or W/"..."
  const std::string& location() const { return location_; }
  bool encoded() const { return encoded_; }      // Content-Encoding other than identity
  bool multipart() const { return multipart_; }  // multipart/byteranges
  // Why the head cannot be trusted: a bad or contradictory length or range. Empty: it can.
  const std::string& malformed() const { return malformed_; }
  // Seconds from now, as the server's own clock sees it if it sent a date; nothing: not
  // said, or not readable.
  std::optional<std::int64_t> retry_after_s(std::int64_t now_s) const;

  // Size (from the total or the length), Last-Modified and ETag of the whole object.
  ObjectVersion version(std::uint64_t size) const;

 private:
  void add_field(std::string_view name, std::string_view value);
  void set_number(std::optional<std::uint64_t>& field, std::string_view name,
                  std::string_view value);

  int status_ = 0;
  std::string reason_;
  std::optional<std::uint64_t> content_length_;
  std::optional<ContentRange> content_range_;
  std::string etag_;
  std::string location_;
  std::string retry_after_;
  std::string malformed_;
  std::optional<std::int64_t> last_modified_s_;
  std::optional<std::int64_t> date_s_;
  bool encoded_ = false;
  bool chunked_ = false;
  bool multipart_ = false;
};

}  // namespace headpond
