#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "io/event_loop.h"
#include "io/http_headers.h"

namespace headpond {

// One exchange with a web server.
struct TransferRequest {
  struct Range {
    std::uint64_t first = 0;
    std::uint64_t last = 0;
  };
  std::string url;  // complete and escaped
  bool head = false;
  std::optional<Range> range;
  std::string if_match;      // an entity tag; empty: no condition
  bool own_headers = true;   // send those of the options: only to the host they are for
  bool fresh = false;        // on a new connection, after a new look-up of the name
  bool public_only = false;  // do not connect to a local address
  std::uint64_t bytes = ~std::uint64_t{0};  // about so many will come, if known
  bool many_streams = false;  // HTTP/2 if the server speaks it; else a connection of its own
};

enum class TransferResult : std::uint8_t {
  complete,
  stopped,         // the handler wanted no more
  unresolved,      // the host's name
  not_connected,   // refused, unreachable, or not within the time to connect
  tls_refused,     // a certificate, or a handshake that cannot succeed
  broken,          // reset or closed before the end
  stalled,         // no byte for too long
  slow,            // too few bytes for too long
  wrong_answer,    // not HTTP, or a head without end
  local_address,   // `public_only`, and the name leads there
  resource_limit,  // no file handle or memory is left here
};

struct TransferEnd {
  TransferResult result = TransferResult::complete;
  std::string reason;       // for people, unless complete or stopped
  bool reused = false;      // on a connection that had served before
  bool local_peer = false;  // the address was a local one; known where a redirect came
};

// Hears of one transfer, on the loop's thread. May not start or cancel transfers but
// in `on_end`.
class TransferHandler {
 public:
  // The head of the answer, interim ones left out. False: stop.
  virtual bool on_head(const ResponseHead& head) = 0;
  // False: stop.
  virtual bool on_body(std::span<const std::byte> bytes) = 0;
  // The last call, once, unless the transfer is cancelled.
  virtual void on_end(TransferEnd end) = 0;

 protected:
  ~TransferHandler() = default;
};

// An event loop that carries out transfers.
class TransferLoop : public EventLoop {
 public:
  struct Transfer;  // a handle, for cancel

  // On the loop's thread only.
  virtual Transfer* start(const TransferRequest& request, TransferHandler& handler) = 0;
  // The handler hears nothing more.
  virtual void cancel(Transfer& transfer) = 0;

  // Waits for something to happen, `at_most` so long by the machine's clock, and deals
  // with it. False: nothing happened. The thread that first calls it is the loop's.
  virtual bool run_once(std::chrono::milliseconds at_most) = 0;
  // When `run_once` has something to do by the clock; Time::max(): never.
  virtual Clock::Time next_deadline() const = 0;
};

}  // namespace headpond
