#include "data/glob.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <optional>

namespace headpond {
namespace {

std::bitset<256> all_but_slash() {
  std::bitset<256> set;
  set.set();
  set.reset('/');
  return set;
}

}  // namespace

bool Glob::is_pattern(std::string_view text) {
  return text.find_first_of("*?[") != std::string_view::npos;
}

Glob::Glob(std::string_view pattern, Case letters) : case_(letters) {
  everything_ = pattern == "**/*" || pattern == "**" || pattern == "**/**";
  for (std::size_t at = 0; at < pattern.size();) {
    const bool part_start = at == 0 || pattern[at - 1] == '/';
    if (part_start && pattern.substr(at, 3) == "**/") {
      tokens_.push_back({Kind::parts, {}});
      at += 3;
    } else if (part_start && pattern.substr(at) == "**") {
      tokens_.push_back({Kind::everything, {}});
      at += 2;
    } else if (pattern[at] == '*') {
      tokens_.push_back({Kind::within_part, all_but_slash()});
      at = std::min(pattern.find_first_not_of('*', at), pattern.size());
    } else if (pattern[at] == '?') {
      tokens_.push_back({Kind::any_letter, all_but_slash()});
      ++at;
    } else {
      at = add_letters(pattern, at);
    }
  }
}

// One letter, or a class; the position behind it.
std::size_t Glob::add_letters(std::string_view pattern, std::size_t at) {
  const auto code = [&](std::size_t i) { return static_cast<unsigned char>(pattern[i]); };
  Token token{Kind::letter, {}};
  // "]" right after "[" or "[!" is a member; an unclosed class is a letter.
  const std::size_t start =
      pattern[at] == '[' ? at + 1 + (pattern.substr(at + 1, 1) == "!" ? 1 : 0) : at;
  const std::size_t stop =
      pattern[at] == '[' ? pattern.find(']', start + 1) : std::string_view::npos;
  if (stop == std::string_view::npos) {
    token.set.set(code(at));
  } else {
    token.kind = Kind::letters;
    for (std::size_t i = start; i < stop; ++i) {
      if (i + 2 < stop && pattern[i + 1] == '-') {
        for (unsigned c = code(i); c <= code(i + 2); ++c) token.set.set(c);
        i += 2;
      } else {
        token.set.set(code(i));
      }
    }
  }
  // Before a class is negated: [!t] excludes T too.
  if (case_ == Case::ignored) {
    for (unsigned c = 'a'; c <= 'z'; ++c) {
      if (token.set.test(c) || token.set.test(c - 32)) token.set.set(c).set(c - 32);
    }
  }
  if (token.kind == Kind::letters) {
    if (pattern[at + 1] == '!') token.set.flip();
    token.set.reset('/');
  }
  tokens_.push_back(token);
  return stop == std::string_view::npos ? at + 1 : stop + 1;
}

bool Glob::matches(std::string_view text) const {
  return everything_ || states_after(text)[tokens_.size()] != 0;
}

bool Glob::may_match_below(std::string_view folder) const {
  if (everything_) return true;
  const std::vector<char> states = states_after(folder);
  return std::find(states.begin(), states.end() - 1, 1) != states.end() - 1;
}

// All states the automaton may be in: state i has matched the tokens before i.
std::vector<char> Glob::states_after(std::string_view text) const {
  std::vector<char> now(tokens_.size() + 1, 0);
  std::vector<char> next(tokens_.size() + 1, 0);
  const auto enter = [&](std::vector<char>& states, std::size_t i, bool part_start) {
    for (;; ++i) {
      states[i] = 1;
      if (i == tokens_.size()) return;
      const Kind kind = tokens_[i].kind;
      const bool may_be_empty = kind == Kind::within_part || kind == Kind::everything ||
                                (kind == Kind::parts && part_start);
      if (!may_be_empty) return;
    }
  };
  enter(now, 0, true);
  for (const char letter : text) {
    const auto c = static_cast<unsigned char>(letter);
    std::fill(next.begin(), next.end(), 0);
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      if (now[i] == 0) continue;
      const Token& token = tokens_[i];
      switch (token.kind) {
        case Kind::letter:
        case Kind::any_letter:
        case Kind::letters:
          if (token.set.test(c)) enter(next, i + 1, c == '/');
          break;
        case Kind::within_part:
          if (c != '/') enter(next, i, false);
          break;
        case Kind::parts:
        case Kind::everything:
          enter(next, i, c == '/');
          break;
      }
    }
    std::swap(now, next);
  }
  return now;
}

namespace {

constexpr std::size_t kWordsMax = 1'000'000;

std::optional<std::int64_t> whole_number(std::string_view text) {
  std::int64_t value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc() || result.ptr != text.data() + text.size()) return std::nullopt;
  return value;
}

bool is_padded(std::string_view number) {
  if (!number.empty() && number[0] == '-') number.remove_prefix(1);
  return number.size() > 1 && number[0] == '0';
}

