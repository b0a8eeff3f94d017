#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "array.h"
#include "bindings.h"
#include "errors.h"
#include "headpond/dataset.h"
#include "headpond/warm.h"
#include "text.h"
#include "typed.h"

namespace py = pybind11;

namespace headpond::python {
namespace {

using DatasetPtr = std::shared_ptr<const Dataset>;

// Dataset is bound as non-const; it has no non-const members.
using BoundDataset = std::shared_ptr<Dataset>;
BoundDataset bound(DatasetPtr dataset) {
  return std::const_pointer_cast<Dataset>(std::move(dataset));
}

Source make_source(const std::vector<py::bytes>& paths,
                   const std::optional<std::shared_ptr<Manifest>>& manifest) {
  return {{paths.begin(), paths.end()}, manifest.value_or(nullptr)};
}

// Opening on a thread that may be interrupted: `progress` (or None) is called with the GIL
// a few times a second, and signals are looked for.
template <class Open>
auto opened(const PyEngine& engine, const py::bytes& index_folder, const std::optional<bool>& cache,
            const py::object& progress, Open&& call) {
  using Steady = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kLook{50};
  const auto held = engine.get();
  OpenContext context;
  context.stores = &held->stores();
  context.index_folder = index_folder;
  if (cache) context.caching = *cache ? Caching::yes : Caching::no;
  context.log = held->log();
  bool raised = false;
  auto looked = Steady::now();
  context.progress = [&](const char* what, std::uint64_t done, std::uint64_t total) {
    const auto now = Steady::now();
    if (now - looked < kLook) return true;
    looked = now;
    py::gil_scoped_acquire acquired;
    raised = !go_on(progress, py::make_tuple(what, done, total));
    return !raised;
  };
  auto result = [&] {
    py::gil_scoped_release released;
    return call(context);
  }();
  emit(*held->log());
  if (raised) raise_python();
  return value_or_raise(std::move(result));
}

template <class Open>
BoundDataset open(const PyEngine& engine, const py::bytes& index_folder,
                  const std::optional<bool>& cache, const py::object& progress, Open&& call) {
  return bound(opened(engine, index_folder, cache, progress, std::forward<Open>(call)));
}

using FieldTuple = py::typing::Tuple<py::str, py::str, py::typing::Optional<IntTuple>>;

py::typing::List<FieldTuple> fields(const Dataset& dataset) {
  py::typing::List<FieldTuple> list;
  for (const auto& field : dataset.fields()) {
    py::object shape = py::none();
    if (field.shape) {
      py::tuple extents(field.shape->size());
      for (std::size_t i = 0; i < field.shape->size(); ++i)
        extents[i] = py::int_((*field.shape)[i]);
      shape = std::move(extents);
    }
    list.append(py::make_tuple(text(field.name), std::string(name_of(field.dtype)), shape));
  }
  return list;
}

std::uint64_t known_size(const Dataset& dataset) {
  if (const auto size = dataset.promised_size()) return *size;
  throw py::type_error(
      "the samples of these shards are not counted yet: that is known once each shard was read; "
      "shuffle(mode=\"full\") counts them first, and `headpond index --beside` once for all");
}

std::uint64_t checked(const Dataset& dataset, std::uint64_t index) {
  if (dataset.holds(index)) return index;
  raise(Error(ErrorCode::invalid_argument, "no sample " + std::to_string(index) + " among " +
                                               std::to_string(known_size(dataset))));
}

// Whole samples for ds[i], read on the calling thread.
class SampleReader {
 public:
  SampleReader(const Dataset& dataset, std::shared_ptr<Store> store)
      : dataset_(dataset), store_(std::move(store)) {}

