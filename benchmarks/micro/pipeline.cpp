// What the pipeline itself costs, without Python: rows gathered from memory and
// token windows from a warm file, as batches per second and CPU per batch.
//
//   micro_pipeline rows [rows_per_batch] | micro_pipeline tokens FILE
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "headpond/prefetcher.h"

using namespace headpond;

namespace {

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto of = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return of(usage.ru_utime) + of(usage.ru_stime);
}

template <class T>
T value(Result<T> result) {
  if (result) return *std::move(result);
  std::fprintf(stderr, "%s\n", result.error().to_string().c_str());
  std::exit(1);
}

int run(const std::shared_ptr<Engine>& engine, LoaderSpec spec) {
  const auto prefetcher = value(Prefetcher::make(engine, std::move(spec)));
  for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
    if (const auto seek = prefetcher->seek(epoch, 0, 1); !seek) return 1;
    const auto start = std::chrono::steady_clock::now();
    const double cpu = cpu_seconds();
    std::uint64_t batches = 0;
    std::uint64_t rows = 0;
    while (std::chrono::steady_clock::now() - start < std::chrono::seconds(3)) {
      if (auto batch = prefetcher->try_next()) {
        if (batch->error) {
          std::fprintf(stderr, "%s\n", batch->error->to_string().c_str());
          return 1;
        }
        ++batches;
        rows += batch->rows;
      } else if (prefetcher->finished()) {
        break;
      } else {
        prefetcher->wait(100);
      }
    }
    const double wall =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const auto statistics = prefetcher->statistics();
    std::printf(
        "epoch %llu: %.0f batches/s, %.3g rows/s, CPU %.2f us/batch, slabs made %llu, minor faults "
        "%llu\n",
        static_cast<unsigned long long>(epoch), static_cast<double>(batches) / wall,
        static_cast<double>(rows) / wall,
        (cpu_seconds() - cpu) * 1e6 / static_cast<double>(batches),
        static_cast<unsigned long long>(statistics.slabs_allocated),
        static_cast<unsigned long long>(statistics.minor_faults));
  }
  return 0;
}

LoaderSpec spec_of(std::shared_ptr<const Dataset> dataset, std::uint64_t batch) {
  LoaderSpec spec;
  spec.sampler = Sampler::full(dataset->size(), 7);
  spec.steps.n = dataset->size();
  spec.steps.batch = batch;
  for (std::size_t i = 0; i < dataset->fields().size(); ++i) {
    FieldPlan plan;
    plan.name = dataset->fields()[i].name;
    plan.source = i;
    spec.fields.push_back(std::move(plan));
  }
  spec.dataset = std::move(dataset);
  return spec;
}

ArrayColumn column(const char* name, DType dtype, Shape shape, std::uint64_t rows,
                   std::span<const std::byte> bytes, std::shared_ptr<const void> hold) {
  ArrayColumn made;
  made.name = name;
  made.dtype = dtype;
  made.shape = std::move(shape);
  made.rows = rows;
  made.bytes = bytes;
  made.hold = std::move(hold);
  return made;
}

int rows(const std::shared_ptr<Engine>& engine, std::uint64_t batch) {
  constexpr std::uint64_t kRows = 1'000'000;
  const auto x = std::make_shared<std::vector<float>>(kRows * 64, 1.0F);
  const auto y = std::make_shared<std::vector<std::int64_t>>(kRows, 3);
  return run(engine,
             spec_of(value(open_arrays(
                         {column("x", DType::float32, {64}, kRows, std::as_bytes(std::span(*x)), x),
                          column("y", DType::int64, {}, kRows, std::as_bytes(std::span(*y)), y)})),
                     batch));
}

int tokens(const std::shared_ptr<Engine>& engine, const std::string& file) {
  OpenContext context;
  context.stores = &engine->stores();
  Source source;
  source.paths = {file};
  TokensOptions options;
  options.dtype = DType::uint16;
  options.window = 2049;
  const auto dataset = value(open_tokens(source, options, context));
  auto spec = spec_of(dataset, 8);
  spec.fields[0].decoder = value(make_convert_decoder(dataset->fields()[0], DType::int64));
  return run(engine, std::move(spec));
}

}  // namespace

int main(int argc, char** argv) {
  const auto engine = Engine::make({});
  if (argc >= 2 && std::strcmp(argv[1], "rows") == 0) {
    return rows(engine, argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 4096);
  }
  if (argc == 3 && std::strcmp(argv[1], "tokens") == 0) return tokens(engine, argv[2]);
  std::fprintf(stderr, "usage: micro_pipeline rows [rows_per_batch] | tokens FILE\n");
  return 2;
}
