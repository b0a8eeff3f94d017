// The http store with the same requests as limits/http_limit.cpp.
// --root URL --in-flight N --ca FILE --versions 1 (objects' versions are expected, as of a
// dataset that is open), and those of http_list.h. One line of JSON.
#include <condition_variable>
#include <memory>
#include <mutex>

#include "../limits/http_list.h"
#include "headpond/http_options.h"

using namespace headpond;
using namespace headpond::limits;

namespace {

[[noreturn]] void stop(const Error& error) {
  std::fprintf(stderr, "%s\n", error.to_string().c_str());
  std::exit(1);
}

// Keeps so many reads in flight: the end of one starts the next.
class Run {
 public:
  Run(Store& store, const std::vector<HttpItem>& items, std::size_t in_flight,
      std::map<std::string, ObjectVersion> versions)
      : store_(store), items_(items), versions_(std::move(versions)), memory_(in_flight) {
    std::uint64_t largest = 0;
    for (const auto& item : items) largest = std::max(largest, item.bytes);
    for (auto& slot : memory_) slot.resize(largest);
  }

  std::uint64_t all() {
    for (std::size_t slot = 0; slot < memory_.size(); ++slot) start(slot);
    std::unique_lock lock(mutex_);
    finished_.wait(lock, [&] { return done_ == items_.size(); });
    return bytes_;
  }

 private:
  void start(std::size_t slot) {
    ReadRequest request;
    {
      const std::lock_guard lock(mutex_);
      if (next_ == items_.size()) return;
      const HttpItem& item = items_[next_++];
      request.object = item.name;
      request.offset = item.start;
      request.out = std::span(memory_[slot]).first(item.bytes);
      const auto version = versions_.find(item.name);
      if (version != versions_.end()) request.expected = version->second;
    }
    request.done = [this, slot](Result<ReadOutcome> outcome) {
      if (!outcome) stop(outcome.error());
      {
        const std::lock_guard lock(mutex_);
        bytes_ += outcome->bytes;
        if (++done_ == items_.size()) finished_.notify_all();
      }
      start(slot);
    };
    store_.read(std::span(&request, 1));
  }

  Store& store_;
  const std::vector<HttpItem>& items_;
  const std::map<std::string, ObjectVersion> versions_;
  std::vector<std::vector<std::byte>> memory_;
  std::mutex mutex_;
  std::condition_variable finished_;
  std::size_t next_ = 0;
  std::size_t done_ = 0;
  std::uint64_t bytes_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments(argc, argv);
  const std::string root = arguments.text("root", "http://127.0.0.1:18080");
  const std::uint64_t in_flight = arguments.number("in-flight", 16);
  HttpOptions options;
  options.connections = static_cast<unsigned>(in_flight);
  options.ca_file = arguments.text("ca", "");
  const bool with_versions = arguments.number("versions", 1) != 0;
  const auto items = http_items(arguments);
  arguments.finish();

  auto io = make_http_io(options, std::make_shared<SystemClock>(), nullptr);
  auto store = io->open(*Uri::parse(root + "/"));
  if (!store) stop(store.error());
  std::map<std::string, ObjectVersion> versions;
  if (with_versions) {
    for (const auto& item : items) {
      if (versions.count(item.name) > 0) continue;
      auto info = stat_blocking(**store, item.name);
      if (!info) stop(info.error());
      versions[item.name] = info->version;
    }
  }
  Run run(**store, items, in_flight, std::move(versions));
  const Meter meter;
  const std::uint64_t bytes = run.all();
  print_result("http_store", items.size(), bytes, 1, meter.stop());
  io->close();
}
