#include "io/http_store.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "io/allocate_whole.h"
#include "io/http_answer.h"
#include "io/http_counts.h"
#include "io/text.h"

namespace headpond {
namespace {

constexpr std::uint64_t kManyStreamsMax = 64u << 10;  // larger ranges get a connection each
constexpr std::uint64_t kDrainMax = 64u << 10;    // unwanted bytes worth reading for the connection
constexpr std::uint64_t kUnsaidMax = 256u << 20;  // of a body whose length is not said
constexpr std::size_t kExcerptMax = 200;
constexpr std::size_t kRedirectsMax = 5;

std::int64_t time_of_day_s() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

bool is_redirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

// What a server wrote about its failure, without line breaks.
std::string one_line(std::string_view text) {
  std::string line;
  for (const char c : text) {
    const bool space = c == ' ' || (c >= '\t' && c <= '\r');
    if (!space) {
      line += c;
    } else if (!line.empty() && line.back() != ' ') {
      line += ' ';
    }
  }
  while (!line.empty() && line.back() == ' ') line.pop_back();
  return printable(line);
}

Failure failure_of(TransferEnd end, bool answered) {
  const auto failure = [&](FailureKind kind, ErrorCode code) {
    return Failure{kind, Error(code, std::move(end.reason)), {}};
  };
  switch (end.result) {
    case TransferResult::unresolved:
      return failure(FailureKind::no_answer, ErrorCode::unavailable);
    case TransferResult::not_connected:
      return failure(FailureKind::no_answer, ErrorCode::unavailable);
    case TransferResult::stalled:
      return failure(answered ? FailureKind::cut : FailureKind::timed_out, ErrorCode::timed_out);
    case TransferResult::tls_refused:
      return failure(FailureKind::final, ErrorCode::unavailable);
    case TransferResult::wrong_answer:
      return failure(FailureKind::wrong, ErrorCode::corrupt_data);
    case TransferResult::local_address:
      end.reason = "a redirect to a local address is not followed";
      return failure(FailureKind::final, ErrorCode::access_denied);
    case TransferResult::resource_limit:
      return failure(FailureKind::cut, ErrorCode::resource_limit);
    default:
      return failure(answered ? FailureKind::cut : FailureKind::no_answer, ErrorCode::unavailable);
  }
}

}  // namespace

// One attempt: a transfer, and those that redirects or a second question add.
class HttpAttempts::Attempt final : public AttemptState, public TransferHandler {
 public:
  explicit Attempt(HttpAttempts& owner) : owner_(owner) {}

  void begin(RemoteCall& call, AttemptListener& listener) {
    call_ = &call;
    listener_ = &listener;
    ++number_;
    trail_.clear();
    comparing_ = false;
    replayed_ = false;
    first_local_ = false;
    request_.url = owner_.prefix_ + escape_url(call.request.object);
    if (!owner_.query_.empty() && call.request.object.find('?') == std::string::npos)
      request_.url += "?" + owner_.query_;
    request_.fresh = std::exchange(call.fresh, false);
    request_.own_headers = true;
    request_.public_only = false;
    ask();
    send();
  }

  void cancel() {
    if (transfer_ != nullptr) owner_.loop_->cancel(*std::exchange(transfer_, nullptr));
  }

  bool on_head(const ResponseHead& head) override {
    answered_ = true;
    if (comparing_) {
      note_change(head);
      return worth_draining(head);
    }
    if (is_redirect(head.status()) && !head.location().empty()) {
      location_ = head.location();
      return worth_draining(head);
    }
    return call_->is_stat() ? on_stat_head(head) : on_read_head(head);
  }

  bool on_body(std::span<const std::byte> bytes) override {
    seen_ += bytes.size();
    if (!taking_) return discard(bytes);
    const auto skipped = std::min<std::uint64_t>(plan_.skip, bytes.size());
    plan_.skip -= skipped;
    bytes = bytes.subspan(skipped);
    if (growing_) return grow(bytes);
    const auto taken = std::min<std::uint64_t>(plan_.take, bytes.size());
    if (taken > 0) {
      std::memcpy(call_->out.data() + call_->got, bytes.data(), taken);
      call_->got += taken;
      plan_.take -= taken;
    }
    if (plan_.all && !plan_.size && seen_ > kWholeForRangeMax && !asked_.whole)
      return fail({FailureKind::final,
                   Error(ErrorCode::unsupported,
                         "the server gives no ranges: asked for one it sends the whole object"),
                   {}});
    return taken == bytes.size() || leave_rest();
  }

