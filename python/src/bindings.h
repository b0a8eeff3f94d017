#pragma once

#include <pybind11/pybind11.h>

#include <memory>

#include "deferred_drops.h"
#include "headpond/engine.h"

// One function per public header, and one for the pictures of the demonstration. They say nothing
// about use: that stands in the typed shell, python/headpond, which is the only caller.
namespace headpond::python {

void bind_error(pybind11::module_& module);
void bind_log(pybind11::module_& module);
void bind_slab(pybind11::module_& module);
void bind_sampler(pybind11::module_& module);
void bind_steps(pybind11::module_& module);
void bind_loader_state(pybind11::module_& module);
void bind_manifest(pybind11::module_& module);
void bind_engine(pybind11::module_& module);
void bind_store(pybind11::module_& module);
void bind_dataset(pybind11::module_& module, std::shared_ptr<DeferredDrops> drops);
void bind_decoder(pybind11::module_& module);
void bind_demo(pybind11::module_& module);
void bind_prefetcher(pybind11::module_& module, std::shared_ptr<DeferredDrops> drops);

// Hands the records of engine threads to logging.getLogger("headpond").
void emit(LogQueue& queue);

// An engine as Python holds it: in a forked child the parent's is never destroyed.
class PyEngine {
 public:
  explicit PyEngine(std::shared_ptr<Engine> engine);
  PyEngine(const PyEngine&) = delete;
  PyEngine& operator=(const PyEngine&) = delete;
  ~PyEngine();

  // The engine; raises `forked` in a child of the process that made it.
  const std::shared_ptr<Engine>& get() const;
  bool is_ours() const;

 private:
  std::shared_ptr<Engine> engine_;
  std::uint64_t generation_;
};

}  // namespace headpond::python
