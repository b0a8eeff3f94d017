#include "bindings.h"
#include "headpond/error.h"

namespace py = pybind11;

namespace headpond::python {

void bind_error(py::module_& module) {
  module.def("error_kinds", [] {
    py::typing::List<py::typing::Tuple<py::str, py::str, py::str, py::str>> kinds;
    for (const auto& kind : error_kinds()) {
      kinds.append(py::make_tuple(kind.number, kind.python_class, kind.summary, kind.advice));
    }
    return kinds;
  });
}

}  // namespace headpond::python
