#include "io/name_check.h"

#include <netdb.h>
#include <sys/socket.h>

#include <memory>
#include <utility>

#include "base/thread.h"

namespace headpond {
namespace {

NameState look_up(const std::string& host) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int result = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (found != nullptr) freeaddrinfo(found);
  const bool missing = result == EAI_NONAME || result == EAI_NODATA || result == EAI_ADDRFAMILY;
  return missing ? NameState::does_not_exist : NameState::unknown_for_now;
}

}  // namespace

void system_name_check(std::string host, std::function<void(NameState)> then) {
  auto shared = std::make_shared<std::function<void(NameState)>>(std::move(then));
  auto thread =
      Thread::start({"hp-name", 0}, [host = std::move(host), shared] { (*shared)(look_up(host)); });
  if (thread) {
    thread->detach();  // a resolver may take its time, and nobody has to wait for it
  } else {
    (*shared)(NameState::unknown_for_now);
  }
}

}  // namespace headpond
