#pragma once

#include <array>
#include <bitset>
#include <string>
#include <string_view>
#include <vector>

#include "headpond/result.h"

namespace headpond {

// A path pattern: "*" and "?" within a part, "[a-z]" and "[!a-z]", "**/" any number
// of parts (none too), "**" at the end everything below. A value.
class Glob {
 public:
  enum class Case { exact, ignored };  // of ASCII letters
  explicit Glob(std::string_view pattern, Case letters = Case::exact);

  // In time pattern times text, whatever the pattern.
  bool matches(std::string_view text) const;
  // May it match a name that begins with this? `folder` ends with "/".
  bool may_match_below(std::string_view folder) const;
  // Matches every name.
  bool is_everything() const { return everything_; }

  // Does the text hold a character that makes a pattern?
  static bool is_pattern(std::string_view text);

 private:
  enum class Kind { letter, any_letter, letters, within_part, parts, everything };
  struct Token {
    Kind kind;
    std::bitset<256> set;  // letter, any_letter, letters
  };
  std::size_t add_letters(std::string_view pattern, std::size_t at);
  std::vector<char> states_after(std::string_view text) const;
  std::vector<Token> tokens_;
  Case case_;
  bool everything_;
};

// "a{0..2}{x,y}" to its six words, in bash's order; a brace that is neither a range
// nor a list stays as it is. Errors: invalid_argument (over a million words).
Result<std::vector<std::string>> expand_braces(std::string_view text);

}  // namespace headpond
