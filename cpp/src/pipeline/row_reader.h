#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "headpond/store.h"
#include "pipeline/held_shard.h"
#include "pipeline/job.h"
#include "pipeline/recipe.h"

namespace headpond {

// One record of one row that is not in memory.
struct ColdRecord {
  std::uint32_t row = 0;
  std::uint32_t field = 0;  // of the recipe
};

// A read from storage that serves one or several neighbouring records.
struct ColdRead {
  std::uint32_t object = 0;
  ByteRange range;
  std::vector<ColdRecord> records;
  std::shared_ptr<Slab> buffer;  // none: straight into the batch (one record, read in place)
  std::span<std::byte> out;
};

// Brings records into a batch: warm ones at once on the calling worker, cold ones
// as a list of reads. Immutable; safe from any thread.
class RowReader {
 public:
  // `held` may be null: whole shards in memory, which come before the store.
  RowReader(std::shared_ptr<const Recipe> recipe, std::shared_ptr<Store> store,
            std::shared_ptr<SlabPool> buffers, const HeldShards* held)
      : recipe_(std::move(recipe)),
        store_(std::move(store)),
        buffers_(std::move(buffers)),
        held_(held) {}

  // Reads and decodes what is in memory of rows [first, last); failures go to the
  // job. Returns the reads for the rest; rows named there are not done yet.
  std::vector<ColdRead> fill(Job& job, std::uint32_t first, std::uint32_t last,
                             Scratch& scratch) const;

  // The records of a read that failed, each in a read of its own: alone, each gets its
  // own bytes or its own error. Their rows wait for all of them, and for `together` still.
  std::vector<ColdRead> split(Job& job, const ColdRead& together) const;

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
  std::span<std::byte> slot(Job& job, std::uint32_t field, std::uint32_t row) const;
  std::vector<ColdRead> plan_cold(Job& job, std::vector<ColdRecord>& records) const;
  void place(Job& job, std::vector<ColdRead>& reads) const;

  std::shared_ptr<const Recipe> recipe_;
  std::shared_ptr<Store> store_;
  std::shared_ptr<SlabPool> buffers_;
  const HeldShards* held_;
};

}  // namespace headpond
