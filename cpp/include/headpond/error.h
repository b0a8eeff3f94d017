#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "headpond/byte_range.h"

namespace headpond {

// The kinds of failure a caller can tell apart. Numbers and texts stand in one
// table (error.cpp); `headpond explain` and the Python classes read it.
enum class ErrorCode : std::uint8_t {
  invalid_argument,  // the call is wrong; nothing was tried
  unsupported,       // well formed, and outside what headpond does
  not_found,         // the object does not exist
  access_denied,     // it exists, and may not be read
  not_regular,       // a directory, FIFO, socket or device where an object should be
  object_changed,    // another version than expected
  io_failed,         // the device or kernel refused (EIO and its like)
  timed_out,         // a deadline passed
  unavailable,       // a store does not answer; worth retrying
  resource_limit,    // file handles, threads or memory are used up
  corrupt_data,      // the bytes are there and not what the format says
  wrong_type,        // a well-formed record of another kind than the pipeline expects
  state_mismatch,    // a state_dict of another dataset, seed or version
  too_many_errors,   // the quota of skipped or replaced samples is spent
  cancelled,         // stopped by the caller
  closed,            // used after close(), or replaced by a newer iterator
  forked,            // an object of the parent used in a forked child
  internal,          // a bug in headpond
};

struct ErrorKind {
  ErrorCode code;
  const char* number;        // "HP0101", stable for ever
  const char* python_class;  // in module headpond
  const char* summary;       // one line, for people
  const char* advice;        // the next step
};

// Every kind, in the order of the enumeration.
std::span<const ErrorKind> error_kinds();
const ErrorKind& kind_of(ErrorCode code);

// A failure: a code, what went wrong, and what each layer was doing.
//
// A value. Each layer adds once what it was doing with `in` and what it knows of
// the place with `at_...`; the first layer that knows a place wins. Secrets
// never appear: URIs are printed through `Uri`.
class Error {
 public:
  Error(ErrorCode code, std::string message);
  Error(const Error& other);
  Error& operator=(const Error& other);
  Error(Error&&) noexcept;
  Error& operator=(Error&&) noexcept;
  ~Error();

  // "reading", "sample 812 (key \"a/b\")": printed before what is there already.
  Error&& in(std::string doing) &&;
  Error&& at_uri(std::string uri) &&;
  Error&& at_range(ByteRange range) &&;
  Error&& at_sample(std::uint64_t index) &&;

  ErrorCode code() const;
  const std::string& message() const;
  const std::optional<std::string>& uri() const;
  const std::optional<ByteRange>& range() const;
  const std::optional<std::uint64_t>& sample_index() const;

  // "sample 812 of file:///a/b[0, 10): No such file or directory"
  std::string to_string() const;

 private:
  struct Data;
  std::unique_ptr<Data> data_;
};

// The error for a failed system call: `errno` value, call or action, object.
Error system_error(int error_number, std::string_view doing, std::string_view object = {});

}  // namespace headpond
