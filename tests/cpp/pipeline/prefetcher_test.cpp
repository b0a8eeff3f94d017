#include "headpond/prefetcher.h"

#include <dirent.h>

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <future>
#include <mutex>
#include <thread>

#include "fixtures.h"
#include "support/gated_store.h"
#include "support/wrapped_store.h"

using namespace headpond;

namespace {

std::vector<std::uint64_t> varied_sizes(std::size_t n) {
  std::vector<std::uint64_t> sizes(n);
  for (std::size_t i = 0; i < n; ++i) sizes[i] = (i * 37) % 101;
  return sizes;
}

struct Table {
  std::shared_ptr<Store> store;
  std::shared_ptr<const Dataset> dataset;
};

Table varying(std::size_t n, bool cold) {
  auto format = std::make_unique<TableFormat>(varied_sizes(n), std::nullopt);
  std::shared_ptr<Store> store = blob_store(*format);
  if (cold) store = std::make_shared<ColdStore>(store);
  return {store, table_dataset(std::move(format), store)};
}

Table fixed(std::size_t n, std::uint64_t bytes, bool cold) {
  auto format = std::make_unique<TableFormat>(std::vector<std::uint64_t>(n, bytes), Shape{bytes});
  std::shared_ptr<Store> store = blob_store(*format);
  if (cold) store = std::make_shared<ColdStore>(store);
  return {store, table_dataset(std::move(format), store)};
}

std::shared_ptr<Prefetcher> prefetcher_of(const std::shared_ptr<Engine>& engine, LoaderSpec spec,
                                          std::uint64_t epochs = 1) {
  auto prefetcher = Prefetcher::make(engine, std::move(spec));
  REQUIRE(prefetcher);
  REQUIRE((*prefetcher)->seek(0, 0, epochs));
  return *prefetcher;
}

void check_rows(const Batch& batch) {
  const auto& data = field(batch, "data");
  const auto labels = values<std::int64_t>(field(batch, "label"), batch.rows);
  for (std::size_t row = 0; row < batch.rows; ++row) {
    const auto sample = batch.samples[row];
    CHECK(labels[row] == static_cast<std::int64_t>(10 * sample));
    const std::byte* begin = data.data;
    std::uint64_t size = 0;
    if (data.kind == BatchField::Kind::ragged) {
      begin += data.offsets[row];
      size = static_cast<std::uint64_t>(data.offsets[row + 1] - data.offsets[row]);
      CHECK(size == (sample * 37) % 101);
    } else {
      size = data.shape[1];
      begin += row * size;
    }
    CHECK(std::all_of(begin, begin + size,
                      [&](std::byte b) { return b == static_cast<std::byte>(sample & 0xFF); }));
  }
}

// Four batches of two records, and two of the next epoch, whose reads wait at a gate.
struct Gated {
  explicit Gated(std::uint64_t record_bytes = 1000) {
    auto format = std::make_unique<TableFormat>(std::vector<std::uint64_t>(8, record_bytes),
                                                Shape{record_bytes});
    store = std::make_shared<GatedStore>(blob_store(*format));
    const auto dataset = table_dataset(std::move(format), std::make_shared<ColdStore>(store));
    prefetcher = prefetcher_of(engine, spec_of(dataset, 2));
    CHECK(!prefetcher->try_next());
    store->await_held(6);
  }
  std::shared_ptr<GatedStore> store;
  std::shared_ptr<Engine> engine = small_engine(2);
  std::shared_ptr<Prefetcher> prefetcher;
};

std::size_t threads_of_process() {
  std::size_t count = 0;
  DIR* tasks = opendir("/proc/self/task");
  while (readdir(tasks) != nullptr) ++count;
  closedir(tasks);
  return count;
}

}  // namespace