  py::typing::List<NamedValues> read(const std::vector<std::uint64_t>& samples,
                                     const std::vector<std::size_t>& fields) {
    py::typing::List<NamedValues> values;
    for (std::size_t i = 0; i < samples.size(); ++i) values.append(NamedValues());
    for (const auto field : fields) locate(samples, field, values);
    SignalWatch signals;
    const auto failed = [&] {
      py::gil_scoped_release released;
      return fill(signals.go_on());
    }();
    signals.raise();
    if (failed) raise(*failed);
    for (auto& read : reads_) swap(read);
    return values;
  }

 private:
  struct Read {
    std::uint64_t sample;
    std::size_t field;
    Extent extent;
    std::span<std::byte> out;
    py::object value;
    py::dict into;
  };

  void locate(const std::vector<std::uint64_t>& samples, std::size_t number, py::list& values) {
    const Field& field = dataset_.fields()[number];
    std::vector<Extent> extents(samples.size());
    dataset_.format().locate(samples, number, extents);
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const Extent& extent = extents[i];
      auto into = values[i].cast<py::dict>();
      if (extent.object == Extent::kMissing) continue;
      if (extent.object == Extent::kValue) {
        into[text(field.name)] = py::int_(static_cast<std::int64_t>(extent.offset));
        continue;
      }
      Read read{samples[i], number, extent, {}, {}, into};
      make_value(field, read);
      into[text(field.name)] = read.value;
      reads_.push_back(std::move(read));
    }
  }

  void make_value(const Field& field, Read& read) {
    const auto size = static_cast<std::size_t>(read.extent.size);
    if (field.dtype == DType::bytes) {
      PyObject* bytes = PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(size));
      if (bytes == nullptr) raise_python();
      read.value = py::reinterpret_steal<py::bytes>(bytes);
      read.out = {reinterpret_cast<std::byte*>(PyBytes_AS_STRING(bytes)), size};
      return;
    }
    std::vector<py::ssize_t> shape;
    if (field.shape) {
      shape.assign(field.shape->begin(), field.shape->end());
    } else {
      shape.push_back(static_cast<py::ssize_t>(size / item_size(field.dtype)));
    }
    py::array array(numpy_dtype(field.dtype), shape);
    if (static_cast<std::size_t>(array.nbytes()) != size) {
      raise(dataset_.describe(
          Error(ErrorCode::corrupt_data, "its " + std::to_string(size) + " bytes are no " +
                                             std::string(name_of(field.dtype)) + " array"),
          read.sample, read.field));
    }
    read.out = {static_cast<std::byte*>(array.mutable_data()), size};
    read.value = std::move(array);
  }

  // Without the GIL.
  std::optional<Error> fill(const GoOn& go_on) {
    std::string name;
    for (const auto& read : reads_) {
      dataset_.manifest().name(read.extent.object, name);
      const auto version = dataset_.version(read.extent.object);
      const Piece piece{read.extent.offset, read.out};
      auto filled = store_->read_now(name, version, {&piece, 1}, Wait::allowed);
      if (!filled) return dataset_.describe(std::move(filled).error(), read.sample, read.field);
      if (*filled == 1) continue;
      auto outcome = read_blocking(*store_, name, read.extent.offset, read.out, version, go_on);
      if (!outcome) return dataset_.describe(std::move(outcome).error(), read.sample, read.field);
      if (outcome->bytes < read.out.size()) {
        return dataset_.describe(
            Error(ErrorCode::object_changed, "the object ends within the sample"), read.sample,
            read.field);
      }
    }
    return std::nullopt;
  }

  void swap(Read& read) {
    const Field& field = dataset_.fields()[read.field];
    if (field.swapped) read.value.attr("byteswap")(true);
    // A record without dimensions is a scalar.
    if (field.dtype != DType::bytes && field.shape && field.shape->empty()) {
      read.into[text(field.name)] = read.value[py::tuple()];
    }
  }

  const Dataset& dataset_;
  std::shared_ptr<Store> store_;
  std::vector<Read> reads_;
};

