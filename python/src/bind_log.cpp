#include "bindings.h"
#include "headpond/log.h"
#include "text.h"

namespace py = pybind11;

namespace headpond::python {
namespace {

// Levels of Python's logging module, which are fixed.
int python_level(LogLevel level) {
  switch (level) {
    case LogLevel::debug:
      return 10;
    case LogLevel::info:
      return 20;
    case LogLevel::warning:
      return 30;
    case LogLevel::error:
      return 40;
  }
  return 40;
}

}  // namespace

void emit(LogQueue& queue) {
  const auto records = queue.drain();
  if (records.empty()) return;
  const auto log = py::module_::import("logging").attr("getLogger")("headpond").attr("log");
  for (const auto& record : records) log(python_level(record.level), "%s", text(record.text));
}

void bind_log(py::module_& module) {
  module.def(
      "emit_log", [](const PyEngine& engine) { emit(*engine.get()->log()); }, py::arg("engine"));
}

}  // namespace headpond::python
