#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "headpond/field.h"

namespace headpond::python {

// Keeps a batch's memory alive on behalf of Python objects. Copied freely; the last copy
// may die on any thread, without the GIL, after the interpreter, or in a forked child.
class Memory {
 public:
  explicit Memory(std::shared_ptr<const void> owner);

 private:
  std::shared_ptr<const void> owner_;
};

// A view of an array in a batch's memory: writable, C-contiguous. DLPack's producer.
class Array {
 public:
  Array(DType dtype, std::vector<std::int64_t> shape, std::byte* data, Memory memory);

  DType dtype() const { return dtype_; }
  const std::vector<std::int64_t>& shape() const { return shape_; }
  std::vector<std::int64_t> strides() const;  // bytes
  std::byte* data() const { return data_; }
  std::int64_t bytes() const;

  // A capsule "dltensor_versioned" when `versioned`, else "dltensor"; consumed once.
  pybind11::capsule dlpack(bool versioned, bool copy) const;

 private:
  DType dtype_;
  std::vector<std::int64_t> shape_;
  std::byte* data_;
  Memory memory_;
};

// NumPy's dtype; unsupported (naming ml_dtypes) for bfloat16 where that is not installed.
pybind11::dtype numpy_dtype(DType dtype);

// A NumPy array over the same memory, which `base` keeps alive.
pybind11::array numpy_array(const pybind11::dtype& dtype, std::vector<pybind11::ssize_t> shape,
                            std::byte* data, const pybind11::object& base);

// What NumPy calls `base`: an object that keeps `owner`.
pybind11::capsule memory_capsule(std::shared_ptr<const void> owner);

}  // namespace headpond::python
