#include "io/http_answer.h"

#include <algorithm>
#include <string>
#include <utility>

#include "io/text.h"

namespace headpond {
namespace {

Failure wrong(std::string message) {
  return {FailureKind::wrong, Error(ErrorCode::corrupt_data, std::move(message)), {}};
}

std::string asked_text(const Asked& asked) {
  return "bytes " + std::to_string(asked.first) + "-" +
         std::to_string(asked.first + asked.bytes - 1);
}

Failure encoded() {
  return {FailureKind::final,
          Error(ErrorCode::unsupported,
                "the server sends the object compressed (Content-Encoding), although it was asked "
                "for it as it is"),
          {}};
}

Failure no_ranges(std::optional<std::uint64_t> size) {
  return {FailureKind::final,
          Error(ErrorCode::unsupported,
                "the server gives no ranges: asked for one it sends the whole object" +
                    (size ? " of " + std::to_string(*size) + " bytes" : std::string())),
          {}};
}

// What an answer does not say stays as it was known: a silent one may not loosen the version
// that later answers are held to.
ObjectVersion version_of(const ResponseHead& head, std::optional<std::uint64_t> size,
                         const ObjectVersion& expected) {
  ObjectVersion version = head.version(size.value_or(expected.size));
  if (version.etag.empty() && !expected.etag.empty()) {
    version.etag = expected.etag;
    version.weak = expected.weak;
  }
  if (version.mtime_ns == 0) version.mtime_ns = expected.mtime_ns;
  return version;
}

std::variant<BodyPlan, Failure> judge_whole(const ResponseHead& head, const Asked& asked) {
  BodyPlan plan;
  plan.size = head.content_length();
  plan.all = true;
  plan.version = version_of(head, plan.size, asked.expected);
  if (!same_object(asked.expected, plan.version))
    return changed_failure(asked.expected, plan.version);
  if (asked.whole) {
    plan.take = plan.size.value_or(asked.bytes);
    return plan;
  }
  const bool wanted_anyway =
      asked.first == asked.before && plan.size && *plan.size <= asked.before + asked.bytes;
  if (plan.size && *plan.size > kWholeForRangeMax && !wanted_anyway) return no_ranges(plan.size);
  plan.skip = asked.first;
  plan.take = asked.bytes;
  if (plan.size) {
    plan.skip = std::min(plan.skip, *plan.size);
    plan.take = std::min(plan.take, *plan.size - plan.skip);
  }
  return plan;
}

std::variant<BodyPlan, Failure> judge_part(const ResponseHead& head, const Asked& asked) {
  if (asked.whole) return wrong("HTTP 206 to a request without a range");
  if (head.multipart()) return wrong("several ranges (multipart/byteranges) where one was asked");
  if (!head.content_range() || !head.content_range()->span)
    return wrong("HTTP 206 without a Content-Range");
  const auto& range = *head.content_range();
  const std::uint64_t last = asked.first + (asked.bytes - 1);
  const std::uint64_t due = range.total ? std::min(last, *range.total - 1) : last;
  if (range.span->first != asked.first || range.span->last != due) {
    return wrong("asked for " + asked_text(asked) + ", sent are bytes " +
                 std::to_string(range.span->first) + "-" + std::to_string(range.span->last) +
                 (range.total ? " of " + std::to_string(*range.total) : std::string()));
  }
  BodyPlan plan;
  plan.take = range.span->last - range.span->first + 1;
  if (head.content_length() && *head.content_length() != plan.take) {
    return wrong("the length of the answer, " + std::to_string(*head.content_length()) +
                 ", is not that of its range, " + std::to_string(plan.take));
  }
  plan.size = range.total;
  plan.version = version_of(head, range.total, asked.expected);
  if (!same_object(asked.expected, plan.version))
    return changed_failure(asked.expected, plan.version);
  return plan;
}

// The range begins behind the end.
std::variant<BodyPlan, Failure> judge_behind_end(const ResponseHead& head, const Asked& asked) {
  std::optional<std::uint64_t> size;
  if (head.content_range()) size = head.content_range()->total;
  const bool known = asked.expected.size != ObjectVersion::kAnySize;
  if (size && known && *size != asked.expected.size)
    return changed_failure(asked.expected, head.version(*size));
  if (!size && known) size = asked.expected.size;
  if (asked.whole || !size || asked.first < *size) {
    return wrong("HTTP 416 to " + (asked.whole ? "a request without a range" : asked_text(asked)) +
                 (size ? " of " + std::to_string(*size) : std::string()));
  }
  BodyPlan plan;
  plan.size = size;
  plan.version = asked.expected.is_any() ? head.version(*size) : asked.expected;
  plan.version.size = *size;
  return plan;
}

}  // namespace

bool same_object(const ObjectVersion& expected, const ObjectVersion& actual) {
  const auto known = [](const ObjectVersion& v) { return v.size != ObjectVersion::kAnySize; };
  if (known(expected) && known(actual) && expected.size != actual.size) return false;
  if (!expected.etag.empty() && !actual.etag.empty()) {
    if (expected.etag != actual.etag) return false;
    if (!expected.weak && !actual.weak) return true;
  }
  return expected.mtime_ns == 0 || actual.mtime_ns == 0 || expected.mtime_ns == actual.mtime_ns;
}

Failure changed_failure(const ObjectVersion& expected, const ObjectVersion& actual) {
  return {FailureKind::final,
          Error(ErrorCode::object_changed, "the object changed: expected " + to_string(expected) +
                                               ", found " + to_string(actual)),
          {}};
}

Failure status_failure(const ResponseHead& head, std::int64_t now_s) {
  const int status = head.status();
  std::string text = "HTTP " + std::to_string(status);
  if (!head.reason().empty()) text += " " + printable(head.reason());
  const auto failure = [&](FailureKind kind, ErrorCode code) {
    return Failure{kind, Error(code, text), {}};
  };
  switch (status) {
    case 404:
    case 410:
      return failure(FailureKind::final, ErrorCode::not_found);
    case 401:
    case 403:
    case 407:
      return failure(FailureKind::final, ErrorCode::access_denied);
    case 412:
      return failure(FailureKind::final, ErrorCode::object_changed);
    case 408:
    case 425:
      return failure(FailureKind::refused, ErrorCode::unavailable);
    case 429:
    case 503: {
      Failure busy = failure(FailureKind::busy, ErrorCode::unavailable);
      busy.retry_after_s = head.retry_after_s(now_s);
      return busy;
    }
    case 501:
    case 505:
      return failure(FailureKind::final, ErrorCode::unsupported);
    case 502:
    case 504:
      return failure(FailureKind::gateway, ErrorCode::unavailable);
    default:
      break;
  }
  if (status >= 500) return failure(FailureKind::refused, ErrorCode::unavailable);
  if (status >= 400) return failure(FailureKind::final, ErrorCode::unavailable);
  text += " is no answer to a read";
  return failure(FailureKind::wrong, ErrorCode::corrupt_data);
}

std::variant<BodyPlan, Failure> judge_read(const ResponseHead& head, const Asked& asked,
                                           std::int64_t now_s) {
  const int status = head.status();
  if (status != 200 && status != 206 && status != 416) return status_failure(head, now_s);
  if (!head.malformed().empty()) return wrong("unreadable " + printable(head.malformed()));
  if (status == 416) return judge_behind_end(head, asked);
  if (head.encoded()) return encoded();
  return status == 200 ? judge_whole(head, asked) : judge_part(head, asked);
}

std::variant<ObjectVersion, Failure, std::monostate> judge_stat(const ResponseHead& head,
                                                                bool by_head,
                                                                const ObjectVersion& expected,
                                                                std::int64_t now_s) {
  const int status = head.status();
  if (by_head && (status == 403 || status == 404 || status == 405 || status == 501))
    return std::monostate();
  if (status != 200 && !(!by_head && (status == 206 || status == 416)))
    return status_failure(head, now_s);
  if (!head.malformed().empty()) return wrong("unreadable " + printable(head.malformed()));
  std::optional<std::uint64_t> size;
  if (status == 200) {
    if (head.encoded() && !by_head) return encoded();
    if (!head.encoded()) size = head.content_length();
  } else {
    if (head.encoded()) return encoded();
    if (head.content_range()) size = head.content_range()->total;
    if (status == 416 && size && *size != 0) return status_failure(head, now_s);
  }
  if (!size) {
    if (by_head) return std::monostate();
    return Failure{FailureKind::final,
                   Error(ErrorCode::unsupported, "the server does not say the object's size"),
                   {}};
  }
  ObjectVersion version = head.version(*size);
  if (!same_object(expected, version)) return changed_failure(expected, version);
  return version;
}

}  // namespace headpond
