#include <pybind11/pybind11.h>

#include "bindings.h"
#include "fork_generation.h"

PYBIND11_MODULE(_core, module, pybind11::mod_gil_not_used()) {
  namespace hp = headpond::python;
  hp::watch_forks();
  auto drops = std::make_shared<hp::DeferredDrops>();
  module.def("version", [] { return HEADPOND_VERSION; });
  hp::bind_error(module);
  hp::bind_engine(module);
  hp::bind_log(module);
  hp::bind_slab(module);
  hp::bind_sampler(module);
  hp::bind_steps(module);
  hp::bind_loader_state(module);
  hp::bind_manifest(module);
  hp::bind_store(module);
  hp::bind_dataset(module, drops);
  hp::bind_decoder(module);
  hp::bind_demo(module);
  hp::bind_prefetcher(module, drops);
}
