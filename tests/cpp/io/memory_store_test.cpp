#include "headpond/memory_store.h"

#include "support/catch.h"
#include "support/gated_store.h"
#include "support/store_conformance.h"

using namespace headpond;

namespace {

class MemoryFixture final : public StoreFixture {
 public:
  Store& store() override { return store_; }
  void put(const std::string& object, const Bytes& bytes) override { store_.put(object, bytes); }

 private:
  MemoryStore store_;
};

class OpenGateFixture final : public StoreFixture {
 public:
  OpenGateFixture() { gated_.release(); }
  Store& store() override { return gated_; }
  void put(const std::string& object, const Bytes& bytes) override { memory_->put(object, bytes); }

 private:
  std::shared_ptr<MemoryStore> memory_ = std::make_shared<MemoryStore>();
  GatedStore gated_{memory_};
};

}  // namespace

TEST_CASE("MemoryStore conforms") {
  store_conformance([] { return std::make_unique<MemoryFixture>(); });
}

TEST_CASE("a memory store behind an open gate conforms") {
  store_conformance([] { return std::make_unique<OpenGateFixture>(); });
}

TEST_CASE("MemoryStore reads borrowed memory in place and lets it go with itself") {
  auto array = std::make_shared<Bytes>(pattern(4096));
  const std::weak_ptr<Bytes> watch = array;
  {
    MemoryStore store;
    store.put("array", std::span<const std::byte>(*array), array);
    (*array)[5] = std::byte{0x42};
    array.reset();
    Bytes out(1);
    REQUIRE(read_blocking(store, "array", 5, out));
    CHECK(out[0] == std::byte{0x42});
    CHECK(!watch.expired());
  }
  CHECK(watch.expired());
}

TEST_CASE("MemoryStore gathers rows wherever they lie, for every number of pieces") {
  MemoryStore store;
  const Bytes bytes = pattern(64 * 40);
  store.put("rows", bytes);
  for (std::size_t count = 0; count <= 40; ++count) {
    Bytes out(64 * count);
    std::vector<Piece> pieces;
    for (std::size_t i = 0; i < count; ++i) {
      pieces.push_back({64 * ((i * 17) % 40), std::span(out).subspan(64 * i, 64)});
    }
    auto filled = store.read_now("rows", {}, pieces, Wait::never);
    REQUIRE(filled);
    REQUIRE(*filled == count);
    for (std::size_t i = 0; i < count; ++i) {
      REQUIRE(part(out, 64 * i, 64) == part(bytes, pieces[i].offset, 64));
    }
  }
}
