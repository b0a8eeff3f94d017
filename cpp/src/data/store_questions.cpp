#include "data/store_questions.h"

#include <chrono>
#include <condition_variable>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "base/thread.h"

namespace headpond {
namespace {

// Collects the pages of a listing that runs on the store's thread, while the calling
// thread reports progress and may give up.
class PageCollector {
 public:
  void add(Result<std::vector<ObjectInfo>> page) {
    const std::lock_guard lock(mutex_);
    if (!page) {
      error_ = std::move(page).error();
    } else if (page->empty()) {
      ended_ = true;
    } else {
      objects_.insert(objects_.end(), std::make_move_iterator(page->begin()),
                      std::make_move_iterator(page->end()));
    }
    changed_.notify_all();
  }

  Result<std::vector<ObjectInfo>> wait(OpenContext& context, StopSource& stop) {
    std::unique_lock lock(mutex_);
    bool wanted = true;
    while (!ended_ && !error_) {
      // Wakes now and then although nothing came, so that the caller can give up.
      changed_.wait_for(lock, std::chrono::milliseconds(100));
      if (!context.progress || !wanted) continue;
      const auto count = objects_.size();
      lock.unlock();
      wanted = context.progress("listing", count, 0);
      if (!wanted) stop.request_stop();
      lock.lock();
    }
    if (!wanted) return Error(ErrorCode::cancelled, "listing was stopped");
    if (error_) return *std::move(error_);
    return std::move(objects_);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<ObjectInfo> objects_;
  std::optional<Error> error_;
  bool ended_ = false;
};

// Collects the answers to many stats.
class StatCollector {
 public:
  explicit StatCollector(std::size_t count) : infos_(count), left_(count) {}

  void set(std::size_t index, Result<ObjectInfo> info) {
    const std::lock_guard lock(mutex_);
    infos_[index] = std::move(info);
    if (--left_ == 0) changed_.notify_all();
  }

  // False when the caller gave up.
  bool wait(OpenContext& context) {
    std::unique_lock lock(mutex_);
    bool wanted = true;
    while (left_ > 0 && wanted) {
      changed_.wait_for(lock, std::chrono::milliseconds(100));
      const auto done = infos_.size() - left_;
      lock.unlock();
      wanted = !context.progress || context.progress("asking for sizes", done, infos_.size());
      lock.lock();
    }
    return wanted;
  }
  // When none is left.
  std::vector<Result<ObjectInfo>> take() {
    std::vector<Result<ObjectInfo>> all;
    all.reserve(infos_.size());
    for (auto& info : infos_) all.push_back(*std::move(info));
    return all;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::optional<Result<ObjectInfo>>> infos_;
  std::size_t left_;
};

}  // namespace

Result<std::vector<ObjectInfo>> list_objects(Store& store, ListRequest request,
                                             OpenContext& context) {
  auto collector = std::make_shared<PageCollector>();
  StopSource stop;
  request.skip_hidden = true;
  request.stop = stop.get_token();
  request.page = [collector](Result<std::vector<ObjectInfo>> page) {
    collector->add(std::move(page));
  };
  // A store may list on the thread that asks; this one reports progress meanwhile.
  Thread thread;
  if (context.progress) {
    auto shared = std::make_shared<ListRequest>(std::move(request));
    auto started =
        Thread::start({"hp-list", 0}, [&store, shared] { store.list(std::move(*shared)); });
    if (!started) return std::move(started).error();
    thread = *std::move(started);
  } else {
    store.list(std::move(request));
  }
  return collector->wait(context, stop);
}

Result<std::vector<Result<ObjectInfo>>> stat_objects(Store& store,
                                                     const std::vector<std::string>& names,
                                                     OpenContext& context) {
  const auto answers = std::make_shared<StatCollector>(names.size());
  for (std::size_t i = 0; i < names.size(); ++i) {
    store.stat(names[i],
               [answers, i](Result<ObjectInfo> info) { answers->set(i, std::move(info)); });
  }
  if (!answers->wait(context)) return Error(ErrorCode::cancelled, "asking for sizes was stopped");
  return answers->take();
}

}  // namespace headpond
