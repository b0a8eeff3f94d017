#include <atomic>
#include <future>

#include "headpond/memory_store.h"
#include "support/bytes.h"
#include "support/catch.h"
#include "support/faulty_store.h"
#include "support/gated_store.h"
#include "support/manual_clock.h"
#include "support/slow_store.h"

using namespace headpond;

namespace {

std::shared_ptr<MemoryStore> memory_with(const std::string& object, const Bytes& bytes) {
  auto store = std::make_shared<MemoryStore>();
  store->put(object, bytes);
  return store;
}

ReadRequest counted(const std::string& object, std::span<std::byte> out, std::atomic<int>& done) {
  ReadRequest request;
  request.object = object;
  request.out = out;
  request.done = [&done](Result<ReadOutcome> outcome) { done += outcome ? 1 : 100; };
  return request;
}

}  // namespace

TEST_CASE("GatedStore completes nothing before it is released, then in the test's order") {
  GatedStore store(memory_with("x", pattern(100)));
  std::atomic<int> first = 0;
  std::atomic<int> second = 0;
  Bytes out(100);
  Bytes out2(100);
  std::vector<ReadRequest> requests;
  requests.push_back(counted("x", out, first));
  requests.push_back(counted("x", out2, second));
  store.read(requests);
  const Piece piece{0, out};
  CHECK(*store.read_now("x", {}, std::span(&piece, 1), Wait::never) == 0);
  CHECK(store.held() == 2);
  store.release_last();
  CHECK((first == 0 && second == 1));
  store.release(1);
  CHECK(first == 1);
  store.release();
  CHECK(*store.read_now("x", {}, std::span(&piece, 1), Wait::never) == 1);
  CHECK(store.reads() == 2);
}

TEST_CASE("GatedStore cancels held reads when it is closed") {
  GatedStore store(memory_with("x", pattern(100)));
  std::atomic<int> done = 0;
  Bytes out(100);
  auto request = counted("x", out, done);
  store.read(std::span(&request, 1));
  store.close();
  CHECK(done == 100);
}

TEST_CASE("SlowStore passes a read on when its time has come, and no sooner") {
  auto clock = std::make_shared<ManualClock>();
  SlowStore store(memory_with("x", pattern(100)), clock, std::chrono::seconds(5));
  std::promise<bool> answer;
  auto answered = answer.get_future();
  Bytes out(100);
  ReadRequest request;
  request.object = "x";
  request.out = out;
  request.done = [&](Result<ReadOutcome> outcome) { answer.set_value(outcome.has_value()); };
  store.read(std::span(&request, 1));
  clock->await_waiters(1);
  clock->advance(std::chrono::seconds(4));
  clock->await_waiters(1);
  CHECK(answered.wait_for(std::chrono::seconds(0)) == std::future_status::timeout);
  clock->advance(std::chrono::seconds(1));
  CHECK(answered.get());
  CHECK(out == pattern(100));
}

TEST_CASE("FaultyStore fails as often as it is told and passes the rest") {
  FaultyStore store(memory_with("x", pattern(100)));
  store.fail("x", Error(ErrorCode::io_failed, "made up"), 2);
  Bytes out(100);
  CHECK(read_blocking(store, "x", 0, out).error().code() == ErrorCode::io_failed);
  const Piece piece{0, out};
  CHECK(store.read_now("x", {}, std::span(&piece, 1), Wait::never).error().code() ==
        ErrorCode::io_failed);
  CHECK(read_blocking(store, "x", 0, out));
  CHECK(out == pattern(100));
  CHECK(store.failures() == 2);
}
