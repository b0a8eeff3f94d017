#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "fixtures.h"
#include "headpond/shard_order.h"
#include "support/tar_writer.h"
#include "support/wrapped_store.h"

namespace headpond {

using Counts = std::vector<std::uint64_t>;

// A store behind a network: nothing is in memory; counts what is read.
class FarStore final : public WrappedStore {
 public:
  using WrappedStore::WrappedStore;
  void read(std::span<ReadRequest> requests) override {
    // A read of one byte asks for the version.
    for (const auto& request : requests) {
      if (request.out.size() <= 1) continue;
      bytes += request.out.size();
      const std::lock_guard lock(mutex_);
      names_.insert(request.object);
    }
    inner().read(requests);
  }
  Result<std::size_t> read_now(std::string_view, const ObjectVersion&, std::span<const Piece>,
                               Wait) override {
    return std::size_t{0};
  }
  bool is_remote() const override { return true; }
  void close() override {}  // it serves several engines

  // The objects of which bytes were read since the last call.
  std::set<std::string> take_names() {
    const std::lock_guard lock(mutex_);
    return std::exchange(names_, {});
  }

  std::atomic<std::uint64_t> bytes{0};

 private:
  std::mutex mutex_;
  std::set<std::string> names_;
};

inline std::string shard_name(std::uint64_t shard) {
  return "s" + std::to_string(100 + shard) + ".tar";
}

inline std::string content_of(std::uint64_t shard, std::uint64_t row, std::uint64_t bytes) {
  std::string content = std::to_string(shard) + "/" + std::to_string(row) + ":";
  content.resize(std::max<std::size_t>(content.size(), bytes), static_cast<char>('a' + row % 26));
  return content;
}

struct Far {
  std::shared_ptr<MemoryStore> memory = std::make_shared<MemoryStore>();
  std::shared_ptr<FarStore> store = std::make_shared<FarStore>(memory);
  std::uint64_t bytes = 0;
  std::uint64_t samples = 0;

  explicit Far(const Counts& counts, std::uint64_t sample_bytes = 100) {
    for (std::uint64_t shard = 0; shard < counts.size(); ++shard) {
      TarWriter tar;
      for (std::uint64_t row = 0; row < counts[shard]; ++row) {
        const std::string key = "k" + std::to_string(shard) + "-" + std::to_string(row);
        tar.file(key + ".bin", content_of(shard, row, sample_bytes + row % 7));
        tar.file(key + ".cls", std::to_string(row));
      }
      put(shard, tar.end().bytes());
      samples += counts[shard];
    }
  }
  void put(std::uint64_t shard, const std::string& tar) {
    const auto all = std::as_bytes(std::span(tar));
    memory->put(shard_name(shard), {all.begin(), all.end()});
    bytes += tar.size();
  }
};

inline std::shared_ptr<Engine> engine_with(const Far& far, std::uint64_t memory = 64 << 20,
                                           unsigned threads = 2) {
  auto engine = small_engine(threads, memory);
  engine->stores().add("far", [store = far.store](const Uri&) -> Result<std::shared_ptr<Store>> {
    return std::shared_ptr<Store>(store);
  });
  return engine;
}

inline std::shared_ptr<const Dataset> open_far(Engine& engine, std::uint64_t shards,
                                               const std::string& index_folder = "") {
  OpenContext context;
  context.stores = &engine.stores();
  context.index_folder = index_folder;
  Source source;
  for (std::uint64_t shard = 0; shard < shards; ++shard)
    source.paths.push_back("far://host/" + shard_name(shard));
  auto dataset = open_webdataset(source, context);
  REQUIRE(dataset);
  return *dataset;
}

inline LoaderSpec window_spec(std::shared_ptr<const Dataset> dataset, std::uint64_t window,
                              std::uint64_t batch) {
  LoaderSpec spec;
  const auto counts = dataset->format().shard_counts();
  spec.sampler = dataset->size_is_known() ? Sampler::window(counts, 7, window)
                                          : Sampler::window_of_unknown(7, window);
  spec.steps.n = spec.sampler.size();
  spec.steps.batch = batch;
  spec.fields = {plan_of(FieldPlan::Kind::stored, "bin", 0)};
  spec.dataset = std::move(dataset);
  return spec;
}

inline std::vector<std::string> rows_of(const Batch& batch) {
  REQUIRE(!batch.error);
  const BatchField& data = field(batch, "bin");
  std::vector<std::string> rows;
  for (std::uint64_t row = 0; row < batch.rows; ++row) {
    const auto* first = reinterpret_cast<const char*>(data.data);
    const std::string text(first + data.offsets[row], first + data.offsets[row + 1]);
    rows.push_back(text.substr(0, text.find(':')));
  }
  return rows;
}

inline std::vector<std::string> rows_of(const std::vector<Batch>& batches) {
  std::vector<std::string> all;
  for (const auto& batch : batches) {
    for (auto& row : rows_of(batch)) all.push_back(std::move(row));
  }
  return all;
}

inline std::shared_ptr<Prefetcher> made(const std::shared_ptr<Engine>& engine, LoaderSpec spec) {
  auto prefetcher = Prefetcher::make(engine, std::move(spec));
  REQUIRE(prefetcher);
  return *prefetcher;
}

// "shard/row" in the order of an epoch, from the counts alone.
inline std::vector<std::string> expected_rows(const Counts& counts, std::uint64_t window,
                                              std::uint64_t epoch) {
  std::vector<std::string> names;
  for (std::uint64_t shard = 0; shard < counts.size(); ++shard) {
    for (std::uint64_t row = 0; row < counts[shard]; ++row)
      names.push_back(std::to_string(shard) + "/" + std::to_string(row));
  }
  std::vector<std::uint64_t> order(names.size());
  Sampler::window(counts, 7, window).order(epoch)->indices(0, 1, order);
  std::vector<std::string> rows;
  for (const auto index : order) rows.push_back(names[index]);
  return rows;
}

}  // namespace headpond
