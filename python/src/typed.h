#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/typing.h>

// Python types whose names say more in the generated stub than pybind11's own.
namespace headpond::python {

// A sample, a batch, counters: names to values of any type.
class NamedValues : public pybind11::dict {
  using pybind11::dict::dict;
};

// The same, or None.
class OptionalNamedValues : public pybind11::object {
 public:
  OptionalNamedValues(pybind11::object value)
      : pybind11::object(std::move(value)) {}  // NOLINT: implicit on purpose
};

using IntTuple = pybind11::typing::Tuple<pybind11::int_, pybind11::ellipsis>;

}  // namespace headpond::python

namespace pybind11::detail {

template <>
struct handle_type_name<headpond::python::NamedValues> {
  static constexpr auto name = const_name("dict[str, typing.Any]");
};
template <>
struct handle_type_name<headpond::python::OptionalNamedValues> {
  static constexpr auto name = const_name("dict[str, typing.Any] | None");
};

}  // namespace pybind11::detail
