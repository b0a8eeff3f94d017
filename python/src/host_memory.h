#pragma once

#include <pybind11/pybind11.h>

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "deferred_drops.h"
#include "headpond/slab.h"

namespace headpond::python {

// A batch's memory made by the host language: one object per field (a pinned tensor).
// We fill it through its pointer, hand that very object out and never use it again,
// because only its own allocator knows when copies from it have ended.
class HostSlab final : public Slab {
 public:
  struct Part {
    pybind11::handle object;           // kept by `hold`
    std::shared_ptr<const void> hold;  // may be dropped by an engine thread
    std::span<std::byte> memory;
  };

  explicit HostSlab(std::vector<Part> parts) : parts_(std::move(parts)) {}
  std::span<std::byte> part(std::size_t field) override { return parts_[field].memory; }

  // The part that holds `data`, or nothing.
  const Part* find(const std::byte* data) const {
    for (const auto& part : parts_) {
      const std::byte* begin = part.memory.data();
      if (data >= begin && data < begin + part.memory.size()) return &part;
    }
    return nullptr;
  }

 private:
  std::vector<Part> parts_;
};

}  // namespace headpond::python
