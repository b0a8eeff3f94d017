#include <algorithm>
#include <new>
#include <stdexcept>

#include "fixtures.h"
#include "support/faulty_store.h"

using namespace headpond;

namespace {

// Fails for records whose first byte is one of the given values.
class PickyDecoder final : public Decoder {
 public:
  explicit PickyDecoder(std::vector<int> bad) : bad_(std::move(bad)) {}
  const Field& output() const override { return output_; }
  std::uint64_t output_bytes_max(std::uint64_t) const override { return 4; }
  Result<std::uint64_t> decode(std::span<const std::byte> record, const SampleContext&,
                               std::span<std::byte> out, Scratch&) const override {
    const int value = std::to_integer<int>(record[0]);
    if (std::find(bad_.begin(), bad_.end(), value) != bad_.end())
      return Error(ErrorCode::corrupt_data, "bad record");
    for (auto& byte : out) byte = record[0];
    return std::uint64_t{4};
  }

 private:
  std::vector<int> bad_;
  Field output_{"data", DType::uint8, Shape{4}, false};
};

struct Setup {
  std::shared_ptr<Engine> engine = small_engine(2);
  LoaderSpec spec;
};

Setup twenty(std::vector<int> bad, OnError policy, bool cold = false,
             std::uint64_t missing = ~std::uint64_t{0}) {
  auto format = std::make_unique<TableFormat>(std::vector<std::uint64_t>(20, 10), Shape{10});
  format->missing = missing;
  std::shared_ptr<Store> store = blob_store(*format);
  if (cold) store = std::make_shared<ColdStore>(store);
  Setup setup;
  setup.spec = spec_of(table_dataset(std::move(format), store), 5);
  setup.spec.fields[0].decoder = std::make_shared<PickyDecoder>(std::move(bad));
  setup.spec.fields.push_back(plan_of(FieldPlan::Kind::valid, "__valid__"));
  setup.spec.on_error = policy;
  return setup;
}

std::vector<Batch> run(const Setup& setup, LoaderStatistics* statistics = nullptr) {
  auto prefetcher = Prefetcher::make(setup.engine, setup.spec);
  REQUIRE(prefetcher);
  REQUIRE((*prefetcher)->seek(0, 0, 1));
  auto batches = drain(**prefetcher);
  if (statistics != nullptr) *statistics = (*prefetcher)->statistics();
  return batches;
}

void check_content(const Batch& batch) {
  const auto data = values<std::uint8_t>(field(batch, "data"), batch.rows * 4);
  const auto labels = values<std::int64_t>(field(batch, "label"), batch.rows);
  for (std::size_t row = 0; row < batch.rows; ++row) {
    CHECK(data[4 * row] == batch.samples[row]);
    CHECK(data[4 * row + 3] == batch.samples[row]);
    CHECK(labels[row] == static_cast<std::int64_t>(10 * batch.samples[row]));
  }
}

}  // namespace

TEST_CASE(
    "on_error raise: the error takes its batch's place, names the sample, and the next batch "
    "follows") {
  for (const bool cold : {false, true}) {
    const auto batches = run(twenty({7, 8}, OnError::raise, cold));
    REQUIRE(batches.size() == 4);
    REQUIRE(batches[1].error);
    CHECK(batches[1].in_order);
    CHECK(batches[1].next_cursor == 10);
    CHECK(batches[1].error->sample_index() == 7u);
    CHECK(batches[1].error->code() == ErrorCode::corrupt_data);
    CHECK(batches[1].error->to_string().find("row-7") != std::string::npos);
    for (const std::size_t i : {0, 2, 3}) {
      REQUIRE(!batches[i].error);
      check_content(batches[i]);
    }
  }
}

TEST_CASE("on_error skip: the row is left out, the others move up, the count and the list say so") {
  LoaderStatistics statistics;
  const auto batches = run(twenty({5, 7, 9}, OnError::skip), &statistics);
  REQUIRE(batches.size() == 4);
  CHECK(batches[1].samples == std::vector<std::uint64_t>{6, 8});
  CHECK(batches[1].rows == 2);
  CHECK(field(batches[1], "data").shape == Shape{2, 4});
  for (const auto& batch : batches) check_content(batch);
  CHECK(statistics.skipped == 3);
  CHECK(statistics.samples == 17);
  REQUIRE(statistics.errors.size() == 3);
  CHECK(statistics.errors[1].key == "row-7");
  CHECK(statistics.errors[1].reason.find("bad record") != std::string::npos);
}

