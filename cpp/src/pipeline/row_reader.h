#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "headpond/store.h"
#include "pipeline/cold_reads.h"
#include "pipeline/held_shard.h"
#include "pipeline/job.h"
#include "pipeline/recipe.h"

namespace headpond {

// Brings records that are in memory into a batch, on the calling worker. Immutable; safe from
// any thread.
class RowReader {
 public:
  // `held` may be null: whole shards in memory, which come before the store.
  RowReader(std::shared_ptr<const Recipe> recipe, std::shared_ptr<Store> store,
            const HeldShards* held)
      : recipe_(std::move(recipe)), store_(std::move(store)), held_(held) {}

  // Reads and decodes what is in memory of rows [first, last); failures go to the
  // job. Returns the rest, valid until `scratch` is used again.
  std::span<ColdRecord> fill(Job& job, std::uint32_t first, std::uint32_t last,
                             Scratch& scratch) const;

  // Decodes the records of a row that arrived from storage.
  void fill_arrived(Job& job, std::uint32_t row, Scratch& scratch) const;

 private:
  struct Work;
  void fill_field(Job& job, std::uint32_t field, std::uint32_t first, std::uint32_t last,
                  Scratch& scratch, Work& work) const;
  std::uint32_t fill_run(Job& job, std::uint32_t field, std::uint32_t first, std::uint32_t last,
                         Scratch& scratch, Work& work) const;
  bool read_run(Job& job, std::uint32_t field, std::uint32_t first, std::uint32_t object,
                std::uint64_t total, Work& work) const;
  void decode(Job& job, std::uint32_t field, std::uint32_t row, std::span<const std::byte> record,
              Scratch& scratch) const;
  std::span<std::byte> slot(const Job& job, std::uint32_t field, std::uint32_t row) const {
    return slot_of(recipe_->fields()[field], job, row);
  }

  std::shared_ptr<const Recipe> recipe_;
  std::shared_ptr<Store> store_;
  const HeldShards* held_;
};

}  // namespace headpond
