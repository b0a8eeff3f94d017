#include "text.h"

#include "errors.h"

namespace py = pybind11;

namespace headpond::python {

py::str text(std::string_view bytes) {
  PyObject* decoded =
      PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "surrogateescape");
  if (decoded == nullptr) raise_python();
  return py::reinterpret_steal<py::str>(decoded);
}

py::typing::List<py::str> texts(const std::vector<std::string>& bytes) {
  py::typing::List<py::str> list;
  for (const auto& entry : bytes) list.append(text(entry));
  return list;
}

}  // namespace headpond::python
