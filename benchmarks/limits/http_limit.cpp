// What libcurl's multi interface costs by itself: no checks, no retries, bodies copied once.
// --root URL --in-flight N --buffer bytes --ca FILE, and those of http_list.h. One line of JSON.
#include <curl/curl.h>

#include "http_list.h"

using namespace headpond::limits;

namespace {

struct Slot {
  CURL* easy = nullptr;
  std::vector<char> body;
  std::size_t used = 0;
};

std::size_t store(char* data, std::size_t size, std::size_t count, void* context) {
  Slot& slot = *static_cast<Slot*>(context);
  const std::size_t bytes = size * count;
  if (slot.used + bytes > slot.body.size()) return 0;
  std::memcpy(slot.body.data() + slot.used, data, bytes);
  slot.used += bytes;
  return bytes;
}

void start(CURLM* multi, Slot& slot, const std::string& root, const HttpItem& item) {
  slot.used = 0;
  curl_easy_setopt(slot.easy, CURLOPT_URL, (root + "/" + item.name).c_str());
  char range[64];
  std::snprintf(range, sizeof range, "%llu-%llu", static_cast<unsigned long long>(item.start),
                static_cast<unsigned long long>(item.start + item.bytes - 1));
  curl_easy_setopt(slot.easy, CURLOPT_RANGE, item.bytes == item.size ? nullptr : range);
  curl_multi_add_handle(multi, slot.easy);
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments(argc, argv);
  const std::string root = arguments.text("root", "http://127.0.0.1:18080");
  const std::uint64_t in_flight = arguments.number("in-flight", 16);
  const auto buffer = static_cast<long>(arguments.number("buffer", 256 << 10));
  const std::string ca = arguments.text("ca", "");
  const auto items = http_items(arguments);
  arguments.finish();

  curl_global_init(CURL_GLOBAL_DEFAULT);
  CURLM* multi = curl_multi_init();
  curl_multi_setopt(multi, CURLMOPT_MAXCONNECTS, 256L);
  std::uint64_t largest = 0;
  for (const auto& item : items) largest = std::max(largest, item.bytes);
  std::vector<Slot> slots(std::min<std::size_t>(in_flight, items.size()));
  for (auto& slot : slots) {
    slot.easy = curl_easy_init();
    slot.body.resize(largest);
    curl_easy_setopt(slot.easy, CURLOPT_WRITEFUNCTION, &store);
    curl_easy_setopt(slot.easy, CURLOPT_WRITEDATA, &slot);
    curl_easy_setopt(slot.easy, CURLOPT_PRIVATE, &slot);
    curl_easy_setopt(slot.easy, CURLOPT_BUFFERSIZE, buffer);
    curl_easy_setopt(slot.easy, CURLOPT_FAILONERROR, 1L);
    curl_easy_setopt(slot.easy, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
    if (!ca.empty()) curl_easy_setopt(slot.easy, CURLOPT_CAINFO, ca.c_str());
  }

  const Meter meter;
  std::size_t next = 0;
  std::size_t done = 0;
  std::uint64_t bytes = 0;
  for (auto& slot : slots) start(multi, slot, root, items[next++]);
  while (done < items.size()) {
    int running = 0;
    int left = 0;
    curl_multi_perform(multi, &running);
    while (const CURLMsg* message = curl_multi_info_read(multi, &left)) {
      Slot* slot = nullptr;
      curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &slot);
      if (message->data.result != CURLE_OK) {
        std::fprintf(stderr, "%s\n", curl_easy_strerror(message->data.result));
        return 1;
      }
      bytes += slot->used;
      ++done;
      curl_multi_remove_handle(multi, slot->easy);
      if (next < items.size()) start(multi, *slot, root, items[next++]);
    }
    if (done < items.size()) curl_multi_poll(multi, nullptr, 0, 1000, nullptr);
  }
  print_result("http", items.size(), bytes, 1, meter.stop());
  for (auto& slot : slots) curl_easy_cleanup(slot.easy);
  curl_multi_cleanup(multi);
  curl_global_cleanup();
}
