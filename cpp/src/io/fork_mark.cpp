#include "io/fork_mark.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>

namespace headpond {
namespace {
constexpr std::size_t kPage = 4096;
}

ForkMark::ForkMark() : owner_(getpid()) {
  void* page = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return;
  if (madvise(page, kPage, MADV_WIPEONFORK) != 0) {
    munmap(page, kPage);
    return;
  }
  page_ = static_cast<unsigned char*>(page);
  *page_ = 1;
}

ForkMark::~ForkMark() {
  if (page_ != nullptr) munmap(const_cast<unsigned char*>(page_), kPage);
}

bool ForkMark::slow_forked() const { return getpid() != owner_; }

}  // namespace headpond
