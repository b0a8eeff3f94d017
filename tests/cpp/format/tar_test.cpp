#include "format/tar.h"

#include <cstring>
#include <vector>

#include "support/catch.h"
#include "support/tar_writer.h"

using namespace headpond;
using Catch::Matchers::ContainsSubstring;

namespace {

struct Walk {
  std::vector<TarMember> members;
  std::optional<Error> error;
  bool end_marked = false;
  std::uint64_t end = 0;
  std::uint64_t bytes_read = 0;

  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& member : members) names.push_back(member.name);
    return names;
  }
};

// `size`: of the archive, whose bytes behind `bytes` are zero.
Walk walk(const std::string& bytes, std::optional<std::uint64_t> size = {}) {
  Walk result;
  TarWalker walker(size.value_or(bytes.size()),
                   [&](std::uint64_t offset, std::span<std::byte> out) -> Result<void> {
                     result.bytes_read += out.size();
                     std::memset(out.data(), 0, out.size());
                     if (offset + out.size() > size.value_or(bytes.size()))
                       return Error(ErrorCode::internal, "read past the end");
                     if (offset < bytes.size()) {
                       std::memcpy(out.data(), bytes.data() + offset,
                                   std::min<std::uint64_t>(out.size(), bytes.size() - offset));
                     }
                     return {};
                   });
  for (TarMember member;;) {
    const auto more = walker.next(member);
    if (!more) {
      result.error = more.error();
      break;
    }
    if (!*more) break;
    result.members.push_back(member);
  }
  result.end_marked = walker.end_marked();
  result.end = walker.end_offset();
  return result;
}

std::string base256(std::uint64_t value) {
  std::string field(12, '\0');
  field[0] = static_cast<char>(0x80);
  for (std::size_t i = 0; i < 8; ++i) field[11 - i] = static_cast<char>(value >> (8 * i));
  return field;
}

}  // namespace

TEST_CASE("TarWalker: members of all sizes round a block, with their offsets") {
  TarWriter tar;
  std::vector<std::uint64_t> offsets;
  for (const std::size_t size : {0, 1, 511, 512, 513, 1024, 70000}) {
    tar.file("n" + std::to_string(size), std::string(size, 'x'));
    offsets.push_back(tar.last_offset());
  }
  const auto result = walk(tar.end().bytes());
  REQUIRE(!result.error);
  REQUIRE(result.members.size() == offsets.size());
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    CHECK(result.members[i].data_offset == offsets[i]);
    CHECK(result.members[i].header_offset == offsets[i] - 512);
    CHECK(result.members[i].name == "n" + std::to_string(result.members[i].size));
  }
  CHECK(result.end_marked);
}

TEST_CASE("TarWalker: large data are jumped over, not read") {
  TarWriter tar;
  for (int i = 0; i < 20; ++i) tar.file(std::to_string(i), std::string(1 << 20, 'x'));
  const auto result = walk(tar.end().bytes());
  CHECK(result.members.size() == 20);
  CHECK(result.bytes_read < 64 * 1024 + 25 * 4096);
}

TEST_CASE("TarWalker: long names come from prefix, GNU and pax headers") {
  const std::string name = std::string(150, 'd') + "/" + std::string(140, 'f') + ".jpg";
  TarWriter tar;
  tar.raw(TarWriter::header(
              {.name = std::string(90, 'f') + ".jpg", .size = 1, .prefix = std::string(150, 'd')}))
      .raw(TarWriter::padded("1"));
  tar.member('L', "././@LongLink", name + '\0').file(name.substr(0, 100), "22");
  tar.member('x', "PaxHeaders/x",
             TarWriter::pax_record("mtime", "1.5") + TarWriter::pax_record("path", name))
      .file("short", "333");
  const auto result = walk(tar.end().bytes());
  REQUIRE(!result.error);
  CHECK(result.names() ==
        std::vector<std::string>{std::string(150, 'd') + "/" + std::string(90, 'f') + ".jpg", name,
                                 name});
  CHECK(result.members[1].header_offset + 512 * 3 == result.members[1].data_offset);
}

TEST_CASE("TarWalker: GNU archives have times where others have a prefix") {
  const auto result = walk(TarWriter()
                               .raw(TarWriter::header({.name = "a.txt",
                                                       .size = 0,
                                                       .prefix = "07777777777",
                                                       .magic = std::string("ustar  \0", 8)}))
                               .end()
                               .bytes());
  CHECK(result.names() == std::vector<std::string>{"a.txt"});
}

TEST_CASE(
    "TarWalker: what a pax header says holds for the next member only, a global one for all") {
  TarWriter tar;
  tar.member('g', "global", TarWriter::pax_record("comment", "hello"));
  tar.member('x', "x", TarWriter::pax_record("path", "renamed")).file("a", "1").file("b", "2");
  tar.member('g', "global", TarWriter::pax_record("comment", "an archive may end here"));
  const auto result = walk(tar.end().bytes());
  REQUIRE(!result.error);
  CHECK(result.names() == std::vector<std::string>{"renamed", "b"});
}

