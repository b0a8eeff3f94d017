#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "headpond/clock.h"
#include "support/bytes.h"

namespace headpond {

struct OriginRequest {
  std::string method;
  std::string target;                          // as it came
  std::map<std::string, std::string> headers;  // names in lower case
  std::size_t connection = 0;                  // which one since the start
  std::size_t number = 0;  // how often this method and target were asked, from 1
  Clock::Time at{};

  std::string header(const std::string& name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? std::string() : found->second;
  }
};

// What to do instead of answering as a good server does. The default is a good server.
struct OriginAnswer {
  int status = 0;                    // 0: what the request asks for
  std::vector<std::string> headers;  // added; "-Name" leaves one of the usual ones out
  std::optional<std::string> body;   // instead of the object's, with its length
  std::optional<std::string> raw;    // instead of everything
  bool chunked = false;              // without Content-Length
  bool until_close = false;          // neither length nor chunks
  bool ignore_range = false;
  std::string extra{};                    // sent behind the body
  std::optional<std::size_t> cut_at{};    // of the body: then the connection is closed
  std::optional<std::size_t> stall_at{};  // of the body: then nothing comes any more
  bool reset = false;                     // a cut is a reset
  bool silent = false;                    // no answer at all
  bool drop = false;                      // closes without an answer
  bool close_after = false;               // closes after the answer, unannounced
  std::size_t segment = 0;                // bytes of the body per send; 0: all
  bool segment_head = false;              // of the head, too
  Clock::Duration delay{};                // before the first byte
  Clock::Duration between{};              // segments
};

// A web server whose every answer a test can change. HTTP/1.1, on 127.0.0.1. It does
// nothing by itself: `step` does what is due. Scripts run on the thread that steps;
// everything else may be called from any thread.
class ScriptedOrigin {
 public:
  using Script = std::function<OriginAnswer(const OriginRequest&)>;

  explicit ScriptedOrigin(std::shared_ptr<Clock> clock);
  ~ScriptedOrigin();

  std::uint16_t port() const { return port_; }
  std::string url(const std::string& path = "/") const {
    return "http://127.0.0.1:" + std::to_string(port_) + path;
  }

  // An object at "/name"; its entity tag and date differ from every earlier one's.
  void put(const std::string& target, const Bytes& bytes);
  void script(Script script);

  // Refuses connections and resets those there are, until `up`.
  void down();
  void up();

  std::vector<OriginRequest> log() const;
  std::size_t requests() const { return log().size(); }
  std::size_t connections() const;  // accepted since the start
  std::size_t open_connections() const;
  std::uint64_t sent() const;  // bytes of bodies given to the kernel, heads included

  // Does what is due, waits at most so long for something. False: there was nothing.
  bool step(int wait_ms);
  // When something is due by the clock; Time::max(): nothing is planned.
  Clock::Time next_event() const;

 private:
  struct Object {
    Bytes bytes;
    std::string etag;
    std::string modified;
  };
  struct Connection {
    UniqueFd fd;
    std::size_t number = 0;
    std::string in;
    std::string out;
    std::size_t sent = 0;
    std::size_t stop = 0;  // of `out`: nothing is sent behind it
    std::size_t segment = 0;
    std::size_t head_bytes = 0;  // sent at once
    Clock::Time next_send{};
    Clock::Duration between{};
    bool answering = false;
    bool reset = false;
    bool close_after = false;
    bool mute = false;  // nothing is sent any more
  };

  void listen();
  bool accept_all();
  bool receive(Connection& connection);
  bool parse(Connection& connection);
  void answer(Connection& connection, OriginRequest request);
  std::string compose(const OriginRequest& request, const OriginAnswer& answer,
                      std::size_t& head_bytes) const;
  bool send(Connection& connection);

  const std::shared_ptr<Clock> clock_;
  mutable std::recursive_mutex mutex_;  // scripts may call back
  UniqueFd listener_;
  std::uint16_t port_ = 0;
  std::map<std::string, Object> objects_;
  Script script_;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::vector<OriginRequest> log_;
  std::map<std::string, std::size_t> counts_;
  std::size_t accepted_ = 0;
  std::uint64_t sent_ = 0;
  long puts_ = 0;
};

}  // namespace headpond
