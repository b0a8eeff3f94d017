// What only a process of its own can show: forks, limits, a kernel that forbids io_uring.

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include <condition_variable>
#include <cstddef>
#include <filesystem>
#include <mutex>

#include "base/thread.h"
#include "io/local_fixture.h"
#include "support/catch.h"
#include "support/in_child.h"

using namespace headpond;
using Catch::Matchers::ContainsSubstring;

namespace {

// 0 when every file of `count` reads right, by a range of its middle.
int read_files(LocalFixture& local, int count) {
  for (int i = 0; i < count; ++i) {
    Bytes out(50);
    auto outcome = read_blocking(local.store(), "f" + std::to_string(i), 20, out);
    if (!outcome) return outcome.error().code() == ErrorCode::resource_limit ? 2 : 3;
    if (out != part(pattern(100, static_cast<std::uint64_t>(i)), 20, 50)) return 4;
  }
  return 0;
}

// Lowers RLIMIT_NOFILE; gives it back so that files can be removed afterwards.
class FewHandles {
 public:
  explicit FewHandles(rlim_t count) {
    getrlimit(RLIMIT_NOFILE, &before_);
    const struct rlimit few = {count, before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &few);
  }
  ~FewHandles() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  struct rlimit before_ = {};
};

bool forbid_io_uring(int error_number) {
  const struct sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(error_number)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {std::size(code), const_cast<struct sock_filter*>(code)};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

}  // namespace

TEST_CASE("under a seccomp filter that forbids io_uring_setup, threads read and say why") {
  NEEDS_THREADS_IN_CHILDREN();
  for (const int error_number : {EPERM, ENOSYS}) {
    CHECK(in_child([&] {
            LocalFixture local(IoOptions{});
            local.put("f0", pattern(100, 0));
            if (!forbid_io_uring(error_number)) return 77;
            const auto status = local.io->status();
            if (status.backend != "threads" ||
                status.reason.find("io_uring_setup") == std::string::npos)
              return 10;
            return read_files(local, 1);
          }) == 0);
  }
}

TEST_CASE("a storm of signals fails no read") {
  NEEDS_THREADS_IN_CHILDREN();
  for (const auto backend : {IoBackend::threads, IoBackend::uring}) {
    CHECK(in_child([&] {
            LocalFixture local(with_backend(backend), true);
            for (int i = 0; i < 30; ++i)
              local.put("f" + std::to_string(i), pattern(100, static_cast<unsigned>(i)));
            local.put("large", pattern(3'000'000));
            struct sigaction action = {};
            action.sa_handler = [](int) {};  // without SA_RESTART
            struct sigevent event = {};
            event.sigev_notify = SIGEV_SIGNAL;
            event.sigev_signo = SIGUSR1;
            timer_t timer = {};
            const struct itimerspec every_ms = {{0, 1'000'000}, {0, 1'000'000}};
            if (sigaction(SIGUSR1, &action, nullptr) != 0 ||
                timer_create(CLOCK_MONOTONIC, &event, &timer) != 0 ||
                timer_settime(timer, 0, &every_ms, nullptr) != 0) {
              return 77;
            }
            Bytes out(1'000'000);
            for (int round = 0; round < 10; ++round) {
              if (const int result = read_files(local, 30); result != 0) return result;
              if (!read_blocking(local.store(), "large", 3, out) ||
                  out != part(pattern(3'000'000), 3, out.size())) {
                return 5;
              }
              const Piece piece{9, out};
              if (*local.store().read_now("large", {}, std::span(&piece, 1), Wait::allowed) != 1)
                return 6;
            }
            return 0;
          }) == 0);
  }
}

TEST_CASE("1,000 files by range within 64 handles, on both backends") {
  NEEDS_THREADS_IN_CHILDREN();
#ifdef __SANITIZE_ADDRESS__
  HP_SKIP("UBSan's vptr check needs a pipe, and takes a full table of handles for bad memory");
#endif
  for (const auto backend : {IoBackend::threads, IoBackend::uring}) {
    CHECK(in_child([&] {
            LocalFixture local(with_backend(backend));
            for (int i = 0; i < 1000; ++i)
              local.put("f" + std::to_string(i), pattern(100, static_cast<unsigned>(i)));
            const FewHandles few(64);
            return read_files(local, 1000);
          }) == 0);
  }
}

TEST_CASE(
    "when others hold all handles the cache gives up its own; with none left it is "
    "resource_limit") {
  NEEDS_THREADS_IN_CHILDREN();
  for (const auto backend : {IoBackend::threads, IoBackend::uring}) {
    CHECK(in_child([&] {
            IoOptions options = with_backend(backend);
            options.handles_max = 4096;
            LocalFixture local(options);
            for (int i = 0; i < 80; ++i)
              local.put("f" + std::to_string(i), pattern(100, static_cast<unsigned>(i)));
            Bytes out(1);
            static_cast<void>(read_blocking(local.store(), "f0", 0, out));  // starts the backend
            const FewHandles few(64);
            if (const int result = read_files(local, 80); result != 0) return result;
            while (dup(0) >= 0) {
            }
            // The handles in the cache are all that can be given up.
            if (const int result = read_files(local, 80); result != 0) return 20 + result;
            local.io->close();
            while (dup(0) >= 0) {
            }
            const auto io = make_local_io(with_backend(IoBackend::threads), nullptr);
            Uri root;
            root.path = local.dir.path();
            auto outcome = read_blocking(*io->open(root), "f1", 0, out);
            if (outcome || outcome.error().code() != ErrorCode::resource_limit) return 6;
            return outcome.error().to_string().find("ulimit -n: 64") != std::string::npos ? 0 : 7;
          }) == 0);
  }
}

TEST_CASE("a scarce limit on locked memory is lived with") {
  NEEDS_THREADS_IN_CHILDREN();
  if (geteuid() != 0) HP_SKIP("only root can become a user with less");
  for (const rlim_t bytes : {rlim_t{0}, rlim_t{64 << 10}}) {
    LocalFixture made(IoOptions{});
    std::filesystem::permissions(made.dir.path(), std::filesystem::perms::all);
    made.put("large", pattern(2'000'000));
    Uri root;
    root.path = made.dir.path();
    CHECK(in_child([&] {
            struct rlimit limit = {bytes, bytes};
            if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || setuid(65534) != 0) return 77;
            const auto io = make_local_io(IoOptions{}, nullptr);
            Bytes out(1'000'000);
            auto outcome = read_blocking(*io->open(root), "large", 777, out);
            if (!outcome) return 1;
            return out == part(pattern(2'000'000), 777, out.size()) ? 0 : 2;
          }) == 0);
  }
}

