#pragma once

#include <functional>
#include <memory>
#include <string>

#include "headpond/store.h"
#include "support/bytes.h"

namespace headpond {

// A store under test, and a way to put objects behind it.
class StoreFixture {
 public:
  virtual ~StoreFixture() = default;
  virtual Store& store() = 0;
  // Makes or replaces an object; the version differs from every earlier one.
  virtual void put(const std::string& object, const Bytes& bytes) = 0;
  // Does read_now with Wait::allowed fill every piece?
  virtual bool has_blocking_path() const { return true; }
  virtual bool can_list() const { return true; }
};

using MakeStoreFixture = std::function<std::unique_ptr<StoreFixture>()>;

// What every store must do, as SECTIONs: call it from a TEST_CASE of the store.
void store_conformance(const MakeStoreFixture& make);

}  // namespace headpond
