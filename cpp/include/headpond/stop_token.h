#pragma once

#include <stop_token>

namespace headpond {

// Cancellation as in the standard library: a StopSource is asked to stop, every
// StopToken of it sees that. A default-constructed token never stops.
using StopToken = std::stop_token;
using StopSource = std::stop_source;

}  // namespace headpond
