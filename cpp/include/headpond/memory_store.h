#pragma once

#include <atomic>
#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "headpond/store.h"

namespace headpond {

// Objects in memory: arrays held by the host, and tests. Reads complete on the
// calling thread and take no lock. Safe to call from any thread, except `put`:
// objects are added before the store is shared.
class MemoryStore final : public Store {
 public:
  // A copy that the store owns.
  void put(std::string object, std::vector<std::byte> bytes);
  // Borrowed memory: `hold` keeps it alive as long as the store.
  void put(std::string object, std::span<const std::byte> bytes, std::shared_ptr<const void> hold);

  void read(std::span<ReadRequest> requests) override;
  void stat(std::string object, std::function<void(Result<ObjectInfo>)> done) override;
  void list(ListRequest request) override;
  Result<std::size_t> read_now(std::string_view object, const ObjectVersion& expected,
                               std::span<const Piece> pieces, Wait wait) override;
  std::string describe() const override;
  void close() override;

 private:
  struct Object {
    std::span<const std::byte> bytes;
    std::shared_ptr<const void> hold;
    std::uint64_t generation = 0;  // plays the part of mtime_ns
  };
  Result<const Object*> find(std::string_view object, const ObjectVersion& expected) const;
  static ObjectVersion version_of(const Object& object);

  std::map<std::string, Object, std::less<>> objects_;
  std::uint64_t generation_ = 0;
  std::atomic<bool> closed_ = false;
};

}  // namespace headpond