TEST_CASE(
    "Prefetcher: batches come in order with the right bytes, warm and cold, ragged and fixed") {
  for (const bool cold : {false, true}) {
    for (const bool ragged : {false, true}) {
      const auto table = ragged ? varying(1003, cold) : fixed(1003, 24, cold);
      const auto engine = small_engine(3);
      auto spec = spec_of(table.dataset, 17);
      spec.sampler = Sampler::full(1003, 5);
      const auto prefetcher = prefetcher_of(engine, spec);
      const auto batches = drain(*prefetcher);
      REQUIRE(batches.size() == 59);
      std::vector<std::uint64_t> expected(1003);
      spec.sampler.order(0)->indices(0, 1, expected);
      std::vector<std::uint64_t> seen;
      for (const auto& batch : batches) {
        REQUIRE(!batch.error);
        check_rows(batch);
        seen.insert(seen.end(), batch.samples.begin(), batch.samples.end());
      }
      CHECK(seen == expected);
      CHECK(batches.back().last);
      CHECK(batches.back().next_cursor == 1003);
    }
  }
}

TEST_CASE("Prefetcher: no thread runs and no byte is read before the first next") {
  const auto table = varying(10, false);
  const auto before = threads_of_process();
  const auto engine = small_engine(2);
  const auto prefetcher = prefetcher_of(engine, spec_of(table.dataset, 2));
  CHECK(threads_of_process() == before);
  CHECK(!engine->status().started);
  CHECK(engine->status().memory_used == 0);
  REQUIRE(next(*prefetcher));
  CHECK(engine->status().started);
}

TEST_CASE("Prefetcher: neighbouring cold records share a read") {
  const auto table = fixed(4096, 64, true);
  const auto engine = small_engine();
  const auto prefetcher = prefetcher_of(engine, spec_of(table.dataset, 512));
  CHECK(drain(*prefetcher).size() == 8);
  CHECK(dynamic_cast<ColdStore&>(*table.store).reads <= 16);
}

TEST_CASE("Prefetcher: a budget of less than one batch still makes progress, one batch at a time") {
  const auto table = fixed(64, 1 << 16, true);
  const auto engine = small_engine(2, 1000);
  const auto prefetcher = prefetcher_of(engine, spec_of(table.dataset, 4));
  const auto batches = drain(*prefetcher);
  CHECK(batches.size() == 16);
  CHECK(engine->status().memory_peak <= 4 * ((1 << 16) + 8) + 4096);
}

TEST_CASE("Prefetcher: what is planned stays within the prefetch limit until batches are taken") {
  const auto table = fixed(1000, 1000, false);
  const auto engine = small_engine(2);
  auto spec = spec_of(table.dataset, 10);
  spec.prefetch_bytes = 50'000;
  const auto prefetcher = prefetcher_of(engine, spec);
  REQUIRE(next(*prefetcher));
  drain(*prefetcher);
  CHECK(engine->status().memory_peak <= 50'000 + 2 * 10'080);
}

TEST_CASE("Prefetcher: later batches finish while the oldest waits, and are still given in order") {
  const Gated gated;
  gated.store->release_last();
  CHECK(!gated.prefetcher->try_next());
  CHECK(gated.prefetcher->describe_wait().find("reads from") != std::string::npos);
  gated.store->release();
  const auto batches = drain(*gated.prefetcher);
  REQUIRE(batches.size() == 4);
  for (std::uint64_t i = 0; i < 4; ++i)
    CHECK(batches[i].samples == std::vector<std::uint64_t>{2 * i, 2 * i + 1});
}

