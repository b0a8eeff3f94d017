// First touch of fresh anonymous memory: what a batch costs that is allocated each time.
// --pages small | populate | huge
#include "measure.h"

using namespace headpond::limits;

int main(int argc, char** argv) {
  Arguments arguments(argc, argv);
  const std::uint64_t bytes = arguments.number("bytes", 256 << 20);
  const std::string pages = arguments.text("pages", "small");
  arguments.finish();
  constexpr std::uint64_t kPage = 4096;

  Meter meter;
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | (pages == "populate" ? MAP_POPULATE : 0);
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
  if (at == MAP_FAILED) fail("mmap");
  madvise(at, bytes, pages == "huge" ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  auto* data = static_cast<volatile unsigned char*>(at);
  for (std::uint64_t i = 0; i < bytes; i += kPage) data[i] = 1;
  print_result("page_touch", bytes / kPage, bytes, 1, meter.stop(),
               ", \"pages\": \"" + pages + "\"");
}
