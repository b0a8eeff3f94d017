#include <pybind11/stl.h>

#include "bindings.h"
#include "errors.h"
#include "fork_generation.h"
#include "headpond/engine.h"
#include "text.h"
#include "typed.h"

namespace py = pybind11;

namespace headpond::python {

PyEngine::PyEngine(std::shared_ptr<Engine> engine)
    : engine_(std::move(engine)), generation_(fork_generation()) {}

PyEngine::~PyEngine() {
  if (!is_ours()) {
    new std::shared_ptr<Engine>(std::move(engine_));
    return;
  }
  py::gil_scoped_release released;  // joins threads when it is the last owner
  engine_.reset();
}

bool PyEngine::is_ours() const { return fork_generation() == generation_ && engine_->is_ours(); }

const std::shared_ptr<Engine>& PyEngine::get() const {
  if (!is_ours()) {
    raise(Error(ErrorCode::forked,
                "this engine belongs to the process that was forked: make a new one here"));
  }
  return engine_;
}

namespace {

IoBackend parse_backend(const std::string& name) {
  if (name == "auto") return IoBackend::automatic;
  if (name == "uring") return IoBackend::uring;
  if (name == "threads") return IoBackend::threads;
  raise(Error(ErrorCode::invalid_argument, "io=" + name + " is none of auto, uring, threads"));
}

// As Python gives them; 0 and None: the default.
HttpOptions http_options(unsigned connections, std::optional<unsigned> retries,
                         std::optional<double> outage_s, const std::string& ca_file,
                         const std::string& ca_fallback) {
  HttpOptions options;
  if (connections > 0) options.connections = connections;
  if (retries) options.retries = *retries;
  if (outage_s) options.outage_s = *outage_s;
  options.ca_file = ca_file;
  options.ca_fallback = ca_fallback;
  return options;
}

std::unique_ptr<PyEngine> make_engine(const std::string& io, unsigned io_depth,
                                      unsigned cpu_threads, std::uint64_t memory_bytes,
                                      unsigned ranks_on_node, unsigned connections,
                                      std::optional<unsigned> retries,
                                      std::optional<double> outage_s, const py::bytes& ca_file,
                                      const py::bytes& ca_fallback, const py::bytes& cache_folder,
                                      std::uint64_t cache_bytes, std::uint64_t cache_floor_bytes) {
  EngineOptions options;
  options.cache.folder = std::string(cache_folder);
  options.cache.size_bytes = cache_bytes;
  options.cache.floor_bytes = cache_floor_bytes;
  options.http =
      http_options(connections, retries, outage_s, std::string(ca_file), std::string(ca_fallback));
  options.io.backend = parse_backend(io);
  if (io_depth > 0) options.io.depth = io_depth;
  options.cpu_threads = cpu_threads;
  options.memory_bytes = memory_bytes;
  options.ranks_on_node = ranks_on_node;
  return std::make_unique<PyEngine>(Engine::make(std::move(options)));
}

NamedValues http_counters(const HttpCounters& counters) {
  NamedValues dict;
  dict["requests"] = counters.requests;
  dict["bytes"] = counters.bytes;
  dict["connections"] = counters.connections;
  dict["retries"] = counters.retries;
  dict["redirects"] = counters.redirects;
  dict["refusals"] = counters.refusals;
  dict["no_answers"] = counters.no_answers;
  dict["outages"] = counters.outages;
  dict["failures"] = counters.failures;
  return dict;
}

NamedValues http_status(const EngineStatus& status) {
  NamedValues dict = http_counters(status.http_counters);
  dict["library"] = status.http.library;
  dict["ca_file"] = text(status.http.ca_file);
  dict["ca_source"] = status.http.ca_source;
  dict["started"] = status.http.started;
  return dict;
}

NamedValues cache_counters(const CacheCounters& counters) {
  NamedValues dict;
  dict["hits"] = counters.hits;
  dict["hit_bytes"] = counters.hit_bytes;
  dict["joined"] = counters.joined;
  dict["joined_bytes"] = counters.joined_bytes;
  dict["missed"] = counters.missed;
  dict["missed_bytes"] = counters.missed_bytes;
  dict["fetched_bytes"] = counters.fetched_bytes;
  dict["past_bytes"] = counters.past_bytes;
  dict["published"] = counters.published;
  dict["evicted"] = counters.evicted;
  dict["damaged"] = counters.damaged;
  dict["stalled"] = counters.stalled;
  dict["failures"] = counters.failures;
  return dict;
}

NamedValues cache_status(const EngineStatus& status) {
  NamedValues dict = cache_counters(status.cache_counters);
  dict["folder"] = text(status.cache_folder);
  dict["reason"] = text(status.cache_reason);
  return dict;
}

NamedValues status(const PyEngine& engine) {
  const auto status = engine.get()->status();
  NamedValues dict;
  dict["io"] = status.io.backend;
  dict["io_reason"] = status.io.reason;
  dict["fixed_buffers"] = status.io.fixed_buffers;
  dict["cpu_threads"] = status.cpu_threads;
  dict["started"] = status.started;
  dict["memory_bytes"] = status.memory_bytes;
  dict["memory_used"] = status.memory_used;
  dict["memory_peak"] = status.memory_peak;
  dict["http"] = http_status(status);
  dict["cache"] = cache_status(status);
  return dict;
}

}  // namespace

void bind_engine(py::module_& module) {
  py::class_<PyEngine>(module, "Engine")
      .def(py::init(&make_engine), py::arg("io"), py::arg("io_depth"), py::arg("cpu_threads"),
           py::arg("memory_bytes"), py::arg("ranks_on_node"), py::arg("connections"),
           py::arg("retries"), py::arg("outage_s"), py::arg("ca_file"), py::arg("ca_fallback"),
           py::arg("cache_folder"), py::arg("cache_bytes"), py::arg("cache_floor_bytes"))
      .def("status", &status)
      .def("http_counters",
           [](const PyEngine& engine) { return http_counters(engine.get()->http_counters()); })
      .def("cache_counters",
           [](const PyEngine& engine) { return cache_counters(engine.get()->cache_counters()); })
      .def("is_ours", &PyEngine::is_ours)
      .def("close", [](const PyEngine& engine) {
        if (!engine.is_ours()) return;
        const auto held = engine.get();
        {
          py::gil_scoped_release released;
          held->close();
        }
        emit(*held->log());
      });
}

}  // namespace headpond::python
