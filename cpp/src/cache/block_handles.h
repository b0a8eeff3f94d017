#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "cache/block_file.h"

namespace headpond {

// The published blocks that were read last, open. A block that another process evicts takes its
// space with it only when it is closed here, so there are few, and `drop_unused` closes those that
// were not asked for since the last call. Safe to call from any thread.
class BlockHandles {
 public:
  static constexpr std::size_t kMost = 256;

  std::shared_ptr<const PublishedBlock> find(const BlockKey& key);
  void put(const BlockKey& key, std::shared_ptr<const PublishedBlock> block);
  void drop(const BlockKey& key);
  void drop_unused();

 private:
  struct Entry {
    BlockKey key;
    std::shared_ptr<const PublishedBlock> block;
    bool used = true;
  };
  std::mutex mutex_;
  std::list<Entry> entries_;  // the last used first
  std::unordered_map<BlockKey, std::list<Entry>::iterator> places_;
};

}  // namespace headpond
