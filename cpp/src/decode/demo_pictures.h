#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "headpond/result.h"

namespace headpond {

// A JPEG picture of class `label`, drawn and encoded here: about 500 x 375 pixels
// and 100 KB, every fourth `index` in 4:2:0 and the others in 4:4:4. Colours,
// shapes, pattern and roughness follow the class, so that a model can learn it;
// the rest follows the index. A function of its arguments; safe from any thread.
Result<std::vector<std::byte>> make_demo_picture(std::uint32_t label, std::uint64_t index);

struct DemoCorpus {
  std::string directory;          // made with its parents when missing
  std::uint64_t count = 2000;     // pictures; number i is of class i % classes
  std::uint32_t classes = 10;     // at least 1
  std::uint64_t shard_count = 8;  // tar shards, at least 1
  int threads = 1;                // at least 1
  // Called from the calling thread with pictures done, of count; returning false
  // stops with `cancelled`. May be empty.
  std::function<bool(std::uint64_t done, std::uint64_t count)> progress;
};

// Writes the same pictures twice below `directory`:
//   folder/class-03/000013.jpg     one folder per class
//   shards/demo-000000.tar         ustar with members 000013.jpg and 000013.cls
// Files of the same names are replaced. Blocks until all is written; the threads
// are ended on return. Errors: invalid_argument; the file system's.
Result<void> write_demo_corpus(const DemoCorpus& corpus);

}  // namespace headpond
