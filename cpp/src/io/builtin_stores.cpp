#include <utility>

#include "headpond/io_options.h"

namespace headpond {

void add_builtin_stores(StoreRegistry& registry, std::shared_ptr<LocalIo> local) {
  registry.add("file",
               [local = std::move(local)](const Uri& root) -> Result<std::shared_ptr<Store>> {
                 return local->open(root);
               });
}

}  // namespace headpond