TEST_CASE("Prefetcher: what it waits for can be asked at any time") {
  const auto table = fixed(20'000, 64, true);
  const auto engine = small_engine(3);
  const auto prefetcher = prefetcher_of(engine, spec_of(table.dataset, 16));
  std::size_t batches = 0;
  while (!prefetcher->finished()) {
    CHECK(!prefetcher->describe_wait().empty());
    while (prefetcher->try_next()) ++batches;
  }
  CHECK(batches == 1250);
}

TEST_CASE("Prefetcher: a thread that gives up waiting leaves the wake-up of another in place") {
  const Gated gated(std::uint64_t{1} << 20);  // large batches: nobody looks before being woken
  std::promise<void> woken;
  std::thread waiting([&] {
    gated.prefetcher->wait(600'000);
    woken.set_value();
  });
  for (int i = 0; i < 50; ++i) gated.prefetcher->wait(1);
  gated.store->release();
  CHECK(woken.get_future().wait_for(std::chrono::seconds(60)) == std::future_status::ready);
  gated.prefetcher->stop();
  waiting.join();
}

TEST_CASE("Prefetcher: a read that comes back after stop gave up lets go of everything") {
  Gated gated;
  gated.store->release(4);
  gated.prefetcher->stop();
  CHECK(gated.engine->log()->drain().size() == 1);
  gated.prefetcher->stop();  // does not wait again
  const std::weak_ptr<Engine> engine = gated.engine;
  gated.prefetcher.reset();
  gated.engine.reset();
  CHECK(!engine.expired());
  gated.store->release(1);
  CHECK(!engine.expired());
  gated.store->release(1);
  CHECK(engine.expired());
}

TEST_CASE("Prefetcher: after a read got stuck it goes on, and its return disturbs nothing") {
  Gated gated;
  REQUIRE(gated.prefetcher->seek(0, 2, 1));
  CHECK(!gated.prefetcher->try_next());
  gated.store->await_held(6 + 5);
  gated.store->release(7);  // the stuck ones first
  gated.store->release();
  const auto batches = drain(*gated.prefetcher);
  REQUIRE(batches.size() == 3);
  for (const auto& batch : batches) check_rows(batch);
  CHECK(batches[0].samples == std::vector<std::uint64_t>{2, 3});
}

TEST_CASE("Prefetcher: stop with reads in flight cancels them and comes back") {
  // Completes a read only when it is cancelled.
  class Unanswering final : public WrappedStore {
   public:
    using WrappedStore::WrappedStore;
    void read(std::span<ReadRequest> requests) override {
      for (auto& request : requests) {
        const std::lock_guard lock(mutex_);
        auto done = request.done;
        const auto token = request.stop;
        held_.push_back(std::make_unique<Cancel>(
            token, [done] { done(Error(ErrorCode::cancelled, "cancelled")); }));
        changed_.notify_all();
      }
    }
    void await_held(std::size_t count) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return held_.size() >= count; });
    }

   private:
    using Cancel = std::stop_callback<std::function<void()>>;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<std::unique_ptr<Cancel>> held_;
  };
  auto format =
      std::make_unique<TableFormat>(std::vector<std::uint64_t>(8, 200'000), Shape{200'000});
  const auto store = std::make_shared<Unanswering>(blob_store(*format));
  const auto dataset = table_dataset(std::move(format), std::make_shared<ColdStore>(store));
  const auto engine = small_engine(2);
  {
    const auto prefetcher = prefetcher_of(engine, spec_of(dataset, 2));
    CHECK(!prefetcher->try_next());
    store->await_held(8);
    prefetcher->stop();
    prefetcher->stop();
    const auto batch = prefetcher->try_next();
    REQUIRE(batch);
    CHECK(batch->error->code() == ErrorCode::closed);
    CHECK(engine->status().memory_used == 0);
  }
}

TEST_CASE("Prefetcher: a thousand prefetchers dropped at any batch leave nothing behind") {
  const auto table = varying(200, true);
  const auto engine = small_engine(2);
  REQUIRE(next(*prefetcher_of(engine, spec_of(table.dataset, 3))));
  const auto threads = threads_of_process();
  for (int i = 0; i < 1000; ++i) {
    const auto prefetcher = prefetcher_of(engine, spec_of(table.dataset, 3));
    for (int k = 0; k < i % 7; ++k) REQUIRE(next(*prefetcher));
  }
  CHECK(threads_of_process() == threads);
  CHECK(engine->status().memory_used == 0);
}

TEST_CASE("Prefetcher: seek goes anywhere in any epoch, and streams several epochs") {
  const auto table = varying(100, false);
  const auto engine = small_engine();
  auto spec = spec_of(table.dataset, 7);
  spec.sampler = Sampler::full(100, 1);
  auto prefetcher = prefetcher_of(engine, spec, 3);
  std::vector<std::vector<std::uint64_t>> all;
  for (const auto& batch : drain(*prefetcher)) {
    CHECK(batch.epoch == all.size() / 15);
    all.push_back(batch.samples);
  }
  REQUIRE(all.size() == 45);
  for (const std::uint64_t step : {0, 3, 14}) {
    REQUIRE(prefetcher->seek(2, step * 7, 1));
    const auto rest = drain(*prefetcher);
    REQUIRE(rest.size() == 15 - step);
    CHECK(rest.front().samples == all[30 + step]);
  }
}

