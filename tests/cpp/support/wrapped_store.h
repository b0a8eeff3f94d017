#pragma once

#include <memory>
#include <string>
#include <utility>

#include "headpond/store.h"

namespace headpond {

// A store around a store that changes nothing: what the fakes derive from.
class WrappedStore : public Store {
 public:
  explicit WrappedStore(std::shared_ptr<Store> inner) : inner_(std::move(inner)) {}

  void read(std::span<ReadRequest> requests) override { inner_->read(requests); }
  void stat(std::string object, std::function<void(Result<ObjectInfo>)> done) override {
    inner_->stat(std::move(object), std::move(done));
  }
  void list(ListRequest request) override { inner_->list(std::move(request)); }
  Result<std::size_t> read_now(std::string_view object, const ObjectVersion& expected,
                               std::span<const Piece> pieces, Wait wait) override {
    return inner_->read_now(object, expected, pieces, wait);
  }
  std::string describe() const override { return inner_->describe(); }
  void close() override { inner_->close(); }

 protected:
  Store& inner() { return *inner_; }

 private:
  const std::shared_ptr<Store> inner_;
};

}  // namespace headpond
