#include "batch_export.h"

#include <utility>

#include "errors.h"
#include "host_memory.h"
#include "text.h"

namespace py = pybind11;

namespace headpond::python {
namespace {

py::tuple shape_tuple(const std::vector<std::int64_t>& shape) {
  py::tuple tuple(shape.size());
  for (std::size_t axis = 0; axis < shape.size(); ++axis) tuple[axis] = py::int_(shape[axis]);
  return tuple;
}

py::str interned(const std::string& name) {
  PyObject* key = text(name).release().ptr();
  PyUnicode_InternInPlace(&key);
  return py::reinterpret_steal<py::str>(key);
}

}  // namespace

BatchExport::BatchExport(std::shared_ptr<const Dataset> dataset, ExportOptions options)
    : dataset_(std::move(dataset)), options_(std::move(options)) {}

BatchExport::Column& BatchExport::column(std::size_t position, const BatchField& field) {
  Column& column = columns_[position];
  if (!column.key || column.name != field.name || column.dtype != field.dtype) {
    column = {field.name, field.dtype, interned(field.name), interned(field.name + "_lengths"), {}};
  }
  return column;
}

py::object BatchExport::array(Source& source, Column& column, DType dtype,
                              std::vector<std::int64_t> shape, std::byte* data) {
  if (options_.host_view) {
    const auto* slab = dynamic_cast<const HostSlab*>(source.slab.get());
    const auto* part = slab == nullptr ? nullptr : slab->find(data);
    if (part != nullptr) {
      const auto first = static_cast<std::size_t>(data - part->memory.data());
      return options_.host_view(part->object, first, std::string(name_of(dtype)),
                                shape_tuple(shape));
    }
  }
  if (options_.as == ExportOptions::As::numpy) {
    py::object made;
    const py::object* type = &column.numpy_dtype;
    if (dtype != column.dtype) {
      made = headpond::python::numpy_dtype(dtype);
      type = &made;
    } else if (!column.numpy_dtype) {
      column.numpy_dtype = headpond::python::numpy_dtype(dtype);
    }
    if (!source.base) source.base = memory_capsule(source.slab);
    return numpy_array(py::reinterpret_borrow<py::dtype>(*type), {shape.begin(), shape.end()}, data,
                       source.base);
  }
  Array array(dtype, std::move(shape), data, Memory(source.slab));
  if (options_.as == ExportOptions::As::converted)
    return options_.convert(array.dlpack(false, false));
  return py::cast(std::move(array));
}

py::list BatchExport::keys(const Batch& batch) const {
  py::list keys(batch.samples.size());
  for (std::size_t row = 0; row < batch.samples.size(); ++row) {
    keys[row] = text(dataset_->key(batch.samples[row]));
  }
  return keys;
}

py::dict BatchExport::operator()(Batch batch) {
  py::dict dict;
  // All at once: a callback may let another thread in here, which must not move them.
  while (columns_.size() < batch.fields.size()) columns_.push_back({"", DType::bytes, {}, {}, {}});
  Source source{std::move(batch.slab), {}};
  const auto rows = static_cast<std::int64_t>(batch.rows);
  for (std::size_t position = 0; position < batch.fields.size(); ++position) {
    const BatchField& field = batch.fields[position];
    Column& column = this->column(position, field);
    if (field.kind == BatchField::Kind::key) {
      dict[column.key] = keys(batch);
      continue;
    }
    py::object values =
        array(source, column, field.dtype, {field.shape.begin(), field.shape.end()}, field.data);
    if (field.kind == BatchField::Kind::ragged) {
      values = options_.ragged(column.key, values,
                               array(source, column, DType::int64, {rows + 1},
                                     reinterpret_cast<std::byte*>(field.offsets)));
    }
    dict[column.key] = std::move(values);
    if (field.kind == BatchField::Kind::array && field.lengths != nullptr) {
      dict[column.lengths_key] =
          array(source, column, DType::int64, {rows}, reinterpret_cast<std::byte*>(field.lengths));
    }
  }
  return dict;
}

}  // namespace headpond::python
