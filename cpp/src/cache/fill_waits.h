#pragma once

#include <functional>
#include <memory>

#include "headpond/block.h"

namespace headpond {

// Watches the blocks that other processes fetch. One thread, "hp-cache-wait", that runs while there
// is something to wait for: it learns of a block that left the folder of fills by inotify, and
// looks after all of them every 10 ms, since the death of a filler makes no event.
class FillWaits {
 public:
  // `fill_folder`: its descriptor. `look` is called with a key that is worth a look, on the thread;
  // it must not block.
  FillWaits(int fill_folder, std::function<void(const BlockKey&)> look);
  ~FillWaits();

  // False: no thread can be started, nobody would look.
  bool add(const BlockKey& key);
  void remove(const BlockKey& key);

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace headpond
