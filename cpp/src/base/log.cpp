#include "headpond/log.h"

#include <algorithm>
#include <utility>

namespace headpond {
namespace {
constexpr std::size_t kRecordsMax = 1024;
}

void LogQueue::push(LogLevel level, std::string text) {
  const std::lock_guard lock(mutex_);
  if (records_.size() < kRecordsMax) {
    records_.push_back({level, std::move(text)});
  } else {
    ++dropped_;
  }
}

void LogQueue::push_once(LogLevel level, std::string_view key, std::string text) {
  {
    const std::lock_guard lock(mutex_);
    if (std::find(seen_.begin(), seen_.end(), key) != seen_.end()) return;
    seen_.emplace_back(key);
  }
  push(level, std::move(text));
}

std::vector<LogRecord> LogQueue::drain() {
  const std::lock_guard lock(mutex_);
  auto records = std::exchange(records_, {});
  if (const auto dropped = std::exchange(dropped_, 0); dropped > 0) {
    records.push_back(
        {LogLevel::warning, std::to_string(dropped) + " further messages were dropped"});
  }
  return records;
}

}  // namespace headpond
