#pragma once

#include <functional>
#include <memory>

#include "headpond/http_options.h"
#include "io/curl_reactor.h"
#include "io/host_health.h"
#include "io/name_check.h"

namespace headpond {

// What tests change of an HttpIo.
struct HttpIoSeams {
  // Given the loop instead of a thread, before the first call; must run it until every
  // store is closed.
  std::function<void(std::shared_ptr<TransferLoop>)> drive;
  TransferLimits limits;
  RetryOptions retry;  // but `retries`, `connections` and `outage`
  std::uint64_t seed = 1;
  std::vector<std::string> addresses;  // as ReactorOptions
  bool peers_are_public = false;
  NameCheck name_check = system_name_check;
};

std::shared_ptr<HttpIo> make_http_io(const HttpOptions& options, std::shared_ptr<Clock> clock,
                                     std::shared_ptr<LogQueue> log, HttpIoSeams seams);

}  // namespace headpond
