#include "errors.h"

#include <pybind11/pybind11.h>

#include "text.h"

namespace py = pybind11;

namespace headpond::python {

void raise_python() { throw py::error_already_set(); }

void raise(Error error) {
  const auto type = py::module_::import("headpond.errors").attr(kind_of(error.code()).python_class);
  py::object uri = py::none();
  py::object range = py::none();
  py::object sample = py::none();
  if (error.uri()) uri = text(*error.uri());
  if (error.range()) range = py::make_tuple(error.range()->start, error.range()->stop);
  if (error.sample_index()) sample = py::int_(*error.sample_index());
  using py::literals::operator""_a;
  const py::object value = type(text(error.to_string()), "code"_a = kind_of(error.code()).number,
                                "uri"_a = uri, "range"_a = range, "sample_index"_a = sample);
  PyErr_SetObject(type.ptr(), value.ptr());
  raise_python();
}

void check_signals() {
  if (PyErr_CheckSignals() != 0) raise_python();
}

GoOn SignalWatch::go_on() {
  return [this] {
    const py::gil_scoped_acquire acquired;
    raised_ = PyErr_CheckSignals() != 0;
    return !raised_;
  };
}

void SignalWatch::raise() const {
  if (raised_) raise_python();
}

bool go_on(const py::object& progress, const py::args& arguments) {
  if (PyErr_CheckSignals() != 0) return false;
  if (progress.is_none()) return true;
  PyObject* result = PyObject_CallObject(progress.ptr(), arguments.ptr());
  Py_XDECREF(result);
  return result != nullptr;
}

}  // namespace headpond::python