TEST_CASE("Prefetcher: a pass goes on in the next epoch, whose first two batches were made ahead") {
  const auto table = fixed(30, 100, true);
  auto spec = spec_of(table.dataset, 3);
  spec.sampler = Sampler::full(30, 1);
  const auto engine = small_engine();
  auto flowing = prefetcher_of(engine, spec, 1);
  auto sought = prefetcher_of(engine, spec, 1);
  for (std::uint64_t epoch = 0; epoch < 4; ++epoch) {
    if (epoch > 0) {
      flowing->go_on(1);
      REQUIRE(sought->seek(epoch, 0, 1));
    }
    const auto batches = drain(*flowing);
    const auto expected = drain(*sought);
    REQUIRE(batches.size() == 10);
    for (std::size_t i = 0; i < 10; ++i) {
      CHECK(batches[i].epoch == epoch);
      CHECK(batches[i].last == (i == 9));
      CHECK(batches[i].samples == expected[i].samples);
    }
    CHECK(flowing->finished());
    CHECK(!flowing->try_next());
  }
  const auto statistics = flowing->statistics();
  CHECK(statistics.slabs_allocated + statistics.slabs_reused <= 42);
}

TEST_CASE("Prefetcher: data too few for a batch end at once, for any number of epochs") {
  const auto table = varying(3, false);
  const auto engine = small_engine();
  auto spec = spec_of(table.dataset, 4);
  spec.steps.drop_last = true;
  const auto prefetcher = prefetcher_of(engine, spec, std::uint64_t{1} << 40);
  CHECK(!next(*prefetcher));
}

TEST_CASE("Prefetcher: a batch that is held keeps its bytes while others are made") {
  const auto table = fixed(3000, 100, false);
  const auto engine = small_engine();
  const auto prefetcher = prefetcher_of(engine, spec_of(table.dataset, 10));
  for (const auto& batch : drain(*prefetcher)) check_rows(batch);
}