  void on_end(TransferEnd end) override {
    transfer_ = nullptr;
    if (std::exchange(comparing_, false)) return deliver_change();
    if (failure_ && failure_->error.code() == ErrorCode::object_changed &&
        !request_.if_match.empty())
      return ask_what_changed();
    if (failure_) return deliver_failure();
    if (end.result == TransferResult::complete || end.result == TransferResult::stopped) {
      if (!location_.empty()) return follow(end.local_peer);
      if (ask_again_) return ask_for_a_byte();
      if (!answered_) return on_end({TransferResult::broken, "no answer", end.reused, false});
      return finish(end.result == TransferResult::complete);
    }
    // A kept connection may end at the moment it is used again: that costs nothing.
    if (!answered_ && end.reused && end.result == TransferResult::broken &&
        !std::exchange(replayed_, true)) {
      request_.fresh = true;
      return send();
    }
    // A server that leaves HEAD without an answer may give a byte.
    if (request_.head && !answered_) call_->head_failed = true;
    if (taking_ && plan_.size && plan_.take == 0) return finish(false);  // all is there
    const bool unresolved = end.result == TransferResult::unresolved;
    failure_ = failure_of(std::move(end), answered_);
    if (!unresolved) return deliver_failure();
    const auto url = UrlParts::parse(request_.url);
    owner_.ask_about_name(*this, number_, url ? url->host : std::string());
  }

  // After an attempt that could not look up its host's name.
  void named(NameState state, std::uint64_t number) {
    if (call_ == nullptr || number != number_ || !failure_) return;
    if (state == NameState::does_not_exist) failure_->kind = FailureKind::final;
    deliver_failure();
  }

 private:
  // The question, from what the call has already.
  void ask() {
    RemoteCall& call = *call_;
    request_.head = false;
    request_.range.reset();
    request_.if_match.clear();
    asked_ = {};
    asked_.expected = call.version.value_or(call.request.expected);
    if (call.is_stat()) {
      request_.head = !call.head_failed;
      if (call.head_failed) request_.range = TransferRequest::Range{0, 0};
      request_.bytes = 0;
      request_.many_streams = true;
      return;
    }
    // A manifest's tags were checked by nobody, and this one goes into a header.
    if (!asked_.expected.weak && is_entity_tag(asked_.expected.etag))
      request_.if_match = asked_.expected.etag;
    const bool unsized = call.request.allocate != nullptr && !call.allocated;
    if (call.got >= call.out.size()) call.got = 0;  // it all came, and was not good
    got_before_ = call.got;
    asked_.first = call.request.offset + call.got;
    asked_.before = call.got;
    asked_.bytes = unsized ? 0 : call.out.size() - call.got;
    asked_.whole = call.got == 0 && (unsized || call.allocated ||
                                     (asked_.first == 0 && asked_.expected.size == asked_.bytes));
    request_.bytes = unsized ? ~std::uint64_t{0} : asked_.bytes;
    request_.many_streams = !unsized && asked_.bytes <= kManyStreamsMax;
    if (asked_.whole) return;
    constexpr std::uint64_t kLastMax = (std::uint64_t{1} << 63) - 1;  // what servers can count to
    const auto first = std::min(asked_.first, kLastMax);
    const auto last = asked_.bytes - 1 > kLastMax - first ? kLastMax : first + asked_.bytes - 1;
    asked_.first = first;
    asked_.bytes = last - first + 1;
    request_.range = TransferRequest::Range{first, last};
  }

  void send() {
    answered_ = taking_ = growing_ = ask_again_ = false;
    seen_ = 0;
    plan_ = {};
    failure_.reset();
    location_.clear();
    excerpt_.clear();
    grown_ = {};  // its memory too
    transfer_ = owner_.loop_->start(request_, *this);
  }

  static bool worth_draining(const ResponseHead& head) {
    return head.content_length() && *head.content_length() <= kDrainMax;
  }

  bool on_stat_head(const ResponseHead& head) {
    auto verdict = judge_stat(head, request_.head, asked_.expected, time_of_day_s());
    if (auto* version = std::get_if<ObjectVersion>(&verdict)) {
      plan_.version = std::move(*version);
      return worth_draining(head) || request_.head;
    }
    if (auto* failure = std::get_if<Failure>(&verdict)) {
      failure_ = std::move(*failure);
    } else {
      ask_again_ = true;
    }
    return request_.head || worth_draining(head);
  }

