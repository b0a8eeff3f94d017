#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/http_answer.h"
#include "io/http_store.h"

namespace headpond {

// One attempt: a transfer, and those that redirects or a second question add.
class HttpAttempts::Attempt final : public AttemptState, public TransferHandler {
 public:
  explicit Attempt(HttpAttempts& owner) : owner_(owner), grown_(owner.shared_->unsized) {}

  void begin(RemoteCall& call, AttemptListener& listener);
  void cancel();
  bool on_head(const ResponseHead& head) override;
  bool on_body(std::span<const std::byte> bytes) override;
  void on_end(TransferEnd end) override;
  // After an attempt that could not look up its host's name.
  void named(NameState state, std::uint64_t number);

 private:
  // The question, from what the call has already.
  void ask();
  void send();
  static bool worth_draining(const ResponseHead& head);
  bool on_stat_head(const ResponseHead& head);
  bool on_read_head(const ResponseHead& head);
  // The place for an object whose size was not known.
  bool allocate(std::uint64_t size);
  bool grow(std::span<const std::byte> bytes);
  // More came than is wanted: of a whole object, or of a server that does not stop.
  bool leave_rest();
  bool discard(std::span<const std::byte> bytes);
  bool fail(Failure failure);
  void ask_for_a_byte();
  // HTTP 412 says that the object changed, and not to what: that is asked once, for the message.
  void ask_what_changed();
  void note_change(const ResponseHead& head);
  void deliver_change();
  void follow(bool local_peer);
  void give_up(Error error);
  void finish(bool complete);
  bool settle_grown();
  void succeed(ReadOutcome outcome);
  void deliver_failure();
  // Back to the free ones: the listener may start another at once.
  RemoteCall* release();

  HttpAttempts& owner_;
  RemoteCall* call_ = nullptr;
  AttemptListener* listener_ = nullptr;
  std::uint64_t number_ = 0;      // of the attempt
  std::uint64_t got_before_ = 0;  // what the call had when this transfer was asked for
  TransferLoop::Transfer* transfer_ = nullptr;
  TransferRequest request_;
  Asked asked_;
  std::vector<std::string> trail_;  // of redirects, for messages
  bool first_local_ = false;        // the first answer came from a local address
  bool replayed_ = false;

  // Of the transfer under way.
  bool answered_ = false;
  bool taking_ = false;   // the body is data
  bool growing_ = false;  // of unknown length
  bool ask_again_ = false;
  std::uint64_t seen_ = 0;  // of the body
  BodyPlan plan_;
  std::optional<Failure> failure_;
  bool comparing_ = false;  // the question behind a 412
  std::optional<Failure> changed_;
  std::string location_;
  std::string excerpt_;  // of the body of a failure
  UnsizedBody grown_;

  friend class HttpAttempts;
};

}  // namespace headpond