TEST_CASE("Prefetcher: slabs are made for what is in flight at once, and then only reused") {
  const auto table = fixed(20'000, 100, false);
  const auto engine = small_engine();
  auto spec = spec_of(table.dataset, 100);
  spec.prefetch_bytes = 100'000;
  const auto prefetcher = prefetcher_of(engine, spec, 3);
  for (int i = 0; i < 600; ++i) REQUIRE(next(*prefetcher));
  const auto statistics = prefetcher->statistics();
  // Ten batches of 10,800 bytes are planned ahead, one is being planned, one is the consumer's.
  CHECK(statistics.slabs_allocated <= 12);
  CHECK(statistics.slabs_allocated + statistics.slabs_reused >= 600);
  CHECK(statistics.slabs_allocated + statistics.slabs_reused <= 602);  // two of the next pass
  CHECK(statistics.samples == 60'000);
}

TEST_CASE("Prefetcher: padding repeats the epoch's start, is marked and counted") {
  const auto table = fixed(10, 4, false);
  const auto engine = small_engine();
  auto spec = spec_of(table.dataset, 4);
  spec.steps.world = 2;
  spec.steps.rank = 1;
  spec.fields.push_back(plan_of(FieldPlan::Kind::valid, "__valid__"));
  spec.fields.push_back(plan_of(FieldPlan::Kind::index, "__index__"));
  const auto prefetcher = prefetcher_of(engine, spec);
  const auto batches = drain(*prefetcher);
  REQUIRE(batches.size() == 2);
  CHECK(batches[0].samples == std::vector<std::uint64_t>{1, 3, 5, 7});
  CHECK(batches[1].samples == std::vector<std::uint64_t>{9});
  CHECK(values<std::int64_t>(field(batches[0], "__index__"), 4) ==
        std::vector<std::int64_t>{1, 3, 5, 7});
  spec.steps.batch = 3;
  spec.steps.world = 4;
  spec.steps.rank = 3;
  const auto padded = drain(*prefetcher_of(engine, spec));
  REQUIRE(padded.size() == 1);
  CHECK(padded[0].samples == std::vector<std::uint64_t>{3, 7, 1});
  CHECK(values<std::uint8_t>(field(padded[0], "__valid__"), 3) ==
        std::vector<std::uint8_t>{1, 1, 0});
}

TEST_CASE("Prefetcher: host memory is asked for, filled, and given back as it was") {
  struct HostSlab final : Slab {
    explicit HostSlab(const std::vector<std::uint64_t>& sizes) {
      for (const auto size : sizes) parts.emplace_back(size);
    }
    std::span<std::byte> part(std::size_t index) override { return parts[index]; }
    std::vector<std::vector<std::byte>> parts;
  };
  const auto table = varying(50, true);
  const auto engine = small_engine();
  auto spec = spec_of(table.dataset, 8);
  spec.host_memory = true;
  const auto prefetcher = prefetcher_of(engine, spec);
  std::vector<std::shared_ptr<Slab>> given;
  std::vector<Batch> batches;
  for (;;) {
    for (const auto& wanted : prefetcher->wanted()) {
      given.push_back(std::make_shared<HostSlab>(wanted.part_bytes));
      prefetcher->provide(wanted.ticket, given.back());
    }
    if (auto batch = prefetcher->try_next()) {
      batches.push_back(*std::move(batch));
    } else if (prefetcher->finished()) {
      break;
    } else {
      prefetcher->wait(10'000);
    }
  }
  REQUIRE(batches.size() == 7);
  for (std::size_t i = 0; i < batches.size(); ++i) {
    check_rows(batches[i]);
    CHECK(batches[i].slab == given[i]);
  }
}

TEST_CASE("Prefetcher: padded fields are as wide as the batch's longest row") {
  const auto table = varying(20, false);
  const auto engine = small_engine();
  auto spec = spec_of(table.dataset, 5);
  spec.fields[0].pad = 255;
  for (const auto& batch : drain(*prefetcher_of(engine, spec))) {
    const auto& data = field(batch, "data");
    std::uint64_t widest = 0;
    for (const auto sample : batch.samples) widest = std::max(widest, (sample * 37) % 101);
    REQUIRE(data.shape == Shape{5, widest});
    for (std::size_t row = 0; row < 5; ++row) {
      const auto size = (batch.samples[row] * 37) % 101;
      CHECK(data.lengths[row] == static_cast<std::int64_t>(size));
      for (std::size_t i = 0; i < widest; ++i) {
        CHECK(data.data[row * widest + i] ==
              static_cast<std::byte>(i < size ? batch.samples[row] & 0xFF : 255));
      }
    }
  }
}

TEST_CASE("Prefetcher: closing the engine ends the wait with an error") {
  const Gated gated;
  gated.engine->close();
  const auto batch = next(*gated.prefetcher);
  REQUIRE(batch);
  CHECK(batch->error->code() == ErrorCode::closed);
  gated.store->release();
}

TEST_CASE("Prefetcher: a loader whose batches exceed the budget never waits for a release") {
  // The last batch may be taken while the next is planned: it is then the oldest.
  const auto table = fixed(4000, 64, false);
  const auto engine = small_engine(2, 100);
  for (int round = 0; round < 20; ++round) {
    const auto prefetcher = prefetcher_of(engine, spec_of(table.dataset, 4));
    CHECK(drain(*prefetcher).size() == 1000);
  }
}

TEST_CASE("Prefetcher: a closed engine stays closed for every later call") {
  const auto table = fixed(10, 64, false);
  const auto engine = small_engine(2);
  const auto prefetcher = prefetcher_of(engine, spec_of(table.dataset, 4));
  REQUIRE(next(*prefetcher));
  engine->close();
  for (int call = 0; call < 3; ++call) {
    const auto batch = next(*prefetcher);
    REQUIRE(batch);
    REQUIRE(batch->error);
    CHECK(batch->error->code() == ErrorCode::closed);
  }
}
