#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "headpond/loader_state.h"

using headpond::LoaderState;

// Any text is a state that survives being written and read again, or an error
// in printable ASCII.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto state = LoaderState::from_json(text);
  if (!state) {
    for (const char c : state.error().to_string()) {
      if (c < ' ' || c > '~') std::abort();
    }
    return 0;
  }
  const std::string written = state->to_json();
  const auto again = LoaderState::from_json(written);
  if (written.size() >= 1024 || !again || !(*again == *state)) std::abort();
  if (!check_compatible(state->order, again->order)) std::abort();
  return 0;
}
