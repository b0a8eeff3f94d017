#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/unique_fd.h"
#include "headpond/object_version.h"

namespace headpond {

// An open file. What it was at its opening stays its version.
struct FileHandle {
  UniqueFd fd;
  ObjectVersion version;
  std::uint64_t device = 0;
  std::atomic<std::int64_t> checked_ns = 0;  // when `version` was last compared with the file

  // The same file for O_DIRECT; touched by the reactor's thread only.
  UniqueFd direct;
  bool direct_refused = false;

  // Names the file among all files, for ColdMap.
  std::uint64_t identity() const { return version.inode * 0x9E3779B97F4A7C15ull ^ device; }
};

// Open files by store and name, at most `max`, the longest unused closed first.
// A handle that is in use stays open until its last user lets go.
// Safe to call from any thread.
class HandleCache {
 public:
  explicit HandleCache(std::size_t max) : max_(max) {}

  std::shared_ptr<FileHandle> find(std::uint32_t root, std::string_view name);
  // Returns the handle that now stands there: an earlier one of the same version wins.
  std::shared_ptr<FileHandle> insert(std::uint32_t root, std::string_view name,
                                     std::shared_ptr<FileHandle> handle);
  // Forgets `handle` if it still stands there.
  void erase(std::uint32_t root, std::string_view name, const std::shared_ptr<FileHandle>& handle);
  void erase_root(std::uint32_t root);
  // Closes up to `count`; returns how many.
  std::size_t evict(std::size_t count);

  std::size_t size() const;
  std::size_t max() const { return max_; }

 private:
  struct Key {
    std::uint32_t root;
    std::string name;
  };
  struct KeyView {
    std::uint32_t root;
    std::string_view name;
  };
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(const KeyView& key) const {
      return std::hash<std::string_view>()(key.name) ^ (key.root * 0x9E3779B97F4A7C15ull);
    }
    std::size_t operator()(const Key& key) const { return (*this)(KeyView{key.root, key.name}); }
  };
  struct Equal {
    using is_transparent = void;
    template <class A, class B>
    bool operator()(const A& a, const B& b) const {
      return a.root == b.root && a.name == b.name;
    }
  };
  struct Entry {
    std::shared_ptr<FileHandle> handle;
    std::list<const Key*>::iterator place;
  };
  using Entries = std::unordered_map<Key, Entry, Hash, Equal>;
  void remove(Entries::iterator entry);

  const std::size_t max_;
  mutable std::mutex mutex_;
  Entries entries_;
  std::list<const Key*> order_;  // the longest unused first
};

// A quarter of RLIMIT_NOFILE, at most 4,096.
std::size_t default_handles_max();

}  // namespace headpond
