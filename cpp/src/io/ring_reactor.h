#pragma once

#include <memory>

#include "headpond/io_options.h"
#include "io/backend.h"

namespace headpond {

// The backend on io_uring: one thread, hp-io, that owns the ring. Requests arrive on
// a lock-free list; the thread is woken only when it sleeps. Reads that the ring
// cannot settle go to `helpers`. Errors: unsupported, with the reason.
Result<std::shared_ptr<Backend>> make_ring_reactor(std::shared_ptr<LocalFiles> files,
                                                   std::shared_ptr<Backend> helpers,
                                                   const IoOptions& options,
                                                   std::shared_ptr<LogQueue> log);

// Would make_ring_reactor work? A ring is made and thrown away; no thread starts.
Result<void> probe_ring(LocalFiles& files);

}  // namespace headpond
