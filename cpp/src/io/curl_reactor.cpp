#include "io/curl_reactor.h"

#include <curl/curl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "io/http_url.h"
#include "io/text.h"

namespace headpond {
namespace {

constexpr std::uint64_t kBufferMin = 16 << 10;
constexpr std::uint64_t kBufferMax = 256 << 10;
// For the next of a host's addresses only: libcurl gives each half of what is left.
constexpr long kAddressesMs = 3000;
constexpr std::chrono::milliseconds kIdleWait{60'000};

struct CurlFree {
  void operator()(CURL* easy) const { curl_easy_cleanup(easy); }
};
struct MultiFree {
  void operator()(CURLM* multi) const { curl_multi_cleanup(multi); }
};
struct ShareFree {
  void operator()(CURLSH* share) const { curl_share_cleanup(share); }
};
struct ListFree {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};
using List = std::unique_ptr<curl_slist, ListFree>;

// Process-wide, counted by libcurl.
struct GlobalInit {
  GlobalInit() : good(curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK) {}
  ~GlobalInit() {
    if (good) curl_global_cleanup();
  }
  GlobalInit(const GlobalInit&) = delete;
  GlobalInit& operator=(const GlobalInit&) = delete;
  const bool good;
};

}  // namespace

// One transfer under way, with a handle that is used again for later ones.
struct TransferLoop::Transfer {
  std::unique_ptr<CURL, CurlFree> easy;
  Clock* clock = nullptr;
  HttpCounts* counts = nullptr;
  TransferHandler* handler = nullptr;  // null: not under way
  std::size_t place = 0;               // among the active ones
  std::uint64_t number = 0;            // of the transfer

  ResponseHead head;
  std::string if_match;
  curl_slist if_match_line{};
  std::array<char, CURL_ERROR_SIZE> error{};

  Clock::Time started{};
  Clock::Time heard{};                // last sign of life, once connected
  std::optional<Clock::Time> window;  // begin of the one that bytes are counted in
  std::uint64_t window_bytes = 0;
  std::uint64_t head_bytes = 0;
  std::uint64_t head_bytes_max = 0;
  bool connected = false;
  bool head_done = false;
  bool public_only = false;
  bool local_refused = false;
  bool stopped = false;  // by the handler
  bool head_too_long = false;
  int socket_error = 0;

