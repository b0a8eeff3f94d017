#include <pybind11/stl.h>

#include "bindings.h"
#include "errors.h"
#include "headpond/format.h"
#include "headpond/loader_state.h"

namespace py = pybind11;

namespace headpond::python {
namespace {

OrderIdentity make_order(std::string fingerprint, std::string size_digest, const Sampler& sampler,
                         std::uint64_t augmentation_seed) {
  OrderIdentity order;
  order.fingerprint = std::move(fingerprint);
  if (sampler.size_is_known()) order.n = sampler.size();
  order.size_digest = std::move(size_digest);
  order.seed = sampler.seed();
  order.augmentation_seed = augmentation_seed;
  order.mode = sampler.mode();
  order.window = sampler.window_samples();
  return order;
}

using Place = std::pair<std::uint64_t, std::uint64_t>;

// The group is a function of the sampler where that knows all counts: filled in here, so that
// no caller forgets it.
std::string state_json(const OrderIdentity& order, const Sampler& sampler, std::uint64_t epoch,
                       std::uint64_t cursor, std::uint64_t pass_step, bool ended,
                       const Place& group) {
  LoaderState state;
  state.order = order;
  state.epoch = epoch;
  state.cursor = cursor;
  state.pass_step = pass_step;
  if (!sampler.size_is_known()) {
    state.group = {group.first, group.second};
  } else if (sampler.mode() == ShuffleMode::window && cursor < sampler.size()) {
    state.group = sampler.group_at(epoch, cursor);
  }
  state.ended = ended;
  return state.to_json();
}

}  // namespace

void bind_loader_state(py::module_& module) {
  py::class_<OrderIdentity>(module, "OrderIdentity")
      .def(py::init(&make_order), py::arg("fingerprint"), py::arg("size_digest"),
           py::arg("sampler"), py::arg("augmentation_seed"));
  py::class_<LoaderState>(module, "LoaderState")
      .def_static(
          "parse",
          [](const std::string& json, const OrderIdentity& order) {
            auto state = value_or_raise(LoaderState::from_json(json));
            value_or_raise(check_compatible(state.order, order));
            return state;
          },
          py::arg("json"), py::arg("order"))
      .def_readonly("epoch", &LoaderState::epoch)
      .def_readonly("cursor", &LoaderState::cursor)
      .def_readonly("pass_step", &LoaderState::pass_step)
      .def_readonly("ended", &LoaderState::ended)
      .def_property_readonly("group", [](const LoaderState& state) {
        return Place(state.group.first_shard, state.group.cursor);
      });
  module.def("state_json", &state_json, py::arg("order"), py::arg("sampler"), py::arg("epoch"),
             py::arg("cursor"), py::arg("pass_step"), py::arg("ended"), py::arg("group"));
}

}  // namespace headpond::python