std::string padded(std::int64_t value, std::size_t width) {
  std::string digits = std::to_string(value < 0 ? -value : value);
  const std::size_t sign = value < 0 ? 1 : 0;
  if (digits.size() + sign < width) digits.insert(0, width - sign - digits.size(), '0');
  return value < 0 ? "-" + digits : digits;
}

Error too_many_words() {
  return Error(
      ErrorCode::invalid_argument,
      "the braces stand for more than " + std::to_string(kWordsMax) + " names: use a manifest");
}

// "0000..0146" or "0..10..2"; nothing when it is no range.
std::optional<Result<std::vector<std::string>>> expand_range(std::string_view inner) {
  const auto first_dots = inner.find("..");
  if (first_dots == std::string_view::npos) return std::nullopt;
  const auto second_dots = inner.find("..", first_dots + 2);
  const auto from_text = inner.substr(0, first_dots);
  const auto to_text = inner.substr(first_dots + 2, second_dots == std::string_view::npos
                                                        ? std::string_view::npos
                                                        : second_dots - first_dots - 2);
  const auto from = whole_number(from_text);
  const auto to = whole_number(to_text);
  const auto step = second_dots == std::string_view::npos
                        ? std::optional<std::int64_t>(1)
                        : whole_number(inner.substr(second_dots + 2));
  constexpr std::int64_t kMost = std::int64_t{1} << 61;
  if (!from || !to || !step || std::abs(*from) > kMost || std::abs(*to) > kMost ||
      std::abs(*step) > kMost) {
    return std::nullopt;
  }
  const std::int64_t stride = *step == 0 ? 1 : std::abs(*step);
  const std::int64_t distance = std::abs(*to - *from) / stride;
  if (distance >= static_cast<std::int64_t>(kWordsMax))
    return Result<std::vector<std::string>>(too_many_words());
  const std::size_t width =
      is_padded(from_text) || is_padded(to_text) ? std::max(from_text.size(), to_text.size()) : 0;
  std::vector<std::string> words;
  for (std::int64_t i = 0; i <= distance; ++i) {
    words.push_back(padded(*from + (*to >= *from ? i : -i) * stride, width));
  }
  return Result<std::vector<std::string>>(std::move(words));
}

struct Braces {
  std::size_t open = 0, close = 0;
  std::vector<std::size_t> commas;  // at the top level
};

// The first pair from `start` on that is balanced.
std::optional<Braces> find_braces(std::string_view text, std::size_t start) {
  for (auto open = text.find('{', start); open != std::string_view::npos;
       open = text.find('{', open + 1)) {
    Braces braces{open, 0, {}};
    int depth = 0;
    for (std::size_t i = open; i < text.size(); ++i) {
      if (text[i] == '{') ++depth;
      if (text[i] == ',' && depth == 1) braces.commas.push_back(i);
      if (text[i] == '}' && --depth == 0) {
        braces.close = i;
        return braces;
      }
    }
  }
  return std::nullopt;
}

constexpr int kDepthMax = 32;

Result<std::vector<std::string>> expand(std::string_view text, int depth);

// The words a pair stands for, or nothing when it is neither list nor range.
Result<std::vector<std::string>> expand_pair(std::string_view text, const Braces& braces,
                                             int depth) {
  const auto inner = text.substr(braces.open + 1, braces.close - braces.open - 1);
  if (braces.commas.empty()) {
    if (auto range = expand_range(inner)) return *std::move(range);
    return std::vector<std::string>{};
  }
  std::vector<std::string> words;
  std::size_t start = braces.open + 1;
  for (std::size_t i = 0; i <= braces.commas.size(); ++i) {
    const std::size_t stop = i < braces.commas.size() ? braces.commas[i] : braces.close;
    auto part = expand(text.substr(start, stop - start), depth + 1);
    if (!part) return part;
    words.insert(words.end(), part->begin(), part->end());
    if (words.size() > kWordsMax) return too_many_words();
    start = stop + 1;
  }
  return words;
}

Result<std::vector<std::string>> expand(std::string_view text, int depth) {
  if (depth > kDepthMax) return Error(ErrorCode::invalid_argument, "braces nested too deeply");
  std::vector<std::string> words = {""};
  std::size_t done = 0;
  std::size_t search = 0;
  while (const auto braces = find_braces(text, search)) {
    auto inner = expand_pair(text, *braces, depth);
    if (!inner) return inner;
    if (inner->empty()) {  // stays as it is; pairs inside it may still count
      search = braces->open + 1;
      continue;
    }
    if (words.size() * inner->size() > kWordsMax) return too_many_words();
    std::vector<std::string> longer;
    longer.reserve(words.size() * inner->size());
    const auto before = text.substr(done, braces->open - done);
    for (const auto& word : words) {
      for (const auto& more : *inner) longer.emplace_back(word).append(before).append(more);
    }
    words = std::move(longer);
    done = search = braces->close + 1;
  }
  for (auto& word : words) word += text.substr(done);
  return words;
}

}  // namespace

Result<std::vector<std::string>> expand_braces(std::string_view text) { return expand(text, 0); }

}  // namespace headpond
