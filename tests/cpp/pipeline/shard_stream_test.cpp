// Epochs over shards that are read as a whole, with and without known counts.
#include "shard_fixtures.h"
#include "support/gated_store.h"
#include "support/temp_dir.h"

namespace headpond {
namespace {

using Catch::Matchers::ContainsSubstring;

TEST_CASE("Shards: an epoch without an index is the epoch with one, and reads each byte once") {
  const Counts counts{30, 5, 0, 41, 17, 60, 1, 22};
  for (const std::uint64_t window : {1u, 40u, 1000u}) {
    for (const std::uint64_t batch : {1u, 7u, 64u}) {
      const Far far(counts);
      const auto engine = engine_with(far);
      const auto dataset = open_far(*engine, counts.size());
      CHECK(!dataset->size_is_known());
      const auto opening = far.store->bytes.load();
      const auto prefetcher = made(engine, window_spec(dataset, window, batch));
      for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
        REQUIRE(prefetcher->seek(epoch, 0, 1));
        CHECK(rows_of(drain(*prefetcher)) == expected_rows(counts, window, epoch));
        CHECK(far.store->bytes - opening == far.bytes * (epoch + 1));
      }
      CHECK(dataset->size() == far.samples);
    }
  }
}

TEST_CASE("Shards: passes flow into each other") {
  const Counts counts{9, 8, 7, 6};
  const Far far(counts);
  const auto engine = engine_with(far);
  const auto prefetcher = made(engine, window_spec(open_far(*engine, 4), 10, 4));
  REQUIRE(prefetcher->seek(0, 0, 1));
  for (std::uint64_t epoch = 0; epoch < 4; ++epoch) {
    if (epoch > 0) prefetcher->go_on(1);
    CHECK(rows_of(drain(*prefetcher)) == expected_rows(counts, 10, epoch));
  }
}

TEST_CASE("Shards: the first batch comes after the first group, not after all shards") {
  const Counts counts(20, 10);
  const Far far(counts, 200'000);
  const auto engine = engine_with(far, 512 << 20);
  const auto dataset = open_far(*engine, counts.size());
  const auto opening = far.store->bytes.load();
  auto spec = window_spec(dataset, 10, 2);
  spec.prefetch_bytes = 1 << 20;
  const auto prefetcher = made(engine, std::move(spec));
  REQUIRE(prefetcher->seek(0, 0, 1));
  REQUIRE(next(*prefetcher));
  CHECK(far.store->bytes - opening < far.bytes);
  CHECK(!dataset->size_is_known());
}

TEST_CASE("Shards: every stop resumes exactly, with and without an index") {
  const Counts counts{6, 0, 5, 9, 3, 8};
  const std::uint64_t batch = 4;
  const Far far(counts);
  const auto expected = expected_rows(counts, 8, 2);
  const TempDir folder;
  std::vector<Sampler::GroupPlace> places{{}};
  {
    const auto engine = engine_with(far);
    const auto prefetcher = made(engine, window_spec(open_far(*engine, counts.size()), 8, batch));
    REQUIRE(prefetcher->seek(2, 0, 1));
    for (const auto& one : drain(*prefetcher)) places.push_back(one.group);
  }
  REQUIRE(places.size() == 9);
  for (const bool index : {false, true}) {
    for (std::uint64_t step = 0; step < places.size(); ++step) {
      const auto engine = engine_with(far);
      const auto dataset = open_far(*engine, counts.size(), index ? folder.path() : "");
      const auto prefetcher = made(engine, window_spec(dataset, 8, batch));
      const auto cursor = std::min<std::uint64_t>(step * batch, expected.size());
      REQUIRE(prefetcher->seek(2, cursor, 1, places[step]));
      CHECK(rows_of(drain(*prefetcher)) ==
            std::vector<std::string>(expected.begin() + static_cast<std::ptrdiff_t>(cursor),
                                     expected.end()));
    }
  }
}

TEST_CASE("Shards: ranks share an epoch without an index as with one, from any stop") {
  const Counts counts{6, 5, 9, 3, 8, 2};
  const Far far(counts);
  const auto known = expected_rows(counts, 8, 0);
  for (const auto uneven : {Uneven::pad, Uneven::drop, Uneven::allow}) {
    for (const bool drop_last : {false, true}) {
      for (const std::uint64_t world : {2u, 3u}) {
        for (std::uint64_t rank = 0; rank < world; ++rank) {
          Steps steps{known.size(), 3, world, rank, drop_last, uneven};
          const auto engine = engine_with(far);
          auto spec = window_spec(open_far(*engine, counts.size()), 8, 3);
          spec.steps = steps;
          spec.steps.n = spec.sampler.size();
          const auto prefetcher = made(engine, spec);
          Sampler::GroupPlace group;
          for (std::uint64_t cursor = 0;;) {
            std::vector<std::string> expected;
            auto step = steps.at(cursor);
            for (; step; step = steps.at(step->next)) {
              for (std::uint64_t row = 0; row < step->rows; ++row)
                expected.push_back(known[steps.position(*step, row)]);
            }
            REQUIRE(prefetcher->seek(0, cursor, 1, group));
            const auto batches = drain(*prefetcher);
            CHECK(rows_of(batches) == expected);
            if (batches.empty()) break;
            cursor = batches.front().next_cursor;
            group = batches.front().group;
          }
        }
      }
    }
  }
}

TEST_CASE(
    "Shards: a rank that resumes reads the epoch's start, if it pads, and nothing up to its "
    "group") {
  const Counts counts(12, 5);
  const Far far(counts);
  const ShardOrder order(Sampler::window_of_unknown(7, 10), counts.size(), 0);
  std::vector<std::string> in_order;
  for (std::uint64_t slot = 0; slot < counts.size(); ++slot)
    in_order.push_back(shard_name(order.shard_at(slot)));
  for (const auto uneven : {Uneven::pad, Uneven::allow}) {
    const auto engine = engine_with(far);
    auto spec = window_spec(open_far(*engine, counts.size()), 10, 4);
    spec.steps.world = 3;
    spec.steps.rank = 2;
    spec.steps.uneven = uneven;
    const auto prefetcher = made(engine, spec);
    REQUIRE(prefetcher->seek(0, 48, 1, {8, 40}));
    far.store->take_names();
    const auto batches = drain(*prefetcher);
    REQUIRE(batches.size() == 1);
    CHECK(batches[0].rows == 4);
    std::set<std::string> expected(in_order.begin() + 8, in_order.end());
    if (uneven == Uneven::pad) expected.insert(in_order.begin(), in_order.begin() + 2);
    const auto read = far.store->take_names();
    CHECK(std::includes(read.begin(), read.end(), expected.begin(), expected.end()));
    // How far the first group reaches is known behind it: one shard more may be on its way.
    CHECK(read.size() <= expected.size() + (uneven == Uneven::pad ? 1 : 0));
  }
}

TEST_CASE(
    "Shards: groups larger than the memory give the exact epoch, each byte read twice at most") {
  const Counts counts(12, 40);
  const Far far(counts, 20'000);
  for (const std::uint64_t memory : {far.bytes / 4, far.bytes / 2, far.bytes}) {
    const auto engine = engine_with(far, memory);
    const auto dataset = open_far(*engine, counts.size());
    const auto opening = far.store->bytes.load();
    auto spec = window_spec(dataset, 1'000'000, 8);
    const auto prefetcher = made(engine, spec);
    REQUIRE(prefetcher->seek(0, 0, 1));
    CHECK(rows_of(drain(*prefetcher)) == expected_rows(counts, 1'000'000, 0));
    CHECK(far.store->bytes - opening <= far.bytes * 41 / 20);
    CHECK(engine->status().memory_peak <= memory + (8 << 20));
  }
}

TEST_CASE("Shards: two groups within the memory are read once") {
  const Counts counts(16, 40);
  const Far far(counts, 20'000);
  const auto memory = far.bytes * 5 / 16;
  const auto engine = engine_with(far, memory);  // two groups, of two shards each: 4 / 16
  const auto dataset = open_far(*engine, counts.size());
  const auto opening = far.store->bytes.load();
  const auto prefetcher = made(engine, window_spec(dataset, 80, 8));
  REQUIRE(prefetcher->seek(0, 0, 1));
  CHECK(rows_of(drain(*prefetcher)) == expected_rows(counts, 80, 0));
  CHECK(far.store->bytes - opening == far.bytes);
  CHECK(engine->status().memory_peak <= memory + (1 << 20));
}

TEST_CASE("Shards: a damaged shard is told with its name, and its member") {
  const Counts counts{5, 5, 5};
  Far far(counts);
  std::string tar = TarWriter().file("a.bin", "1").file("b.bin", "2").end().bytes();
  tar[1024 + 10] = 'z';
  far.put(1, tar);
  const auto engine = engine_with(far);
  const auto prefetcher = made(engine, window_spec(open_far(*engine, 3), 1000, 2));
  REQUIRE(prefetcher->seek(0, 0, 1));
  const auto batch = next(*prefetcher);
  REQUIRE(batch);
  REQUIRE(batch->error);
  CHECK(batch->error->code() == ErrorCode::corrupt_data);
  CHECK_THAT(batch->error->to_string(), ContainsSubstring(shard_name(1)));
}

TEST_CASE("Shards: a shard that is missing is told with its name, at each call") {
  const Counts counts{5, 5, 5};
  const Far far(counts);
  const auto engine = engine_with(far);
  const auto prefetcher = made(engine, window_spec(open_far(*engine, 4), 1000, 2));
  REQUIRE(prefetcher->seek(0, 0, 1));
  for (int call = 0; call < 2; ++call) {
    const auto batch = next(*prefetcher);
    REQUIRE(batch);
    REQUIRE(batch->error);
    CHECK(batch->error->code() == ErrorCode::not_found);
    CHECK_THAT(batch->error->to_string(), ContainsSubstring(shard_name(3)));
  }
}

TEST_CASE("Shards: what is wrong with a later shard is told behind the batches before it") {
  const Counts counts(8, 10);
  Far far(counts);
  const auto last = Sampler::window(counts, 7, 10).group_at(0, 79).first_shard;
  CHECK(last == 7);
  ShardOrder order(Sampler::window_of_unknown(7, 10), 8, 0);
  far.put(order.shard_at(7), "no tar");
  const auto engine = engine_with(far);
  const auto prefetcher = made(engine, window_spec(open_far(*engine, 8), 10, 5));
  REQUIRE(prefetcher->seek(0, 0, 1));
  // The batch before the last group needs to know whether there is one behind it.
  for (int batch = 0; batch < 13; ++batch) REQUIRE(!next(*prefetcher)->error);
  const auto failed = next(*prefetcher);
  REQUIRE(failed);
  REQUIRE(failed->error);
  CHECK_THAT(failed->error->to_string(), ContainsSubstring(shard_name(order.shard_at(7))));
}

TEST_CASE("Shards: a state whose group cannot be is refused") {
  const Far far({5, 5});
  const auto engine = engine_with(far);
  const auto prefetcher = made(engine, window_spec(open_far(*engine, 2), 5, 2));
  for (const auto& group : {Sampler::GroupPlace{3, 0}, Sampler::GroupPlace{0, 5},
                            Sampler::GroupPlace{~std::uint64_t{0}, 4}}) {
    const auto sought = prefetcher->seek(0, 4, 1, group);
    REQUIRE(!sought);
    CHECK(sought.error().code() == ErrorCode::state_mismatch);
  }
}

TEST_CASE("Shards: between passes nothing is held") {
  const Far far({20, 20, 20}, 1000);
  const auto engine = engine_with(far);
  const auto prefetcher = made(engine, window_spec(open_far(*engine, 3), 1000, 7));
  for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
    REQUIRE(prefetcher->seek(epoch, 0, 1));
    drain(*prefetcher);
    CHECK(engine->status().memory_used == 0);
  }
}

TEST_CASE("Shards: a sample that fails before all are counted is named by its key") {
  Far far({4, 4, 4});
  TarWriter tar;
  tar.file("good.bin", "9/0:").file("good.cls", "1").file("bad.cls", "2");
  far.put(0, tar.end().bytes());
  const auto engine = engine_with(far);
  auto spec = window_spec(open_far(*engine, 3), 1000, 3);
  spec.fields = {plan_of(FieldPlan::Kind::stored, "bin", 0)};
  spec.on_error = OnError::skip;
  const auto prefetcher = made(engine, spec);
  REQUIRE(prefetcher->seek(0, 0, 1));
  for (const auto& batch : drain(*prefetcher)) CHECK(!batch.error);
  const auto errors = prefetcher->statistics().errors;
  REQUIRE(errors.size() == 1);
  CHECK(errors[0].key == "bad");
  CHECK(errors[0].sample.value_or(1) == 1);
}

TEST_CASE("Shards: streams broken off anywhere leave no memory") {
  const Counts counts(6, 20);
  const Far far(counts, 5'000);
  const auto engine = engine_with(far);
  for (int i = 0; i < 200; ++i) {
    const auto prefetcher = made(engine, window_spec(open_far(*engine, 6), 30, 3));
    REQUIRE(prefetcher->seek(0, 0, 1));
    for (int k = 0; k < i % 9; ++k) REQUIRE(next(*prefetcher));
  }
  CHECK(engine->status().memory_used == 0);
}

// Shards whose reads wait at a gate, once the dataset is open.
struct GatedShards {
  GatedShards() : far({20, 20, 20}, 1000), gate(std::make_shared<GatedStore>(far.memory)) {
    far.store = std::make_shared<FarStore>(gate);
    engine = engine_with(far);
    gate->release();
    spec = window_spec(open_far(*engine, 3), 1000, 7);
    gate->hold();
    prefetcher = made(engine, spec);
    REQUIRE(prefetcher->seek(0, 0, 1));
    CHECK(!prefetcher->try_next());
    gate->await_held(3);  // the versions
  }
  Far far;
  std::shared_ptr<GatedStore> gate;
  std::shared_ptr<Engine> engine;
  LoaderSpec spec;
  std::shared_ptr<Prefetcher> prefetcher;
};

TEST_CASE("Shards: a read that comes back after stop gave up lets go of everything") {
  GatedShards shards;
  shards.gate->release(2);
  shards.prefetcher->stop();
  CHECK(shards.engine->log()->drain().size() == 1);
  shards.prefetcher->stop();  // does not wait again
  const std::weak_ptr<Engine> engine = shards.engine;
  shards.prefetcher.reset();
  shards.engine.reset();
  CHECK(!engine.expired());
  shards.gate->release();
  CHECK(engine.expired());
}

TEST_CASE("Shards: after a read got stuck they go on, and its return disturbs nothing") {
  GatedShards shards;
  REQUIRE(shards.prefetcher->seek(0, 0, 1));
  CHECK(!shards.prefetcher->try_next());
  shards.gate->await_held(3 + 3);
  shards.gate->release(4);  // the stuck ones first
  shards.gate->release();
  CHECK(rows_of(drain(*shards.prefetcher)) == expected_rows({20, 20, 20}, 1000, 0));
  CHECK(shards.engine->status().memory_used == 0);
}

TEST_CASE("Shards: without shuffling shards without an index come in order") {
  const Counts counts{6, 0, 5, 9};
  const Far far(counts);
  const auto engine = engine_with(far);
  auto spec = window_spec(open_far(*engine, 4), 1, 4);
  spec.sampler = Sampler::none(Format::kUnknownSize);
  const auto prefetcher = made(engine, spec);
  REQUIRE(prefetcher->seek(0, 0, 1));
  std::vector<std::string> expected;
  for (std::uint64_t shard = 0; shard < counts.size(); ++shard) {
    for (std::uint64_t row = 0; row < counts[shard]; ++row)
      expected.push_back(std::to_string(shard) + "/" + std::to_string(row));
  }
  CHECK(rows_of(drain(*prefetcher)) == expected);
}

}  // namespace
}  // namespace headpond
