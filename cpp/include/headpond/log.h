#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace headpond {

enum class LogLevel : std::uint8_t { debug, info, warning, error };

struct LogRecord {
  LogLevel level;
  std::string text;
};

// Messages from engine threads on their way to the host language.
//
// Engine threads never take the GIL, so they only append here; the host drains
// it from its own threads. Bounded: beyond 1,024 records the newest are dropped
// and counted in one record. Safe to call from any thread.
class LogQueue {
 public:
  void push(LogLevel level, std::string text);
  // Only the first message of a `key` is kept: "warn once".
  void push_once(LogLevel level, std::string_view key, std::string text);
  std::vector<LogRecord> drain();

 private:
  std::mutex mutex_;
  std::vector<LogRecord> records_;
  std::vector<std::string> seen_;
  std::uint64_t dropped_ = 0;
};

}  // namespace headpond
