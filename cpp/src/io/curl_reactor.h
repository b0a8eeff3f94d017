#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "headpond/result.h"
#include "io/http_counts.h"
#include "io/transfer_loop.h"

namespace headpond {

// After how long a transfer is given up, on the clock.
struct TransferLimits {
  std::chrono::milliseconds connect{3'000};   // name, TCP and TLS together
  std::chrono::milliseconds silence{10'000};  // without a byte
  std::chrono::milliseconds window{30'000};   // in which at least `window_bytes` must come
  std::uint64_t window_bytes = 30 * (16u << 10);
  std::uint64_t head_bytes = 64u << 10;
};

struct ReactorOptions {
  std::string ca_file;               // PEM
  std::string ca_folder;             // hashed, as OpenSSL keeps them
  std::vector<std::string> headers;  // of the user, checked
  unsigned connections = 32;
  TransferLimits limits;
  // For tests: "host:port:address[,address]", before any look-up; and whether peers are
  // taken as public, wherever they are.
  std::vector<std::string> addresses;
  bool peers_are_public = false;
};

// A TransferLoop on libcurl's multi interface; with curl_transfer.h the only user of libcurl.
//
// libcurl's own time limits read the machine's clock and stay off. What it would take
// from the environment (proxies, .netrc) is switched off too, as are its redirects.
// Errors: resource_limit; unsupported (a libcurl that cannot TLS).
Result<std::shared_ptr<TransferLoop>> make_curl_reactor(ReactorOptions options,
                                                        std::shared_ptr<Clock> clock,
                                                        std::shared_ptr<HttpCounts> counts);

// "libcurl/7.88.1 OpenSSL/3.0.20 nghttp2/1.52.0"
std::string curl_library();

}  // namespace headpond
