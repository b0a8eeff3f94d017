#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/typing.h>

#include <string>
#include <string_view>
#include <vector>

namespace headpond::python {

// Names are bytes: what is not UTF-8 appears in Python by surrogateescape (PEP 383).
pybind11::str text(std::string_view bytes);
pybind11::typing::List<pybind11::str> texts(const std::vector<std::string>& bytes);

}  // namespace headpond::python
