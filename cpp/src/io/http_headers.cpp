#include "io/http_headers.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace headpond {
namespace {

constexpr std::size_t kReasonMax = 100;
constexpr std::size_t kEtagMax = 1024;      // longer ones are taken as none
constexpr std::size_t kLocationMax = 8192;  // longer ones lead nowhere

bool same_letters(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](unsigned char x, unsigned char y) {
    return std::tolower(x) == std::tolower(y);
  });
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

// An entity tag (RFC 9110, 8.8.3), else nothing: it goes back into a header of ours.
std::string_view valid_etag(std::string_view text) {
  std::string_view tag = text;
  if (tag.starts_with("W/")) tag.remove_prefix(2);
  if (text.size() > kEtagMax || tag.size() < 2 || tag.front() != '"' || tag.back() != '"')
    return {};
  const auto inner = tag.substr(1, tag.size() - 2);
  const bool good = std::all_of(inner.begin(), inner.end(), [](unsigned char c) {
    return c == 0x21 || (c >= 0x23 && c != 0x7F);
  });
  return good ? text : std::string_view{};
}

// A printable ASCII text without spaces, as a URL must be.
bool is_plain(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](unsigned char c) { return c > 0x20 && c != 0x7F; });
}

// Reads numbers and words of a date off its front.
class DateScanner {
 public:
  explicit DateScanner(std::string_view text) : text_(text) {}

  bool skip(char c) {
    if (text_.empty() || text_.front() != c) return false;
    text_.remove_prefix(1);
    return true;
  }
  bool skip_spaces() {
    const auto before = text_.size();
    while (skip(' ')) {
    }
    return text_.size() != before;
  }
  std::optional<int> number(std::size_t digits_max) {
    int value = 0;
    std::size_t digits = 0;
    while (digits < digits_max && !text_.empty() && text_.front() >= '0' && text_.front() <= '9') {
      value = value * 10 + (text_.front() - '0');
      text_.remove_prefix(1);
      ++digits;
    }
    if (digits == 0) return std::nullopt;
    return value;
  }
  std::string_view word() {
    std::size_t letters = 0;
    while (letters < text_.size() && std::isalpha(static_cast<unsigned char>(text_[letters])) != 0)
      ++letters;
    const auto word = text_.substr(0, letters);
    text_.remove_prefix(letters);
    return word;
  }
  std::optional<int> month() {
    constexpr std::array<std::string_view, 12> kMonths = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                          "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    const auto found = std::find(kMonths.begin(), kMonths.end(), word());
    if (found == kMonths.end()) return std::nullopt;
    return static_cast<int>(found - kMonths.begin()) + 1;
  }
  bool time(int& hour, int& minute, int& second) {
    const auto h = number(2);
    if (!h || !skip(':')) return false;
    const auto m = number(2);
    if (!m || !skip(':')) return false;
    const auto s = number(2);
    if (!s || *h > 23 || *m > 59 || *s > 60) return false;
    hour = *h, minute = *m, second = *s;
    return true;
  }

 private:
  std::string_view text_;
};

// Days since 1970-01-01 (proleptic Gregorian).
std::int64_t days_from_civil(std::int64_t year, int month, int day) {
  year -= month <= 2 ? 1 : 0;
  const std::int64_t era = (year >= 0 ? year : year - 399) / 400;
  const std::int64_t of_era = year - era * 400;
  const std::int64_t of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
  return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

}  // namespace

bool is_entity_tag(std::string_view text) { return !text.empty() && !valid_etag(text).empty(); }

std::optional<std::uint64_t> parse_decimal(std::string_view text) {
  if (text.empty()) return std::nullopt;
  std::uint64_t value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    const auto digit = static_cast<std::uint64_t>(c - '0');
    if (value > (~std::uint64_t{0} - digit) / 10) return std::nullopt;
    value = value * 10 + digit;
  }
  return value;
}

std::optional<ContentRange> parse_content_range(std::string_view text) {
  constexpr std::string_view kUnit = "bytes";
  if (text.size() <= kUnit.size() || !same_letters(text.substr(0, kUnit.size()), kUnit))
    return std::nullopt;
  text.remove_prefix(kUnit.size());
  // Some servers write "bytes=0-1/2" or "bytes:0-1/2"; what follows is checked all the same.
  if (text.front() != ' ' && text.front() != '=' && text.front() != ':') return std::nullopt;
  text = trim(text.substr(1));
  const auto slash = text.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  const auto span = trim(text.substr(0, slash));
  const auto total = trim(text.substr(slash + 1));
  ContentRange range;
  if (total != "*") {
    range.total = parse_decimal(total);
    if (!range.total) return std::nullopt;
  }
  if (span == "*") {
    if (!range.total) return std::nullopt;
    return range;
  }
  const auto dash = span.find('-');
  if (dash == std::string_view::npos) return std::nullopt;
  const auto first = parse_decimal(span.substr(0, dash));
  const auto last = parse_decimal(span.substr(dash + 1));
  if (!first || !last || *first > *last || *last == ~std::uint64_t{0}) return std::nullopt;
  if (range.total && *last >= *range.total) return std::nullopt;
  range.span = ContentRange::Span{*first, *last};
  return range;
}

