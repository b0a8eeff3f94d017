#include "headpond/byte_budget.h"

#include <algorithm>
#include <utility>

namespace headpond {

ByteBudget::Credit::Credit(Credit&& other) noexcept
    : budget_(std::exchange(other.budget_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

ByteBudget::Credit& ByteBudget::Credit::operator=(Credit&& other) noexcept {
  if (this != &other) {
    release();
    budget_ = std::exchange(other.budget_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

ByteBudget::Credit::~Credit() { release(); }

void ByteBudget::Credit::release() {
  if (auto* budget = std::exchange(budget_, nullptr)) budget->give_back(std::exchange(bytes_, 0));
}

ByteBudget::ByteBudget(std::uint64_t limit_bytes) : limit_(limit_bytes) {}

std::optional<ByteBudget::Credit> ByteBudget::take(std::uint64_t bytes, Rank rank) {
  const std::lock_guard lock(mutex_);
  const bool fits = bytes <= limit_ && used_ <= limit_ - bytes;
  if (!fits && rank != Rank::oldest) {
    refused_ = true;
    return std::nullopt;
  }
  used_ += bytes;
  peak_ = std::max(peak_, used_);
  return Credit(this, bytes);
}

void ByteBudget::on_release(std::function<void()> call) { on_release_ = std::move(call); }

std::uint64_t ByteBudget::used() const {
  const std::lock_guard lock(mutex_);
  return used_;
}

std::uint64_t ByteBudget::peak() const {
  const std::lock_guard lock(mutex_);
  return peak_;
}

void ByteBudget::give_back(std::uint64_t bytes) {
  bool tell = false;
  {
    const std::lock_guard lock(mutex_);
    used_ -= bytes;
    tell = std::exchange(refused_, false);
  }
  if (tell && on_release_) on_release_();
}

}  // namespace headpond
