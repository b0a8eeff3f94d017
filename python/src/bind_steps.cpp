#include <pybind11/stl.h>

#include <string>
#include <tuple>

#include "bindings.h"
#include "errors.h"
#include "headpond/steps.h"

namespace py = pybind11;

namespace headpond::python {
namespace {

Uneven parse_uneven(const std::string& name) {
  if (name == "pad") return Uneven::pad;
  if (name == "drop") return Uneven::drop;
  if (name == "allow") return Uneven::allow;
  raise(Error(ErrorCode::invalid_argument, "uneven=" + name + " is none of pad, drop, allow"));
}

Steps make_steps(std::uint64_t n, std::uint64_t batch, std::uint64_t world, std::uint64_t rank,
                 bool drop_last, const std::string& uneven) {
  return {n, batch, world, rank, drop_last, parse_uneven(uneven)};
}

}  // namespace

void bind_steps(py::module_& module) {
  py::class_<Steps>(module, "Steps")
      .def(py::init(&make_steps), py::arg("n"), py::arg("batch"), py::arg("world"), py::arg("rank"),
           py::arg("drop_last"), py::arg("uneven"))
      .def(
          "at",
          [](const Steps& steps, std::uint64_t cursor) {
            using Step = std::tuple<std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t>;
            const auto step = steps.at(cursor);
            if (!step) return std::optional<Step>();
            return std::optional<Step>({step->cursor, step->rows, step->valid, step->next});
          },
          py::arg("cursor"))
      .def("count_from", &Steps::count_from, py::arg("cursor"));
}

}  // namespace headpond::python
