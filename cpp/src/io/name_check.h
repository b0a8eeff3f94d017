#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace headpond {

// Why a host's name could not be looked up.
enum class NameState : std::uint8_t {
  unknown_for_now,  // the resolver did not answer, or knows it by now
  does_not_exist,
};

// Tells `then`, once, from any thread. Must not wait.
using NameCheck = std::function<void(std::string host, std::function<void(NameState)> then)>;

// Asks the system's resolver, on a thread that is not waited for.
void system_name_check(std::string host, std::function<void(NameState)> then);

}  // namespace headpond
