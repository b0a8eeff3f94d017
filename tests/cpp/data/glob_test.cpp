#include "data/glob.h"

#include "support/catch.h"

using namespace headpond;

namespace {

bool matches(const char* pattern, const char* text) {
  return Glob(pattern, Glob::Case::ignored).matches(text);
}

std::vector<std::string> words(const char* text) {
  auto expanded = expand_braces(text);
  REQUIRE(expanded);
  return *std::move(expanded);
}

using Words = std::vector<std::string>;

}  // namespace

TEST_CASE("Glob: ** stands for any number of parts, * for letters within one") {
  CHECK(matches("**/*", "a"));
  CHECK(matches("**/*.jpg", "a.jpg"));
  CHECK(matches("**/*.jpg", "x/y/a.jpg"));
  CHECK(!matches("**/*.jpg", "x/y/a.jpeg"));
  CHECK(matches("x/**/a", "x/a"));
  CHECK(matches("x/**/a", "x/y/z/a"));
  CHECK(!matches("x/**/a", "x/ya"));
  CHECK(!matches("**/a", "ba"));
  CHECK(matches("x/**", "x/y/z"));
  CHECK(!matches("x/**", "y/z"));
  CHECK(matches("*/*", "a/b"));
  CHECK(!matches("*/*", "a/b/c"));
  CHECK(!matches("*", "a/b"));
  CHECK(matches("a**b", "axyb"));
  CHECK(!matches("a**b", "ax/yb"));
}

TEST_CASE("Glob: a folder below which no name matches is known by its own name") {
  const auto below = [](const char* pattern, const char* folder) {
    return Glob(pattern, Glob::Case::ignored).may_match_below(folder);
  };
  CHECK(below("**/*.jpg", "a/b/"));
  CHECK(below("train/**/*.jpg", "Train/"));
  CHECK(below("train/**/*.jpg", "train/a/b/"));
  CHECK(!below("train/**/*.jpg", "val/"));
  CHECK(!below("train/**/*.jpg", "trains/"));
  CHECK(below("*/*.jpg", "a/"));
  CHECK(!below("*/*.jpg", "a/b/"));
  CHECK(!below("*.jpg", "a/"));
  CHECK(!below("*.jpg", "a.jpg/"));
  CHECK(below("a/**", "a/"));
  CHECK(!below("a/**", "b/"));
  CHECK(below("**", "a/"));
  CHECK(!below("[!t]*/x", "t/"));
}

TEST_CASE("Glob: ?, classes and their complements match one letter, never a slash") {
  CHECK(matches("?.x", "a.x"));
  CHECK(!matches("?.x", ".x"));
  CHECK(!matches("a?b", "a/b"));
  CHECK(matches("[a-c]1", "b1"));
  CHECK(!matches("[a-c]1", "d1"));
  CHECK(matches("[!a-c]1", "d1"));
  CHECK(!matches("[!a-c]1", "a1"));
  CHECK(!matches("[!a-c]1", "A1"));
  CHECK(!Glob("[!a-c]1").matches("a1"));
  CHECK(Glob("[!a-c]1").matches("A1"));
  CHECK(!matches("x[!a]y", "x/y"));
  CHECK(matches("[]]", "]"));
  CHECK(matches("[a", "[a"));
  CHECK(matches("[a-]", "-"));
}

TEST_CASE("Glob: case is ignored where it is said, bytes beyond ASCII are compared as they are") {
  CHECK(matches("**/*.JPG", "a/b.jpg"));
  CHECK(matches("*.[J]pg", "b.jPG"));
  CHECK(!Glob("*.JPG").matches("b.jpg"));
  CHECK(matches("\xc3\xa9*", "\xc3\xa9x"));
  CHECK(!matches("\xc3\xa9", "\xc3\x89"));
}

TEST_CASE("Glob: a pattern made to explode takes linear time") {
  std::string pattern;
  for (int i = 0; i < 30; ++i) pattern += "**/*a*";
  CHECK(!Glob(pattern).matches(std::string(2000, 'a') + "b/"));
}

TEST_CASE("expand_braces: ranges keep their zeros, lists their order, and both nest") {
  CHECK(words("a") == Words{"a"});
  CHECK(words("s-{0000..0002}.tar") == Words{"s-0000.tar", "s-0001.tar", "s-0002.tar"});
  CHECK(words("{8..11}") == Words{"8", "9", "10", "11"});
  CHECK(words("{2..0}") == Words{"2", "1", "0"});
  CHECK(words("{-1..1}") == Words{"-1", "0", "1"});
  CHECK(words("{0..10..5}") == Words{"0", "5", "10"});
  CHECK(words("{098..101}") == Words{"098", "099", "100", "101"});
  CHECK(words("{a,b}{1,2}") == Words{"a1", "a2", "b1", "b2"});
  CHECK(words("{train-{0..1},val}.tar") == Words{"train-0.tar", "train-1.tar", "val.tar"});
  CHECK(words("x{,y}") == Words{"x", "xy"});
}

TEST_CASE("expand_braces: what is no range and no list stays as it is") {
  for (const char* text : {"{a}", "{}", "{0..x}", "{", "}", "a{b", "{0..}", "{..3}", "}{"})
    CHECK(words(text) == Words{text});
  CHECK(words("{a{1,2}}") == Words{"{a1}", "{a2}"});
}

TEST_CASE("expand_braces: a million words are the most, and nesting is bounded") {
  CHECK(!expand_braces("{0..1000000}"));
  CHECK(!expand_braces("{1..1000000000000000000}"));
  CHECK(!expand_braces("{0..9999}{0..9999}"));
  std::string deep;
  for (int i = 0; i < 100; ++i) deep += "{a,";
  for (int i = 0; i < 100; ++i) deep += "}";
  CHECK(!expand_braces(deep));
}
