#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "headpond/dataset.h"
#include "headpond/decoder.h"
#include "headpond/engine.h"
#include "headpond/sampler.h"
#include "headpond/slab.h"
#include "headpond/statistics.h"
#include "headpond/steps.h"

namespace headpond {

// One field of a batch and where it comes from.
struct FieldPlan {
  enum class Kind : std::uint8_t { stored, index, key, valid };
  Kind kind = Kind::stored;
  std::string name;                        // in the batch
  std::size_t source = 0;                  // stored: position in Dataset::fields()
  std::shared_ptr<const Decoder> decoder;  // none: the stored bytes
  std::optional<double> pad;               // varying fields: padded with this instead of ragged
};

enum class OnError : std::uint8_t { raise, skip, replace };

// What a loader makes: a description, copied freely.
struct LoaderSpec {
  std::shared_ptr<const Dataset> dataset;
  Sampler sampler = Sampler::none(0);
  std::vector<FieldPlan> fields;
  Steps steps;  // n, batch, world, rank, drop_last, uneven
  std::uint64_t augmentation_seed = 0;
  OnError on_error = OnError::raise;
  std::uint64_t max_errors = 100;  // per epoch
  std::uint64_t prefetch_bytes =
      0;                     // 0: half the engine's budget; at least two batches are in flight
  bool host_memory = false;  // batches live in memory that the host provides (pinned)
};

// One field of a finished batch. Memory belongs to the batch's slab.
struct BatchField {
  enum class Kind : std::uint8_t { array, ragged, key };
  Kind kind = Kind::array;
  std::string name;
  DType dtype = DType::uint8;
  // array: [rows, ...]; ragged: [elements] of all rows, one after another.
  Shape shape;
  std::byte* data = nullptr;
  std::int64_t* offsets = nullptr;  // ragged: rows + 1 element numbers
  std::int64_t* lengths = nullptr;  // padded: elements of each row
  std::size_t part = 0;             // of the slab, for host memory
};

// A batch as it is handed out, or the error that took its place.
struct Batch {
  bool in_order = false;  // it took its step of the order; false: an error outside of it
  std::uint64_t epoch = 0;
  std::uint64_t next_cursor = 0;  // of the global order, after this step
  Sampler::GroupPlace group;      // that holds next_cursor, where shards are streamed
  bool last = false;              // of this rank's epoch, as far as that is known
  std::uint64_t rows = 0;
  std::vector<BatchField> fields;
  std::vector<std::uint64_t> samples;  // index of each row
  std::shared_ptr<Slab> slab;          // keeps every field's memory alive
  std::optional<Error> error;          // then there are no fields
};

// Keeps batches in flight within budgets and yields them in order.
//
// `next` is for one consumer at a time (calls are serialised); the rest is safe
// from any thread. Work starts with the first call of `next`, never before, and
// goes on while the consumer computes. Samples of several batches finish in any
// order; the oldest batch always makes progress.
class Prefetcher {
 public:
  // Checks the spec, touches no data. Errors: invalid_argument; what opening a store says.
  static Result<std::shared_ptr<Prefetcher>> make(std::shared_ptr<Engine> engine, LoaderSpec spec);
  virtual ~Prefetcher() = default;

  // Begins a pass at `cursor` of `epoch`; it ends with the `epochs`-th epoch. What was
  // in flight is cancelled. Costs O(1) (`window`: O(shards)). With 0 epochs nothing is
  // read. `group`: the one that holds the cursor, where the counts of shards are not known.
  virtual Result<void> seek(std::uint64_t epoch, std::uint64_t cursor, std::uint64_t epochs,
                            Sampler::GroupPlace group = {}) = 0;
  // Begins the next pass of `epochs` epochs where the last one ended. Its first two
  // batches were made ahead, so that a trainer does not wait at the border.
  virtual void go_on(std::uint64_t epochs) = 0;

  // The next batch if it is ready, else nothing. Does not wait.
  // `finished()` tells the end of the pass from "not ready".
  virtual std::optional<Batch> try_next() = 0;
  // Waits until `try_next` would return something, the end is reached, host memory
  // is wanted, or `timeout_ms` passed. Call without the GIL.
  virtual void wait(std::uint32_t timeout_ms) = 0;
  virtual bool finished() const = 0;

  // Host memory (LoaderSpec::host_memory): batches that are planned and lack memory,
  // oldest first, with the bytes of each part; `provide` hands over one slab.
  struct Wanted {
    std::uint64_t ticket = 0;
    std::vector<std::uint64_t> part_bytes;
  };
  virtual std::vector<Wanted> wanted() = 0;
  virtual void provide(std::uint64_t ticket, std::shared_ptr<Slab> slab) = 0;

  // The fields of its batches: dtype, shape of one row (none: varying).
  virtual std::vector<Field> output_fields() const = 0;
  virtual LoaderStatistics statistics() const = 0;
  // What the oldest unfinished batch waits for, for the time-out's message.
  virtual std::string describe_wait() const = 0;

  // Cancels what is in flight and waits for it: within 2 s. Idempotent.
  virtual void stop() = 0;
};

}  // namespace headpond
