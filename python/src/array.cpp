#include "array.h"

#include <cstdlib>
#include <cstring>
#include <utility>

#include "dlpack.h"
#include "errors.h"
#include "fork_generation.h"

namespace py = pybind11;

namespace headpond::python {
namespace {

constexpr std::size_t kAlignment = 64;

// The owner of a batch's memory; in a forked child it is let go without being destroyed,
// since its pool's lock may be held by a thread of the parent.
struct Owner {
  std::shared_ptr<const void> owner;
  std::uint64_t generation = fork_generation();

  explicit Owner(std::shared_ptr<const void> held) : owner(std::move(held)) {}
  Owner(const Owner&) = delete;
  Owner& operator=(const Owner&) = delete;
  ~Owner() {
    if (fork_generation() != generation) new std::shared_ptr<const void>(std::move(owner));
  }
};

dlpack::DataType dlpack_type(DType dtype) {
  const auto bits = static_cast<std::uint8_t>(8 * item_size(dtype));
  switch (dtype) {
    case DType::boolean:
      return {dlpack::kBool, 8, 1};
    case DType::int8:
    case DType::int16:
    case DType::int32:
    case DType::int64:
      return {dlpack::kInt, bits, 1};
    case DType::float16:
    case DType::float32:
    case DType::float64:
      return {dlpack::kFloat, bits, 1};
    case DType::bfloat16:
      return {dlpack::kBfloat, bits, 1};
    case DType::bytes:
    case DType::uint8:
    case DType::uint16:
    case DType::uint32:
    case DType::uint64:
      return {dlpack::kUInt, bits, 1};
  }
  return {dlpack::kUInt, 8, 1};
}

// Everything that a consumer's tensor points to. Freed by its deleter in plain C++.
struct Context {
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;  // elements
  Memory memory;
  dlpack::ManagedTensor legacy{};
  dlpack::ManagedTensorVersioned versioned{};

  Context(std::vector<std::int64_t> extents, Memory held)
      : shape(std::move(extents)), strides(shape.size()), memory(std::move(held)) {
    std::int64_t step = 1;
    for (std::size_t axis = shape.size(); axis-- > 0;) {
      strides[axis] = step;
      step *= shape[axis];
    }
  }
};

template <class Managed>
void delete_context(Managed* managed) {
  delete static_cast<Context*>(managed->manager_ctx);
}

template <class Managed>
void drop_unconsumed(PyObject* capsule, const char* name) {
  if (PyCapsule_IsValid(capsule, name) == 0) return;  // renamed by its consumer
  auto* managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule, name));
  managed->deleter(managed);
}

constexpr const char* kLegacyName = "dltensor";
constexpr const char* kVersionedName = "dltensor_versioned";

py::capsule make_capsule(void* managed, const char* name, PyCapsule_Destructor drop) {
  PyObject* capsule = PyCapsule_New(managed, name, drop);
  if (capsule == nullptr) raise_python();
  return py::reinterpret_steal<py::capsule>(capsule);
}

std::shared_ptr<std::byte> aligned_copy(const std::byte* data, std::size_t bytes) {
  const std::size_t rounded = (bytes + kAlignment) / kAlignment * kAlignment;
  auto* copy = static_cast<std::byte*>(std::aligned_alloc(kAlignment, rounded));
  if (copy == nullptr) raise(Error(ErrorCode::resource_limit, "no memory for a copy of an array"));
  std::memcpy(copy, data, bytes);
  return {copy, std::free};
}

}  // namespace

Memory::Memory(std::shared_ptr<const void> owner)
    : owner_(std::make_shared<Owner>(std::move(owner))) {}

Array::Array(DType dtype, std::vector<std::int64_t> shape, std::byte* data, Memory memory)
    : dtype_(dtype), shape_(std::move(shape)), data_(data), memory_(std::move(memory)) {}

std::vector<std::int64_t> Array::strides() const {
  std::vector<std::int64_t> strides(shape_.size());
  auto step = static_cast<std::int64_t>(item_size(dtype_));
  for (std::size_t axis = shape_.size(); axis-- > 0;) {
    strides[axis] = step;
    step *= shape_[axis];
  }
  return strides;
}

std::int64_t Array::bytes() const {
  auto bytes = static_cast<std::int64_t>(item_size(dtype_));
  for (const auto extent : shape_) bytes *= extent;
  return bytes;
}

py::capsule Array::dlpack(bool versioned, bool copy) const {
  std::byte* data = data_;
  Memory memory = memory_;
  if (copy) {
    auto copied = aligned_copy(data_, static_cast<std::size_t>(bytes()));
    data = copied.get();
    memory = Memory(std::move(copied));
  }
  auto context = std::make_unique<Context>(shape_, std::move(memory));
  const dlpack::Tensor tensor{data,
                              {dlpack::kDeviceCpu, 0},
                              static_cast<std::int32_t>(shape_.size()),
                              dlpack_type(dtype_),
                              context->shape.data(),
                              context->strides.data(),
                              0};
  py::capsule capsule;
  if (versioned) {
    context->versioned = {{dlpack::kMajor, dlpack::kMinor},
                          context.get(),
                          delete_context<dlpack::ManagedTensorVersioned>,
                          copy ? dlpack::kFlagIsCopied : 0,
                          tensor};
    capsule = make_capsule(&context->versioned, kVersionedName, [](PyObject* held) {
      drop_unconsumed<dlpack::ManagedTensorVersioned>(held, kVersionedName);
    });
  } else {
    context->legacy = {tensor, context.get(), delete_context<dlpack::ManagedTensor>};
    capsule = make_capsule(&context->legacy, kLegacyName, [](PyObject* held) {
      drop_unconsumed<dlpack::ManagedTensor>(held, kLegacyName);
    });
  }
  context.release();  // the capsule's, or its consumer's
  return capsule;
}

py::dtype numpy_dtype(DType dtype) {
  if (dtype == DType::bytes) return py::dtype::of<std::uint8_t>();
  if (dtype != DType::bfloat16) return py::dtype(std::string(name_of(dtype)));
  PyObject* module = PyImport_ImportModule("ml_dtypes");
  if (module == nullptr) {
    PyErr_Clear();
    raise(Error(ErrorCode::unsupported,
                "NumPy has no bfloat16: install ml_dtypes, use framework=\"torch\", or "
                ".decode(field=\"float32\")"));
  }
  return py::dtype::from_args(py::reinterpret_steal<py::object>(module).attr("bfloat16"));
}

py::array numpy_array(const py::dtype& dtype, std::vector<py::ssize_t> shape, std::byte* data,
                      const py::object& base) {
  return py::array(dtype, std::move(shape), data, base);
}

py::capsule memory_capsule(std::shared_ptr<const void> owner) {
  return py::capsule(new Owner(std::move(owner)),
                     [](void* held) { delete static_cast<Owner*>(held); });
}

}  // namespace headpond::python