  void hear(std::uint64_t bytes) {
    heard = clock->now();
    if (!window) window = heard;
    window_bytes += bytes;
  }
};

namespace {

using Transfer = TransferLoop::Transfer;

std::size_t on_head_line(char* data, std::size_t size, std::size_t count, void* context) {
  Transfer& transfer = *static_cast<Transfer*>(context);
  const std::string_view line(data, size * count);
  transfer.hear(line.size());
  transfer.head_bytes += line.size();
  if (transfer.head_bytes > transfer.head_bytes_max) {
    transfer.head_too_long = true;
    return 0;
  }
  if (transfer.head_done) return line.size();  // a trailer
  if (line != "\r\n" && line != "\n") {
    transfer.head.add_line(line);
    return line.size();
  }
  if (transfer.head.status() < 200) return line.size();
  transfer.head_done = true;
  transfer.stopped = !transfer.handler->on_head(transfer.head);
  return transfer.stopped ? 0 : line.size();
}

std::size_t on_body_bytes(char* data, std::size_t size, std::size_t count, void* context) {
  Transfer& transfer = *static_cast<Transfer*>(context);
  const std::size_t bytes = size * count;
  transfer.hear(bytes);
  HttpCounts::add(transfer.counts->bytes, bytes);
  transfer.stopped = !transfer.handler->on_body(std::as_bytes(std::span(data, bytes)));
  return transfer.stopped ? 0 : bytes;
}

// Close-on-exec, and not to where a redirect may not lead.
curl_socket_t open_socket(void* context, curlsocktype, struct curl_sockaddr* address) {
  Transfer& transfer = *static_cast<Transfer*>(context);
  if (transfer.public_only && is_local_address(address->addr)) {
    transfer.local_refused = true;
    return CURL_SOCKET_BAD;
  }
  const int fd = ::socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
  if (fd < 0) transfer.socket_error = errno;
  return fd;
}

// Before the request is sent, on new and used connections alike.
int on_connected(void* context, char* peer, char*, int, int) {
  Transfer& transfer = *static_cast<Transfer*>(context);
  if (transfer.public_only && is_local_address(peer)) {
    transfer.local_refused = true;
    return CURL_PREREQFUNC_ABORT;
  }
  transfer.connected = true;
  transfer.heard = transfer.clock->now();
  return CURL_PREREQFUNC_OK;
}

// A handshake that was cut may succeed next time; OpenSSL has one code for all.
bool was_cut(std::string_view error) {
  constexpr std::array<std::string_view, 5> kCuts = {"SYSCALL", "reset by peer", "Broken pipe",
                                                     "unexpected eof", "timed out"};
  return std::any_of(kCuts.begin(), kCuts.end(),
                     [error](std::string_view words) { return error.find(words) != error.npos; });
}

TransferResult result_of(CURLcode code, std::string_view error) {
  switch (code) {
    case CURLE_OK:
      return TransferResult::complete;
    case CURLE_COULDNT_RESOLVE_HOST:
      return TransferResult::unresolved;
    case CURLE_COULDNT_CONNECT:
    case CURLE_OPERATION_TIMEDOUT:
      return TransferResult::not_connected;
    case CURLE_SSL_CONNECT_ERROR:
      return was_cut(error) ? TransferResult::not_connected : TransferResult::tls_refused;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CIPHER:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_ISSUER_ERROR:
    case CURLE_SSL_INVALIDCERTSTATUS:
    case CURLE_SSL_ENGINE_INITFAILED:
      return TransferResult::tls_refused;
    case CURLE_OUT_OF_MEMORY:
      return TransferResult::resource_limit;
    case CURLE_URL_MALFORMAT:  // says nothing of the host
    case CURLE_FAILED_INIT:
    case CURLE_BAD_FUNCTION_ARGUMENT:
    case CURLE_WEIRD_SERVER_REPLY:
    case CURLE_UNSUPPORTED_PROTOCOL:  // HTTP/0.9
    case CURLE_BAD_CONTENT_ENCODING:
      return TransferResult::wrong_answer;
    default:  // PARTIAL_FILE, GOT_NOTHING, RECV_ERROR, SEND_ERROR, HTTP2, HTTP2_STREAM ...
      return TransferResult::broken;
  }
}

std::string seconds_text(std::chrono::milliseconds time) {
  const auto ms = time.count();
  return ms % 1000 == 0 ? std::to_string(ms / 1000) + " s" : std::to_string(ms) + " ms";
}

class CurlReactor final : public TransferLoop {
 public:
  CurlReactor(ReactorOptions options, std::shared_ptr<Clock> clock,
              std::shared_ptr<HttpCounts> counts)
      : options_(std::move(options)),
        clock_(std::move(clock)),
        counts_(std::move(counts)),
        share_(curl_share_init()),
        multi_(curl_multi_init()) {
    for (const auto& header : options_.headers) append(headers_, header);
    for (const auto& address : options_.addresses) append(addresses_, address);
    if (multi_ == nullptr || share_ == nullptr) return;
    // Kept open: as many as may work at a time, to a few hosts.
    curl_multi_setopt(multi_.get(), CURLMOPT_MAXCONNECTS, std::max(64L, 4L * options_.connections));
    curl_share_setopt(share_.get(), CURLSHOPT_SHARE, CURL_LOCK_DATA_SSL_SESSION);
  }

  ~CurlReactor() override {
    for (auto* transfer : active_) curl_multi_remove_handle(multi_.get(), transfer->easy.get());
    transfers_.clear();  // before the share that they use
  }

  bool good() const { return global_.good && multi_ != nullptr && share_ != nullptr; }

  Transfer* start(const TransferRequest& request, TransferHandler& handler) override {
    Transfer& transfer = take();
    transfer.handler = &handler;
    transfer.number = ++started_;
    transfer.started = now();
    transfer.public_only = request.public_only;
    prepare(transfer, request);
    transfer.place = active_.size();
    active_.push_back(&transfer);
    next_scan_ = std::min(next_scan_, transfer.started + options_.limits.connect);
    HttpCounts::add(counts_->requests);
    curl_multi_add_handle(multi_.get(), transfer.easy.get());
    return &transfer;
  }

  void cancel(Transfer& transfer) override {
    curl_multi_remove_handle(multi_.get(), transfer.easy.get());
    release(transfer);
  }

  Clock::Time now() const override { return clock_->now(); }

  void at(Clock::Time time, std::function<void()> call) override {
    timers_.emplace(time, std::move(call));
  }

  void post(std::function<void()> call) override {
    bool wake = false;
    {
      const std::lock_guard lock(mutex_);
      posted_.push_back(std::move(call));
      wake = std::exchange(sleeping_, false);
    }
    if (wake) curl_multi_wakeup(multi_.get());
  }

  bool on_own_thread() const override {
    return thread_.load(std::memory_order_relaxed) == std::this_thread::get_id();
  }

