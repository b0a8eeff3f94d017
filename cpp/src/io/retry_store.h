#pragma once

#include <functional>
#include <memory>
#include <string>

#include "io/fork_mark.h"
#include "io/in_flight.h"
#include "io/remote_call.h"
#include "io/remote_host.h"

namespace headpond {

// Starts the loop's thread at the first call. Errors: resource_limit, closed.
using StartLoop = std::function<Result<void>()>;

// A Store around single attempts: queues, retries and patience with a host that is
// down (RemoteHost). Requests are moved to the loop's thread, where all of it happens.
class RetryStore final : public Store {
 public:
  // `list_advice`: what to do instead of listing.
  RetryStore(std::shared_ptr<Attempts> attempts, std::shared_ptr<RemoteHost> host,
             std::shared_ptr<EventLoop> loop, std::shared_ptr<ForkMark> mark, StartLoop start,
             std::string list_advice);
  ~RetryStore() override;

  void read(std::span<ReadRequest> requests) override;
  void stat(std::string object, std::function<void(Result<ObjectInfo>)> done) override;
  void list(ListRequest request) override;
  Result<std::size_t> read_now(std::string_view object, const ObjectVersion& expected,
                               std::span<const Piece> pieces, Wait wait) override;
  bool is_remote() const override { return true; }
  std::string describe() const override;
  void close() override;

 private:
  struct State;
  struct ReadCall;
  struct StatCall;

  std::optional<Error> refuse(std::string_view object) const;
  void submit(std::vector<std::unique_ptr<RemoteCall>> calls);

  const std::shared_ptr<State> state_;
  const std::shared_ptr<ForkMark> mark_;
  const StartLoop start_;
  const std::string list_advice_;
};

}  // namespace headpond