py::typing::List<NamedValues> read_samples(const BoundDataset& dataset, const PyEngine& engine,
                                           const std::vector<std::uint64_t>& samples,
                                           const std::optional<std::vector<std::string>>& names) {
  for (const auto sample : samples) checked(*dataset, sample);
  std::vector<std::size_t> fields;
  if (names) {
    for (const auto& name : *names) fields.push_back(value_or_raise(dataset->field_index(name)));
  } else {
    for (std::size_t i = 0; i < dataset->fields().size(); ++i) fields.push_back(i);
  }
  SampleReader reader(*dataset, value_or_raise(dataset->store(engine.get()->stores())));
  return reader.read(samples, fields);
}

// The bytes of a field of the first sample; none where they are a value, or there is none.
py::bytes first_value(const BoundDataset& dataset, const PyEngine& engine,
                      const std::string& name) {
  const auto extent = dataset->first_extent(value_or_raise(dataset->field_index(name)));
  if (!extent || extent->object == Extent::kValue) return py::bytes();
  auto store = value_or_raise(dataset->store(engine.get()->stores()));
  PyObject* bytes = PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(extent->size));
  if (bytes == nullptr) raise_python();
  auto value = py::reinterpret_steal<py::bytes>(bytes);
  const std::span<std::byte> out(reinterpret_cast<std::byte*>(PyBytes_AS_STRING(bytes)),
                                 static_cast<std::size_t>(extent->size));
  SignalWatch signals;
  const auto failed = [&]() -> std::optional<Error> {
    py::gil_scoped_release released;
    const auto& manifest = dataset->manifest();
    std::string object;
    manifest.name(extent->object, object);
    auto outcome = read_blocking(*store, object, extent->offset, out,
                                 dataset->version(extent->object), signals.go_on());
    Error error(ErrorCode::object_changed, "the object ends within its first sample");
    if (!outcome) {
      error = std::move(outcome).error();
    } else if (outcome->bytes == out.size()) {
      return std::nullopt;
    }
    return std::move(error)
        .at_uri(manifest.root().join(object).to_string())
        .at_range({extent->offset, extent->offset + extent->size});
  }();
  signals.raise();
  if (failed) raise(*failed);
  return value;
}

// A column over the memory of an array that `drops` lets go of in time.
ArrayColumn make_column(const std::string& name, const std::string& dtype, bool swapped,
                        const py::array& array, const std::shared_ptr<DeferredDrops>& drops) {
  ArrayColumn column;
  column.name = name;
  column.dtype = value_or_raise(parse_dtype(dtype));
  column.swapped = swapped;
  column.rows = static_cast<std::uint64_t>(array.shape(0));
  for (py::ssize_t axis = 1; axis < array.ndim(); ++axis) {
    column.shape.push_back(static_cast<std::uint64_t>(array.shape(axis)));
  }
  column.bytes = {static_cast<const std::byte*>(array.data()),
                  static_cast<std::size_t>(array.nbytes())};
  column.hold = DeferredDrops::hold(drops, array);
  return column;
}

using Columns = std::vector<std::tuple<std::string, std::string, bool, py::array>>;

BoundDataset open_columns(const Columns& columns, const std::shared_ptr<DeferredDrops>& drops) {
  drops->drain();
  std::vector<ArrayColumn> made;
  for (const auto& [name, dtype, swapped, array] : columns) {
    made.push_back(make_column(name, dtype, swapped, array, drops));
  }
  return bound(value_or_raise(headpond::open_arrays(std::move(made))));
}

std::optional<DType> optional_dtype(const std::optional<std::string>& name) {
  if (!name) return std::nullopt;
  return value_or_raise(parse_dtype(*name));
}

