#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "headpond/clock.h"
#include "headpond/log.h"
#include "headpond/store.h"

namespace headpond {

struct HttpOptions {
  unsigned connections = 32;  // to one host at a time
  unsigned retries = 5;       // of a read that a live host refuses (429, 500, 503) or cuts
  double outage_s = 300;      // how long reads wait for a host that is down
  std::string ca_file;        // PEM; empty: SSL_CERT_FILE, CURL_CA_BUNDLE, the system's,
  std::string ca_fallback;    // or else this one, if it is there
  // "Name: value", sent to the host of the URL that was asked for and to no other.
  std::vector<std::string> headers;
};

// What is active and why, for hp.info().
struct HttpStatus {
  std::string library;    // "libcurl/7.88.1 OpenSSL/3.0.20 nghttp2/1.52.0"
  std::string ca_file;    // the certificates that servers are checked against; empty: none found
  std::string ca_source;  // which of the places it was found by
  bool started = false;
};

// Since the start, all stores together.
struct HttpCounters {
  std::uint64_t requests = 0;     // sent, redirects and retries included
  std::uint64_t bytes = 0;        // of bodies that arrived, thrown away or not
  std::uint64_t connections = 0;  // opened
  std::uint64_t retries = 0;      // attempts after the first, probes included
  std::uint64_t redirects = 0;    // followed
  std::uint64_t refusals = 0;     // answers 408, 425, 429 and 5xx
  std::uint64_t no_answers = 0;   // attempts that ended without an answer, or with 502 or 504
  std::uint64_t outages = 0;      // times a host was taken as down
  std::uint64_t failures = 0;     // reads and stats that ended with an error
};

// The reactor that the stores of web servers share: one thread "hp-http", started at
// the first read. It verifies TLS, follows at most 5 redirects, and takes nothing
// from the environment (proxies, .netrc) but where certificates lie.
// Safe to call from any thread; outlives its stores.
class HttpIo {
 public:
  virtual ~HttpIo() = default;
  // A store over http:// or https:// URLs. A name below `root` is the rest of the
  // URL as written, query included. Errors: invalid_argument.
  virtual Result<std::shared_ptr<Store>> open(const Uri& root) = 0;
  virtual HttpStatus status() const = 0;
  virtual HttpCounters counters() const = 0;
  // As Store::close, for all of them; within 200 ms also when servers stall.
  virtual void close() = 0;
};

// Deadlines and delays are read on `clock`. Costs nothing before the first `open`, and
// never fails: a wrong option (a header with a line break, a ca_file that cannot be
// read) is what `open` answers.
std::shared_ptr<HttpIo> make_http_io(const HttpOptions& options, std::shared_ptr<Clock> clock,
                                     std::shared_ptr<LogQueue> log);

}  // namespace headpond
