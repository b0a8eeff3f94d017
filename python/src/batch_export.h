#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <string>
#include <vector>

#include "array.h"
#include "headpond/prefetcher.h"

namespace headpond::python {

// What a batch's arrays become.
struct ExportOptions {
  enum class As { numpy, array, converted };
  As as = As::numpy;
  pybind11::object convert;    // converted: called with a DLPack capsule
  pybind11::object ragged;     // called with (field, values, offsets)
  pybind11::object host_view;  // host memory: called with (object, first byte, dtype name, shape)
};

// Batches to dicts of arrays over the same memory. With the GIL; one consumer at a time.
class BatchExport {
 public:
  BatchExport(std::shared_ptr<const Dataset> dataset, ExportOptions options);
  pybind11::dict operator()(Batch batch);

 private:
  // A field's name and dtype as Python objects: made at the first batch, used by all.
  struct Column {
    std::string name;
    DType dtype;
    pybind11::str key;
    pybind11::str lengths_key;
    pybind11::object numpy_dtype;
  };
  // The memory of the batch that is being exported, and NumPy's object that keeps it.
  struct Source {
    std::shared_ptr<Slab> slab;
    pybind11::object base;
  };
  Column& column(std::size_t position, const BatchField& field);
  pybind11::object array(Source& source, Column& column, DType dtype,
                         std::vector<std::int64_t> shape, std::byte* data);
  pybind11::list keys(const Batch& batch) const;

  std::shared_ptr<const Dataset> dataset_;
  ExportOptions options_;
  std::vector<Column> columns_;
};

}  // namespace headpond::python
