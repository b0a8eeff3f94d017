#pragma once

// The requests that limits/http_limit.cpp and micro/http_store.cpp send alike.

#include "measure.h"

namespace headpond::limits {

struct HttpItem {
  std::string name;  // below the root
  std::uint64_t start = 0;
  std::uint64_t bytes = 0;
  std::uint64_t size = 0;  // of the object
};

// --what ranges   --range bytes each of --objects objects "t00000" of --bytes, shuffled
//        objects  --objects objects "o00000" of --bytes, whole, shuffled
inline std::vector<HttpItem> http_items(Arguments& arguments) {
  const std::string what = arguments.text("what", "ranges");
  const std::uint64_t range = arguments.number("range", 4 << 20);
  const std::uint64_t objects = arguments.number("objects", what == "ranges" ? 4 : 10'000);
  const std::uint64_t bytes = arguments.number("bytes", what == "ranges" ? 256 << 20 : 100 << 10);
  std::vector<HttpItem> items;
  for (std::uint64_t i = 0; i < objects; ++i) {
    char name[32];
    std::snprintf(name, sizeof name, "%c%05llu", what == "ranges" ? 't' : 'o',
                  static_cast<unsigned long long>(i));
    const std::uint64_t step = what == "ranges" ? range : bytes;
    for (std::uint64_t start = 0; start < bytes; start += step)
      items.push_back({name, start, std::min(step, bytes - start), bytes});
  }
  std::vector<HttpItem> shuffled_items;
  for (const auto index : shuffled(items.size(), 7)) shuffled_items.push_back(items[index]);
  return shuffled_items;
}

}  // namespace headpond::limits