  Clock::Time next_deadline() const override {
    Clock::Time next = active_.empty() ? Clock::Time::max() : next_scan_;
    if (!timers_.empty()) next = std::min(next, timers_.begin()->first);
    return next;
  }

  bool run_once(std::chrono::milliseconds at_most) override {
    if (thread_.load(std::memory_order_relaxed) == std::thread::id())
      thread_.store(std::this_thread::get_id(), std::memory_order_relaxed);
    bool busy = wait(at_most);
    busy |= run_posted();
    busy |= run_timers();
    int running = 0;
    curl_multi_perform(multi_.get(), &running);
    busy |= end_transfers();
    scan_deadlines();  // last: after a pause of the process what has come is read first
    return busy;
  }

 private:
  static void append(List& list, const std::string& text) {
    curl_slist* longer = curl_slist_append(list.get(), text.c_str());
    if (longer == nullptr) return;
    static_cast<void>(list.release());
    list.reset(longer);
  }

  Transfer& take() {
    if (free_.empty()) {
      transfers_.push_back(make());
      free_.push_back(transfers_.back().get());
    }
    Transfer& transfer = *free_.back();
    free_.pop_back();
    return transfer;
  }

  // The options that hold for every transfer.
  std::unique_ptr<Transfer> make() {
    auto transfer = std::make_unique<Transfer>();
    transfer->easy.reset(curl_easy_init());
    transfer->clock = clock_.get();
    transfer->counts = counts_.get();
    transfer->head_bytes_max = options_.limits.head_bytes;
    CURL* easy = transfer->easy.get();
    const auto set = [easy](CURLoption option, auto value) {
      curl_easy_setopt(easy, option, value);
    };
    void* context = transfer.get();
    set(CURLOPT_PRIVATE, context);
    set(CURLOPT_ERRORBUFFER, transfer->error.data());
    set(CURLOPT_HEADERFUNCTION, &on_head_line);
    set(CURLOPT_HEADERDATA, context);
    set(CURLOPT_WRITEFUNCTION, &on_body_bytes);
    set(CURLOPT_WRITEDATA, context);
    set(CURLOPT_OPENSOCKETFUNCTION, &open_socket);
    set(CURLOPT_OPENSOCKETDATA, context);
    set(CURLOPT_PREREQFUNCTION, &on_connected);
    set(CURLOPT_PREREQDATA, context);
    set(CURLOPT_SHARE, share_.get());
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_QUICK_EXIT, 1L);  // a look-up that hangs holds nothing up
    set(CURLOPT_PROTOCOLS_STR, "http,https");
    set(CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
    set(CURLOPT_FOLLOWLOCATION, 0L);
    set(CURLOPT_PATH_AS_IS, 1L);
    set(CURLOPT_PROXY, "");
    set(CURLOPT_NOPROXY, "*");
    set(CURLOPT_NETRC, static_cast<long>(CURL_NETRC_IGNORED));
    set(CURLOPT_USERAGENT, "headpond");
    set(CURLOPT_ACCEPT_ENCODING, "identity");
    set(CURLOPT_HTTP_CONTENT_DECODING, 0L);
    set(CURLOPT_HTTP09_ALLOWED, 0L);
    set(CURLOPT_TCP_KEEPALIVE, 1L);
    set(CURLOPT_CONNECTTIMEOUT_MS, kAddressesMs);
    set(CURLOPT_SSL_VERIFYPEER, 1L);
    set(CURLOPT_SSL_VERIFYHOST, 2L);
    set(CURLOPT_SSLVERSION, static_cast<long>(CURL_SSLVERSION_TLSv1_2));
    set(CURLOPT_CAINFO, options_.ca_file.empty() ? nullptr : options_.ca_file.c_str());
    set(CURLOPT_CAPATH, options_.ca_folder.empty() ? nullptr : options_.ca_folder.c_str());
    if (addresses_ != nullptr) set(CURLOPT_RESOLVE, addresses_.get());
    return transfer;
  }