  bool on_read_head(const ResponseHead& head) {
    auto verdict = judge_read(head, asked_, time_of_day_s());
    if (auto* failure = std::get_if<Failure>(&verdict)) {
      failure_ = std::move(*failure);
      // What a server says of its trouble is worth a look, if short.
      return !head.content_length() || *head.content_length() <= kDrainMax;
    }
    plan_ = std::get<BodyPlan>(std::move(verdict));
    if (head.status() == 416) return worth_draining(head);
    RemoteCall& call = *call_;
    if (call.request.allocate != nullptr && !call.allocated) {
      growing_ = !plan_.size;
      if (plan_.size && !allocate(*plan_.size)) return false;
    } else if (call.allocated && plan_.all && plan_.size && *plan_.size != call.out.size()) {
      return fail(changed_failure(asked_.expected, plan_.version));
    }
    if (plan_.all) {
      call.got = 0;  // from the start again, whatever was asked for
      plan_.skip = std::min(call.request.offset, plan_.size.value_or(call.request.offset));
      plan_.take = plan_.size ? std::min<std::uint64_t>(call.out.size(), *plan_.size - plan_.skip)
                              : call.out.size();
    }
    plan_.take = std::min<std::uint64_t>(plan_.take, call.out.size() - call.got);
    call.version = plan_.version;
    taking_ = true;
    return true;
  }

  // The place for an object whose size was not known.
  bool allocate(std::uint64_t size) {
    RemoteCall& call = *call_;
    auto taken = allocate_whole(call.request, size);
    call.allocated = true;
    call.out = call.request.out;
    return taken || fail({FailureKind::final, std::move(taken).error(), {}});
  }

  bool grow(std::span<const std::byte> bytes) {
    if (grown_.size() + bytes.size() > kUnsaidMax) {
      return fail({FailureKind::final,
                   Error(ErrorCode::unsupported,
                         "the server does not say the object's size, which is above " +
                             std::to_string(kUnsaidMax >> 20) + " MiB"),
                   {}});
    }
    grown_.insert(grown_.end(), bytes.begin(), bytes.end());
    return true;
  }

  // More came than is wanted: of a whole object, or of a server that does not stop.
  bool leave_rest() {
    if (!plan_.all || plan_.take > 0) {
      return fail({FailureKind::wrong,
                   Error(ErrorCode::corrupt_data, "more bytes came than the answer announced"),
                   {}});
    }
    if (plan_.size && seen_ > *plan_.size) {
      return fail({FailureKind::wrong,
                   Error(ErrorCode::corrupt_data, "more bytes came than the answer announced"),
                   {}});
    }
    return plan_.size && *plan_.size - seen_ <= kDrainMax;
  }

  bool discard(std::span<const std::byte> bytes) {
    const auto room = std::min(kExcerptMax - std::min(excerpt_.size(), kExcerptMax), bytes.size());
    excerpt_.append(reinterpret_cast<const char*>(bytes.data()), room);
    return seen_ <= kDrainMax;
  }

  bool fail(Failure failure) {
    failure_ = std::move(failure);
    return false;
  }

  void ask_for_a_byte() {
    call_->head_failed = true;
    ask();
    send();
  }

  // HTTP 412 says that the object changed, and not to what: that is asked once, for the message.
  void ask_what_changed() {
    request_.range = TransferRequest::Range{0, 0};
    request_.if_match.clear();
    comparing_ = true;
    changed_ = std::move(failure_);
    send();
  }

  void note_change(const ResponseHead& head) {
    const auto verdict = judge_stat(head, false, {}, time_of_day_s());
    const auto* version = std::get_if<ObjectVersion>(&verdict);
    if (version != nullptr && !same_object(asked_.expected, *version))
      changed_ = changed_failure(asked_.expected, *version);
  }

  void deliver_change() {
    failure_ = std::move(changed_);
    excerpt_.clear();
    deliver_failure();
  }

  void follow(bool local_peer) {
    if (trail_.empty()) first_local_ = local_peer;
    auto here = UrlParts::parse(request_.url);
    if (!here) return give_up(std::move(here).error());
    trail_.push_back(printable_url(request_.url));
    auto target = redirect_target(*here, location_);
    if (!target) return give_up(std::move(target).error());
    if (trail_.size() > kRedirectsMax) {
      return give_up(Error(ErrorCode::unavailable,
                           "more than " + std::to_string(kRedirectsMax) + " redirects"));
    }
    HttpCounts::add(owner_.counts_->redirects);
    const bool at_home = target->origin() == owner_.root_.origin();
    if (at_home) target->userinfo = owner_.root_.userinfo;
    request_.own_headers = at_home;
    request_.public_only = !first_local_;
    request_.url = target->text();
    send();
  }

  void give_up(Error error) {
    failure_ = Failure{FailureKind::final, std::move(error), {}};
    deliver_failure();
  }

  void finish(bool complete) {
    RemoteCall& call = *call_;
    if (call.is_stat()) return succeed({0, std::move(plan_.version)});
    if (growing_) {
      if (!complete || !settle_grown()) {
        if (!failure_) failure_ = failure_of({TransferResult::broken, "cut", false, false}, true);
        return deliver_failure();
      }
    } else if (!plan_.size && plan_.all && (complete || asked_.whole)) {
      plan_.version.size = seen_;  // the body's end was the object's
      if (!same_object(asked_.expected, plan_.version)) {
        failure_ = changed_failure(asked_.expected, plan_.version);
        return deliver_failure();
      }
    } else if (plan_.take > 0) {
      failure_ = failure_of({TransferResult::broken, "the answer ended early", false, false}, true);
      return deliver_failure();
    }
    succeed({call.got, std::move(plan_.version)});
  }