TEST_CASE("where no thread can be started a cold read is an error, never a hang") {
  NEEDS_THREADS_IN_CHILDREN();
  if (geteuid() != 0) HP_SKIP("only root can become a user with less");
  for (const auto backend : {IoBackend::threads, IoBackend::uring}) {
    LocalFixture made(with_backend(backend), true);
    std::filesystem::permissions(made.dir.path(), std::filesystem::perms::all);
    made.put("f0", pattern(100, 0));
    Uri root;
    root.path = made.dir.path();
    const int result = in_child([&] {
      const struct rlimit alone = {1, 1};
      // A user that runs nothing else.
      if (setrlimit(RLIMIT_NPROC, &alone) != 0 ||
          setuid(200'000 + static_cast<uid_t>(getpid())) != 0)
        return 77;
      if (Thread::start({.name = "probe"}, [] {})) return 77;
      const auto io = make_local_io(with_backend(backend), nullptr);
      const auto store = io->open(root);
      Bytes out(50);
      auto outcome = read_blocking(*store, "f0", 20, out);
      if (outcome || outcome.error().code() != ErrorCode::resource_limit) return 1;
      // Who has a thread of its own needs none.
      const Piece piece{20, out};
      auto filled = store->read_now("f0", {}, std::span(&piece, 1), Wait::allowed);
      return filled && out == part(pattern(100, 0), 20, 50) ? 0 : 2;
    });
    if (result == 77) HP_SKIP("this container does not limit a user's threads");
    CHECK(result == 0);
  }
}

TEST_CASE("a storm of forks during cold O_DIRECT reads changes no byte") {
  LocalFixture local(IoOptions{}, true);
  if (local.io->status().backend != "uring") HP_SKIP("this kernel or container gives no io_uring");
  constexpr std::size_t kSize = 24 << 20;
  constexpr std::size_t kRead = 300'000;
  const Bytes bytes = pattern(kSize, 3);
  local.put("large", bytes);
  std::mutex mutex;
  std::condition_variable changed;
  std::size_t left = 0;
  std::size_t wrong = 0;
  std::vector<Bytes> out(200, Bytes(kRead));
  std::vector<ReadRequest> requests;
  for (std::size_t i = 0; i < out.size(); ++i) {
    ReadRequest request;
    request.object = "large";
    request.offset = (i * 7'654'321) % (kSize - kRead);
    request.out = out[i];
    request.done = [&, i, offset = request.offset](Result<ReadOutcome> outcome) {
      const bool good = outcome && std::equal(out[i].begin(), out[i].end(),
                                              bytes.begin() + static_cast<std::ptrdiff_t>(offset));
      const std::lock_guard lock(mutex);
      if (!good) ++wrong;
      --left;
      changed.notify_all();
    };
    requests.push_back(std::move(request));
  }
  left = requests.size();
  local.store().read(requests);
  int forks = 0;
  for (bool busy = true; busy || forks < 20; ++forks) {
    const pid_t child = fork();
    if (child == 0) {
      // Dirties what it inherited, then lets go of the parent's objects.
      out[0].assign(kRead, std::byte{0xAA});
      alarm(20);
      local.io->close();
      Bytes probe(10);
      auto refused = read_blocking(*local.opened, "large", 0, probe);
      const bool right = !refused && refused.error().code() == ErrorCode::forked;
      local.opened.reset();
      local.io.reset();
      _exit(right ? 0 : 1);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    REQUIRE(status == 0);
    const std::lock_guard lock(mutex);
    busy = left > 0;
  }
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return left == 0; });
  CHECK(wrong == 0);
  for (const auto& record : local.log->drain()) UNSCOPED_INFO(record.text);
  CHECK(local.io->counters().direct_bytes > 0);
}

TEST_CASE("a forked child reads with a LocalIo of its own while the parent's is busy") {
  NEEDS_THREADS_IN_CHILDREN();
  for (const auto backend : {IoBackend::threads, IoBackend::uring}) {
    LocalFixture local(with_backend(backend), true);
    for (int i = 0; i < 20; ++i)
      local.put("f" + std::to_string(i), pattern(100, static_cast<unsigned>(i)));
    REQUIRE(read_files(local, 20) == 0);
    CHECK(in_child([&] {
            const auto io = make_local_io(with_backend(backend), nullptr);
            Uri root;
            root.path = local.dir.path();
            const auto store = io->open(root);
            for (int i = 0; i < 20; ++i) {
              Bytes out(100);
              if (!read_blocking(*store, "f" + std::to_string(i), 0, out)) return 1;
              if (out != pattern(100, static_cast<unsigned>(i))) return 2;
            }
            io->close();
            return 0;
          }) == 0);
    CHECK(read_files(local, 20) == 0);
  }
}

TEST_CASE("descriptors are not inherited by programs that are started") {
  LocalFixture local(IoOptions{}, true);
  local.put("f0", pattern(100, 0));
  local.put("large", pattern(2'000'000));
  Bytes out(1'000'000);
  REQUIRE(read_files(local, 1) == 0);
  REQUIRE(read_blocking(local.store(), "large", 5, out));
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(entry.path().filename());
    std::error_code error;
    const auto target = std::filesystem::read_symlink(entry.path(), error).string();
    if (error || target.find("headpond") == std::string::npos) continue;
    CHECK((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
  }
}
