#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <mutex>
#include <vector>

namespace headpond::python {

// Python objects on their way out.
//
// Engine threads never take the GIL, but may be the last to let go of memory that
// a Python object owns. They put the object here; Python threads drop it at their
// next call. After the interpreter's end nobody drains: what is left goes with the process.
class DeferredDrops {
 public:
  // Keeps `object` alive as long as the result lives; it may die on any thread, without the GIL.
  static std::shared_ptr<const void> hold(std::shared_ptr<DeferredDrops> drops,
                                          pybind11::object object);
  // Drops what is here. With the GIL.
  void drain();

 private:
  void put(PyObject* object);

  std::mutex mutex_;
  std::vector<PyObject*> objects_;
};

}  // namespace headpond::python
