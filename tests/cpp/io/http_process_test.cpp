#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <mutex>

#include "io/http_fixture.h"
#include "support/catch.h"
#include "support/thread_count.h"

using namespace headpond;

namespace {

std::size_t entries(const char* folder) {
  std::size_t count = 0;
  DIR* open = opendir(folder);
  while (readdir(open) != nullptr) ++count;
  closedir(open);
  return count;
}
std::size_t open_files() { return entries("/proc/self/fd"); }

OriginAnswer silent() {
  OriginAnswer answer;
  answer.silent = true;
  return answer;
}

// Reads that count how they end.
struct Counted {
  std::atomic<std::size_t> done = 0;
  std::atomic<std::size_t> cancelled = 0;
  std::vector<Bytes> out;

  std::vector<ReadRequest> requests(std::size_t count, StopToken stop = {}) {
    out.assign(count, Bytes(1000));
    std::vector<ReadRequest> requests(count);
    for (std::size_t i = 0; i < count; ++i) {
      requests[i].object = "object";
      requests[i].out = out[i];
      requests[i].stop = stop;
      requests[i].done = [this](Result<ReadOutcome> outcome) {
        if (!outcome && outcome.error().code() == ErrorCode::cancelled) ++cancelled;
        ++done;
      };
    }
    return requests;
  }
};

}  // namespace

TEST_CASE("closing while a server stalls cancels every read, again and again, without growth") {
  std::size_t files = 0;
  std::size_t running = 0;
  for (int round = 0; round < 500; ++round) {
    {
      HttpFixture web;
      web.put("object", pattern(1000));
      web.origin.script([](const OriginRequest&) { return silent(); });
      Counted reads;
      auto requests = reads.requests(round % 3 == 0 ? 64 : 2);
      web.store().read(requests);
      if (round % 2 == 0) {
        while (web.origin.requests() == 0) std::this_thread::yield();
      }
      web.io->close();
      CHECK(reads.done == requests.size());
      CHECK(reads.cancelled == requests.size());
    }
    if (round == 50) {
      files = open_files();
      running = thread_count();
    }
    if (round > 50) {
      CHECK(open_files() == files);
      CHECK(threads_fall_to(running));
    }
  }
}

TEST_CASE("nothing runs before the first read") {
  const auto before = thread_count();
  auto io = make_http_io({}, std::make_shared<SystemClock>(), nullptr);
  CHECK_FALSE(io->status().started);
  auto store = io->open(*Uri::parse("http://127.0.0.1:1/"));
  REQUIRE(store);
  CHECK(threads_fall_to(before));
  CHECK_FALSE(io->status().started);
  io->close();
}

TEST_CASE("a stop ends reads that are under way and those that wait, and no others") {
  HttpFixture web;
  web.put("object", pattern(1000));
  web.origin.script([](const OriginRequest&) { return silent(); });
  StopSource source;
  Counted stopped;
  auto requests = stopped.requests(100, source.get_token());
  Counted others;
  auto more = others.requests(3);
  web.store().read(more);
  web.store().read(requests);
  while (web.origin.requests() < 32) std::this_thread::yield();
  source.request_stop();
  while (stopped.done < 100) std::this_thread::yield();
  CHECK(stopped.cancelled == 100);
  CHECK(others.done == 0);
  web.io->close();
  CHECK(others.cancelled == 3);
}

TEST_CASE("the last owner may let go in a done") {
  auto web = std::make_unique<HttpFixture>();
  web->put("object", pattern(1000));
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  auto io = make_http_io({}, std::make_shared<SystemClock>(), nullptr);
  auto store = *io->open(*Uri::parse(web->origin.url()));
  Bytes out(1000);
  ReadRequest request;
  request.object = "object";
  request.out = out;
  request.done = [&, io, store](Result<ReadOutcome> outcome) mutable {
    CHECK(outcome);
    store.reset();
    io->close();
    io.reset();
    const std::lock_guard lock(mutex);
    done = true;
    changed.notify_all();
  };
  auto* plain = store.get();
  store.reset();
  io.reset();
  plain->read(std::span(&request, 1));
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return done; });
  CHECK(out == pattern(1000));
}

TEST_CASE("a done may ask for more") {
  HttpFixture web;
  web.put("object", pattern(1000));
  std::mutex mutex;
  std::condition_variable changed;
  std::atomic<int> left = 50;
  Bytes out(100);
  std::function<void()> next = [&] {
    ReadRequest request;
    request.object = "object";
    request.offset = static_cast<std::uint64_t>(left.load());
    request.out = out;
    request.done = [&](Result<ReadOutcome> outcome) {
      CHECK(outcome);
      const bool more = --left > 0;
      if (more) return next();
      const std::lock_guard lock(mutex);
      changed.notify_all();
    };
    web.store().read(std::span(&request, 1));
  };
  std::unique_lock lock(mutex);
  next();
  changed.wait(lock, [&] { return left == 0; });
  CHECK(out == part(pattern(1000), 1, 100));
}

TEST_CASE("a forked child is told that the store is the parent's, and the parent goes on") {
  HttpFixture web;
  web.put("object", pattern(1000));
  Bytes out(1000);
  REQUIRE(read_blocking(web.store(), "object", 0, out));
  const pid_t child = fork();
  if (child == 0) {
    auto outcome = read_blocking(web.store(), "object", 0, out);
    web.store().close();
    _exit(!outcome && outcome.error().code() == ErrorCode::forked ? 0 : 1);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  REQUIRE(read_blocking(web.store(), "object", 0, out));
  CHECK(out == pattern(1000));
}

TEST_CASE("connections are closed in programs that a forked child starts") {
  HttpFixture web;
  web.put("object", pattern(1000));
  Bytes out(1000);
  REQUIRE(read_blocking(web.store(), "object", 0, out));
  // Sockets to the origin that a program would inherit.
  DIR* folder = opendir("/proc/self/fdinfo");
  std::size_t inherited = 0;
  while (const dirent* entry = readdir(folder)) {
    const int fd = atoi(entry->d_name);
    sockaddr_in address = {};
    socklen_t size = sizeof address;
    if (entry->d_name[0] == '.' ||
        getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
        address.sin_family != AF_INET)
      continue;
    if ((fcntl(fd, F_GETFD) & FD_CLOEXEC) == 0) ++inherited;
  }
  closedir(folder);
  CHECK(inherited == 0);
}

TEST_CASE("wrong options are what open answers") {
  const auto error_of = [](const HttpOptions& options) {
    auto io = make_http_io(options, std::make_shared<SystemClock>(), nullptr);
    auto store = io->open(*Uri::parse("https://host/"));
    REQUIRE(!store);
    CHECK(store.error().code() == ErrorCode::invalid_argument);
    return store.error().to_string();
  };
  for (const char* header : {"no colon", ": x", "X: a\r\nEvil: b", "X: a\nb", "Range: bytes=0-1",
                             "Host: other", "na me: x", "If-Match: x"}) {
    INFO(header);
    HttpOptions options;
    options.headers = {"Fine: yes", header};
    CHECK(error_of(options).find("headers") != std::string::npos);
  }
  HttpOptions options;
  options.ca_file = "/nowhere/ca.pem";
  CHECK(error_of(options).find("/nowhere/ca.pem") != std::string::npos);
  options = {};
  options.connections = 0;
  CHECK(error_of(options).find("connections") != std::string::npos);
  options = {};
  options.outage_s = -1;
  CHECK(error_of(options).find("outage") != std::string::npos);
}
