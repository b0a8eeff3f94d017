#include "io/http_attempt.h"

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
constexpr std::uint64_t kDrainMax = 64u << 10;  // unwanted bytes worth reading for the connection
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
      return failure(answered ? FailureKind::stalled : FailureKind::timed_out,
                     ErrorCode::timed_out);
    case TransferResult::slow:
      return failure(FailureKind::cut, ErrorCode::timed_out);
    case TransferResult::tls_refused:
      return failure(FailureKind::final, ErrorCode::unavailable);
    case TransferResult::wrong_answer:
      return failure(FailureKind::wrong, ErrorCode::corrupt_data);
    case TransferResult::local_address:
      end.reason = "a redirect to a local address is not followed";
      return failure(FailureKind::final, ErrorCode::access_denied);
    case TransferResult::resource_limit:
      return failure(FailureKind::hindered, ErrorCode::resource_limit);
    default:
      return failure(answered ? FailureKind::cut : FailureKind::no_answer, ErrorCode::unavailable);
  }
}

}  // namespace

void HttpAttempts::Attempt::begin(RemoteCall& call, AttemptListener& listener) {
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

void HttpAttempts::Attempt::cancel() {
  if (transfer_ != nullptr) owner_.loop_->cancel(*std::exchange(transfer_, nullptr));
  grown_.clear();
}

bool HttpAttempts::Attempt::on_head(const ResponseHead& head) {
  answered_ = true;
  owner_.note_name(request_.url, trail_.empty());
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

bool HttpAttempts::Attempt::on_body(std::span<const std::byte> bytes) {
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

void HttpAttempts::Attempt::on_end(TransferEnd end) {
  transfer_ = nullptr;
  if (std::exchange(comparing_, false)) return deliver_change();
  if (failure_ && failure_->error.code() == ErrorCode::object_changed && !request_.if_match.empty())
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

void HttpAttempts::Attempt::named(NameState state, std::uint64_t number) {
  if (call_ == nullptr || number != number_ || !failure_) return;
  if (state == NameState::does_not_exist) failure_->kind = FailureKind::final;
  deliver_failure();
}

void HttpAttempts::Attempt::ask() {
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

void HttpAttempts::Attempt::send() {
  answered_ = taking_ = growing_ = ask_again_ = false;
  seen_ = 0;
  plan_ = {};
  failure_.reset();
  location_.clear();
  excerpt_.clear();
  grown_.clear();
  transfer_ = owner_.loop_->start(request_, *this);
}

bool HttpAttempts::Attempt::worth_draining(const ResponseHead& head) {
  return head.content_length() && *head.content_length() <= kDrainMax;
}

bool HttpAttempts::Attempt::on_stat_head(const ResponseHead& head) {
  // HEAD says 0 also where a server has no answer of its own to it, so a byte is asked for.
  const bool says_empty = head.status() == 200 && head.content_length() == 0;
  if (request_.head && says_empty && !head.encoded()) {
    call_->head_says_empty = ask_again_ = true;
    return true;
  }
  if (head.status() == 416 && call_->head_says_empty && !head.content_range()) {
    plan_.version = head.version(0);
    return worth_draining(head);
  }
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

bool HttpAttempts::Attempt::on_read_head(const ResponseHead& head) {
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

bool HttpAttempts::Attempt::allocate(std::uint64_t size) {
  RemoteCall& call = *call_;
  auto taken = allocate_whole(call.request, size);
  call.allocated = true;
  call.out = call.request.out;
  return taken || fail({FailureKind::final, std::move(taken).error(), {}});
}

bool HttpAttempts::Attempt::grow(std::span<const std::byte> bytes) {
  if (grown_.append(bytes)) return true;
  if (grown_.is_alone()) {
    return fail({FailureKind::final,
                 Error(ErrorCode::unsupported,
                       "the server does not say the object's size, which is above " +
                           std::to_string(kUnsizedMax >> 20) + " MiB"),
                 {}});
  }
  return fail({FailureKind::hindered,
               Error(ErrorCode::resource_limit,
                     "objects whose size the server does not say are more than " +
                         std::to_string(kUnsizedMax >> 20) + " MiB together"),
               {}});
}

bool HttpAttempts::Attempt::leave_rest() {
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

bool HttpAttempts::Attempt::discard(std::span<const std::byte> bytes) {
  const auto room = std::min(kExcerptMax - std::min(excerpt_.size(), kExcerptMax), bytes.size());
  excerpt_.append(reinterpret_cast<const char*>(bytes.data()), room);
  return seen_ <= kDrainMax;
}

bool HttpAttempts::Attempt::fail(Failure failure) {
  failure_ = std::move(failure);
  return false;
}

void HttpAttempts::Attempt::ask_for_a_byte() {
  call_->head_failed = true;
  ask();
  send();
}

void HttpAttempts::Attempt::ask_what_changed() {
  request_.range = TransferRequest::Range{0, 0};
  request_.if_match.clear();
  comparing_ = true;
  changed_ = std::move(failure_);
  send();
}

void HttpAttempts::Attempt::note_change(const ResponseHead& head) {
  const auto verdict = judge_stat(head, false, {}, time_of_day_s());
  const auto* version = std::get_if<ObjectVersion>(&verdict);
  if (version != nullptr && !same_object(asked_.expected, *version))
    changed_ = changed_failure(asked_.expected, *version);
}

void HttpAttempts::Attempt::deliver_change() {
  failure_ = std::move(changed_);
  excerpt_.clear();
  deliver_failure();
}

void HttpAttempts::Attempt::follow(bool local_peer) {
  if (trail_.empty()) first_local_ = local_peer;
  auto here = UrlParts::parse(request_.url);
  if (!here) return give_up(std::move(here).error());
  trail_.push_back(printable_url(request_.url));
  auto target = redirect_target(*here, location_);
  if (!target) return give_up(std::move(target).error());
  if (trail_.size() > kRedirectsMax) {
    return give_up(
        Error(ErrorCode::unavailable, "more than " + std::to_string(kRedirectsMax) + " redirects"));
  }
  HttpCounts::add(owner_.counts_->redirects);
  const bool at_home = target->origin() == owner_.root_.origin();
  if (at_home) target->userinfo = owner_.root_.userinfo;
  request_.own_headers = at_home;
  request_.public_only = !first_local_;
  request_.url = target->text();
  send();
}

void HttpAttempts::Attempt::give_up(Error error) {
  failure_ = Failure{FailureKind::final, std::move(error), {}};
  deliver_failure();
}

void HttpAttempts::Attempt::finish(bool complete) {
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

bool HttpAttempts::Attempt::settle_grown() {
  RemoteCall& call = *call_;
  plan_.version.size = grown_.size();
  if (!same_object(asked_.expected, plan_.version))
    return fail(changed_failure(asked_.expected, plan_.version));
  if (!allocate(grown_.size())) return false;
  grown_.move_to(call.out);
  call.got = call.out.size();
  return true;
}

void HttpAttempts::Attempt::succeed(ReadOutcome outcome) {
  auto* listener = listener_;
  RemoteCall& call = *release();
  listener->succeeded(call, std::move(outcome));
}

void HttpAttempts::Attempt::deliver_failure() {
  Failure failure = std::move(*failure_);
  grown_.clear();
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

RemoteCall* HttpAttempts::Attempt::release() {
  RemoteCall* call = std::exchange(call_, nullptr);
  call->attempt = nullptr;
  owner_.free_.push_back(this);
  return call;
}

}  // namespace headpond
