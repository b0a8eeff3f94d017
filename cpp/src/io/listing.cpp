#include "io/listing.h"

#include <dirent.h>
#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "base/thread.h"

namespace headpond {
namespace {

constexpr std::size_t kPage = 1024;       // names per page
constexpr std::size_t kStatChunk = 2048;  // files of one folder that one thread stats in a go
constexpr std::size_t kSpawnAt = 64;      // tasks or files that make another thread worth its start

struct Folder;

struct Entry {
  std::string name;  // of a folder: with "/" at its end, which puts it where its files sort
  std::unique_ptr<Folder> folder;
  ObjectVersion version;
  bool present = true;
};

struct Folder {
  const Folder* parent = nullptr;
  std::string name;  // relative to the root, with "/" at its end; the root's is ""
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::string only;  // entries that do not begin so are left out
  std::vector<Entry> entries;
};

// Scan a folder (count 0), or stat some of its entries.
struct Task {
  Folder* folder = nullptr;
  std::size_t first = 0;
  std::size_t count = 0;
};

struct CloseDir {
  void operator()(DIR* dir) const { closedir(dir); }
};

class TreeLister {
 public:
  TreeLister(LocalFiles& files, const LocalRoot& root, ListRequest& request, unsigned threads)
      : files_(files), root_(root), request_(request), threads_max_(threads) {}

  void run() {
    auto top = make_top();
    if (!top) return request_.page(std::move(top).error());
    if (*top == nullptr) return request_.page(std::vector<ObjectInfo>());
    push({top->get(), 0, 0});
    work();
    threads_.clear();  // joins
    if (error_) return request_.page(*std::move(error_));
    std::vector<ObjectInfo> page;
    emit(**top, page);
    if (stopped()) return request_.page(cancelled());
    if (!page.empty()) request_.page(std::move(page));
    request_.page(std::vector<ObjectInfo>());
  }

 private:
  bool stopped() const { return root_.closing || request_.stop.stop_requested(); }
  Error cancelled() const {
    return root_.at(Error(ErrorCode::cancelled, "the listing was cancelled"), request_.prefix, {});
  }

  // The folder that the prefix lies in; null when it does not exist below the root.
  Result<std::unique_ptr<Folder>> make_top() {
    const auto slash = request_.prefix.rfind('/');
    auto top = std::make_unique<Folder>();
    if (slash != std::string::npos) top->name = request_.prefix.substr(0, slash + 1);
    top->only = request_.prefix.substr(top->name.size());
    const std::string folder = top->name.substr(0, top->name.empty() ? 0 : top->name.size() - 1);
    struct stat status = {};
    const int result = stat_path(folder, status);
    if ((result == -ENOENT || result == -ENOTDIR) && !folder.empty()) {
      struct stat root_status = {};
      if (stat_path("", root_status) == 0) return std::unique_ptr<Folder>();
      return root_.failed(-result, "list", {}, {});
    }
    if (result < 0) return root_.failed(-result, "list", folder, {});
    if (!S_ISDIR(status.st_mode)) {
      if (!folder.empty()) return std::unique_ptr<Folder>();
      return root_.failed(ENOTDIR, "list", folder, {});
    }
    top->device = status.st_dev;
    top->inode = status.st_ino;
    return top;
  }

  int stat_path(std::string_view name, struct stat& status) {
    CPath path;
    const char* text = path.join(root_.path, name);
    if (text == nullptr) return -ENAMETOOLONG;
    files_.counters().add(Count::system_calls);
    return files_.ops().stat(text, &status);
  }

  void fail(Error error) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::move(error);
    tasks_.clear();
    changed_.notify_all();
  }

  void push(Task task) {
    const std::lock_guard lock(mutex_);
    if (error_) return;
    tasks_.push_back(task);
    files_queued_ += std::max<std::size_t>(task.count, 1);
    changed_.notify_one();
    // A small tree is listed before a thread would have started.
    if (files_queued_ < kSpawnAt * (threads_.size() + 1) || threads_.size() + 1 >= threads_max_)
      return;
    auto thread = Thread::start({"hp-list", 0}, [this] { work(); });
    if (thread) threads_.push_back(std::move(*thread));  // without one the others do its work
  }

