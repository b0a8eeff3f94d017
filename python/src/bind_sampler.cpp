#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <optional>

#include "bindings.h"
#include "errors.h"
#include "headpond/format.h"
#include "headpond/sampler.h"

namespace py = pybind11;

namespace headpond::python {
namespace {

// Without n: the counts of shards are still to come.
Sampler make_sampler(const std::string& mode, std::optional<std::uint64_t> n, std::uint64_t seed,
                     std::uint64_t window, std::vector<std::uint64_t> shard_counts) {
  if (mode == "none") return Sampler::none(n.value_or(Format::kUnknownSize));
  if (mode == "window" && !n) return Sampler::window_of_unknown(seed, window);
  if (mode == "full" && !n) {
    raise(Error(ErrorCode::invalid_argument,
                "a full shuffle needs to know how many samples there are"));
  }
  if (mode == "full") return Sampler::full(*n, seed);
  if (mode == "window") return Sampler::window(std::move(shard_counts), seed, window);
  raise(Error(ErrorCode::invalid_argument,
              "shuffle mode " + mode + " is none of none, full, window"));
}

py::array_t<std::uint64_t> indices(const Sampler& sampler, std::uint64_t epoch, std::uint64_t first,
                                   std::uint64_t stride, std::uint64_t count) {
  if (count > 0 &&
      (first >= sampler.size() ||
       (sampler.size() - 1 - first) / std::max<std::uint64_t>(stride, 1) < count - 1)) {
    raise(Error(ErrorCode::invalid_argument, "positions past the end of the epoch"));
  }
  py::array_t<std::uint64_t> out(static_cast<py::ssize_t>(count));
  sampler.order(epoch)->indices(first, stride,
                                {out.mutable_data(), static_cast<std::size_t>(count)});
  return out;
}

}  // namespace

void bind_sampler(py::module_& module) {
  py::class_<Sampler>(module, "Sampler")
      .def(py::init(&make_sampler), py::arg("mode"), py::arg("n"), py::arg("seed") = 0,
           py::arg("window") = 0, py::arg("shard_counts") = std::vector<std::uint64_t>())
      .def_property_readonly("size", &Sampler::size)
      .def_property_readonly("size_is_known", &Sampler::size_is_known)
      .def_property_readonly("mode",
                             [](const Sampler& s) { return std::string(name_of(s.mode())); })
      .def_property_readonly("seed", &Sampler::seed)
      .def_property_readonly("window", &Sampler::window_samples)
      .def("indices", &indices, py::arg("epoch"), py::arg("first"), py::arg("stride"),
           py::arg("count"))
      .def(
          "group_at",
          [](const Sampler& sampler, std::uint64_t epoch, std::uint64_t position) {
            const auto place = sampler.group_at(epoch, position);
            return std::pair(place.first_shard, place.cursor);
          },
          py::arg("epoch"), py::arg("position"));
}

}  // namespace headpond::python
