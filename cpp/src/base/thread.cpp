#include "base/thread.h"

#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <system_error>
#include <utility>

namespace headpond {
namespace {

void set_name_and_nice(const ThreadOptions& options) {
  pthread_setname_np(pthread_self(), options.name.substr(0, 15).c_str());
  if (options.nice != 0) {
    // Linux keeps nice per thread; who = 0 would mean the whole process group's leader.
    const auto tid = static_cast<id_t>(syscall(SYS_gettid));
    const int current = getpriority(PRIO_PROCESS, tid);
    setpriority(PRIO_PROCESS, tid, current + options.nice);
  }
}

}  // namespace

Result<Thread> Thread::start(const ThreadOptions& options, std::function<void()> run) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  // The new thread inherits the mask, so no signal can hit it before it blocks them itself.
  pthread_sigmask(SIG_SETMASK, &all, &before);
  Result<Thread> result = Thread();
  try {
    result->thread_ = std::thread([options, run = std::move(run)] {
      set_name_and_nice(options);
      run();
    });
  } catch (const std::system_error& error) {
    result = Error(ErrorCode::resource_limit, "thread " + options.name +
                                                  " cannot be started: " + error.what() +
                                                  " (see ulimit -u and the cgroup's pids.max)");
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return result;
}

Thread& Thread::operator=(Thread&& other) noexcept {
  if (this != &other) {
    if (thread_.joinable()) thread_.join();
    thread_ = std::move(other.thread_);
  }
  return *this;
}

Thread::~Thread() {
  if (thread_.joinable()) thread_.join();
}

void Thread::join() { thread_.join(); }

}  // namespace headpond
