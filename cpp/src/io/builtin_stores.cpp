#include <utility>

#include "headpond/http_options.h"
#include "headpond/io_options.h"

namespace headpond {

void add_builtin_stores(StoreRegistry& registry, std::shared_ptr<LocalIo> local,
                        std::shared_ptr<HttpIo> http) {
  registry.add("file",
               [local = std::move(local)](const Uri& root) -> Result<std::shared_ptr<Store>> {
                 return local->open(root);
               });
  for (const char* scheme : {"http", "https"}) {
    registry.add(scheme, [http](const Uri& root) { return http->open(root); });
  }
}

}  // namespace headpond
