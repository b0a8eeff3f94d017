#include <pybind11/functional.h>

#include <string>

#include "bindings.h"
#include "decode/demo_pictures.h"
#include "errors.h"

namespace py = pybind11;

namespace headpond::python {
namespace {

void write_corpus(const py::bytes& directory, std::uint64_t count, std::uint32_t classes,
                  std::uint64_t shards, int threads, const py::object& progress) {
  bool raised = false;
  DemoCorpus corpus;
  corpus.directory = directory;
  corpus.count = count;
  corpus.classes = classes;
  corpus.shard_count = shards;
  corpus.threads = threads;
  corpus.progress = [&](std::uint64_t done, std::uint64_t total) {
    py::gil_scoped_acquire acquired;
    raised = !go_on(progress, py::make_tuple(done, total));
    return !raised;
  };
  Result<void> written = [&] {
    py::gil_scoped_release released;
    return write_demo_corpus(corpus);
  }();
  if (raised) raise_python();
  value_or_raise(std::move(written));
}

}  // namespace

void bind_demo(py::module_& module) {
  module.def("write_demo_corpus", &write_corpus, py::arg("directory"), py::arg("count"),
             py::arg("classes"), py::arg("shards"), py::arg("threads"), py::arg("progress"));
}

}  // namespace headpond::python
