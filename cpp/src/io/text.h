#pragma once

#include <string>
#include <string_view>

namespace headpond {

// A name for messages: valid UTF-8 stays, every other byte and every control
// character becomes \xNN, so that a name cannot forge a line or a colour.
std::string printable(std::string_view bytes);

}  // namespace headpond
