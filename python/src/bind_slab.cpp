#include <pybind11/stl.h>

#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "array.h"
#include "bindings.h"
#include "errors.h"
#include "headpond/slab.h"
#include "typed.h"

namespace py = pybind11;

namespace headpond::python {
namespace {

using DlpackVersion = std::optional<std::pair<int, int>>;
using DlpackDevice = std::optional<std::pair<int, int>>;

[[noreturn]] void raise_buffer_error(const char* message) {
  PyErr_SetString(PyExc_BufferError, message);
  raise_python();
}

// The array API's __dlpack__ for a producer on the CPU.
py::capsule to_dlpack(const Array& array, const py::object& stream,
                      const DlpackVersion& max_version, const DlpackDevice& device,
                      std::optional<bool> copy) {
  if (!stream.is_none() && !(py::isinstance<py::int_>(stream) && stream.cast<long long>() == -1)) {
    PyErr_SetString(PyExc_ValueError, "stream must be None or -1: the array lies in host memory");
    raise_python();
  }
  if (device && *device != std::pair(1, 0)) {
    raise_buffer_error("the array lies in host memory (1, 0) and goes to no other device");
  }
  return array.dlpack(max_version && max_version->first >= 1, copy.value_or(false));
}

IntTuple int_tuple(const std::vector<std::int64_t>& values) {
  py::tuple tuple(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) tuple[i] = py::int_(values[i]);
  return IntTuple(std::move(tuple));
}

py::buffer_info to_buffer(const Array& array) {
  if (array.dtype() == DType::bfloat16) raise_buffer_error("the buffer protocol has no bfloat16");
  const auto type = numpy_dtype(array.dtype());
  const auto& shape = array.shape();
  const auto strides = array.strides();
  return {array.data(),
          type.itemsize(),
          std::string(1, type.char_()),
          static_cast<py::ssize_t>(shape.size()),
          {shape.begin(), shape.end()},
          {strides.begin(), strides.end()}};
}

NamedValues array_interface(const Array& array) {
  NamedValues dict;
  dict["version"] = 3;
  dict["shape"] = int_tuple(array.shape());
  dict["typestr"] = numpy_dtype(array.dtype()).attr("str");
  dict["data"] = py::make_tuple(reinterpret_cast<std::uintptr_t>(array.data()), false);
  dict["strides"] = py::none();
  return dict;
}

// An array in a slab of its own.
Array make_array(const std::string& dtype, const std::vector<std::int64_t>& shape,
                 const py::bytes& bytes) {
  const DType type = value_or_raise(parse_dtype(dtype));
  const std::string_view source = bytes;
  const std::uint64_t size[] = {source.size()};
  auto slab = value_or_raise(SlabPool::make()->allocate(size));
  std::memcpy(slab->part(0).data(), source.data(), source.size());
  auto* data = slab->part(0).data();
  Array array(type, shape, data, Memory(std::move(slab)));
  if (array.bytes() != static_cast<std::int64_t>(source.size())) {
    raise(Error(ErrorCode::invalid_argument, "shape and dtype do not match the bytes"));
  }
  return array;
}

}  // namespace

void bind_slab(py::module_& module) {
  py::class_<Array>(module, "Array", py::buffer_protocol())
      .def_buffer([](Array& array) { return to_buffer(array); })
      .def_property_readonly("shape", [](const Array& array) { return int_tuple(array.shape()); })
      .def_property_readonly("dtype",
                             [](const Array& array) { return std::string(name_of(array.dtype())); })
      .def_property_readonly("nbytes", &Array::bytes)
      .def_property_readonly("__array_interface__", &array_interface)
      .def("__len__",
           [](const Array& array) { return array.shape().empty() ? 0 : array.shape()[0]; })
      .def("__dlpack_device__", [](const Array&) { return std::pair(1, 0); })
      .def("__dlpack__", &to_dlpack, py::kw_only(), py::arg("stream") = py::none(),
           py::arg("max_version") = py::none(), py::arg("dl_device") = py::none(),
           py::arg("copy") = py::none());
  module.def("make_array", &make_array, py::arg("dtype"), py::arg("shape"), py::arg("bytes"));
}

}  // namespace headpond::python
