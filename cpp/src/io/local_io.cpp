#include "io/local_io.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "io/local_store.h"
#include "io/pread_pool.h"
#include "io/ring_reactor.h"

namespace headpond {
namespace {

constexpr unsigned kHelpers = 4;  // threads beside the ring, for what it cannot settle

// The parts behind LocalIo and its stores; the stores hold it too.
class Core final : public LocalShared {
 public:
  Core(const IoOptions& options, std::shared_ptr<LogQueue> log, LocalIoSeams seams)
      : options_(options),
        log_(std::move(log)),
        close_limit_(seams.close_limit),
        files_(std::make_shared<LocalFiles>(
            seams.ops != nullptr ? std::move(seams.ops) : std::make_unique<FileOps>(),
            options.handles_max)) {}

  ~Core() override {
    if (forked()) {
      leave_to_parent();
    } else {
      stop();
    }
  }

  LocalFiles& files() override { return *files_; }
  bool forked() const override { return mark_.forked(); }

  std::shared_ptr<Backend> backend() override {
    const std::lock_guard lock(mutex_);
    if (closed_) return nullptr;
    if (backend_ == nullptr) backend_ = start();
    return backend_;
  }

  std::shared_ptr<LocalRoot> add_root(std::string path) {
    if (forked())
      return std::make_shared<LocalRoot>(0, absolute_path(std::move(path)));  // its store refuses
    const std::lock_guard lock(mutex_);
    auto root = std::make_shared<LocalRoot>(++roots_made_, absolute_path(std::move(path)));
    if (closed_) {
      root->closing = true;
      root->in_flight.close(std::chrono::nanoseconds(0));
    }
    std::erase_if(roots_, [](const auto& known) { return known.expired(); });
    roots_.push_back(root);
    return root;
  }

  void close_root(LocalRoot& root) override {
    root.closing = true;
    if (const auto running = running_backend(); running != nullptr) running->cancel_queued();
    const std::size_t kept = root.in_flight.close(close_limit_);
    files_->handles().erase_root(root.id);
    if (kept > 0) warn_kept(kept);
  }

  void stop() {
    std::vector<std::shared_ptr<LocalRoot>> roots;
    std::shared_ptr<Backend> backend;
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
      for (const auto& known : roots_) {
        if (auto root = known.lock()) roots.push_back(std::move(root));
      }
      roots_.clear();
      backend = std::move(backend_);
    }
    for (const auto& root : roots) root->closing = true;
    if (backend != nullptr) backend->cancel_queued();
    const auto deadline = std::chrono::steady_clock::now() + close_limit_;
    std::size_t kept = 0;
    for (const auto& root : roots) {
      const auto left = deadline - std::chrono::steady_clock::now();
      kept += root->in_flight.close(
          std::max<std::chrono::nanoseconds>(left, std::chrono::nanoseconds(0)));
    }
    if (backend != nullptr) {
      // Idle threads leave at once; who is still out when all reads are back is in `finish`.
      const auto left = std::max<std::chrono::nanoseconds>(
          deadline - std::chrono::steady_clock::now(), std::chrono::milliseconds(20));
      kept = std::max(kept, backend->stop(left));
    }
    while (files_->handles().evict(64) > 0) {
    }
    if (kept > 0) warn_kept(kept);
  }

  IoStatus status() {
    IoStatus status;
    if (forked()) {  // the lock may be held for ever
      status.reason = "forked";
      return status;
    }
    const std::lock_guard lock(mutex_);
    if (backend_ == nullptr && !refusal_ && options_.backend != IoBackend::threads) {
      if (auto probed = probe_ring(*files_); !probed) refusal_ = probed.error().message();
    }
    status.backend = options_.backend == IoBackend::threads || refusal_ ? "threads" : "uring";
    status.reason = refusal_.value_or("");
    status.fixed_buffers = backend_ != nullptr && backend_->fixed_buffers();
    return status;
  }

 private:
  // With the lock held.
  std::shared_ptr<Backend> start() {
    if (options_.backend != IoBackend::threads) {
      auto reactor =
          make_ring_reactor(files_, make_pread_pool(files_, kHelpers, log_), options_, log_);
      if (reactor) return *std::move(reactor);
      refusal_ = reactor.error().message();
      if (log_ != nullptr) {
        log_->push_once(LogLevel::info, "io backend",
                        "files are read by threads, without io_uring: " + *refusal_);
      }
    }
    return make_pread_pool(files_, options_.threads, log_);
  }

  std::shared_ptr<Backend> running_backend() {
    const std::lock_guard lock(mutex_);
    return backend_;
  }

  void warn_kept(std::size_t kept) {
    if (log_ == nullptr) return;
    log_->push_once(LogLevel::warning, "reads kept by the kernel",
                    std::to_string(kept) +
                        " reads did not come back within the time to close; their threads and "
                        "buffers are left to the kernel");
  }

  // Threads do not exist in a forked child and locks may be held for ever, so
  // nothing is joined, locked or freed.
  void leave_to_parent() {
    static_cast<void>(new std::shared_ptr<Backend>(std::move(backend_)));
    static_cast<void>(new std::shared_ptr<LocalFiles>(std::move(files_)));
  }

  const IoOptions options_;
  const std::shared_ptr<LogQueue> log_;
  const std::chrono::nanoseconds close_limit_;
  std::shared_ptr<LocalFiles> files_;
  const ForkMark mark_;

  std::mutex mutex_;
  std::shared_ptr<Backend> backend_;
  std::vector<std::weak_ptr<LocalRoot>> roots_;
  std::optional<std::string> refusal_;  // of the ring
  std::uint32_t roots_made_ = 0;
  bool closed_ = false;
};

class LocalIoOfFiles final : public LocalIo {
 public:
  explicit LocalIoOfFiles(std::shared_ptr<Core> core) : core_(std::move(core)) {}
  ~LocalIoOfFiles() override { close(); }

  std::shared_ptr<Store> open(const Uri& root) override {
    return std::make_shared<LocalStore>(core_, core_->add_root(root.path));
  }
  IoStatus status() const override { return core_->status(); }
  IoCounters counters() const override { return core_->files().counters().sum(); }
  void close() override {
    if (!core_->forked()) core_->stop();
  }

 private:
  const std::shared_ptr<Core> core_;
};

}  // namespace

std::shared_ptr<LocalIo> make_local_io(const IoOptions& options, std::shared_ptr<LogQueue> log,
                                       LocalIoSeams seams) {
  return std::make_shared<LocalIoOfFiles>(
      std::make_shared<Core>(options, std::move(log), std::move(seams)));
}

std::shared_ptr<LocalIo> make_local_io(const IoOptions& options, std::shared_ptr<LogQueue> log) {
  return make_local_io(options, std::move(log), {});
}

}  // namespace headpond
