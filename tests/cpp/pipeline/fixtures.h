#pragma once

#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "headpond/dataset.h"
#include "headpond/prefetcher.h"
#include "support/catch.h"

namespace headpond {

// Records of varying size, all in one object, found by a table: sample i holds
// `sizes[i]` bytes of value i & 0xFF. Field "label" has the value 10 * i.
class TableFormat final : public Format {
 public:
  TableFormat(std::vector<std::uint64_t> sizes, std::optional<Shape> shape)
      : sizes_(std::move(sizes)) {
    starts_.push_back(0);
    for (const auto size : sizes_) starts_.push_back(starts_.back() + size);
    fields_.push_back({"data", shape ? DType::uint8 : DType::bytes, shape, false});
    fields_.push_back({"label", DType::int64, Shape{}, false});
  }
  std::uint64_t size() const override { return sizes_.size(); }
  std::span<const Field> fields() const override { return fields_; }
  void locate(std::span<const std::uint64_t> samples, std::size_t field,
              std::span<Extent> out) const override {
    for (std::size_t i = 0; i < samples.size(); ++i) {
      if (field == 1) {
        out[i] = {Extent::kValue, 10 * samples[i], 8};
      } else if (samples[i] == missing) {
        out[i] = {};
      } else {
        out[i] = {0, starts_[samples[i]], sizes_[samples[i]]};
      }
    }
  }
  std::string key(std::uint64_t sample) const override { return "row-" + std::to_string(sample); }
  std::vector<std::uint64_t> shard_counts() const override { return {size()}; }

  std::vector<std::byte> bytes() const {
    std::vector<std::byte> all(starts_.back());
    for (std::size_t i = 0; i < sizes_.size(); ++i) {
      if (sizes_[i] > 0)
        std::memset(all.data() + starts_[i], static_cast<int>(i & 0xFF), sizes_[i]);
    }
    return all;
  }

  std::uint64_t missing = ~std::uint64_t{0};

 private:
  std::vector<std::uint64_t> sizes_;
  std::vector<std::uint64_t> starts_;
  std::vector<Field> fields_;
};

// A dataset over `store`, which must hold the object "blob" (see blob_store).
inline std::shared_ptr<const Dataset> table_dataset(std::unique_ptr<TableFormat> format,
                                                    std::shared_ptr<Store> store) {
  auto info = stat_blocking(*store, "blob");
  REQUIRE(info);
  auto manifest = Manifest::build(*Uri::parse("/tables"), {*info});
  REQUIRE(manifest);
  Dataset::Parts parts;
  parts.manifest = *manifest;
  parts.format = std::move(format);
  parts.arguments = "{}";
  parts.store = std::move(store);
  return std::make_shared<const Dataset>(std::move(parts));
}

inline std::shared_ptr<MemoryStore> blob_store(const TableFormat& format) {
  auto store = std::make_shared<MemoryStore>();
  store->put("blob", format.bytes());
  return store;
}

// A store whose data are never in memory: everything goes through `read`.
class ColdStore final : public Store {
 public:
  explicit ColdStore(std::shared_ptr<Store> inner) : inner_(std::move(inner)) {}
  void read(std::span<ReadRequest> requests) override {
    reads += requests.size();
    inner_->read(requests);
  }
  void stat(std::string object, std::function<void(Result<ObjectInfo>)> done) override {
    inner_->stat(std::move(object), std::move(done));
  }
  void list(ListRequest request) override { inner_->list(std::move(request)); }
  Result<std::size_t> read_now(std::string_view, const ObjectVersion&, std::span<const Piece>,
                               Wait) override {
    return std::size_t{0};
  }
  std::string describe() const override { return "cold " + inner_->describe(); }
  void close() override { inner_->close(); }

  std::atomic<std::size_t> reads{0};

 private:
  std::shared_ptr<Store> inner_;
};

inline FieldPlan plan_of(FieldPlan::Kind kind, std::string name, std::size_t source = 0) {
  FieldPlan plan;
  plan.kind = kind;
  plan.name = std::move(name);
  plan.source = source;
  return plan;
}

inline LoaderSpec spec_of(std::shared_ptr<const Dataset> dataset, std::uint64_t batch) {
  LoaderSpec spec;
  spec.sampler = Sampler::none(dataset->size());
  spec.steps.n = dataset->size();
  spec.steps.batch = batch;
  spec.fields = {plan_of(FieldPlan::Kind::stored, "data", 0),
                 plan_of(FieldPlan::Kind::stored, "label", 1)};
  spec.dataset = std::move(dataset);
  return spec;
}

inline std::shared_ptr<Engine> small_engine(unsigned threads = 2, std::uint64_t memory = 64 << 20) {
  EngineOptions options;
  options.cpu_threads = threads;
  options.memory_bytes = memory;
  return Engine::make(options);
}

// The next batch, waiting for it; nothing at the end.
inline std::optional<Batch> next(Prefetcher& prefetcher) {
  for (;;) {
    if (auto batch = prefetcher.try_next()) return batch;
    if (prefetcher.finished()) return std::nullopt;
    prefetcher.wait(10'000);
  }
}

inline std::vector<Batch> drain(Prefetcher& prefetcher) {
  std::vector<Batch> batches;
  while (auto batch = next(prefetcher)) batches.push_back(*std::move(batch));
  return batches;
}

inline const BatchField& field(const Batch& batch, std::string_view name) {
  for (const auto& candidate : batch.fields) {
    if (candidate.name == name) return candidate;
  }
  FAIL("no field " << name);
  return batch.fields.front();
}

template <class T>
std::vector<T> values(const BatchField& field, std::size_t count) {
  std::vector<T> out(count);
  if (count > 0) std::memcpy(out.data(), field.data, count * sizeof(T));
  return out;
}

}  // namespace headpond
