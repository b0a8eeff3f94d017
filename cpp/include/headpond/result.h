#pragma once

#include <tl/expected.hpp>
#include <utility>

#include "headpond/error.h"

namespace headpond {

// A value or an Error. Both convert implicitly, so functions return either:
//
//   auto header = read_header(index);
//   if (!header) return std::move(header).error().in("sample " + std::to_string(index));
template <class T>
class [[nodiscard]] Result : public tl::expected<T, Error> {
  using Base = tl::expected<T, Error>;

 public:
  using Base::Base;
  Result() = default;
  Result(Error error) : Base(tl::unexpect, std::move(error)) {}  // NOLINT: implicit on purpose
};

}  // namespace headpond
