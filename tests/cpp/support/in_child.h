#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "support/catch.h"

namespace headpond {

// Runs `body` in a forked child: its result, or -1 when it died or took more than a minute.
inline int in_child(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    _exit(body());
  }
  int status = 0;
  if (waitpid(child, &status, 0) != child || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}

#ifdef __SANITIZE_THREAD__
#define NEEDS_THREADS_IN_CHILDREN() HP_SKIP("ThreadSanitizer starts no thread in a forked child")
#else
#define NEEDS_THREADS_IN_CHILDREN() static_cast<void>(0)
#endif

}  // namespace headpond
