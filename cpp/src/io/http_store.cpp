#include "io/http_store.h"

#include <chrono>
#include <utility>

#include "io/http_attempt.h"

namespace headpond {
namespace {

constexpr std::chrono::seconds kNameLimit{3};  // to say why a name was not found

}  // namespace

HttpAttempts::HttpAttempts(UrlParts root, std::string query, std::shared_ptr<TransferLoop> loop,
                           std::shared_ptr<HttpShared> shared, std::shared_ptr<HttpCounts> counts,
                           NameCheck name_check)
    : root_(std::move(root)),
      prefix_(root_.text()),
      query_(std::move(query)),
      loop_(std::move(loop)),
      shared_(std::move(shared)),
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

// One question at a time for each name.
void HttpAttempts::ask_about_name(Attempt& attempt, std::uint64_t number, const std::string& host) {
  auto& question = questions_[host];
  question.attempts.emplace_back(&attempt, number);
  if (question.attempts.size() > 1) return;
  question.number = ++questions_asked_;
  const auto settle = [weak = weak_from_this(), host, asked = question.number](NameState state) {
    if (const auto self = weak.lock()) self->settle_name(host, asked, state);
  };
  // A resolver that hangs knows nothing now.
  loop_->at(loop_->now() + kNameLimit, [settle] { settle(NameState::unknown_for_now); });
  name_check_(host, [settle, loop = std::weak_ptr(loop_)](NameState state) {
    if (const auto held = loop.lock()) held->post([settle, state] { settle(state); });
  });
}

void HttpAttempts::settle_name(const std::string& host, std::uint64_t number, NameState state) {
  const auto question = questions_.find(host);
  if (question == questions_.end() || question->second.number != number) return;
  const auto attempts = std::move(question->second.attempts);
  questions_.erase(question);
  // It may come back: where a name has led to an answer before, that is trouble of the resolver.
  if (shared_->names.contains(host)) state = NameState::unknown_for_now;
  for (const auto& [attempt, asked] : attempts) attempt->named(state, asked);
}

void HttpAttempts::note_name(const std::string& url, bool at_root) {
  if (at_root && root_noted_) return;
  root_noted_ |= at_root;
  if (auto parts = UrlParts::parse(url)) shared_->names.insert(std::move(parts->host));
}

std::string HttpAttempts::describe(const std::string& object) const {
  return printable_url(prefix_ + object);
}

}  // namespace headpond
