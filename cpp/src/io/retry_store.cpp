#include "io/retry_store.h"

#include <atomic>
#include <utility>
#include <vector>

namespace headpond {
namespace {

constexpr std::chrono::seconds kCloseLimit{2};

// `close` has given up on it, so the memory that it holds may be in use for ever.
template <class Done>
void keep_for_ever(Done done) {
  static_cast<void>(new Done(std::move(done)));
}

}  // namespace

// What calls use; outlives the store while one of them is in its last line.
struct RetryStore::State {
  // Has the loop look for calls that are stopped, once for all that stop together.
  static void sweep(const std::shared_ptr<State>& state) {
    if (state->sweeping.exchange(true)) return;
    // Weak, here and below: what is posted to a loop that ends must not keep it.
    state->loop->post([weak = std::weak_ptr(state)] {
      const auto state = weak.lock();
      if (state == nullptr) return;
      state->sweeping = false;
      state->host->cancel_if([&](const RemoteCall& call) {
        return call.attempts == state->attempts.get() && call.stopped();
      });
    });
  }

  std::shared_ptr<Attempts> attempts;
  std::shared_ptr<RemoteHost> host;
  std::shared_ptr<EventLoop> loop;
  InFlight in_flight;
  std::atomic<bool> closing = false;
  std::atomic<bool> sweeping = false;
};

struct RetryStore::ReadCall final : RemoteCall {
  struct Sweep {
    std::weak_ptr<State> state;
    void operator()() const {
      if (const auto held = state.lock()) State::sweep(held);
    }
  };

  ReadCall(std::shared_ptr<State> owner, ReadRequest asked) : state(std::move(owner)) {
    request = std::move(asked);
    out = request.out;
    attempts = state->attempts.get();
    if (request.stop.stop_possible()) on_stop.emplace(request.stop, Sweep{state});
  }

  bool stopped() const override {
    return state->closing.load(std::memory_order_relaxed) || request.stop.stop_requested();
  }

  void finish(Result<ReadOutcome> outcome) override {
    on_stop.reset();
    if (!state->in_flight.begin_done()) return keep_for_ever(std::move(request.done));
    const auto done = std::move(request.done);
    const auto kept = state;
    done(std::move(outcome));
    kept->in_flight.end_done();
  }

  const std::shared_ptr<State> state;
  std::optional<std::stop_callback<Sweep>> on_stop;
};

struct RetryStore::StatCall final : RemoteCall {
  StatCall(std::shared_ptr<State> owner, std::string object,
           std::function<void(Result<ObjectInfo>)> then)
      : state(std::move(owner)), done(std::move(then)) {
    request.object = std::move(object);
    attempts = state->attempts.get();
  }

  bool stopped() const override { return state->closing.load(std::memory_order_relaxed); }

  void finish(Result<ReadOutcome> outcome) override {
    if (!state->in_flight.begin_done()) return keep_for_ever(std::move(done));
    const auto kept = state;
    if (outcome) {
      done(ObjectInfo{std::move(request.object), std::move(outcome->version)});
    } else {
      done(std::move(outcome).error());
    }
    kept->in_flight.end_done();
  }

  const std::shared_ptr<State> state;
  std::function<void(Result<ObjectInfo>)> done;
};

RetryStore::RetryStore(std::shared_ptr<Attempts> attempts, std::shared_ptr<RemoteHost> host,
                       std::shared_ptr<EventLoop> loop, std::shared_ptr<ForkMark> mark,
                       StartLoop start, std::string list_advice)
    : state_(std::make_shared<State>()),
      mark_(std::move(mark)),
      start_(std::move(start)),
      list_advice_(std::move(list_advice)) {
  state_->attempts = std::move(attempts);
  state_->host = std::move(host);
  state_->loop = std::move(loop);
}

RetryStore::~RetryStore() { close(); }

std::optional<Error> RetryStore::refuse(std::string_view object) const {
  std::optional<Error> error;
  if (mark_->forked()) {
    error = Error(ErrorCode::forked, "the store belongs to the parent process");
  } else if (state_->closing.load(std::memory_order_relaxed)) {
    error = Error(ErrorCode::closed, "the store is closed");
  } else if (object.find('\0') != std::string_view::npos) {
    error = Error(ErrorCode::invalid_argument, "a name may not hold NUL bytes");
  } else if (auto started = start_(); !started) {
    error = std::move(started).error();
  }
  if (error) error = std::move(*error).at_uri(state_->attempts->describe(std::string(object)));
  return error;
}

void RetryStore::read(std::span<ReadRequest> requests) {
  std::vector<std::unique_ptr<RemoteCall>> calls;
  calls.reserve(requests.size());
  for (auto& taken : requests) {
    ReadRequest request = std::move(taken);
    auto refused = refuse(request.object);
    if (!refused && !state_->in_flight.enter(1)) {
      refused = Error(ErrorCode::closed, "the store is closed")
                    .at_uri(state_->attempts->describe(request.object));
    }
    if (refused) {
      request.done(
          std::move(*refused).at_range({request.offset, request.offset + request.out.size()}));
      continue;
    }
    calls.push_back(std::make_unique<ReadCall>(state_, std::move(request)));
  }
  submit(std::move(calls));
}

void RetryStore::stat(std::string object, std::function<void(Result<ObjectInfo>)> done) {
  auto refused = refuse(object);
  if (!refused && !state_->in_flight.enter(1))
    refused =
        Error(ErrorCode::closed, "the store is closed").at_uri(state_->attempts->describe(object));
  if (refused) return done(std::move(*refused));
  std::vector<std::unique_ptr<RemoteCall>> calls;
  calls.push_back(std::make_unique<StatCall>(state_, std::move(object), std::move(done)));
  submit(std::move(calls));
}

void RetryStore::submit(std::vector<std::unique_ptr<RemoteCall>> calls) {
  if (calls.empty()) return;
  // A std::function must be copyable.
  auto shared = std::make_shared<std::vector<std::unique_ptr<RemoteCall>>>(std::move(calls));
  state_->loop->post([host = state_->host, shared] {
    for (auto& call : *shared) host->add(std::move(call));
  });
}

void RetryStore::list(ListRequest request) {
  if (auto refused = refuse(request.prefix)) return request.page(std::move(*refused));
  request.page(Error(ErrorCode::unsupported, list_advice_).at_uri(describe()));
}

Result<std::size_t> RetryStore::read_now(std::string_view object, const ObjectVersion&,
                                         std::span<const Piece>, Wait) {
  if (auto refused = refuse(object)) return std::move(*refused);
  return std::size_t{0};
}

std::string RetryStore::describe() const { return state_->attempts->describe({}); }

void RetryStore::close() {
  if (mark_->forked()) return;  // its calls are the parent's
  state_->closing = true;
  const auto cancel = [weak = std::weak_ptr(state_)] {
    const auto state = weak.lock();
    if (state == nullptr) return;
    state->host->cancel_if(
        [&](const RemoteCall& call) { return call.attempts == state->attempts.get(); });
  };
  if (state_->loop->on_own_thread()) {
    cancel();  // in a `done` of ours: that one comes back later
    return state_->in_flight.refuse();
  }
  if (state_->in_flight.refuse_if_idle()) return;
  state_->loop->post(cancel);
  state_->in_flight.close(kCloseLimit);
}

}  // namespace headpond
