#include "format/npy.h"

#include <string>

#include "support/bytes.h"
#include "support/catch.h"

using namespace headpond;
using Catch::Matchers::ContainsSubstring;

namespace {

std::string npy_start(const std::string& header, char major = 1) {
  std::string file = "\x93NUMPY";
  file += major;
  file += '\0';
  for (int i = 0; i < (major == 1 ? 2 : 4); ++i)
    file += static_cast<char>(header.size() >> (8 * i));
  return file + header;
}

Result<NpyHeader> parse(const std::string& file) { return parse_npy_header(bytes_of(file)); }

ErrorCode code_of(const std::string& header) {
  const auto parsed = parse(npy_start(header));
  REQUIRE(!parsed);
  return parsed.error().code();
}

}  // namespace

TEST_CASE("npy: the header that NumPy writes is read in all three versions") {
  const std::string text = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }      \n";
  for (const char major : {'\1', '\2', '\3'}) {
    const auto header = parse(npy_start(text, major) + std::string(48, 'x'));
    REQUIRE(header);
    CHECK(header->type == StoredType{DType::float32, false});
    CHECK(header->shape == Shape{3, 4});
    CHECK(header->data_offset == text.size() + (major == 1 ? 10 : 12));
    CHECK(header->data_bytes == 48);
  }
}

TEST_CASE("npy: order of keys, quotes, spaces and Python 2 integers do not matter") {
  const auto header =
      parse(npy_start("{ \"shape\":(7L ,),\"fortran_order\" : False , \"descr\": \">u2\"}"));
  REQUIRE(header);
  CHECK(header->type == StoredType{DType::uint16, true});
  CHECK(header->shape == Shape{7});
}

TEST_CASE("npy: shapes without, with one and with zero dimensions") {
  CHECK(parse(npy_start("{'descr': '|b1', 'fortran_order': False, 'shape': ()}"))->shape.empty());
  CHECK(parse(npy_start("{'descr': '|u1', 'fortran_order': True, 'shape': (5,)}"))->data_bytes ==
        5);
  CHECK(parse(npy_start("{'descr': '<i8', 'fortran_order': False, 'shape': (0, 3)}"))->data_bytes ==
        0);
}

TEST_CASE("npy: what cannot be read is refused with the next step") {
  const auto message = [](const std::string& header) {
    const auto parsed = parse(npy_start(header));
    REQUIRE(!parsed);
    CHECK(parsed.error().code() == ErrorCode::unsupported);
    return parsed.error().message();
  };
  CHECK_THAT(message("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}"),
             ContainsSubstring("astype"));
  CHECK_THAT(message("{'descr': [('a', '<i4')], 'fortran_order': False, 'shape': (1,)}"),
             ContainsSubstring("of its own"));
  CHECK_THAT(message("{'descr': '<U8', 'fortran_order': False, 'shape': (1,)}"),
             ContainsSubstring("<U8"));
  CHECK_THAT(message("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2)}"),
             ContainsSubstring("ascontiguousarray"));
  CHECK_THAT(message("{'descr': 'bytes', 'fortran_order': False, 'shape': (2,)}"),
             ContainsSubstring("bytes"));
}

TEST_CASE("npy: nothing but the dict of literals is accepted") {
  for (const char* header : {
           "",
           "{",
           "{}",
           "{'descr': '<f4'}",
           "{'descr': '<f4', 'fortran_order': False}",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (1.5,)}",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999999,)}",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 2)}",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} + 1",
           "{'descr': '<f4', 'fortran_order': False, 'shape': 1}",
           "{'descr': '<f4', 'fortran_order': 0, 'shape': (1,)}",
           "{'descr': __import__('os'), 'fortran_order': False, 'shape': (1,)}",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'more': (1,)}",
           "{'descr': '<f\\x34', 'fortran_order': False, 'shape': (1,)}",
           "((((((((((((((((((((",
       }) {
    CAPTURE(header);
    CHECK(code_of(header) == ErrorCode::corrupt_data);
  }
}

TEST_CASE("npy: a header over 10,000 bytes is refused, whatever follows") {
  const std::string text = "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}";
  const std::string longest = text + std::string(kNpyHeaderMax - 10 - text.size(), ' ');
  CHECK(parse(npy_start(longest)));
  CHECK(code_of(longest + " ") == ErrorCode::corrupt_data);
  std::string huge("\x93NUMPY\x02\0\xff\xff\xff\xff", 12);
  CHECK(!parse(huge + text));
}

TEST_CASE("npy: a file cut at any byte of its header is corrupt") {
  const std::string file =
      npy_start("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }\n");
  for (std::size_t size = 0; size < file.size(); ++size) {
    const auto header = parse(file.substr(0, size));
    REQUIRE(!header);
    CHECK(header.error().code() == ErrorCode::corrupt_data);
  }
}
