#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "io/http_answer.h"
#include "io/http_url.h"

using namespace headpond;

namespace {

void require(bool good) {
  if (!good) std::abort();
}

ResponseHead read_head(std::string_view text) {
  ResponseHead head;
  while (!text.empty()) {
    const auto end = text.find('\n');
    head.add_line(text.substr(0, end));
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
  }
  return head;
}

bool has_no_control(std::string_view text, unsigned char lowest) {
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < lowest || byte == 0x7F) return false;
  }
  return true;
}
bool is_printable(std::string_view text) { return has_no_control(text, 0x20); }
bool is_plain(std::string_view text) { return has_no_control(text, 0x21); }

// What goes back into a request must not break its lines.
void check_values(const ResponseHead& head) {
  require(is_plain(head.etag()) && is_plain(head.location()));
  const auto version = head.version(1);
  require(same_object(version, version));
  const auto after = head.retry_after_s(1'700'000'000);
  require(!after || *after >= 0);
}

void check_read(const ResponseHead& head, const Asked& asked) {
  const auto verdict = judge_read(head, asked, 0);
  if (const auto* failure = std::get_if<Failure>(&verdict)) {
    require(!failure->error.message().empty() && is_printable(failure->error.message()));
    return;
  }
  const auto& plan = std::get<BodyPlan>(verdict);
  require(head.status() == 200 || head.status() == 206 || head.status() == 416);
  require(same_object(asked.expected, plan.version));
  if (plan.size) require(plan.skip <= *plan.size && plan.take <= *plan.size - plan.skip);
  if (!asked.whole) require(plan.take <= asked.bytes);
}

void check_redirect(const std::string& location) {
  for (const char* from : {"https://user:pw@host/a/b?c", "http://[::1]:81/"}) {
    const auto base = UrlParts::parse(from);
    const auto target = redirect_target(*base, location);
    if (!target) {
      require(is_printable(target.error().message()));
      continue;
    }
    require(target->userinfo.empty() && (target->scheme == "http" || target->scheme == "https"));
    require(!(base->scheme == "https" && target->scheme == "http"));
    const std::string text = target->text();
    require(is_plain(text));
    const auto again = UrlParts::parse(text);
    require(again && again->text() == text && again->origin() == target->origin());
  }
}

}  // namespace

// Any bytes are the head of an answer that is judged safely, and a redirect that leads to a
// URL or is refused. The first byte chooses what was asked for.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const ResponseHead head = read_head(text);
  check_values(head);
  Asked asked;
  asked.first = (data[0] & 1) != 0 ? 100 : 0;
  asked.bytes = (data[0] & 2) != 0 ? 50 : std::uint64_t{1} << 62;
  asked.whole = (data[0] & 4) != 0 && asked.first == 0;
  if ((data[0] & 8) != 0) asked.expected.size = 1000;
  if ((data[0] & 16) != 0) asked.expected.etag = "\"a\"";
  check_read(head, asked);
  for (const bool by_head : {true, false}) {
    const auto verdict = judge_stat(head, by_head, asked.expected, 0);
    if (const auto* version = std::get_if<ObjectVersion>(&verdict))
      require(version->size != ObjectVersion::kAnySize);
  }
  check_redirect(head.location());
  check_redirect(std::string(text.substr(0, 2000)));
  require(is_printable(printable_url(text)));
  const std::string escaped = escape_url(text);
  require(escape_url(escaped) == escaped);
  return 0;
}
