// Rows of 64 float32 and an int64 label, shuffled, from memory into a reused batch.
#include "measure.h"

using namespace headpond::limits;

int main(int argc, char** argv) {
  Arguments arguments(argc, argv);
  const std::uint64_t rows = arguments.number("rows", 1'000'000);
  const std::uint64_t width = arguments.number("width", 64);
  const std::uint64_t batch = arguments.number("batch", 4096);
  const std::uint64_t epochs = arguments.number("epochs", 8);
  arguments.finish();

  std::vector<float> x(rows * width, 1.0F);
  std::vector<std::int64_t> y(rows, 1);
  const auto order = shuffled(rows, 7);
  WarmBuffer batch_x(batch * width * sizeof(float));
  WarmBuffer batch_y(batch * sizeof(std::int64_t));
  auto* to_x = reinterpret_cast<float*>(batch_x.data());
  auto* to_y = reinterpret_cast<std::int64_t*>(batch_y.data());

  Meter meter;
  for (std::uint64_t epoch = 0; epoch < epochs; ++epoch) {
    for (std::uint64_t start = 0; start < rows; start += batch) {
      const std::uint64_t count = std::min(batch, rows - start);
      for (std::uint64_t i = 0; i < count; ++i) {
        const std::uint64_t row = order[start + i];
        std::memcpy(to_x + i * width, x.data() + row * width, width * sizeof(float));
        to_y[i] = y[row];
      }
      keep(to_x);
      keep(to_y);
    }
  }
  const std::uint64_t done = epochs * rows;
  print_result("gather", done, done * (width * sizeof(float) + sizeof(std::int64_t)), 1,
               meter.stop());
}
