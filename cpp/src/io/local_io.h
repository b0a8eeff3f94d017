#pragma once

#include <chrono>
#include <memory>

#include "headpond/io_options.h"
#include "io/file_ops.h"

namespace headpond {

// What tests change of a LocalIo.
struct LocalIoSeams {
  std::unique_ptr<FileOps> ops;  // null: the real calls
  std::chrono::nanoseconds close_limit = std::chrono::seconds(2);
};

std::shared_ptr<LocalIo> make_local_io(const IoOptions& options, std::shared_ptr<LogQueue> log,
                                       LocalIoSeams seams);

}  // namespace headpond
