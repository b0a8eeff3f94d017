#include <memory>
#include <string>

#include "bindings.h"
#include "errors.h"
#include "headpond/manifest.h"
#include "text.h"

namespace py = pybind11;

namespace headpond::python {
namespace {

std::uint64_t checked(const Manifest& manifest, std::uint64_t index) {
  if (index >= manifest.size())
    raise(Error(ErrorCode::invalid_argument, "no object " + std::to_string(index)));
  return index;
}

}  // namespace

void bind_manifest(py::module_& module) {
  // Immutable behind its interface: the const of the pointer is cast away for the binding only.
  py::class_<Manifest, std::shared_ptr<Manifest>>(module, "Manifest")
      .def_static(
          "load",
          [](const py::bytes& bytes) {
            const std::string path = bytes;
            py::gil_scoped_release released;
            auto loaded = Manifest::load(path);
            py::gil_scoped_acquire held;
            return std::const_pointer_cast<Manifest>(value_or_raise(std::move(loaded)));
          },
          py::arg("path"))
      .def(
          "save",
          [](const Manifest& manifest, const py::bytes& bytes) {
            const std::string path = bytes;
            py::gil_scoped_release released;
            auto saved = manifest.save(path);
            py::gil_scoped_acquire held;
            value_or_raise(std::move(saved));
          },
          py::arg("path"))
      .def("__len__", &Manifest::size)
      .def_property_readonly(
          "root", [](const Manifest& manifest) { return text(manifest.root().to_string()); })
      .def(
          "name",
          [](const Manifest& manifest, std::uint64_t index) {
            std::string name;
            manifest.name(checked(manifest, index), name);
            return text(name);
          },
          py::arg("index"))
      .def(
          "object_size",
          [](const Manifest& manifest, std::uint64_t index) {
            return manifest.object_size(checked(manifest, index));
          },
          py::arg("index"));
}

}  // namespace headpond::python