TEST_CASE("on_error replace: a good row of the batch stands in and is marked") {
  const auto batches = run(twenty({9}, OnError::replace));
  CHECK(batches[1].samples == std::vector<std::uint64_t>{5, 6, 7, 8, 5});
  CHECK(values<std::uint8_t>(field(batches[1], "__valid__"), 5) ==
        std::vector<std::uint8_t>{1, 1, 1, 1, 0});
  for (const auto& batch : batches) check_content(batch);
}

TEST_CASE("on_error: a batch without a good row raises under every policy") {
  for (const auto policy : {OnError::raise, OnError::skip, OnError::replace}) {
    const auto batches = run(twenty({5, 6, 7, 8, 9}, policy));
    REQUIRE(batches.size() == 4);
    REQUIRE(batches[1].error);
    CHECK(batches[1].error->sample_index() == 5u);
    CHECK(!batches[2].error);
  }
}

TEST_CASE("on_error: more failures than max_errors raise, naming the last") {
  auto setup = twenty({1, 6, 11}, OnError::skip);
  setup.spec.max_errors = 2;
  const auto batches = run(setup);
  CHECK(!batches[1].error);
  REQUIRE(batches[2].error);
  CHECK(batches[2].error->code() == ErrorCode::too_many_errors);
  CHECK(batches[2].error->to_string().find("row-11") != std::string::npos);
}

TEST_CASE("a sample without the field is corrupt data and names the field") {
  const auto batches = run(twenty({}, OnError::raise, false, 3));
  REQUIRE(batches[0].error);
  CHECK(batches[0].error->code() == ErrorCode::corrupt_data);
  CHECK(batches[0].error->to_string().find("\"data\"") != std::string::npos);
}

TEST_CASE("an object that lost its end is an error, warm and cold, never zeros") {
  for (const bool cold : {false, true}) {
    auto format = std::make_unique<TableFormat>(std::vector<std::uint64_t>(20, 10), Shape{10});
    auto memory = blob_store(*format);
    std::shared_ptr<Store> store = memory;
    if (cold) store = std::make_shared<ColdStore>(store);
    auto bytes = format->bytes();
    const auto dataset = table_dataset(std::move(format), store);
    bytes.resize(55);
    memory->put("blob", bytes);
    Setup setup;
    setup.spec = spec_of(dataset, 5);
    const auto batches = run(setup);
    REQUIRE(batches.size() == 4);
    for (const auto& batch : batches) {
      REQUIRE(batch.error);
      CHECK(batch.error->code() == ErrorCode::object_changed);
    }
  }
}

TEST_CASE(
    "neighbouring cold records that fail together are read alone: each its bytes or its error") {
  for (const bool twice : {false, true}) {  // both fields of a row in one read
    auto format = std::make_unique<TableFormat>(std::vector<std::uint64_t>(20, 10), Shape{10});
    const auto faulty = std::make_shared<FaultyStore>(blob_store(*format));
    const auto cold = std::make_shared<ColdStore>(faulty);
    Setup setup;
    setup.spec = spec_of(table_dataset(std::move(format), cold), 5);
    if (twice) setup.spec.fields.push_back(plan_of(FieldPlan::Kind::stored, "again", 0));
    setup.spec.on_error = OnError::skip;
    faulty->fail_in("blob", {75, 82}, Error(ErrorCode::io_failed, "a bad sector"));
    LoaderStatistics statistics;
    const auto batches = run(setup, &statistics);
    REQUIRE(batches.size() == 4);
    CHECK(batches[1].samples == std::vector<std::uint64_t>{5, 6, 9});
    for (const auto& batch : batches) {
      REQUIRE(!batch.error);
      for (const std::string name : {"data", "again"}) {
        if (name == "again" && !twice) continue;
        const auto data = values<std::uint8_t>(field(batch, name), batch.rows * 10);
        for (std::size_t i = 0; i < data.size(); ++i) CHECK(data[i] == batch.samples[i / 10]);
      }
    }
    REQUIRE(statistics.errors.size() == 2);
    CHECK(statistics.errors[0].sample == 7);
    CHECK(statistics.errors[0].start == 70);
    CHECK(statistics.errors[0].stop == 80);
    CHECK(statistics.errors[1].sample == 8);
    CHECK(statistics.errors[1].reason.find("a bad sector") != std::string::npos);
    // A read for each batch, two ahead, and one for each record of the two whose read failed.
    CHECK(cold->reads <= (twice ? 6 + 2 * 10 : 6 + 2 * 5));
  }
}

