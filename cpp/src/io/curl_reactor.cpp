#include "io/curl_reactor.h"

#include <curl/curl.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "io/curl_transfer.h"
#include "io/http_url.h"

namespace headpond {
namespace {

constexpr std::chrono::milliseconds kIdleWait{60'000};

struct MultiFree {
  void operator()(CURLM* multi) const { curl_multi_cleanup(multi); }
};
struct ShareFree {
  void operator()(CURLSH* share) const { curl_share_cleanup(share); }
};

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

using Transfer = TransferLoop::Transfer;

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

  // libcurl goes on without the sockets that wake it, and would not be woken.
  bool good() const {
    return global_.good && multi_ != nullptr && share_ != nullptr &&
           curl_multi_wakeup(multi_.get()) == CURLM_OK;
  }

  Transfer* start(const TransferRequest& request, TransferHandler& handler) override {
    Transfer& transfer = take();
    transfer.handler = &handler;
    transfer.number = ++started_;
    transfer.started = now();
    transfer.public_only = request.public_only;
    prepare(transfer, request, headers_.get());
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
  static void append(CurlList& list, const std::string& text) {
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

  std::unique_ptr<Transfer> make() {
    auto transfer = std::make_unique<Transfer>();
    transfer->clock = clock_.get();
    transfer->counts = counts_.get();
    set_up(*transfer, options_, share_.get(), addresses_.get());
    return transfer;
  }

  void release(Transfer& transfer) {
    active_[transfer.place] = active_.back();
    active_[transfer.place]->place = transfer.place;
    active_.pop_back();
    reset(transfer);
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
      end.result = TransferResult::slow;
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

  const GlobalInit global_;
  const ReactorOptions options_;
  const std::shared_ptr<Clock> clock_;
  const std::shared_ptr<HttpCounts> counts_;
  CurlList headers_;
  CurlList addresses_;
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