  // Until no task is left and none is being done.
  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return !tasks_.empty() || busy_ == 0; });
      if (tasks_.empty()) return;
      const Task task = tasks_.front();
      tasks_.pop_front();
      ++busy_;
      lock.unlock();
      if (stopped()) {
        fail(cancelled());
      } else if (task.count == 0) {
        scan(*task.folder);
      } else {
        stat_entries(*task.folder, task.first, task.count);
      }
      lock.lock();
      if (--busy_ == 0 && tasks_.empty()) changed_.notify_all();
    }
  }

  void scan(Folder& folder) {
    CPath path;
    const std::string_view name(folder.name);
    const char* text = path.join(root_.path, name.substr(0, name.empty() ? 0 : name.size() - 1));
    if (text == nullptr) return fail(root_.failed(ENAMETOOLONG, "list", folder.name, {}));
    const std::unique_ptr<DIR, CloseDir> dir(opendir(text));
    if (dir == nullptr) {
      if (errno == ENOENT && folder.parent != nullptr) return;  // vanished
      return fail(root_.failed(errno, "list", folder.name, {}));
    }
    for (;;) {
      errno = 0;
      const struct dirent* found = readdir(dir.get());
      if (found == nullptr) break;
      const std::string_view entry(found->d_name);
      if (entry == "." || entry == ".." || !entry.starts_with(folder.only)) continue;
      if (request_.skip_hidden && entry.starts_with('.')) continue;
      Entry added{std::string(entry), nullptr, {}, true};
      if (found->d_type == DT_DIR) added.name += '/';
      if (may_be_wanted(folder, added.name, found->d_type))
        folder.entries.push_back(std::move(added));
    }
    if (errno != 0) return fail(root_.failed(errno, "list", folder.name, {}));
    // Folders found by stat get their "/" later; see sort in `emit`.
    for (std::size_t first = 0; first < folder.entries.size(); first += kStatChunk) {
      const std::size_t count = std::min(kStatChunk, folder.entries.size() - first);
      if (first + count == folder.entries.size()) {
        stat_entries(folder, first, count);
      } else {
        push({&folder, first, count});
      }
    }
  }

  bool wants(const std::string& name) const { return !request_.wanted || request_.wanted(name); }

  // By what the folder says of an entry; a link, or one of unknown type, may be either.
  bool may_be_wanted(const Folder& folder, const std::string& entry, unsigned char type) const {
    if (!request_.wanted) return true;
    const std::string name = folder.name + entry;
    return wants(name) || ((type == DT_LNK || type == DT_UNKNOWN) && wants(name + '/'));
  }

  void stat_entries(Folder& folder, std::size_t first, std::size_t count) {
    for (std::size_t i = first; i < first + count; ++i) {
      Entry& entry = folder.entries[i];
      std::string name = folder.name + entry.name;
      if (name.back() == '/') name.pop_back();
      if (i % 256 == 0 && stopped()) return fail(cancelled());
      struct stat status = {};
      if (const int result = stat_path(name, status); result < 0) {
        // Nobody misses a link that is wanted only if a folder is behind it.
        if (wants(name) && !explain(name, -result)) return;
        entry.present = false;
      } else if (!wants(S_ISDIR(status.st_mode) ? name + '/' : name)) {
        entry.present = false;
      } else if (S_ISDIR(status.st_mode)) {
        if (!descend(folder, entry, status)) return;
      } else {
        if (entry.name.back() == '/') entry.name.pop_back();
        entry.version = version_of(status);
      }
    }
  }

  // True when the entry is gone and may be left out.
  bool explain(const std::string& name, int error_number) {
    CPath path;
    const char* text = path.join(root_.path, name);
    struct stat link = {};
    if (text != nullptr && ::lstat(text, &link) == 0 && S_ISLNK(link.st_mode)) {
      if (error_number == ENOENT || error_number == ENOTDIR) {
        fail(root_.at(Error(ErrorCode::not_found, "a symbolic link that leads nowhere"), name, {}));
      } else if (error_number == ELOOP) {
        fail(root_.at(loop_error(), name, {}));
      } else {
        fail(root_.failed(error_number, "stat", name, {}));
      }
      return false;
    }
    if (error_number == ENOENT) return true;
    fail(root_.failed(error_number, "stat", name, {}));
    return false;
  }

  static Error loop_error() {
    return Error(ErrorCode::invalid_argument,
                 "a symbolic link that leads back to itself or a folder above it");
  }

  bool descend(Folder& folder, Entry& entry, const struct stat& status) {
    for (const Folder* above = &folder; above != nullptr; above = above->parent) {
      if (above->device != status.st_dev || above->inode != status.st_ino) continue;
      fail(root_.at(loop_error(), folder.name + entry.name, {}));
      return false;
    }
    if (entry.name.back() != '/') entry.name += '/';
    entry.folder = std::make_unique<Folder>();
    entry.folder->parent = &folder;
    entry.folder->name = folder.name + entry.name;
    entry.folder->device = status.st_dev;
    entry.folder->inode = status.st_ino;
    push({entry.folder.get(), 0, 0});
    return true;
  }

  // Depth first; with "/" at the end of folders this is the order of whole names.
  void emit(Folder& folder, std::vector<ObjectInfo>& page) {
    std::sort(folder.entries.begin(), folder.entries.end(),
              [](const Entry& a, const Entry& b) { return a.name < b.name; });
    for (Entry& entry : folder.entries) {
      if (stopped()) return;
      if (!entry.present) continue;
      if (entry.folder != nullptr && !(request_.empty_folders && is_empty(*entry.folder))) {
        emit(*entry.folder, page);
        entry.folder.reset();
        continue;
      }
      page.push_back({folder.name + entry.name, std::move(entry.version)});
      if (page.size() == kPage) request_.page(std::exchange(page, {}));
    }
  }

  static bool is_empty(const Folder& folder) {
    return std::all_of(folder.entries.begin(), folder.entries.end(), [](const Entry& entry) {
      return !entry.present || (entry.folder != nullptr && is_empty(*entry.folder));
    });
  }

  LocalFiles& files_;
  const LocalRoot& root_;
  ListRequest& request_;
  const unsigned threads_max_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  std::size_t busy_ = 0;
  std::size_t files_queued_ = 0;
  std::optional<Error> error_;
  std::vector<Thread> threads_;  // changed under the lock; joined when all are at their end
};

}  // namespace

void list_tree(LocalFiles& files, const LocalRoot& root, ListRequest& request, unsigned threads) {
  TreeLister(files, root, request, threads).run();
}

}  // namespace headpond