std::optional<std::int64_t> parse_http_date(std::string_view text) {
  DateScanner scan(trim(text));
  if (scan.word().size() < 3) return std::nullopt;
  std::optional<int> day;
  std::optional<int> month;
  std::optional<int> year;
  int hour = 0;
  int minute = 0;
  int second = 0;
  if (scan.skip(',')) {  // Sun, 06 Nov 1994 08:49:37 GMT, or Sunday, 06-Nov-94 08:49:37 GMT
    scan.skip_spaces();
    day = scan.number(2);
    const bool dashed = scan.skip('-');
    if (!dashed) scan.skip_spaces();
    month = scan.month();
    if (dashed ? !scan.skip('-') : !scan.skip_spaces()) return std::nullopt;
    year = scan.number(4);
    if (dashed && year && *year < 100) *year += *year < 70 ? 2000 : 1900;
    scan.skip_spaces();
    if (!scan.time(hour, minute, second)) return std::nullopt;
  } else {  // Sun Nov  6 08:49:37 1994
    scan.skip_spaces();
    month = scan.month();
    scan.skip_spaces();
    day = scan.number(2);
    scan.skip_spaces();
    if (!scan.time(hour, minute, second)) return std::nullopt;
    scan.skip_spaces();
    year = scan.number(4);
  }
  if (!day || !month || !year || *day < 1 || *day > 31) return std::nullopt;
  return days_from_civil(*year, *month, *day) * 86400 + hour * 3600 + minute * 60 + second;
}

void ResponseHead::add_line(std::string_view line) {
  while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.remove_suffix(1);
  if (line.starts_with("HTTP/")) {
    *this = {};
    const auto space = line.find(' ');
    if (space == std::string_view::npos) return;
    const auto rest = trim(line.substr(space));
    const auto status = parse_decimal(rest.substr(0, 3));
    if (status && *status >= 100) status_ = static_cast<int>(*status);
    if (rest.size() > 3) reason_ = trim(rest.substr(3)).substr(0, kReasonMax);
    return;
  }
  const auto colon = line.find(':');
  if (colon == std::string_view::npos) return;
  add_field(line.substr(0, colon), trim(line.substr(colon + 1)));
}

void ResponseHead::set_number(std::optional<std::uint64_t>& field, std::string_view name,
                              std::string_view value) {
  // A list of equal values is what a proxy makes of a repeated field (RFC 9110, 8.6).
  for (std::size_t at = 0; at <= value.size();) {
    const auto comma = std::min(value.find(',', at), value.size());
    const auto number = parse_decimal(trim(value.substr(at, comma - at)));
    if (!number || (field && *field != *number)) {
      malformed_ = std::string(name) + " \"" + std::string(value.substr(0, 60)) + "\"";
      return;
    }
    field = number;
    at = comma + 1;
  }
}

void ResponseHead::add_field(std::string_view name, std::string_view value) {
  const auto is = [name](std::string_view known) { return same_letters(name, known); };
  switch (name.size()) {
    case 4:
      if (is("Date")) date_s_ = parse_http_date(value);
      if (is("ETag")) etag_ = valid_etag(value);
      break;
    case 8:
      if (is("Location") && value.size() <= kLocationMax && is_plain(value)) location_ = value;
      break;
    case 11:
      if (is("Retry-After")) retry_after_ = value.substr(0, 40);
      break;
    case 12:
      if (is("Content-Type"))
        multipart_ =
            value.size() >= 20 && same_letters(value.substr(0, 20), "multipart/byteranges");
      break;
    case 13:
      if (is("Last-Modified")) last_modified_s_ = parse_http_date(value);
      if (is("Content-Range")) {
        const auto range = parse_content_range(value);
        if (!range || (content_range_ && *content_range_ != *range)) {
          malformed_ = "Content-Range \"" + std::string(value.substr(0, 60)) + "\"";
        }
        content_range_ = range;
      }
      break;
    case 14:
      if (is("Content-Length")) set_number(content_length_, "Content-Length", value);
      break;
    case 16:
      if (is("Content-Encoding")) encoded_ |= !value.empty() && !same_letters(value, "identity");
      break;
    case 17:
      if (is("Transfer-Encoding")) chunked_ |= !same_letters(value, "identity");
      break;
    default:
      break;
  }
}

std::optional<std::int64_t> ResponseHead::retry_after_s(std::int64_t now_s) const {
  if (const auto seconds = parse_decimal(retry_after_))
    return static_cast<std::int64_t>(std::min<std::uint64_t>(*seconds, 1'000'000'000));
  const auto date = parse_http_date(retry_after_);
  if (!date) return std::nullopt;
  return std::max<std::int64_t>(0, *date - date_s_.value_or(now_s));
}

ObjectVersion ResponseHead::version(std::uint64_t size) const {
  ObjectVersion version;
  version.size = size;
  version.etag = etag_;
  version.weak = etag_.empty() || etag_.starts_with("W/");
  // A date of 1970 or before says nothing (0 means unknown).
  if (last_modified_s_ && *last_modified_s_ > 0 && *last_modified_s_ < 9'000'000'000)
    version.mtime_ns = *last_modified_s_ * 1'000'000'000;
  return version;
}

}  // namespace headpond
