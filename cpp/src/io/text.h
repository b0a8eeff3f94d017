#pragma once

#include <string>
#include <string_view>

namespace headpond {

// A name for messages: valid UTF-8 stays, every other byte and every control
// character becomes \xNN, so that a name cannot forge a line or a colour.
std::string printable(std::string_view bytes);

// The same in one line: spaces and line breaks become one space.
std::string one_line(std::string_view text);

}  // namespace headpond
