#include "pipeline/recipe.h"

#include "fixtures.h"

using namespace headpond;

namespace {
std::shared_ptr<const Dataset> ragged() {
  auto format = std::make_unique<TableFormat>(std::vector<std::uint64_t>{3, 0, 5}, std::nullopt);
  auto store = blob_store(*format);
  return table_dataset(std::move(format), store);
}
}  // namespace

TEST_CASE("Recipe: wrong specs are refused when they are made, naming what is wrong") {
  const auto refuse = [](LoaderSpec spec, const std::string& part) {
    const auto recipe = Recipe::make(std::move(spec));
    REQUIRE(!recipe);
    CHECK(recipe.error().to_string().find(part) != std::string::npos);
  };
  auto spec = spec_of(ragged(), 2);
  spec.steps.batch = 0;
  refuse(spec, "batch 0");
  spec = spec_of(ragged(), 2);
  spec.steps.rank = 3;
  refuse(spec, "rank 3");
  spec = spec_of(ragged(), 2);
  spec.fields.clear();
  refuse(spec, "at least one field");
  spec = spec_of(ragged(), 2);
  spec.fields[0].pad = 300;
  refuse(spec, "pad value does not fit");
  spec = spec_of(ragged(), 2);
  spec.on_error = OnError::replace;
  refuse(spec, "on_error=\"replace\"");
}

TEST_CASE("Recipe: varying rows get slots of their size, padded ones equal slots") {
  for (const bool padded : {false, true}) {
    auto spec = spec_of(ragged(), 3);
    if (padded) spec.fields[0].pad = 0;
    const auto recipe = Recipe::make(spec);
    REQUIRE(recipe);
    Job job;
    job.steps = (*recipe)->spec().steps;
    job.step = {.cursor = 0, .rows = 3, .valid = 3, .next = 3};
    (*recipe)->plan(job, *spec.sampler.order(0));
    CHECK(job.slots == (padded ? std::vector<std::uint64_t>{0, 5, 10, 15}
                               : std::vector<std::uint64_t>{0, 3, 3, 8}));
    CHECK(job.part_bytes == (padded ? std::vector<std::uint64_t>{15, 32, 24}
                                    : std::vector<std::uint64_t>{8, 32, 24}));
  }
}
