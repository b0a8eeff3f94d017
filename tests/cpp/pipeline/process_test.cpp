// What only a process of its own can show.

#include <sys/resource.h>

#include "base/thread.h"
#include "fixtures.h"
#include "pipeline/scheduler.h"
#include "support/in_child.h"

using namespace headpond;

namespace {

// Makes this process one of a user that runs nothing else and may run `threads` threads.
bool limit_threads(rlim_t threads) {
  const struct rlimit limit = {threads, threads};
  return setrlimit(RLIMIT_NPROC, &limit) == 0 &&
         setuid(200'000 + static_cast<uid_t>(getpid())) == 0;
}

// 0 when a loader over memory gives all its batches; 77 where threads cannot be limited.
int iterate_with(rlim_t threads, std::size_t workers) {
  auto format = std::make_unique<TableFormat>(std::vector<std::uint64_t>(100, 10), Shape{10});
  auto store = blob_store(*format);
  const auto dataset = table_dataset(std::move(format), store);
  if (!limit_threads(threads)) return 77;
  const auto engine = small_engine(3);
  const auto prefetcher = Prefetcher::make(engine, spec_of(dataset, 10));
  if (!prefetcher || !(*prefetcher)->seek(0, 0, 1)) return 2;
  const auto batches = drain(**prefetcher);
  if (engine->scheduler().threads() > workers) return 77;
  if (engine->scheduler().threads() < workers) return 3;
  return batches.size() == 10 && !batches[9].error ? 0 : 4;
}

}  // namespace

TEST_CASE("Engine: where only one of its threads can be started, that one does all the work") {
  NEEDS_THREADS_IN_CHILDREN();
  if (geteuid() != 0) HP_SKIP("only root can become a user with less");
  const int result = in_child([] { return iterate_with(2, 1); });
  if (result == 77) HP_SKIP("this container does not limit a user's threads");
  CHECK(result == 0);
}

TEST_CASE("Engine: where no thread can be started, next() says so, each time it is asked") {
  NEEDS_THREADS_IN_CHILDREN();
  if (geteuid() != 0) HP_SKIP("only root can become a user with less");
  const int result = in_child([] {
    auto format = std::make_unique<TableFormat>(std::vector<std::uint64_t>(100, 10), Shape{10});
    const auto dataset = table_dataset(std::make_unique<TableFormat>(*format), blob_store(*format));
    if (!limit_threads(1)) return 77;
    if (Thread::start({.name = "probe"}, [] {})) return 77;
    const auto engine = small_engine(3);
    const auto prefetcher = Prefetcher::make(engine, spec_of(dataset, 10));
    if (!prefetcher || !(*prefetcher)->seek(0, 0, 1)) return 2;
    for (int call = 0; call < 3; ++call) {
      const auto batch = (*prefetcher)->try_next();
      if (!batch || !batch->error || batch->in_order) return 3;
      if (batch->error->code() != ErrorCode::resource_limit) return 4;
      if (batch->error->to_string().find("ulimit -u") == std::string::npos) return 5;
    }
    return 0;
  });
  if (result == 77) HP_SKIP("this container does not limit a user's threads");
  CHECK(result == 0);
}