TEST_CASE("TarWalker: sizes over 8 GiB are read in base-256 and from pax") {
  const std::uint64_t big = (std::uint64_t{8} << 30) + 1;
  const std::uint64_t padded = (big + 511) / 512 * 512;
  for (const bool pax : {false, true}) {
    TarWriter tar;
    if (pax) {
      tar.member('x', "x", TarWriter::pax_record("size", std::to_string(big)));
      tar.raw(TarWriter::header({.name = "big.bin", .size = 1}));
    } else {
      tar.raw(TarWriter::header({.name = "big.bin", .size_field = base256(big)}));
    }
    const std::uint64_t start = tar.bytes().size();
    const std::string tail = TarWriter().file("small.txt", "ok").end().bytes();
    // A sparse archive: head, hole, tail.
    std::vector<TarMember> members;
    TarWalker walker(start + padded + tail.size(),
                     [&](std::uint64_t offset, std::span<std::byte> out) -> Result<void> {
                       for (std::size_t i = 0; i < out.size(); ++i) {
                         const std::uint64_t at = offset + i;
                         char c = '\0';
                         if (at < start) c = tar.bytes()[at];
                         if (at >= start + padded) c = tail[at - start - padded];
                         out[i] = static_cast<std::byte>(c);
                       }
                       return {};
                     });
    for (TarMember member; *walker.next(member);) members.push_back(member);
    REQUIRE(members.size() == 2);
    CHECK(members[0].size == big);
    CHECK(members[1].name == "small.txt");
    CHECK(members[1].data_offset == start + padded + 512);
  }
}

TEST_CASE("TarWalker: numbers that are none are refused") {
  for (const std::string& field :
       {std::string("0000000000x"), std::string("-0000000001"), std::string("99999999999"),
        std::string(12, '\xff'), base256(std::uint64_t{1} << 63), base256(~std::uint64_t{0}),
        std::string("\x81\0\0\0\0\0\0\0\0\0\0\0", 12),
        std::string("\x80\0\0\1\0\0\0\0\0\0\0\0", 12)}) {
    const auto result =
        walk(TarWriter().raw(TarWriter::header({.name = "a", .size_field = field})).end().bytes());
    REQUIRE(result.error);
    CHECK(result.error->code() == ErrorCode::corrupt_data);
    CHECK(result.error->range() == ByteRange{0, 512});
  }
}

TEST_CASE("TarWalker: a blank size, leading spaces and signed checksums are accepted") {
  TarWriter tar;
  tar.raw(TarWriter::header({.name = "a", .size_field = std::string(12, ' ')}));
  tar.raw(TarWriter::header({.name = "b", .size_field = "       0 "}));
  tar.raw(TarWriter::header({.name = "caf\xe9", .signed_sum = true}));
  const auto result = walk(tar.end().bytes());
  REQUIRE(!result.error);
  CHECK(result.names() == std::vector<std::string>{"a", "b", "caf\xe9"});
}

TEST_CASE("TarWalker: a wrong checksum is corrupt, at the first header and at a later one") {
  const std::string bad = TarWriter::header({.name = "a", .sum_error = 1});
  CHECK_THAT(walk(TarWriter().raw(bad).end().bytes()).error->message(),
             ContainsSubstring("not a tar archive"));
  const auto later = walk(TarWriter().file("x", "1").raw(bad).end().bytes());
  REQUIRE(later.error);
  CHECK(later.error->range() == ByteRange{1024, 1536});
  CHECK(later.members.size() == 1);
}

TEST_CASE("TarWalker: what is no tar archive is named") {
  const std::pair<std::string, std::string> starts[] = {{"\x1f\x8b\x08", "gzip"},
                                                        {"\x28\xb5\x2f\xfd", "zstd"},
                                                        {"\xfd"
                                                         "7zXZ",
                                                         "xz"},
                                                        {"BZh9", "bzip2"},
                                                        {"<!DOCTYPE html>", "HTML"},
                                                        {"PK\x03\x04", "zip"},
                                                        {"\xff\xd8\xff\xe0", "JPEG"}};
  for (const auto& [start, name] : starts) {
    const auto result = walk(TarWriter::padded(start + std::string(600, 'z')));
    REQUIRE(result.error);
    CHECK_THAT(result.error->message(), ContainsSubstring(name));
  }
  CHECK(walk("0123456789").error->code() == ErrorCode::corrupt_data);
  CHECK_THAT(walk("").error->message(), ContainsSubstring("empty"));
}

TEST_CASE(
    "TarWalker: an archive cut at any byte is an error or has all its whole members, never other "
    "ones") {
  TarWriter tar;
  tar.file("a", "12345")
      .member('x', "x", TarWriter::pax_record("path", "long"))
      .file("b", std::string(700, 'y'));
  const std::size_t members_end = tar.bytes().size();
  const std::size_t data_end = tar.last_offset() + 700;
  tar.end();
  for (std::size_t size = 1; size < tar.bytes().size(); ++size) {
    CAPTURE(size);
    const auto result = walk(tar.bytes().substr(0, size));
    if (size >= data_end) {
      CHECK(!result.error);
      CHECK(result.names() == std::vector<std::string>{"a", "long"});
      CHECK(result.end_marked == (size >= members_end + 512));
    } else if (size >= 517 && size <= 1024) {
      // Behind the data of "a": complete, and without an end mark.
      CHECK(!result.error);
      CHECK(result.members.size() == 1);
      CHECK(!result.end_marked);
    } else {
      REQUIRE(result.error);
      CHECK(result.error->code() == ErrorCode::corrupt_data);
      CHECK(result.members.size() == (size > 1024 ? 1 : 0));
    }
  }
}

