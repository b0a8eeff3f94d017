#pragma once

#include <cstddef>
#include <functional>
#include <string>

namespace headpond {

// What looking up a name comes to.
enum class LookUp {
  localhost,
  no_such_name,
  try_again,
  nothing,  // it does not come back, until the resolver ends
};

// While it lives, names that end with ".test" are looked up here: libcurl and everybody else in
// the test's program call this getaddrinfo. One at a time.
class ScriptedResolver {
 public:
  // `script(number)`: of the look-up, from 1. From several threads at once.
  explicit ScriptedResolver(std::function<LookUp(std::size_t number)> script);
  ~ScriptedResolver();
  ScriptedResolver(const ScriptedResolver&) = delete;
  ScriptedResolver& operator=(const ScriptedResolver&) = delete;

  std::size_t asked() const;
  std::size_t hanging() const;
  // Is an answer on its way, through threads that nobody can see?
  bool is_busy() const;
};

}  // namespace headpond
