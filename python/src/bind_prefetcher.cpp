#include <pybind11/stl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "batch_export.h"
#include "bindings.h"
#include "errors.h"
#include "fork_generation.h"
#include "headpond/prefetcher.h"
#include "host_memory.h"
#include "text.h"
#include "typed.h"

namespace py = pybind11;

namespace headpond::python {
namespace {

using Steady = std::chrono::steady_clock;
constexpr std::uint32_t kSignalCheckMs = 100;

// A group's place in the shard order, and the cursor at its start.
using Place = std::pair<std::uint64_t, std::uint64_t>;

// Where the caller stands: counts what was handed out, never what was prefetched.
struct Position {
  std::uint64_t epoch = 0;
  std::uint64_t cursor = 0;
  std::uint64_t pass_step = 0;
  bool last = false;  // of its epoch
  Sampler::GroupPlace group;
};

NamedValues statistics_dict(const LoaderStatistics& statistics) {
  NamedValues dict;
  dict["batches"] = statistics.batches;
  dict["samples"] = statistics.samples;
  dict["padded"] = statistics.padded;
  dict["skipped"] = statistics.skipped;
  dict["replaced"] = statistics.replaced;
  dict["elapsed_s"] = statistics.elapsed_s;
  dict["first_batch_s"] = statistics.waited.first_batch_s;
  dict["waited_reading_s"] = statistics.waited.reading_s;
  dict["waited_cpu_s"] = statistics.waited.cpu_s;
  dict["waited_memory_s"] = statistics.waited.memory_s;
  dict["bytes_memory"] = statistics.bytes_memory;
  dict["bytes_storage"] = statistics.bytes_storage;
  dict["bytes_dropped"] = statistics.bytes_dropped;
  dict["bytes_batch"] = statistics.bytes_batch;
  dict["read_cpu_s"] = statistics.read_cpu_s;
  dict["decode_cpu_s"] = statistics.decode_cpu_s;
  dict["slabs_allocated"] = statistics.slabs_allocated;
  dict["slabs_reused"] = statistics.slabs_reused;
  dict["scratch_allocations"] = statistics.scratch_allocations;
  dict["minor_faults"] = statistics.minor_faults;
  dict["major_faults"] = statistics.major_faults;
  py::list errors;
  for (const auto& error : statistics.errors) {
    errors.append(py::make_tuple(error.sample, text(error.key), text(error.uri), error.start,
                                 error.stop, text(error.reason)));
  }
  dict["errors"] = errors;
  return dict;
}

// A prefetcher with what Python needs around it: waiting with an eye on signals, export,
// the position, host memory.
class Batches {
 public:
  struct Host {
    py::object allocate;  // (bytes) -> object
    py::object pointer;   // (object) -> address
  };

  Batches(std::shared_ptr<Engine> engine, std::shared_ptr<Prefetcher> prefetcher,
          BatchExport to_dict, std::optional<Host> host, std::shared_ptr<DeferredDrops> drops)
      : engine_(std::move(engine)),
        prefetcher_(std::move(prefetcher)),
        to_dict_(std::move(to_dict)),
        host_(std::move(host)),
        drops_(std::move(drops)),
        generation_(fork_generation()) {}
  Batches(const Batches&) = delete;
  Batches& operator=(const Batches&) = delete;

  ~Batches() {
    if (fork_generation() != generation_) {
      // The parent's threads and locks are not here: nothing can be stopped.
      new std::shared_ptr<Prefetcher>(std::move(prefetcher_));
      new std::shared_ptr<Engine>(std::move(engine_));
      return;
    }
    {
      py::gil_scoped_release released;
      prefetcher_->stop();
      prefetcher_.reset();
      engine_.reset();
    }
    drops_->drain();
  }

  void seek(std::uint64_t epoch, std::uint64_t cursor, std::uint64_t epochs,
            std::uint64_t pass_step, std::uint64_t pass_steps, const Place& place) {
    check_ours();
    const Sampler::GroupPlace group{place.first, place.second};
    ++pass_;
    Result<void> sought = [&] {
      py::gil_scoped_release released;
      return prefetcher_->seek(epoch, cursor, epochs, group);
    }();
    value_or_raise(std::move(sought));
    position_ = {epoch, cursor, pass_step, false, group};
    failed_.reset();
    pass_steps_ = pass_steps;
  }

  // Begins a pass of `epochs` epochs, or `pass_steps` batches, where the last one ended, with
  // what is in flight.
  void go_on(std::uint64_t epochs, std::uint64_t pass_steps) {
    check_ours();
    ++pass_;
    if (pass_steps == 0) prefetcher_->go_on(epochs);
    position_.pass_step = 0;
    pass_steps_ = pass_steps;
  }

