#pragma once

#include <pybind11/pybind11.h>

#include <utility>

#include "headpond/result.h"
#include "headpond/store.h"

namespace headpond::python {

// The only ways in which this library throws (errors.cpp). Call with the GIL held.

// Raises the class of headpond.errors that the error's kind names.
[[noreturn]] void raise(Error error);
// Raises what Python has set.
[[noreturn]] void raise_python();
// Runs the handlers of signals that came; raises what they raise (KeyboardInterrupt).
void check_signals();

// Looks for signals and calls `progress` (unless None). False: Python's error is set, and the
// caller raises it with raise_python() once its library has come back.
bool go_on(const pybind11::object& progress, const pybind11::args& arguments);

// Looks for signals within a call that waits without the GIL.
class SignalWatch {
 public:
  // Asked now and then by who waits; false: a handler raised. Outlived by the watch.
  GoOn go_on();
  // Raises what a handler raised.
  void raise() const;

 private:
  bool raised_ = false;
};

template <class T>
T value_or_raise(Result<T> result) {
  if (!result) raise(std::move(result).error());
  return *std::move(result);
}
inline void value_or_raise(Result<void> result) {
  if (!result) raise(std::move(result).error());
}

}  // namespace headpond::python