  // Those of this one.
  void prepare(Transfer& transfer, const TransferRequest& request) {
    CURL* easy = transfer.easy.get();
    curl_easy_setopt(easy, CURLOPT_URL, request.url.c_str());
    curl_easy_setopt(easy, request.head ? CURLOPT_NOBODY : CURLOPT_HTTPGET, 1L);
    std::array<char, 48> range{};
    if (request.range) {
      std::snprintf(range.data(), range.size(), "%llu-%llu",
                    static_cast<unsigned long long>(request.range->first),
                    static_cast<unsigned long long>(request.range->last));
    }
    curl_easy_setopt(easy, CURLOPT_RANGE, request.range ? range.data() : nullptr);
    curl_slist* lines = request.own_headers ? headers_.get() : nullptr;
    if (!request.if_match.empty()) {
      transfer.if_match = "If-Match: " + request.if_match;
      transfer.if_match_line = {transfer.if_match.data(), lines};
      lines = &transfer.if_match_line;
    }
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, lines);
    // Only TLS can agree on HTTP/2, and only there waiting for the agreement is short.
    const bool streams = request.many_streams && request.url.starts_with("https");
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION,
                     static_cast<long>(streams ? CURL_HTTP_VERSION_2TLS : CURL_HTTP_VERSION_1_1));
    curl_easy_setopt(easy, CURLOPT_PIPEWAIT, streams ? 1L : 0L);
    // libcurl makes and frees it for every transfer.
    curl_easy_setopt(easy, CURLOPT_BUFFERSIZE,
                     static_cast<long>(std::clamp(request.bytes, kBufferMin, kBufferMax)));
    curl_easy_setopt(easy, CURLOPT_FRESH_CONNECT, request.fresh ? 1L : 0L);
    curl_easy_setopt(easy, CURLOPT_DNS_CACHE_TIMEOUT, request.fresh ? 0L : 60L);
  }

  void release(Transfer& transfer) {
    active_[transfer.place] = active_.back();
    active_[transfer.place]->place = transfer.place;
    active_.pop_back();
    transfer.handler = nullptr;
    transfer.head = {};
    transfer.window.reset();
    transfer.window_bytes = transfer.head_bytes = 0;
    transfer.connected = transfer.head_done = transfer.public_only = false;
    transfer.local_refused = transfer.stopped = transfer.head_too_long = false;
    transfer.socket_error = 0;
    transfer.error[0] = '\0';
    free_.push_back(&transfer);
  }

  // Poll, unless something was posted already.
  bool wait(std::chrono::milliseconds at_most) {
    {
      const std::lock_guard lock(mutex_);
      if (!posted_.empty()) return true;
      sleeping_ = true;
    }
    int ready = 0;
    curl_multi_poll(multi_.get(), nullptr, 0,
                    static_cast<int>(std::min(at_most, kIdleWait).count()), &ready);
    const std::lock_guard lock(mutex_);
    sleeping_ = false;
    return ready > 0;
  }

  bool run_posted() {
    {
      const std::lock_guard lock(mutex_);
      running_.swap(posted_);
    }
    const bool any = !running_.empty();
    for (auto& call : running_) call();
    running_.clear();
    return any;
  }

  bool run_timers() {
    bool any = false;
    while (!timers_.empty() && timers_.begin()->first <= now()) {
      auto timer = timers_.extract(timers_.begin());
      timer.mapped()();
      any = true;
    }
    return any;
  }

  Clock::Time deadline_of(const Transfer& transfer) const {
    const auto& limits = options_.limits;
    if (!transfer.connected) return transfer.started + limits.connect;
    const auto silent = transfer.heard + limits.silence;
    return transfer.window ? std::min(silent, *transfer.window + limits.window) : silent;
  }

  // Deadlines move with every byte, so they are looked at when one could have come, not
  // kept in order.
  void scan_deadlines() {
    const auto time = now();
    if (active_.empty() || time < next_scan_) return;
    std::vector<std::pair<Transfer*, std::uint64_t>> late;
    for (auto* transfer : active_) {
      if (deadline_of(*transfer) > time) continue;
      const bool enough = transfer->connected && time < transfer->heard + options_.limits.silence &&
                          transfer->window_bytes >= options_.limits.window_bytes;
      if (enough) {
        transfer->window = time;
        transfer->window_bytes = 0;
      } else {
        late.emplace_back(transfer, transfer->number);
      }
    }
    for (const auto& [transfer, number] : late) {
      if (transfer->handler != nullptr && transfer->number == number) give_up(*transfer, time);
    }
    next_scan_ = Clock::Time::max();
    for (const auto* transfer : active_) next_scan_ = std::min(next_scan_, deadline_of(*transfer));
  }

  void give_up(Transfer& transfer, Clock::Time time) {
    const auto& limits = options_.limits;
    TransferEnd end;
    end.result = TransferResult::stalled;
    if (!transfer.connected) {
      end.result = TransferResult::not_connected;
      end.reason = "no connection within " + seconds_text(limits.connect);
    } else if (time >= transfer.heard + limits.silence) {
      end.reason = "no byte for " + seconds_text(limits.silence);
    } else {
      end.reason = std::to_string(transfer.window_bytes) + " bytes in " +
                   seconds_text(limits.window) + " are too slow";
    }
    curl_multi_remove_handle(multi_.get(), transfer.easy.get());
    finish(transfer, std::move(end));
  }

