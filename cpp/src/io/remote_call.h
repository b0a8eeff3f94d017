#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "headpond/clock.h"
#include "headpond/store.h"

namespace headpond {

// What a failed attempt says about its host, and whether another one makes sense.
enum class FailureKind : std::uint8_t {
  final,      // another attempt would end the same
  busy,       // 429, 503: a live host asks for patience
  refused,    // 408, 425, 500 and such: a live host failed
  wrong,      // an answer that is not what was asked for: one more attempt
  cut,        // an answer that broke off, or came too slowly
  gateway,    // 502, 504: something before the host does not reach it
  no_answer,  // no connection, or one that ended without an answer
  timed_out,  // no answer in time
  stalled,    // an answer that went silent: from its last byte on there was none
  hindered,   // by us: no file handle or memory is left here
};

struct Failure {
  FailureKind kind = FailureKind::final;
  Error error;
  std::optional<std::int64_t> retry_after_s;
};

class Attempts;
struct AttemptState {};  // what Attempts keep of one under way

// A read or stat of one object, over all its attempts. For the loop's thread alone.
struct RemoteCall {
  virtual ~RemoteCall() = default;
  // The last thing that happens to it.
  virtual void finish(Result<ReadOutcome> outcome) = 0;
  // Is it not wanted any more?
  virtual bool stopped() const = 0;

  bool is_stat() const { return request.allocate == nullptr && request.out.empty(); }

  ReadRequest request;  // of a stat: only `object`, `expected` and `stop`
  Attempts* attempts = nullptr;

  // What the attempts so far have brought: the leading bytes of `out`, of one version.
  std::span<std::byte> out;  // request.out, or what `allocate` gave
  bool allocated = false;
  std::uint64_t got = 0;
  std::optional<ObjectVersion> version;
  bool head_failed = false;         // of a stat: one byte is asked for instead
  bool head_says_empty = false;     // of a stat
  bool fresh = false;               // the next attempt is made on a new connection
  AttemptState* attempt = nullptr;  // under way; of `attempts`

  // Kept by RemoteHost.
  struct Retries {
    unsigned spent = 0;            // failures that count
    unsigned wrong = 0;            // of them: wrong answers
    unsigned attempts = 0;         // all
    std::uint64_t got = 0;         // when it last failed
    std::uint64_t got_before = 0;  // when this attempt began
    bool probe = false;            // of a host that is down
    bool last = false;             // the outage ended meanwhile
    Clock::Time began{};
    Clock::Time started{};  // this attempt
    std::optional<Error> first;
  };
  Retries retries;
};

class AttemptListener;

// Makes single attempts and never a second one: a web server, later an object store.
// For the loop's thread alone.
class Attempts {
 public:
  virtual ~Attempts() = default;
  // Ends in one call of the listener, later, unless it is cancelled.
  virtual void start(RemoteCall& call, AttemptListener& listener) = 0;
  virtual void cancel(RemoteCall& call) = 0;
  // Where the call's object lies, for messages.
  virtual std::string describe(const std::string& object) const = 0;
};

class AttemptListener {
 public:
  virtual void succeeded(RemoteCall& call, ReadOutcome outcome) = 0;
  virtual void failed(RemoteCall& call, Failure failure) = 0;

 protected:
  ~AttemptListener() = default;
};

}  // namespace headpond