void bind_open(py::module_& module, const std::shared_ptr<DeferredDrops>& drops) {
  module.def(
      "list_source",
      [](const PyEngine& engine, const std::vector<py::bytes>& paths, const py::object& progress) {
        const auto source = make_source(paths, std::nullopt);
        return std::const_pointer_cast<Manifest>(
            opened(engine, py::bytes(), std::nullopt, progress,
                   [&](OpenContext& context) { return headpond::list_source(source, context); }));
      },
      py::arg("engine"), py::arg("paths"), py::arg("progress"));
  module.def(
      "open_files",
      [](const PyEngine& engine, const std::vector<py::bytes>& paths,
         const std::optional<std::shared_ptr<Manifest>>& manifest, const py::bytes& index_folder,
         const std::optional<bool>& cache, const py::object& progress, const std::string& pattern,
         bool folder_labels) {
        const auto source = make_source(paths, manifest);
        return open(engine, index_folder, cache, progress, [&](OpenContext& context) {
          return headpond::open_files(source, {pattern, folder_labels}, context);
        });
      },
      py::arg("engine"), py::arg("paths"), py::arg("manifest"), py::arg("index_folder"),
      py::arg("cache"), py::arg("progress"), py::arg("pattern"), py::arg("folder_labels"));
  module.def(
      "open_webdataset",
      [](const PyEngine& engine, const std::vector<py::bytes>& paths,
         const std::optional<std::shared_ptr<Manifest>>& manifest, const py::bytes& index_folder,
         const std::optional<bool>& cache, const py::object& progress) {
        const auto source = make_source(paths, manifest);
        return open(engine, index_folder, cache, progress, [&](OpenContext& context) {
          return headpond::open_webdataset(source, context);
        });
      },
      py::arg("engine"), py::arg("paths"), py::arg("manifest"), py::arg("index_folder"),
      py::arg("cache"), py::arg("progress"));
  module.def(
      "write_shard_indexes",
      [](const PyEngine& engine, const std::vector<py::bytes>& paths, const py::bytes& folder,
         const py::bytes& index_folder, const py::object& progress) {
        const auto source = make_source(paths, std::nullopt);
        const auto written =
            opened(engine, index_folder, std::nullopt, progress, [&](OpenContext& context) {
              return headpond::write_shard_indexes(source, folder, context);
            });
        return std::tuple(written.shards, written.samples, written.bytes);
      },
      py::arg("engine"), py::arg("paths"), py::arg("folder"), py::arg("index_folder"),
      py::arg("progress"));
  module.def(
      "open_records",
      [](const PyEngine& engine, const std::vector<py::bytes>& paths,
         const std::optional<std::shared_ptr<Manifest>>& manifest, const py::bytes& index_folder,
         const std::optional<bool>& cache, const py::object& progress,
         const std::optional<std::string>& dtype, bool swapped, std::vector<std::uint64_t> shape,
         std::uint64_t header_bytes) {
        const auto source = make_source(paths, manifest);
        const RecordsOptions options{optional_dtype(dtype), swapped, std::move(shape),
                                     header_bytes};
        return open(engine, index_folder, cache, progress, [&](OpenContext& context) {
          return headpond::open_records(source, options, context);
        });
      },
      py::arg("engine"), py::arg("paths"), py::arg("manifest"), py::arg("index_folder"),
      py::arg("cache"), py::arg("progress"), py::arg("dtype"), py::arg("swapped"), py::arg("shape"),
      py::arg("header_bytes"));
  module.def(
      "open_tokens",
      [](const PyEngine& engine, const std::vector<py::bytes>& paths,
         const std::optional<std::shared_ptr<Manifest>>& manifest, const py::bytes& index_folder,
         const std::optional<bool>& cache, const py::object& progress, const std::string& dtype,
         bool swapped, std::uint64_t window, std::uint64_t stride) {
        const auto source = make_source(paths, manifest);
        const TokensOptions options{value_or_raise(parse_dtype(dtype)), swapped, window, stride};
        return open(engine, index_folder, cache, progress, [&](OpenContext& context) {
          return headpond::open_tokens(source, options, context);
        });
      },
      py::arg("engine"), py::arg("paths"), py::arg("manifest"), py::arg("index_folder"),
      py::arg("cache"), py::arg("progress"), py::arg("dtype"), py::arg("swapped"),
      py::arg("window"), py::arg("stride"));
  module.def(
      "open_arrays", [drops](const Columns& columns) { return open_columns(columns, drops); },
      py::arg("columns"));
}

}  // namespace