  bool settle_grown() {
    RemoteCall& call = *call_;
    plan_.version.size = grown_.size();
    if (!same_object(asked_.expected, plan_.version))
      return fail(changed_failure(asked_.expected, plan_.version));
    if (!allocate(grown_.size())) return false;
    std::copy(grown_.begin(), grown_.end(), call.out.begin());
    call.got = grown_.size();
    grown_ = {};
    return true;
  }

  void succeed(ReadOutcome outcome) {
    auto* listener = listener_;
    RemoteCall& call = *release();
    listener->succeeded(call, std::move(outcome));
  }

  void deliver_failure() {
    Failure failure = std::move(*failure_);
    grown_ = {};
    // Of a wrong answer nothing is kept.
    if (growing_) call_->got = 0;
    if (failure.kind == FailureKind::wrong) call_->got = std::min(call_->got, got_before_);
    std::string message = failure.error.message();
    if (const std::string said = one_line(excerpt_); !said.empty()) message += ": " + said;
    if (!trail_.empty()) {
      message += " (redirected: ";
      for (const auto& hop : trail_) message += hop + " -> ";
      message += printable_url(request_.url) + ")";
    }
    failure.error = Error(failure.error.code(), std::move(message));
    auto* listener = listener_;
    RemoteCall& call = *release();
    listener->failed(call, std::move(failure));
  }

  // Back to the free ones: the listener may start another at once.
  RemoteCall* release() {
    RemoteCall* call = std::exchange(call_, nullptr);
    call->attempt = nullptr;
    owner_.free_.push_back(this);
    return call;
  }

  HttpAttempts& owner_;
  RemoteCall* call_ = nullptr;
  AttemptListener* listener_ = nullptr;
  std::uint64_t number_ = 0;      // of the attempt
  std::uint64_t got_before_ = 0;  // what the call had when this transfer was asked for
  TransferLoop::Transfer* transfer_ = nullptr;
  TransferRequest request_;
  Asked asked_;
  std::vector<std::string> trail_;  // of redirects, for messages
  bool first_local_ = false;        // the first answer came from a local address
  bool replayed_ = false;

  // Of the transfer under way.
  bool answered_ = false;
  bool taking_ = false;   // the body is data
  bool growing_ = false;  // of unknown length
  bool ask_again_ = false;
  std::uint64_t seen_ = 0;  // of the body
  BodyPlan plan_;
  std::optional<Failure> failure_;
  bool comparing_ = false;  // the question behind a 412
  std::optional<Failure> changed_;
  std::string location_;
  std::string excerpt_;  // of the body of a failure
  std::vector<std::byte> grown_;

  friend class HttpAttempts;
};

HttpAttempts::HttpAttempts(UrlParts root, std::string query, std::shared_ptr<TransferLoop> loop,
                           std::shared_ptr<HttpCounts> counts, NameCheck name_check)
    : root_(std::move(root)),
      prefix_(root_.text()),
      query_(std::move(query)),
      loop_(std::move(loop)),
      counts_(std::move(counts)),
      name_check_(std::move(name_check)) {}

HttpAttempts::~HttpAttempts() = default;

void HttpAttempts::start(RemoteCall& call, AttemptListener& listener) {
  if (free_.empty()) {
    attempts_.push_back(std::make_unique<Attempt>(*this));
    free_.push_back(attempts_.back().get());
  }
  Attempt* attempt = free_.back();
  free_.pop_back();
  call.attempt = attempt;
  attempt->begin(call, listener);
}

void HttpAttempts::cancel(RemoteCall& call) {
  auto* attempt = static_cast<Attempt*>(call.attempt);
  attempt->cancel();
  static_cast<void>(attempt->release());
}

void HttpAttempts::ask_about_name(Attempt& attempt, std::uint64_t number, const std::string& host) {
  unnamed_.emplace_back(&attempt, number);
  if (unnamed_.size() > 1) return;
  name_check_(host, [weak = weak_from_this(), loop = loop_](NameState state) {
    loop->post([weak, state] {
      if (const auto self = weak.lock()) self->settle_names(state);
    });
  });
}

void HttpAttempts::settle_names(NameState state) {
  for (const auto& [attempt, number] : std::exchange(unnamed_, {})) attempt->named(state, number);
}

std::string HttpAttempts::describe(const std::string& object) const {
  return printable_url(prefix_ + object);
}

}  // namespace headpond
