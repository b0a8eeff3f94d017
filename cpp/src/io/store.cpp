#include "headpond/store.h"

#include <chrono>
#include <condition_variable>
#include <optional>
#include <utility>

namespace headpond {
namespace {

// One value on its way between two threads. Shared, so that a `done` which never
// runs (a read left to the kernel) frees nothing under it.
template <class T>
class Answer {
 public:
  void set(Result<T> value) {
    const std::lock_guard lock(mutex_);
    value_ = std::move(value);
    set_.notify_all();
  }
  Result<T> wait() {
    std::unique_lock lock(mutex_);
    set_.wait(lock, [&] { return value_.has_value(); });
    return std::move(*value_);
  }
  // False: `go_on` said so.
  bool wait_while(const GoOn& go_on) {
    constexpr std::chrono::milliseconds kAsk{50};
    std::unique_lock lock(mutex_);
    while (!set_.wait_for(lock, kAsk, [&] { return value_.has_value(); })) {
      lock.unlock();
      if (!go_on()) return false;
      lock.lock();
    }
    return true;
  }

 private:
  std::mutex mutex_;
  std::condition_variable set_;
  std::optional<Result<T>> value_;
};

}  // namespace

Result<ReadOutcome> read_blocking(Store& store, std::string_view object, std::uint64_t offset,
                                  std::span<std::byte> out, const ObjectVersion& expected,
                                  const GoOn& go_on) {
  auto answer = std::make_shared<Answer<ReadOutcome>>();
  StopSource stop(std::nostopstate);
  ReadRequest request;
  request.object = object;
  request.offset = offset;
  request.out = out;
  request.expected = expected;
  if (go_on) {
    stop = StopSource();
    request.stop = stop.get_token();
  }
  request.done = [answer](Result<ReadOutcome> outcome) { answer->set(std::move(outcome)); };
  store.read(std::span(&request, 1));
  if (!go_on || answer->wait_while(go_on)) return answer->wait();
  stop.request_stop();
  static_cast<void>(answer->wait());  // it may still write into `out`
  return Error(ErrorCode::cancelled, "the read was cancelled");
}

Result<ObjectInfo> stat_blocking(Store& store, std::string_view object, const GoOn& go_on) {
  auto answer = std::make_shared<Answer<ObjectInfo>>();
  store.stat(std::string(object),
             [answer](Result<ObjectInfo> info) { answer->set(std::move(info)); });
  if (go_on && !answer->wait_while(go_on))
    return Error(ErrorCode::cancelled, "the question was cancelled");
  return answer->wait();
}

Result<std::vector<ObjectInfo>> list_blocking(Store& store, std::string_view prefix) {
  struct Listing {
    std::vector<ObjectInfo> objects;
    Answer<std::vector<ObjectInfo>> answer;
  };
  auto listing = std::make_shared<Listing>();
  ListRequest request;
  request.prefix = prefix;
  request.page = [listing](Result<std::vector<ObjectInfo>> page) {
    if (!page) return listing->answer.set(std::move(page).error());
    if (page->empty()) return listing->answer.set(std::move(listing->objects));
    auto& objects = listing->objects;
    objects.insert(objects.end(), std::make_move_iterator(page->begin()),
                   std::make_move_iterator(page->end()));
  };
  store.list(std::move(request));
  return listing->answer.wait();
}

void StoreRegistry::add(std::string scheme, Factory make) {
  const std::lock_guard lock(mutex_);
  factories_.insert_or_assign(std::move(scheme), std::move(make));
}

void StoreRegistry::add_cache(Wrap wrap) {
  const std::lock_guard lock(mutex_);
  wrap_ = std::move(wrap);
}

Result<std::shared_ptr<Store>> StoreRegistry::open(const Uri& root) {
  const std::lock_guard lock(mutex_);
  return open_locked(root);
}

Result<std::shared_ptr<Store>> StoreRegistry::open(const Uri& root, Caching caching,
                                                   std::shared_ptr<const BlockMap> blocks) {
  const std::lock_guard lock(mutex_);
  auto store = open_locked(root);
  if (!store || !wrap_ || caching == Caching::no) return store;
  if (caching == Caching::if_remote && !(*store)->is_remote()) return store;
  auto cached = wrap_(*store, root, std::move(blocks));
  std::erase_if(cached_, [](const std::weak_ptr<Store>& one) { return one.expired(); });
  cached_.push_back(cached);
  return cached;
}

Result<std::shared_ptr<Store>> StoreRegistry::open_locked(const Uri& root) {
  if (closed_)
    return Error(ErrorCode::closed, "the engine's stores are closed").at_uri(root.to_string());
  if (const auto open = stores_.find(root); open != stores_.end()) return open->second;
  const auto factory = factories_.find(root.scheme);
  if (factory == factories_.end()) {
    std::string known;
    for (const auto& entry : factories_) known += (known.empty() ? "" : ", ") + entry.first + "://";
    return Error(ErrorCode::unsupported, "no store for " + root.scheme + ":// (there " +
                                             (known.empty() ? "are none" : "are: " + known) + ")")
        .at_uri(root.to_string());
  }
  auto store = factory->second(root);
  if (!store) return std::move(store).error();
  stores_.emplace(root, *store);
  return store;
}

void StoreRegistry::close() {
  std::map<Uri, std::shared_ptr<Store>> stores;
  std::vector<std::weak_ptr<Store>> cached;
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    stores.swap(stores_);
    cached.swap(cached_);
    wrap_ = nullptr;
  }
  for (const auto& one : cached) {
    if (const auto store = one.lock()) store->close();
  }
  for (auto& entry : stores) entry.second->close();
}

}  // namespace headpond
