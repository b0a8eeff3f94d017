#pragma once

#include <cstdint>

namespace headpond::python {

// Counts the forks between the process that loaded this library and this one. What was
// made in an older generation belongs to the parent: its threads do not exist here and its
// locks may be held for ever, so it is let go without being destroyed.
std::uint64_t fork_generation();

// Registers the counter with pthread_atfork: the one thing here that belongs to the process.
void watch_forks();

}  // namespace headpond::python
