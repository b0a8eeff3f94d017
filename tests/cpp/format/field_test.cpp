#include "headpond/field.h"

#include "format/stored_type.h"
#include "support/catch.h"

using namespace headpond;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("DType: every name is parsed back, with its size") {
  const std::pair<const char*, std::size_t> types[] = {
      {"bool", 1},     {"int8", 1},    {"uint8", 1},   {"int16", 2},  {"uint16", 2},
      {"int32", 4},    {"uint32", 4},  {"int64", 8},   {"uint64", 8}, {"float16", 2},
      {"bfloat16", 2}, {"float32", 4}, {"float64", 8}, {"bytes", 1}};
  for (const auto& [name, size] : types) {
    const auto dtype = parse_dtype(name);
    REQUIRE(dtype);
    CHECK(name_of(*dtype) == name);
    CHECK(item_size(*dtype) == size);
  }
}

TEST_CASE("DType: NumPy's codes name the same types") {
  CHECK(*parse_dtype("<i8") == DType::int64);
  CHECK(*parse_dtype("|u1") == DType::uint8);
  CHECK(*parse_dtype("=f4") == DType::float32);
  CHECK(*parse_dtype("|b1") == DType::boolean);
  CHECK(*parse_dtype("?") == DType::boolean);
  CHECK(*parse_dtype("f2") == DType::float16);
  CHECK(*parse_dtype(">i1") == DType::int8);
}

TEST_CASE("DType: what is not a type of ours is refused, and the error lists ours") {
  for (const char* text :
       {"", "<", "float", "int65", "object", "|O", "<U4", "c8", "M8[ns]", "i 8"}) {
    const auto dtype = parse_dtype(text);
    REQUIRE(!dtype);
    CHECK(dtype.error().code() == ErrorCode::invalid_argument);
    CHECK_THAT(dtype.error().message(), ContainsSubstring("float32"));
  }
}

TEST_CASE("DType: a big-endian code is refused as a type in memory and known as a stored one") {
  CHECK_THAT(parse_dtype(">u2").error().message(), ContainsSubstring("uint16"));
  CHECK(find_stored_type(">u2") == StoredType{DType::uint16, true});
  CHECK(find_stored_type("<u2") == StoredType{DType::uint16, false});
}

TEST_CASE("byte_size: a product beyond 63 bits is an error, also beside a zero") {
  CHECK(*byte_size({}, DType::int64) == 8);
  CHECK(*byte_size({3, 4}, DType::float32) == 48);
  CHECK(*byte_size({3, 0}, DType::float32) == 0);
  CHECK(*byte_size({(std::uint64_t{1} << 60) - 1}, DType::int64) ==
        ((std::uint64_t{1} << 60) - 1) * 8);
  for (const Shape& shape :
       {Shape{std::uint64_t{1} << 60}, Shape{std::uint64_t{1} << 32, std::uint64_t{1} << 32},
        Shape{~std::uint64_t{0}}, Shape{std::uint64_t{1} << 62, 4, 0}}) {
    const auto size = byte_size(shape, DType::int64);
    REQUIRE(!size);
    CHECK(size.error().code() == ErrorCode::corrupt_data);
  }
}