TEST_CASE("neighbouring cold records that fail only together are right") {
  auto format = std::make_unique<TableFormat>(std::vector<std::uint64_t>(20, 10), Shape{10});
  const auto faulty = std::make_shared<FaultyStore>(blob_store(*format));
  Setup setup;
  setup.spec = spec_of(table_dataset(std::move(format), std::make_shared<ColdStore>(faulty)), 20);
  faulty->fail_longer("blob", 10, Error(ErrorCode::io_failed, "made up"));
  const auto batches = run(setup);
  REQUIRE(batches.size() == 1);
  REQUIRE(!batches[0].error);
  REQUIRE(batches[0].rows == 20);
  const auto data = values<std::uint8_t>(field(batches[0], "data"), 200);
  for (std::size_t i = 0; i < data.size(); ++i) CHECK(data[i] == batches[0].samples[i / 10]);
  CHECK(faulty->failures() >= 1);
}

TEST_CASE("of neighbouring cold records that fail alone too the first one's is the batch's error") {
  auto format = std::make_unique<TableFormat>(std::vector<std::uint64_t>(20, 10), Shape{10});
  const auto faulty = std::make_shared<FaultyStore>(blob_store(*format));
  Setup setup;
  setup.spec = spec_of(table_dataset(std::move(format), std::make_shared<ColdStore>(faulty)), 20);
  faulty->fail_in("blob", {35, 52}, Error(ErrorCode::io_failed, "made up"));
  const auto batches = run(setup);
  REQUIRE(batches.size() == 1);
  REQUIRE(batches[0].error);
  CHECK(batches[0].error->sample_index() == 3u);
}

TEST_CASE("an exception of a decoder is the error of its sample") {
  struct Throwing final : Decoder {
    const Field& output() const override { return output_; }
    std::uint64_t output_bytes_max(std::uint64_t) const override { return 4; }
    Result<std::uint64_t> decode(std::span<const std::byte> record, const SampleContext&,
                                 std::span<std::byte> out, Scratch&) const override {
      if (record[0] == std::byte{6}) throw std::runtime_error("a library's");
      if (record[0] == std::byte{8}) throw std::bad_alloc();
      for (auto& byte : out) byte = record[0];
      return std::uint64_t{4};
    }
    Field output_{"data", DType::uint8, Shape{4}, false};
  };
  for (const bool cold : {false, true}) {
    auto setup = twenty({}, OnError::skip, cold);
    setup.spec.fields[0].decoder = std::make_shared<Throwing>();
    LoaderStatistics statistics;
    const auto batches = run(setup, &statistics);
    REQUIRE(batches.size() == 4);
    CHECK(batches[1].samples == std::vector<std::uint64_t>{5, 7, 9});
    for (const auto& batch : batches) check_content(batch);
    REQUIRE(statistics.errors.size() == 2);
    CHECK(statistics.errors[0].reason.find("a library's") != std::string::npos);
    CHECK(statistics.errors[1].reason.find("no memory is left") != std::string::npos);
  }
}

TEST_CASE("an exception of a store or a format is the error of its batch, and the next one comes") {
  class Throwing final : public WrappedStore {
   public:
    using WrappedStore::WrappedStore;
    Result<std::size_t> read_now(std::string_view object, const ObjectVersion& expected,
                                 std::span<const Piece> pieces, Wait wait) override {
      for (const auto& piece : pieces) {
        if (piece.offset == 70) throw std::bad_alloc();
      }
      return WrappedStore::read_now(object, expected, pieces, wait);
    }
  };
  class ThrowingFormat final : public Format {
   public:
    explicit ThrowingFormat(std::unique_ptr<TableFormat> inner) : inner_(std::move(inner)) {}
    std::uint64_t size() const override { return inner_->size(); }
    std::span<const Field> fields() const override { return inner_->fields(); }
    void locate(std::span<const std::uint64_t> samples, std::size_t field,
                std::span<Extent> out) const override {
      if (samples.front() == 5) throw std::bad_alloc();
      inner_->locate(samples, field, out);
    }
    std::string key(std::uint64_t sample) const override { return inner_->key(sample); }
    std::vector<std::uint64_t> shard_counts() const override { return inner_->shard_counts(); }

   private:
    std::unique_ptr<TableFormat> inner_;
  };
  for (const bool of_store : {true, false}) {
    auto format = std::make_unique<TableFormat>(std::vector<std::uint64_t>(20, 10), Shape{10});
    std::shared_ptr<Store> store = blob_store(*format);
    if (of_store) store = std::make_shared<Throwing>(store);
    Dataset::Parts parts;
    parts.manifest = *Manifest::build(*Uri::parse("/tables"), {*stat_blocking(*store, "blob")});
    parts.arguments = "{}";
    parts.store = store;
    if (of_store) {
      parts.format = std::move(format);
    } else {
      parts.format = std::make_unique<ThrowingFormat>(std::move(format));
    }
    Setup setup;
    setup.spec = spec_of(std::make_shared<const Dataset>(std::move(parts)), 5);
    const auto batches = run(setup);
    REQUIRE(batches.size() == 4);
    for (const std::size_t i : {0, 1, 2, 3}) {
      CHECK(batches[i].in_order);
      CHECK(batches[i].next_cursor == 5 * (i + 1));
      CHECK(batches[i].error.has_value() == (i == 1));
    }
    REQUIRE(batches[1].error);
    CHECK(batches[1].error->code() == ErrorCode::resource_limit);
  }
}