  // The next batch, or None at the end of the pass.
  OptionalNamedValues next(std::optional<double> timeout_s) {
    check_ours();
    drops_->drain();
    std::optional<Steady::time_point> asked;
    const std::uint64_t pass = pass_;
    for (;;) {
      // While it waited without the GIL another thread began a pass: its batches are not ours.
      if (pass != pass_) return py::none();
      if (pass_is_over()) return end();
      if (host_) provide();
      if (auto batch = prefetcher_->try_next()) return hand_out(*std::move(batch));
      if (closed_) raise(Error(ErrorCode::closed, "this loader was closed"));
      if (prefetcher_->finished()) return end();
      if (!asked) asked = Steady::now();
      wait(*asked, timeout_s);
    }
  }

  // Ends what is in flight; nothing is read until the next seek.
  void cancel() {
    if (closed_ || fork_generation() != generation_) return;
    seek(position_.epoch, position_.cursor, 0, 0, 0, {0, 0});
  }

  void stop() {
    if (fork_generation() != generation_) return;
    closed_ = true;
    {
      py::gil_scoped_release released;
      prefetcher_->stop();
    }
    emit(*engine_->log());
    drops_->drain();
  }

  bool is_ours() const { return fork_generation() == generation_; }
  const Position& position() const { return position_; }
  NamedValues statistics() const {
    check_ours();
    return statistics_dict(prefetcher_->statistics());
  }

 private:
  void check_ours() const {
    if (!is_ours())
      raise(Error(ErrorCode::forked, "this iterator belongs to the process that was forked"));
  }

  bool pass_is_over() const {
    return pass_steps_ > 0 &&
           position_.pass_step + (failed_ ? failed_->pass_step : 0) >= pass_steps_;
  }

  // What failed counts as consumed once a later call returns.
  void consume_failed() {
    if (!failed_) return;
    failed_->pass_step += position_.pass_step;
    position_ = *failed_;
    failed_.reset();
  }

  py::object end() {
    consume_failed();
    emit(*engine_->log());
    return py::none();
  }

  py::object hand_out(Batch batch) {
    // Until it is in the caller's hands it counts as failed. Without a place in the order it
    // is no batch's failure, but the loader's.
    if (batch.next_cursor > 0) {
      const std::uint64_t failed = failed_ ? failed_->pass_step : 0;
      failed_ = Position{batch.epoch, batch.next_cursor, failed + 1, batch.last, batch.group};
    }
    emit(*engine_->log());
    if (batch.error) raise(*std::move(batch.error));
    py::object dict = to_dict_(std::move(batch));
    consume_failed();
    return dict;
  }

  void wait(Steady::time_point asked, std::optional<double> timeout_s) {
    std::uint32_t wait_ms = kSignalCheckMs;
    if (timeout_s) {
      const auto left = std::chrono::duration<double>(*timeout_s) - (Steady::now() - asked);
      if (left.count() <= 0) {
        raise(Error(ErrorCode::timed_out, "no batch within " + text_of(*timeout_s) +
                                              " s: " + prefetcher_->describe_wait()));
      }
      wait_ms = static_cast<std::uint32_t>(
          std::clamp(left.count() * 1e3 + 1, 1.0, double{kSignalCheckMs}));
    }
    {
      py::gil_scoped_release released;
      prefetcher_->wait(wait_ms);
    }
    check_signals();
    emit(*engine_->log());
    drops_->drain();
  }

  static std::string text_of(double seconds) { return py::str(py::float_(seconds)); }

  void provide() {
    for (const auto& wanted : prefetcher_->wanted()) {
      std::vector<HostSlab::Part> parts;
      for (const auto bytes : wanted.part_bytes) {
        py::object object = host_->allocate(bytes);
        auto* memory = reinterpret_cast<std::byte*>(host_->pointer(object).cast<std::uintptr_t>());
        const py::handle handle = object;
        parts.push_back({handle,
                         DeferredDrops::hold(drops_, std::move(object)),
                         {memory, static_cast<std::size_t>(bytes)}});
      }
      prefetcher_->provide(wanted.ticket, std::make_shared<HostSlab>(std::move(parts)));
    }
  }

