#pragma once

#include <memory>
#include <string>
#include <vector>

#include "headpond/dataset.h"
#include "headpond/http_options.h"
#include "headpond/io_options.h"
#include "support/temp_dir.h"

namespace headpond {

// A folder on disk and what opening a dataset in it needs.
struct OpenFixture {
  TempDir folder;
  std::shared_ptr<LogQueue> log = std::make_shared<LogQueue>();
  StoreRegistry stores;
  OpenContext context;

  OpenFixture() {
    add_builtin_stores(stores, make_local_io(IoOptions{.backend = IoBackend::threads}, log),
                       make_http_io({}, std::make_shared<SystemClock>(), log));
    context.stores = &stores;
    context.log = log;
  }
  ~OpenFixture() { stores.close(); }

  // Paths relative to the folder.
  Source source(const std::vector<std::string>& names) const {
    Source source;
    for (const auto& name : names) source.paths.push_back(folder.path(name));
    return source;
  }
  Source all() const { return {{folder.path()}, nullptr}; }

  std::string read(const Dataset& dataset, const Extent& extent) {
    std::string name;
    dataset.manifest().name(extent.object, name);
    std::vector<std::byte> bytes(extent.size);
    const auto store = dataset.store(stores);
    const auto outcome = read_blocking(**store, name, extent.offset, bytes);
    return outcome ? std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size())
                   : "error: " + outcome.error().to_string();
  }
};

inline Extent extent_of(const Dataset& dataset, std::uint64_t sample, std::string_view field) {
  Extent extent;
  dataset.format().locate({&sample, 1}, dataset.field_index(field).value(), {&extent, 1});
  return extent;
}

inline std::vector<std::string> keys(const Dataset& dataset) {
  std::vector<std::string> keys;
  for (std::uint64_t i = 0; i < dataset.size(); ++i) keys.push_back(dataset.key(i));
  return keys;
}

}  // namespace headpond