  void finish(Transfer& transfer, TransferEnd end) {
    long opened = 0;
    curl_easy_getinfo(transfer.easy.get(), CURLINFO_NUM_CONNECTS, &opened);
    HttpCounts::add(counts_->connections, static_cast<std::uint64_t>(opened));
    end.reused = transfer.connected && opened == 0;
    if (const int status = transfer.head.status(); status >= 300 && status < 400) {
      char* peer = nullptr;
      curl_easy_getinfo(transfer.easy.get(), CURLINFO_PRIMARY_IP, &peer);
      end.local_peer = peer != nullptr && is_local_address(peer) && !options_.peers_are_public;
    }
    TransferHandler& handler = *transfer.handler;
    release(transfer);
    handler.on_end(std::move(end));
  }

  bool end_transfers() {
    bool any = false;
    int left = 0;
    while (const CURLMsg* message = curl_multi_info_read(multi_.get(), &left)) {
      if (message->msg != CURLMSG_DONE) continue;
      any = true;
      CURL* easy = message->easy_handle;
      const CURLcode code = message->data.result;
      Transfer* transfer = nullptr;
      curl_easy_getinfo(easy, CURLINFO_PRIVATE, &transfer);
      curl_multi_remove_handle(multi_.get(), easy);
      finish(*transfer, end_of(*transfer, code));
    }
    return any;
  }

  static TransferEnd end_of(const Transfer& transfer, CURLcode code) {
    TransferEnd end;
    const std::string_view error(transfer.error.data());
    end.result = result_of(code, error);
    if (end.result == TransferResult::complete) return end;
    if (transfer.stopped) {
      end.result = TransferResult::stopped;
      return end;
    }
    end.reason = printable(error.empty() ? curl_easy_strerror(code) : error);
    // libcurl's word for a line of more than 100 KB; since 8.6 CURLE_TOO_LARGE, which 7.88 lacks.
    constexpr auto kTooLarge = static_cast<CURLcode>(100);
    const bool line_too_long = (code == CURLE_OUT_OF_MEMORY || code == kTooLarge) &&
                               transfer.connected && !transfer.head_done;
    if (transfer.head_too_long || line_too_long) {
      end.result = TransferResult::wrong_answer;
      end.reason = "the head of the answer is longer than " +
                   std::to_string(transfer.head_bytes_max) + " bytes";
    } else if (transfer.local_refused) {
      end.result = TransferResult::local_address;
      end.reason = "a local address";
    } else if (transfer.socket_error == EMFILE || transfer.socket_error == ENFILE ||
               transfer.socket_error == ENOMEM || transfer.socket_error == ENOBUFS) {
      end.result = TransferResult::resource_limit;
      end.reason = system_error(transfer.socket_error, "socket").message();
    }
    return end;
  }

  const GlobalInit global_;
  const ReactorOptions options_;
  const std::shared_ptr<Clock> clock_;
  const std::shared_ptr<HttpCounts> counts_;
  List headers_;
  List addresses_;
  std::unique_ptr<CURLSH, ShareFree> share_;  // outlives the connections
  std::unique_ptr<CURLM, MultiFree> multi_;

  std::vector<std::unique_ptr<Transfer>> transfers_;
  std::vector<Transfer*> free_;
  std::vector<Transfer*> active_;
  std::uint64_t started_ = 0;
  Clock::Time next_scan_ = Clock::Time::max();  // no deadline comes before
  std::multimap<Clock::Time, std::function<void()>> timers_;
  std::atomic<std::thread::id> thread_{};

  std::mutex mutex_;
  std::vector<std::function<void()>> posted_;
  bool sleeping_ = false;
  std::vector<std::function<void()>> running_;
};

}  // namespace

Result<std::shared_ptr<TransferLoop>> make_curl_reactor(ReactorOptions options,
                                                        std::shared_ptr<Clock> clock,
                                                        std::shared_ptr<HttpCounts> counts) {
  auto reactor =
      std::make_shared<CurlReactor>(std::move(options), std::move(clock), std::move(counts));
  if (!reactor->good()) return Error(ErrorCode::resource_limit, "libcurl cannot be started");
  return std::shared_ptr<TransferLoop>(std::move(reactor));
}

std::string curl_library() {
  std::string text = curl_version();
  return text.substr(0, text.find(" zlib"));
}

}  // namespace headpond