void bind_dataset(py::module_& module, std::shared_ptr<DeferredDrops> drops) {
  py::class_<Dataset, BoundDataset>(module, "Dataset")
      .def("__len__", &known_size)
      .def_property_readonly("size_is_known", &Dataset::size_is_known)
      .def_property_readonly(
          "size_is_promised",
          [](const Dataset& dataset) { return dataset.promised_size().has_value(); })
      .def_property_readonly("indexes_lie_beside", &Dataset::indexes_lie_beside)
      .def(
          "reach",
          [](const Dataset& dataset, const PyEngine& engine,
             const std::vector<std::uint64_t>& samples, const py::object& progress) {
            return opened(engine, py::bytes(), std::nullopt, progress, [&](OpenContext& context) {
              return headpond::reach_samples(dataset, samples, context);
            });
          },
          py::arg("engine"), py::arg("samples"), py::arg("progress"))
      .def(
          "index_shards",
          [](const Dataset& dataset, const PyEngine& engine, const py::object& progress) {
            opened(engine, py::bytes(), std::nullopt, progress, [&](OpenContext& context) {
              auto indexed = headpond::index_shards(dataset, context);
              return indexed ? Result<bool>(true) : Result<bool>(std::move(indexed).error());
            });
          },
          py::arg("engine"), py::arg("progress"))
      .def(
          "warm",
          [](const BoundDataset& dataset, const PyEngine& engine, const py::object& progress) {
            const auto warmed =
                opened(engine, py::bytes(), std::nullopt, progress, [&](OpenContext& context) {
                  return headpond::warm(dataset, *engine.get(), context,
                                        [&](std::uint64_t done, std::uint64_t total) {
                                          return context.progress("blocks", done, total);
                                        });
                });
            return py::make_tuple(warmed.blocks, warmed.kept, warmed.bytes);
          },
          py::arg("engine"), py::arg("progress"))
      .def_property_readonly("fields", &fields)
      .def_property_readonly("classes",
                             [](const Dataset& dataset) { return texts(dataset.classes()); })
      .def_property_readonly("notes", [](const Dataset& dataset) { return texts(dataset.notes()); })
      .def_property_readonly("fingerprint", &Dataset::fingerprint)
      .def_property_readonly("size_digest", &Dataset::size_digest)
      .def_property_readonly("snapshot", &Dataset::snapshot)
      .def_property_readonly("shard_counts",
                             [](const Dataset& dataset) { return dataset.format().shard_counts(); })
      .def_property_readonly("manifest",
                             [](const BoundDataset& dataset) {
                               return std::shared_ptr<Manifest>(
                                   dataset, const_cast<Manifest*>(&dataset->manifest()));
                             })
      .def(
          "key",
          [](const Dataset& dataset, std::uint64_t index) {
            return text(dataset.key(checked(dataset, index)));
          },
          py::arg("index"))
      .def(
          "locate",
          [](const Dataset& dataset, std::uint64_t index) {
            py::typing::List<py::typing::Tuple<py::str, py::int_, py::int_>> ranges;
            for (const auto& range : value_or_raise(dataset.locate(index))) {
              ranges.append(py::make_tuple(text(range.uri), range.range.start, range.range.stop));
            }
            return ranges;
          },
          py::arg("index"))
      .def("first_value", &first_value, py::arg("engine"), py::arg("field"))
      .def("read", &read_samples, py::arg("engine"), py::arg("samples"),
           py::arg("fields") = py::none());
  bind_open(module, drops);
}

}  // namespace headpond::python
