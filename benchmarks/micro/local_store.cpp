// The local store as a CPU worker uses it: warm reads on the calling thread, beside the same work
// by plain system calls (limits/files_limit.cpp, records_limit.cpp) in another process.
// --what files    whole files below --path, shuffled, a call each
//        records  --record bytes of the file --path, shuffled, --pieces of them a call
// Both into a slab's worth of memory. One line of JSON.
#include <filesystem>
#include <memory>

#include "../limits/measure.h"
#include "headpond/io_options.h"
#include "headpond/store.h"

using namespace headpond;
using namespace headpond::limits;

namespace {

[[noreturn]] void stop(const Error& error) {
  std::fprintf(stderr, "%s\n", error.to_string().c_str());
  std::exit(1);
}

struct Reads {
  std::vector<ObjectInfo> objects;
  std::uint64_t record = 0;  // 0: whole objects
  std::uint64_t pieces = 1;
  std::vector<std::uint32_t> order;
};

Reads plan(Store& store, const std::string& what, std::uint64_t record, std::uint64_t pieces,
           const std::string& file) {
  Reads reads;
  if (what == "files") {
    auto listed = list_blocking(store);
    if (!listed) stop(listed.error());
    reads.objects = std::move(*listed);
    reads.order = shuffled(reads.objects.size(), 7);
    return reads;
  }
  auto info = stat_blocking(store, file);
  if (!info) stop(info.error());
  reads.record = record;
  reads.pieces = pieces;
  reads.order = shuffled(info->version.size / record, 7);
  reads.objects.push_back(std::move(*info));
  return reads;
}

std::uint64_t read_files(Store& store, const Reads& reads, std::size_t begin, std::size_t step,
                         std::byte* slab, std::uint64_t slot) {
  constexpr std::uint64_t kRows = 64;
  std::uint64_t bytes = 0;
  for (std::size_t i = begin; i < reads.order.size(); i += step) {
    const ObjectInfo& object = reads.objects[reads.order[i]];
    const Piece piece{0, {slab + i / step % kRows * slot, object.version.size}};
    auto filled = store.read_now(object.name, object.version, {&piece, 1}, Wait::allowed);
    if (!filled) stop(filled.error());
    bytes += object.version.size;
  }
  return bytes;
}

std::uint64_t read_records(Store& store, const Reads& reads, std::size_t begin, std::size_t step,
                           std::byte* slab) {
  const ObjectInfo& object = reads.objects.front();
  std::vector<Piece> pieces(reads.pieces);
  std::uint64_t bytes = 0;
  for (std::size_t i = begin * reads.pieces; i + reads.pieces <= reads.order.size();
       i += step * reads.pieces) {
    for (std::size_t p = 0; p < reads.pieces; ++p) {
      pieces[p] = {reads.order[i + p] * reads.record, {slab + p * reads.record, reads.record}};
    }
    auto filled = store.read_now(object.name, object.version, pieces, Wait::never);
    if (!filled) stop(filled.error());
    bytes += *filled * reads.record;
  }
  return bytes;
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments(argc, argv);
  const std::string what = arguments.text("what", "files");
  const std::filesystem::path path = arguments.text("path", ".");
  const std::uint64_t threads = arguments.number("threads", 1);
  const std::uint64_t epochs = arguments.number("epochs", 4);
  const std::uint64_t record = arguments.number("record", 150'528);
  const std::uint64_t pieces = arguments.number("pieces", 8);
  arguments.finish();

  auto local = make_local_io({}, std::make_shared<LogQueue>());
  const bool files = what == "files";
  const std::string folder = (files ? path : path.parent_path()).string();
  auto root = Uri::parse(folder);
  if (!root) stop(root.error());
  auto store = local->open(*root);
  const Reads reads = plan(*store, what, record, pieces, path.filename().string());
  std::uint64_t slot = 0;
  for (const auto& object : reads.objects) slot = std::max(slot, object.version.size);
  const std::uint64_t slab_bytes = files ? 64 * slot : pieces * record;

  std::vector<std::unique_ptr<WarmBuffer>> slabs(threads);
  std::vector<std::uint64_t> bytes(threads);
  auto read_all = [&](std::uint64_t thread) {
    std::byte* slab = slabs[thread]->data();
    return files ? read_files(*store, reads, thread, threads, slab, slot)
                 : read_records(*store, reads, thread, threads, slab);
  };
  const Usage usage = run_threads(
      threads,
      [&](std::uint64_t thread) {
        slabs[thread] = std::make_unique<WarmBuffer>(slab_bytes);
        read_all(thread);
      },
      [&](std::uint64_t thread) {
        for (std::uint64_t epoch = 0; epoch < epochs; ++epoch) bytes[thread] += read_all(thread);
      });
  std::uint64_t total = 0;
  for (const std::uint64_t b : bytes) total += b;
  print_result("store-" + what, epochs * reads.order.size(), total, threads, usage);
}
