#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "support/wrapped_store.h"

namespace headpond {

// Answers chosen reads and stats with an error instead of passing them on.
class FaultyStore final : public WrappedStore {
 public:
  static constexpr std::size_t kAlways = ~std::size_t{0};

  using WrappedStore::WrappedStore;

  // The next `times` calls for `object` fail with a copy of `error`.
  void fail(std::string object, Error error, std::size_t times = kAlways) {
    const std::lock_guard lock(mutex_);
    faults_.insert_or_assign(std::move(object), Fault{std::move(error), times});
  }
  void heal(const std::string& object) {
    const std::lock_guard lock(mutex_);
    faults_.erase(object);
  }
  // Errors given so far.
  std::size_t failures() const {
    const std::lock_guard lock(mutex_);
    return failures_;
  }

  void read(std::span<ReadRequest> requests) override {
    for (auto& request : requests) {
      if (auto error = take(request.object)) {
        const ReadRequest failed = std::move(request);
        failed.done(std::move(*error)
                        .at_uri(failed.object)
                        .at_range({failed.offset, failed.offset + failed.out.size()}));
      } else {
        inner().read(std::span(&request, 1));
      }
    }
  }
  void stat(std::string object, std::function<void(Result<ObjectInfo>)> done) override {
    if (auto error = take(object)) return done(std::move(*error).at_uri(object));
    inner().stat(std::move(object), std::move(done));
  }
  Result<std::size_t> read_now(std::string_view object, const ObjectVersion& expected,
                               std::span<const Piece> pieces, Wait wait) override {
    if (auto error = take(object)) return std::move(*error).at_uri(std::string(object));
    return inner().read_now(object, expected, pieces, wait);
  }

 private:
  struct Fault {
    Error error;
    std::size_t left;
  };

  std::optional<Error> take(std::string_view object) {
    const std::lock_guard lock(mutex_);
    const auto found = faults_.find(object);
    if (found == faults_.end() || found->second.left == 0) return std::nullopt;
    if (found->second.left != kAlways) --found->second.left;
    ++failures_;
    return found->second.error;
  }

  mutable std::mutex mutex_;
  std::map<std::string, Fault, std::less<>> faults_;
  std::size_t failures_ = 0;
};

}  // namespace headpond
