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
  static constexpr ByteRange kEverywhere = {0, ~std::uint64_t{0}};

  using WrappedStore::WrappedStore;

  // The next `times` calls for `object` fail with a copy of `error`.
  void fail(std::string object, Error error, std::size_t times = kAlways) {
    fail_in(std::move(object), kEverywhere, std::move(error), times);
  }
  // The same of reads that touch `range`.
  void fail_in(std::string object, ByteRange range, Error error, std::size_t times = kAlways) {
    const std::lock_guard lock(mutex_);
    faults_.insert_or_assign(std::move(object),
                             Fault{std::move(error), times, range, std::nullopt});
  }
  // The same of every read of more than `bytes`.
  void fail_longer(std::string object, std::uint64_t bytes, Error error) {
    const std::lock_guard lock(mutex_);
    faults_.insert_or_assign(std::move(object),
                             Fault{std::move(error), kAlways, kEverywhere, bytes});
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
      const ByteRange range{request.offset, request.offset + request.out.size()};
      if (auto error = take(request.object, range)) {
        const ReadRequest failed = std::move(request);
        failed.done(std::move(*error).at_uri(failed.object).at_range(range));
      } else {
        inner().read(std::span(&request, 1));
      }
    }
  }
  void stat(std::string object, std::function<void(Result<ObjectInfo>)> done) override {
    if (auto error = take(object, kEverywhere)) return done(std::move(*error).at_uri(object));
    inner().stat(std::move(object), std::move(done));
  }
  Result<std::size_t> read_now(std::string_view object, const ObjectVersion& expected,
                               std::span<const Piece> pieces, Wait wait) override {
    for (const Piece& piece : pieces) {
      const ByteRange range{piece.offset, piece.offset + piece.out.size()};
      if (auto error = take(object, range)) return std::move(*error).at_uri(std::string(object));
    }
    return inner().read_now(object, expected, pieces, wait);
  }

 private:
  struct Fault {
    Error error;
    std::size_t left;
    ByteRange range;
    std::optional<std::uint64_t> longer_than;
  };

  std::optional<Error> take(std::string_view object, const ByteRange& range) {
    const std::lock_guard lock(mutex_);
    const auto found = faults_.find(object);
    if (found == faults_.end() || found->second.left == 0) return std::nullopt;
    const ByteRange& bad = found->second.range;
    const bool apart = range.start >= bad.stop || range.stop <= bad.start;
    if (bad != kEverywhere && apart) return std::nullopt;
    const auto& longer_than = found->second.longer_than;
    if (longer_than && (range == kEverywhere || range.size() <= *longer_than)) return std::nullopt;
    if (found->second.left != kAlways) --found->second.left;
    ++failures_;
    return found->second.error;
  }

  mutable std::mutex mutex_;
  std::map<std::string, Fault, std::less<>> faults_;
  std::size_t failures_ = 0;
};

}  // namespace headpond
