#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace headpond {

// One text for the arguments that define a dataset's samples: keys in order, and
// names that are not UTF-8 do not throw.
inline std::string arguments_text(const nlohmann::json& arguments) {
  return arguments.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace headpond
