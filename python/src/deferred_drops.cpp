#include "deferred_drops.h"

#include <utility>

#include "fork_generation.h"

namespace headpond::python {

std::shared_ptr<const void> DeferredDrops::hold(std::shared_ptr<DeferredDrops> drops,
                                                pybind11::object object) {
  PyObject* held = object.release().ptr();
  const auto generation = fork_generation();
  // In a forked child the mutex may be held by a thread that does not exist there.
  return {static_cast<const void*>(held),
          [drops = std::move(drops), held, generation](const void*) {
            if (fork_generation() == generation) drops->put(held);
          }};
}

void DeferredDrops::put(PyObject* object) {
  const std::lock_guard lock(mutex_);
  objects_.push_back(object);
}

void DeferredDrops::drain() {
  std::vector<PyObject*> objects;
  {
    const std::lock_guard lock(mutex_);
    if (objects_.empty()) return;
    objects.swap(objects_);
  }
  // Outside the lock: a destructor may run any code, this function included.
  for (PyObject* object : objects) Py_DECREF(object);
}

}  // namespace headpond::python