  std::shared_ptr<Engine> engine_;
  std::shared_ptr<Prefetcher> prefetcher_;
  BatchExport to_dict_;
  std::optional<Host> host_;
  std::shared_ptr<DeferredDrops> drops_;
  std::uint64_t generation_;
  std::atomic<bool> closed_{false};
  Position position_;
  std::optional<Position>
      failed_;                    // its pass_step counts the failed batches since the last good one
  std::uint64_t pass_steps_ = 0;  // 0: until the prefetcher is finished
  std::uint64_t pass_ = 0;        // counts passes
};

FieldPlan::Kind parse_kind(const std::string& kind) {
  if (kind == "index") return FieldPlan::Kind::index;
  if (kind == "key") return FieldPlan::Kind::key;
  if (kind == "valid") return FieldPlan::Kind::valid;
  return FieldPlan::Kind::stored;
}

OnError parse_on_error(const std::string& name) {
  if (name == "raise") return OnError::raise;
  if (name == "skip") return OnError::skip;
  if (name == "replace") return OnError::replace;
  raise(
      Error(ErrorCode::invalid_argument, "on_error=" + name + " is none of raise, skip, replace"));
}

FieldPlan make_field_plan(const Dataset& dataset, const std::string& kind, std::string name,
                          const std::string& source,
                          std::optional<std::shared_ptr<Decoder>> decoder,
                          std::optional<double> pad) {
  FieldPlan plan;
  plan.kind = parse_kind(kind);
  plan.name = std::move(name);
  if (plan.kind == FieldPlan::Kind::stored)
    plan.source = value_or_raise(dataset.field_index(source));
  plan.decoder = decoder.value_or(nullptr);
  plan.pad = pad;
  return plan;
}

std::unique_ptr<Batches> make_batches(
    const PyEngine& engine, const std::shared_ptr<Dataset>& dataset, const Sampler& sampler,
    const std::vector<FieldPlan>& fields, const Steps& steps, std::uint64_t augmentation_seed,
    const std::string& on_error, std::uint64_t max_errors, std::uint64_t prefetch_bytes,
    const std::string& export_as, const py::object& convert, const py::object& ragged,
    const py::object& host, const std::shared_ptr<DeferredDrops>& drops) {
  LoaderSpec spec;
  spec.dataset = dataset;
  spec.sampler = sampler;
  spec.fields = fields;
  spec.steps = steps;
  spec.augmentation_seed = augmentation_seed;
  spec.on_error = parse_on_error(on_error);
  spec.max_errors = max_errors;
  spec.prefetch_bytes = prefetch_bytes;
  spec.host_memory = !host.is_none();

  ExportOptions options;
  options.as = export_as == "numpy"   ? ExportOptions::As::numpy
               : export_as == "array" ? ExportOptions::As::array
                                      : ExportOptions::As::converted;
  options.convert = convert;
  options.ragged = ragged;
  std::optional<Batches::Host> allocator;
  if (!host.is_none()) {
    allocator = Batches::Host{host.attr("allocate"), host.attr("pointer")};
    options.host_view = host.attr("view");
  }
  auto prefetcher = value_or_raise(Prefetcher::make(engine.get(), std::move(spec)));
  return std::make_unique<Batches>(engine.get(), std::move(prefetcher),
                                   BatchExport(dataset, std::move(options)), std::move(allocator),
                                   drops);
}

}  // namespace

void bind_prefetcher(py::module_& module, std::shared_ptr<DeferredDrops> drops) {
  py::class_<FieldPlan>(module, "FieldPlan")
      .def(py::init(&make_field_plan), py::arg("dataset"), py::arg("kind"), py::arg("name"),
           py::arg("source"), py::arg("decoder"), py::arg("pad"));
  py::class_<Batches>(module, "Batches")
      .def(py::init([drops](const PyEngine& engine, const std::shared_ptr<Dataset>& dataset,
                            const Sampler& sampler, const std::vector<FieldPlan>& fields,
                            const Steps& steps, std::uint64_t augmentation_seed,
                            const std::string& on_error, std::uint64_t max_errors,
                            std::uint64_t prefetch_bytes, const std::string& export_as,
                            const py::object& convert, const py::object& ragged,
                            const py::object& host) {
             return make_batches(engine, dataset, sampler, fields, steps, augmentation_seed,
                                 on_error, max_errors, prefetch_bytes, export_as, convert, ragged,
                                 host, drops);
           }),
           py::arg("engine"), py::arg("dataset"), py::arg("sampler"), py::arg("fields"),
           py::arg("steps"), py::arg("augmentation_seed"), py::arg("on_error"),
           py::arg("max_errors"), py::arg("prefetch_bytes"), py::arg("export_as"),
           py::arg("convert"), py::arg("ragged"), py::arg("host"))
      .def("seek", &Batches::seek, py::arg("epoch"), py::arg("cursor"), py::arg("epochs"),
           py::arg("pass_step"), py::arg("pass_steps"), py::arg("group"))
      .def("go_on", &Batches::go_on, py::arg("epochs"), py::arg("pass_steps"))
      .def("cancel", &Batches::cancel)
      .def("next", &Batches::next, py::arg("timeout_s"))
      .def("stop", &Batches::stop)
      .def("is_ours", &Batches::is_ours)
      .def("statistics", &Batches::statistics)
      .def_property_readonly("epoch",
                             [](const Batches& batches) { return batches.position().epoch; })
      .def_property_readonly("cursor",
                             [](const Batches& batches) { return batches.position().cursor; })
      .def_property_readonly("group",
                             [](const Batches& batches) {
                               const auto& group = batches.position().group;
                               return Place(group.first_shard, group.cursor);
                             })
      .def_property_readonly("pass_step",
                             [](const Batches& batches) { return batches.position().pass_step; })
      .def_property_readonly("last",
                             [](const Batches& batches) { return batches.position().last; });
}

}  // namespace headpond::python
