#include "io/http_io.h"

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cstdlib>
#include <map>
#include <mutex>
#include <random>
#include <utility>

#include "base/thread.h"
#include "io/ca_bundle.h"
#include "io/http_store.h"
#include "io/retry_store.h"

namespace headpond {
namespace {

constexpr const char* kListAdvice =
    "a web server cannot list: give a list of URLs, braces {0000..0146} or a manifest "
    "(headpond index writes one)";

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

// A header must be one line, and none that the store writes itself.
std::optional<Error> check_header(const std::string& header) {
  const auto bad = [&](const char* why) {
    return Error(ErrorCode::invalid_argument,
                 "headers: \"" + header.substr(0, std::min<std::size_t>(header.find(':'), 40)) +
                     "\" " + why);
  };
  const auto colon = header.find(':');
  if (colon == std::string::npos || colon == 0)  // it may be a secret whole
    return Error(ErrorCode::invalid_argument, "headers: one is no \"Name: value\"");
  if (std::any_of(header.begin(), header.end(),
                  [](unsigned char c) { return (c < 0x20 && c != '\t') || c == 0x7F; }))
    return bad("holds a line break or a control character");
  std::string name = header.substr(0, colon);
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (const char* own : {"range", "if-match", "accept-encoding", "host", "content-length",
                          "connection", "transfer-encoding", "te"}) {
    if (name == own) return bad("is set by headpond");
  }
  const bool token = std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 ||
           std::string_view("!#$%&'*+-.^_`|~").find(static_cast<char>(c)) != std::string_view::npos;
  });
  if (!token) return bad("is no name of a header");
  return std::nullopt;
}

Result<void> check_options(const HttpOptions& options) {
  if (options.connections == 0)
    return Error(ErrorCode::invalid_argument, "connections must be at least 1");
  if (!(options.outage_s >= 0) || options.outage_s > 1e9)
    return Error(ErrorCode::invalid_argument, "outage is a number of seconds, at least 0");
  for (const auto& header : options.headers) {
    if (auto error = check_header(header)) return std::move(*error);
  }
  return {};
}