TEST_CASE("a store that throws when it is asked fails the reads that it did not take up") {
  // Throws before or behind its work.
  class Throwing final : public WrappedStore {
   public:
    Throwing(std::shared_ptr<Store> inner, bool behind)
        : WrappedStore(std::move(inner)), behind_(behind) {}
    void read(std::span<ReadRequest> requests) override {
      if (!behind_) throw std::runtime_error("a library's");
      inner().read(requests);
      throw std::bad_alloc();
    }

   private:
    const bool behind_;
  };
  for (const bool behind : {false, true}) {
    auto format = std::make_unique<TableFormat>(std::vector<std::uint64_t>(20, 10), Shape{10});
    const auto store = std::make_shared<Throwing>(blob_store(*format), behind);
    Setup setup;
    setup.spec = spec_of(table_dataset(std::move(format), std::make_shared<ColdStore>(store)), 5);
    const auto batches = run(setup);
    REQUIRE(batches.size() == 4);
    const auto failed = std::count_if(batches.begin(), batches.end(),
                                      [](const Batch& batch) { return batch.error.has_value(); });
    CHECK(failed == (behind ? 0 : 4));
    CHECK(setup.engine->log()->drain().empty());  // no read is thought to be stuck
    CHECK(setup.engine->status().memory_used == 0);
  }
}

TEST_CASE("a record of an impossible size fails its row, not the memory around it") {
  for (const std::uint64_t size : {std::uint64_t{1} << 47, ~std::uint64_t{0} - 4095}) {
    struct Lying final : Format {
      explicit Lying(std::uint64_t claimed) : claimed_(claimed) {}
      std::uint64_t size() const override { return 3; }
      std::span<const Field> fields() const override { return fields_; }
      void locate(std::span<const std::uint64_t> samples, std::size_t field,
                  std::span<Extent> out) const override {
        for (std::size_t i = 0; i < samples.size(); ++i) {
          out[i] = field == 1 ? Extent{Extent::kValue, 10 * samples[i], 8}
                              : Extent{0, 0, samples[i] == 1 ? claimed_ : 6};
        }
      }
      std::string key(std::uint64_t sample) const override { return std::to_string(sample); }
      std::vector<std::uint64_t> shard_counts() const override { return {3}; }
      std::uint64_t claimed_;
      std::vector<Field> fields_{{"data", DType::bytes, std::nullopt, false},
                                 {"label", DType::int64, Shape{}, false}};
    };
    auto store = std::make_shared<MemoryStore>();
    store->put("blob", std::vector<std::byte>(6, std::byte{7}));
    auto manifest = Manifest::build(*Uri::parse("/tables"), {*stat_blocking(*store, "blob")});
    Dataset::Parts parts;
    parts.manifest = *manifest;
    parts.format = std::make_unique<Lying>(size);
    parts.arguments = "{}";
    parts.store = store;
    Setup setup;
    setup.spec = spec_of(std::make_shared<const Dataset>(std::move(parts)), 3);
    setup.spec.on_error = OnError::skip;
    LoaderStatistics statistics;
    const auto batches = run(setup, &statistics);
    REQUIRE(batches.size() == 1);
    CHECK(batches[0].samples == std::vector<std::uint64_t>{0, 2});
    CHECK(field(batches[0], "data").shape == Shape{12});
    REQUIRE(statistics.errors.size() == 1);
    CHECK(statistics.errors[0].reason.find("does not fit") != std::string::npos);
  }
}
