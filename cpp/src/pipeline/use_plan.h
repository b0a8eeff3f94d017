#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/task_pool.h"
#include "cache/block_uses.h"
#include "cache/cached_store.h"
#include "headpond/dataset.h"
#include "headpond/sampler.h"
#include "pipeline/job.h"
#include "pipeline/recipe.h"

namespace headpond {

// When one epoch uses each block: its positions, in order.
struct EpochUses {
  std::uint64_t epoch = 0;
  std::vector<std::uint32_t> starts;     // by block: where its positions begin; one more at the end
  std::vector<std::uint32_t> positions;  // of this rank
};

// Tells the node's cache what a loader will use next, block by block, and keeps that up to date
// while batches are made: the sampler's order, seen from the blocks.
//
// The order of an epoch is gone through once in the background, by a thread "hp-uses", this epoch
// first and the next one after it; until that is done the cache knows nothing of this loader. It
// costs 4 bytes and some 50 ns a sample and field; above kUsesMax the order counts as unknown.
// Epochs follow one another on one line of positions: epoch e begins at e * (n + 1). Safe to call
// from any thread.
class UsePlan final : public BlockUses, public std::enable_shared_from_this<UsePlan> {
 public:
  static constexpr std::uint64_t kUsesMax = std::uint64_t{16} << 20;

  // Null: this loader's reads do not go through a cache, or its order is not known before it is
  // read (shards whose counts come late).
  static std::shared_ptr<UsePlan> make(std::shared_ptr<const Recipe> recipe, Store& store);
  ~UsePlan() override;

  // A pass begins at this place. Nothing is computed before its first step is planned.
  void begin(std::uint64_t epoch, std::uint64_t cursor);
  // The step of a job is being read; called in order.
  void planned(const Job& job);
  // Its records have been read.
  void used(const Job& job);
  // The caller has been given everything before this place.
  void handed_out(std::uint64_t epoch, std::uint64_t cursor);
  // Nothing more is computed; the use file goes when the last owner does.
  void stop();

  std::uint64_t next_use(std::uint64_t block) const override;
  std::shared_ptr<const UseWriter> writer() const override;

 private:
  struct Place {
    std::uint64_t epoch = 0;
    std::uint64_t cursor = 0;
  };

  UsePlan(std::shared_ptr<const Recipe> recipe, std::shared_ptr<BlockCache> cache,
          std::shared_ptr<const BlockMap> map);

  // In the background.
  void compute(std::uint64_t run);
  std::optional<Place> missing(std::uint64_t run) const;
  std::optional<EpochUses> uses_from(Place from, std::uint64_t run);
  template <class Call>
  bool for_each_use(Place from, std::uint64_t run, Call&& call) const;
  template <class Call>
  void for_each_block(const Extent& extent, Call&& call) const;
  void make_opaque(std::uint64_t run);
  void take_in(EpochUses uses, std::uint64_t run);
  void make_writer(std::uint64_t run, const UseOptions& options);

  // With the lock held.
  void enter_epoch();
  std::uint64_t next_locked(std::uint64_t block, std::uint64_t from) const;
  void tell(std::uint64_t block);
  void tell_all();

  std::uint64_t line(std::uint64_t epoch, std::uint64_t position) const;

  const std::shared_ptr<const Recipe> recipe_;
  const std::shared_ptr<BlockCache> cache_;
  const std::shared_ptr<const BlockMap> map_;

  mutable std::mutex mutex_;
  std::atomic<std::uint64_t> run_ = 0;  // counts passes: work for an earlier one is thrown away
  Place begun_;
  Place planned_;
  bool computing_ = false;  // this pass has asked for it
  bool too_many_ = false;   // uses, in this pass
  std::optional<EpochUses> present_;
  std::optional<EpochUses> next_;
  std::vector<std::uint32_t> seen_;    // by block: its first position that has not been used
  std::vector<std::uint32_t> places_;  // by block: its place in the use file
  std::shared_ptr<UseWriter> writer_;
  std::chrono::steady_clock::time_point rate_since_{};
  std::uint64_t rate_from_ = 0;
  double rate_ = 0;

  TaskPool pool_{"hp-uses", 1};  // last: its task uses the rest
};

}  // namespace headpond