std::chrono::milliseconds until(Clock::Time deadline, Clock::Time now) {
  constexpr std::chrono::milliseconds kLong{60'000};
  if (deadline <= now) return std::chrono::milliseconds(0);
  if (deadline - now >= kLong) return kLong;
  return std::chrono::ceil<std::chrono::milliseconds>(deadline - now);
}

// What the stores share, made at the first `open`.
struct Parts {
  std::shared_ptr<TransferLoop> loop;
  std::shared_ptr<HttpShared> shared = std::make_shared<HttpShared>();
  std::map<std::string, std::shared_ptr<RemoteHost>> hosts;  // by origin
};

class Core final : public HttpIo, public std::enable_shared_from_this<Core> {
 public:
  Core(const HttpOptions& options, std::shared_ptr<Clock> clock, std::shared_ptr<LogQueue> log,
       HttpIoSeams seams)
      : options_(options),
        clock_(std::move(clock)),
        log_(std::move(log)),
        seams_(with_options(std::move(seams), options)) {}

  ~Core() override {
    if (mark_->forked()) {
      // The thread is the parent's, and so is all it works with.
      new Thread(std::move(thread_));
      new Parts(std::move(parts_));
    } else {
      stop();
    }
  }

  Result<std::shared_ptr<Store>> open(const Uri& root) override {
    if (mark_->forked()) {
      return Error(ErrorCode::forked, "the engine belongs to the parent process")
          .at_uri(root.to_string());
    }
    auto url = UrlParts::parse(root.scheme + "://" + root.authority + root.path);
    if (!url) return std::move(url).error();
    if (url->rest.back() != '/') url->rest += '/';
    const std::lock_guard lock(mutex_);
    if (closed_) return Error(ErrorCode::closed, "the engine is closed").at_uri(root.to_string());
    if (auto ready = make_parts(url->scheme == "https"); !ready) return std::move(ready).error();
    const auto host = host_of(url->origin());
    auto attempts =
        std::make_shared<HttpAttempts>(*std::move(url), escape_url(root.query), parts_.loop,
                                       parts_.shared, counts_, seams_.name_check);
    auto store = std::make_shared<RetryStore>(
        std::move(attempts), host, parts_.loop, mark_,
        [weak = weak_from_this()]() -> Result<void> {
          const auto self = weak.lock();
          if (self == nullptr) return Error(ErrorCode::closed, "the engine is closed");
          return self->start();
        },
        kListAdvice);
    std::erase_if(stores_, [](const auto& known) { return known.expired(); });
    stores_.push_back(store);
    return std::shared_ptr<Store>(std::move(store));
  }

  HttpStatus status() const override {
    HttpStatus status;
    status.library = curl_library();
    if (const auto bundle = find_ca_bundle(options_.ca_file, options_.ca_fallback, environment)) {
      status.ca_file = bundle->file.empty() ? bundle->folder : bundle->file;
      status.ca_source = bundle->source;
    }
    status.started = started_.load(std::memory_order_acquire);
    return status;
  }

  HttpCounters counters() const override { return counts_->read(); }

  void close() override {
    if (!mark_->forked()) stop();
  }

 private:
  static HttpIoSeams with_options(HttpIoSeams seams, const HttpOptions& options) {
    seams.retry.retries = options.retries;
    seams.retry.connections = options.connections;
    seams.retry.outage =
        std::chrono::milliseconds(static_cast<std::int64_t>(options.outage_s * 1000));
    return seams;
  }

  // With the lock held. Plain http can do without certificates.
  Result<void> make_parts(bool secure) {
    auto bundle = find_ca_bundle(options_.ca_file, options_.ca_fallback, environment);
    if (!bundle && (secure || !options_.ca_file.empty())) return std::move(bundle).error();
    if (parts_.loop != nullptr) return {};
    if (auto good = check_options(options_); !good) return good;
    ReactorOptions reactor;
    if (bundle) {
      reactor.ca_file = bundle->file;
      reactor.ca_folder = bundle->folder;
    }
    reactor.headers = options_.headers;
    reactor.connections = options_.connections;
    reactor.limits = seams_.limits;
    reactor.addresses = seams_.addresses;
    reactor.peers_are_public = seams_.peers_are_public;
    auto loop = make_curl_reactor(std::move(reactor), clock_, counts_);
    if (!loop) return std::move(loop).error();
    parts_.loop = *std::move(loop);
    return {};
  }

  // With the lock held.
  std::shared_ptr<RemoteHost> host_of(const std::string& origin) {
    auto& host = parts_.hosts[origin];
    if (host == nullptr) {
      host = std::make_shared<RemoteHost>(origin, seams_.retry, seams_.seed + parts_.hosts.size(),
                                          parts_.loop, counts_, log_);
    }
    return host;
  }

  Result<void> start() {
    if (started_.load(std::memory_order_acquire)) return {};
    const std::lock_guard lock(mutex_);
    if (closed_) return Error(ErrorCode::closed, "the engine is closed");
    if (started_.load(std::memory_order_relaxed)) return {};
    if (seams_.drive) {
      seams_.drive(parts_.loop);
    } else {
      auto thread = Thread::start({"hp-http", 0}, [loop = parts_.loop, stopping = stopping_] {
        while (!stopping->load(std::memory_order_acquire)) {
          loop->run_once(until(loop->next_deadline(), loop->now()));
        }
        // What was posted last holds stores, and those the loop: nothing stays behind.
        loop->run_once(std::chrono::milliseconds(0));
      });
      if (!thread) return std::move(thread).error();
      thread_ = *std::move(thread);
    }
    started_.store(true, std::memory_order_release);
    return {};
  }

  void stop() {
    std::vector<std::shared_ptr<Store>> stores;
    Thread thread;
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
      for (const auto& known : stores_) {
        if (auto store = known.lock()) stores.push_back(std::move(store));
      }
      stores_.clear();
      thread = std::move(thread_);
    }
    for (const auto& store : stores) store->close();
    if (!thread.joinable()) return;
    stopping_->store(true, std::memory_order_release);
    parts_.loop->post([] {});
    if (parts_.loop->on_own_thread()) {
      thread.detach();  // the last owner let go in a `done`; the thread holds what it uses
    } else {
      thread.join();
    }
  }

  const HttpOptions options_;
  const std::shared_ptr<Clock> clock_;
  const std::shared_ptr<LogQueue> log_;
  const HttpIoSeams seams_;
  const std::shared_ptr<HttpCounts> counts_ = std::make_shared<HttpCounts>();
  const std::shared_ptr<ForkMark> mark_ = std::make_shared<ForkMark>();
  const std::shared_ptr<std::atomic<bool>> stopping_ = std::make_shared<std::atomic<bool>>(false);
  std::atomic<bool> started_ = false;

  std::mutex mutex_;
  bool closed_ = false;
  Thread thread_;
  Parts parts_;
  std::vector<std::weak_ptr<Store>> stores_;
};

}  // namespace

std::shared_ptr<HttpIo> make_http_io(const HttpOptions& options, std::shared_ptr<Clock> clock,
                                     std::shared_ptr<LogQueue> log, HttpIoSeams seams) {
  return std::make_shared<Core>(options, std::move(clock), std::move(log), std::move(seams));
}

std::shared_ptr<HttpIo> make_http_io(const HttpOptions& options, std::shared_ptr<Clock> clock,
                                     std::shared_ptr<LogQueue> log) {
  HttpIoSeams seams;
  seams.seed = std::random_device()();
  return make_http_io(options, std::move(clock), std::move(log), std::move(seams));
}

}  // namespace headpond
