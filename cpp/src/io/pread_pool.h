#pragma once

#include <memory>

#include "headpond/log.h"
#include "io/backend.h"

namespace headpond {

// The backend without io_uring: threads that block in pread, started as reads
// queue up, at most `threads`. Reads start in the order they came.
std::shared_ptr<Backend> make_pread_pool(std::shared_ptr<LocalFiles> files, unsigned threads,
                                         std::shared_ptr<LogQueue> log);

}  // namespace headpond