TEST_CASE("TarWalker: one zero block between members is passed, two are the end") {
  const std::string zero(512, '\0');
  CHECK(walk(TarWriter().file("a", "1").raw(zero).file("b", "2").end().bytes()).members.size() ==
        2);
  const auto joined = walk(TarWriter().file("a", "1").end().file("b", "2").end().bytes());
  CHECK(joined.members.size() == 1);
  CHECK(joined.end == 2 * 1024);
}

TEST_CASE("TarWalker: pax records that do not add up are corrupt") {
  for (const std::string& data :
       {std::string("9999999999 path=x\n"), std::string("5 path=x\n"), std::string("path=x\n"),
        std::string("11 path=abc"), std::string("0 \n"), std::string("2 \n"),
        std::string("-5 path=x\n"), std::string("7 path\n"),
        std::string("18446744073709551617 a=b\n"), TarWriter::pax_record("size", "-1"),
        TarWriter::pax_record("size", "9223372036854775808"), TarWriter::pax_record("size", ""),
        TarWriter::pax_record("path", std::string("a\0b", 3)),
        TarWriter::pax_record("path", std::string(70000, 'a'))}) {
    const auto result = walk(TarWriter().member('x', "x", data).file("a", "1").end().bytes());
    REQUIRE(result.error);
    CHECK(result.error->code() == ErrorCode::corrupt_data);
    CHECK(result.error->range() == ByteRange{0, 512});
  }
}

TEST_CASE("TarWalker: extended headers are bounded before anything is allocated") {
  for (const char type : {'x', 'g', 'L', 'K'}) {
    const auto result =
        walk(TarWriter::header({.name = "x", .size = std::uint64_t{7} << 30, .type = type}),
             std::uint64_t{8} << 30);
    REQUIRE(result.error);
    CHECK_THAT(result.error->message(), ContainsSubstring("allowed"));
    CHECK(result.bytes_read <= 64 * 1024);
  }
}

TEST_CASE("TarWalker: an extended header needs its member") {
  for (const char type : {'x', 'L'}) {
    const std::string data = TarWriter::pax_record("path", "x");
    CHECK(walk(TarWriter().member(type, "x", data).end().bytes()).error);
    CHECK(walk(TarWriter().member(type, "x", data).bytes()).error);
  }
}

TEST_CASE("TarWalker: kinds of members are told apart, and only files have data") {
  TarWriter tar;
  for (const char type : {'1', '2', '3', '4', '5', '6'}) {
    tar.raw(TarWriter::header({.name = std::string("t") + type, .size = 5000, .type = type}));
  }
  tar.raw(TarWriter::header({.name = "old/", .type = '\0'}))
      .member('7', "contiguous", "x")
      .member('V', "label", "abc");
  tar.member('x', "x", TarWriter::pax_record("GNU.sparse.major", "1")).file("sparse", "map");
  const auto result = walk(tar.end().bytes());
  REQUIRE(!result.error);
  using Kind = TarMember::Kind;
  const Kind expected[] = {Kind::link,   Kind::link,   Kind::device, Kind::device, Kind::folder,
                           Kind::device, Kind::folder, Kind::file,   Kind::other,  Kind::sparse};
  REQUIRE(result.members.size() == std::size(expected));
  for (std::size_t i = 0; i < std::size(expected); ++i)
    CHECK(result.members[i].kind == expected[i]);
}

TEST_CASE("TarName: the key ends at the first dot of the last part") {
  const auto check = [](const char* name, const char* key, std::optional<std::string_view> field) {
    CAPTURE(name);
    const auto split = split_tar_name(name);
    CHECK(split.key == key);
    CHECK(split.field == field);
  };
  check("a.b/c.jpg", "a.b/c", "jpg");
  check("a.b/c", "a.b/c", std::nullopt);
  check("./a.jpg", "./a", "jpg");
  check("a.seg.png", "a", "seg.png");
  check("a.", "a", "");
  check("a", "a", std::nullopt);
  check("235342 Track 2.0 (Clean).mp3", "235342 Track 2", "0 (Clean).mp3");
  check("../../etc/x.cls", "../../etc/x", "cls");
  CHECK(split_tar_name("d/.hidden").hidden);
  CHECK(split_tar_name("._foo.jpg").hidden);
  CHECK(!split_tar_name(".d/foo.jpg").hidden);
  CHECK(split_tar_name("__meta__").metadata);
  CHECK(split_tar_name("__index__/x.json").metadata);
  CHECK(!split_tar_name("__x/__y__/x.json").metadata);
  CHECK(!split_tar_name("___").metadata);
}
