#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace headpond {

// A bound on bytes that are not yet handed out: slabs, staging, in-flight reads.
//
// Credits are taken in delivery order by whoever plans batches. The oldest batch
// of a consumer may always take (`Rank::oldest`), even beyond the limit: so
// nothing deadlocks, and the excess is at most one batch per consumer. Nobody
// waits inside; a refused taker is told through `on_release`.
// Safe to call from any thread.
class ByteBudget {
 public:
  enum class Rank { oldest, later };

  // A taken amount; gives it back when destroyed. Movable. The budget outlives it.
  class Credit {
   public:
    Credit() = default;
    Credit(Credit&& other) noexcept;
    Credit& operator=(Credit&& other) noexcept;
    ~Credit();
    std::uint64_t bytes() const { return bytes_; }
    void release();

   private:
    friend class ByteBudget;
    Credit(ByteBudget* budget, std::uint64_t bytes) : budget_(budget), bytes_(bytes) {}
    ByteBudget* budget_ = nullptr;
    std::uint64_t bytes_ = 0;
  };

  explicit ByteBudget(std::uint64_t limit_bytes);

  // The credit, or nothing when it does not fit and `rank` is not oldest.
  std::optional<Credit> take(std::uint64_t bytes, Rank rank);

  // Called after bytes came back and a `take` had been refused since the last
  // call. On the releasing thread, without locks held. Set before first use.
  void on_release(std::function<void()> call);

  std::uint64_t limit() const { return limit_; }
  std::uint64_t used() const;
  std::uint64_t peak() const;

 private:
  void give_back(std::uint64_t bytes);

  const std::uint64_t limit_;
  std::function<void()> on_release_;
  mutable std::mutex mutex_;
  std::uint64_t used_ = 0;
  std::uint64_t peak_ = 0;
  bool refused_ = false;
};

}  // namespace headpond
