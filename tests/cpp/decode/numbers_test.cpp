#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "decode/half.h"
#include "headpond/decoder.h"
#include "support/catch.h"

using namespace headpond;

namespace {

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

template <class T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

Result<std::vector<std::byte>> run(const Decoder& decoder, std::span<const std::byte> record) {
  Scratch scratch;
  std::vector<std::byte> out(decoder.output_bytes_max(record.size()));
  auto written = decoder.decode(record, {}, out, scratch);
  if (!written) return std::move(written).error();
  out.resize(*written);
  return out;
}

template <class T>
std::vector<T> numbers(const Result<std::vector<std::byte>>& bytes) {
  if (!bytes) FAIL(bytes.error().to_string());
  std::vector<T> values(bytes->size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes->data(), bytes->size());
  return values;
}

Field field(DType dtype, std::optional<Shape> shape, bool swapped = false) {
  return {"x", dtype, std::move(shape), swapped};
}

std::string npy(const std::string& descr, const std::string& shape, const std::string& data) {
  std::string header =
      "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }";
  header.resize((10 + header.size() + 1 + 63) / 64 * 64 - 10 - 1, ' ');
  header += '\n';
  std::string record("\x93NUMPY\x01\x00", 8);
  record += static_cast<char>(header.size() & 255);
  record += static_cast<char>(header.size() >> 8);
  return record + header + data;
}

}  // namespace

TEST_CASE("convert: integers and floats become each other as C++ and NumPy convert them") {
  const auto tokens = make_convert_decoder(field(DType::uint16, Shape{3}), DType::int64);
  REQUIRE(tokens);
  CHECK((*tokens)->output() == field(DType::int64, Shape{3}));
  CHECK((*tokens)->output_bytes_max(6) == 24);
  const std::vector<std::uint16_t> record{0, 7, 65'535};
  CHECK(numbers<std::int64_t>(run(**tokens, bytes_of(record))) ==
        std::vector<std::int64_t>{0, 7, 65'535});

  const auto floats = make_convert_decoder(field(DType::float32, std::nullopt), DType::uint8);
  const std::vector<float> values{0.9f, 255.0f, 1e9f, -5.0f,
                                  std::numeric_limits<float>::quiet_NaN()};
  CHECK(numbers<std::uint8_t>(run(**floats, bytes_of(values))) ==
        std::vector<std::uint8_t>{0, 255, 255, 0, 0});

  const auto wide = make_convert_decoder(field(DType::float64, std::nullopt), DType::int64);
  const std::vector<double> extremes{-1e300, 1e300, 9.007199254740993e15, -2.5};
  CHECK(numbers<std::int64_t>(run(**wide, bytes_of(extremes))) ==
        std::vector<std::int64_t>{std::numeric_limits<std::int64_t>::min(),
                                  std::numeric_limits<std::int64_t>::max(), 9'007'199'254'740'992,
                                  -2});

  const auto boolean = make_convert_decoder(field(DType::int32, std::nullopt), DType::boolean);
  const std::vector<std::int32_t> flags{0, 256, -1};
  CHECK(numbers<std::uint8_t>(run(**boolean, bytes_of(flags))) ==
        std::vector<std::uint8_t>{0, 1, 1});
}

TEST_CASE("convert: big-endian numbers are swapped, also when the type stays") {
  const std::string record("\x01\x02\xFF\xFE", 4);
  const auto same = make_convert_decoder(field(DType::int16, std::nullopt, true), DType::int16);
  CHECK(numbers<std::int16_t>(run(**same, bytes_of(record))) ==
        std::vector<std::int16_t>{0x0102, -2});
  CHECK_FALSE((*same)->output().swapped);
  const auto wide = make_convert_decoder(field(DType::int16, std::nullopt, true), DType::float32);
  CHECK(numbers<float>(run(**wide, bytes_of(record))) == std::vector<float>{258.0f, -2.0f});
}

TEST_CASE("convert: numbers of every width are swapped") {
  const std::string record("\0\0\0\0\0\0\0\7", 8);
  const auto wide = make_convert_decoder(field(DType::int64, std::nullopt, true), DType::int64);
  CHECK(numbers<std::int64_t>(run(**wide, bytes_of(record))) == std::vector<std::int64_t>{7});
  const auto half = make_convert_decoder(field(DType::uint32, std::nullopt, true), DType::int64);
  CHECK(numbers<std::int64_t>(run(**half, bytes_of(record))) == std::vector<std::int64_t>{0, 7});
  const auto byte = make_convert_decoder(field(DType::uint8, std::nullopt, true), DType::uint8);
  CHECK(numbers<std::uint8_t>(run(**byte, bytes_of(record).last(2))) ==
        std::vector<std::uint8_t>{0, 7});
}

TEST_CASE("convert: records of a wrong size are corrupt, bytes are no numbers") {
  const auto fixed = make_convert_decoder(field(DType::int32, Shape{2}), DType::int64);
  const std::vector<std::int32_t> three{1, 2, 3};
  CHECK(run(**fixed, bytes_of(three)).error().code() == ErrorCode::corrupt_data);
  const auto varying = make_convert_decoder(field(DType::int32, std::nullopt), DType::int64);
  CHECK(run(**varying, bytes_of(three).first(5)).error().code() == ErrorCode::corrupt_data);
  CHECK(numbers<std::int64_t>(run(**varying, {})).empty());
  CHECK(make_convert_decoder(field(DType::bytes, std::nullopt), DType::int64).error().code() ==
        ErrorCode::invalid_argument);
}

TEST_CASE("half: every float16 and bfloat16 survives the way through float") {
  for (std::uint32_t bits = 0; bits < 65'536; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float value = decode::half_to_float(half);
    if (std::isnan(value)) {
      REQUIRE(std::isnan(decode::half_to_float(decode::float_to_half(value))));
    } else {
      REQUIRE(decode::float_to_half(value) == half);
    }
    const float brain = decode::bfloat16_to_float(half);
    if (!std::isnan(brain)) REQUIRE(decode::float_to_bfloat16(brain) == half);
  }
}

TEST_CASE("half: floats between two float16 go to the nearer one, ties to the even one") {
  for (std::uint32_t bits = 0; bits < 0x7BFF; ++bits) {
    const auto low = static_cast<std::uint16_t>(bits);
    const auto high = static_cast<std::uint16_t>(bits + 1);
    const float middle = (decode::half_to_float(low) + decode::half_to_float(high)) / 2;
    REQUIRE(decode::float_to_half(middle) == (low % 2 == 0 ? low : high));
    REQUIRE(decode::float_to_half(std::nextafter(middle, 0.0f)) == low);
    REQUIRE(decode::float_to_half(std::nextafter(middle, 1e9f)) == high);
  }
  CHECK(decode::float_to_half(65'519.0f) == 0x7BFF);
  CHECK(decode::float_to_half(65'520.0f) == 0x7C00);
  CHECK(decode::float_to_half(-1e30f) == 0xFC00);
  CHECK(decode::float_to_half(1e-30f) == 0);
}

TEST_CASE("text number: decimal text becomes one scalar; anything else is corrupt and quoted") {
  const auto integer = make_text_number_decoder(DType::int64);
  REQUIRE(integer);
  CHECK((*integer)->output().shape == Shape{});
  for (const auto& [text, value] : std::vector<std::pair<std::string, std::int64_t>>{
           {"7\n", 7}, {" -12 ", -12}, {"+5", 5}, {"0", 0}, {"9223372036854775807", INT64_MAX}}) {
    CHECK(numbers<std::int64_t>(run(**integer, bytes_of(text))) ==
          std::vector<std::int64_t>{value});
  }
  for (const std::string text :
       {"", " ", "x", "7 8", "1.5", "0x10", "9223372036854775808", "+-5", "+"}) {
    const auto result = run(**integer, bytes_of(text));
    REQUIRE_FALSE(result);
    CHECK(result.error().code() == ErrorCode::corrupt_data);
  }
  const auto binary = run(**integer, bytes_of(std::string("\x01\xFFx", 3)));
  CHECK_THAT(binary.error().message(), Catch::Matchers::ContainsSubstring("found \"??x\""));
  const auto small = make_text_number_decoder(DType::uint8);
  CHECK_FALSE(run(**small, bytes_of(std::string("256"))));
  CHECK_FALSE(run(**small, bytes_of(std::string("-1"))));
  const auto real = make_text_number_decoder(DType::float32);
  CHECK(numbers<float>(run(**real, bytes_of(std::string("-2.5e3\r\n")))) ==
        std::vector<float>{-2500.0f});
  const auto boolean = make_text_number_decoder(DType::boolean);
  CHECK(numbers<std::uint8_t>(run(**boolean, bytes_of(std::string("1")))) ==
        std::vector<std::uint8_t>{1});
  CHECK_FALSE(run(**boolean, bytes_of(std::string("2"))));
}

TEST_CASE("npy: the first record's dtype and shape are expected of the others") {
  const std::string first = npy("<i2", "(2, 2)", std::string("\1\0\2\0\3\0\4\0", 8));
  const auto decoder = make_npy_decoder(bytes_of(first));
  REQUIRE(decoder);
  CHECK((*decoder)->output().dtype == DType::int16);
  CHECK((*decoder)->output().shape == Shape{2, 2});
  CHECK(numbers<std::int16_t>(run(**decoder, bytes_of(first))) ==
        std::vector<std::int16_t>{1, 2, 3, 4});
  for (const std::string& other :
       {npy("<i4", "(2, 2)", std::string(16, '\0')), npy("<i2", "(4,)", std::string(8, '\0')),
        npy("<i2", "(2, 2)", "short"), std::string("no array")}) {
    const auto result = run(**decoder, bytes_of(other));
    REQUIRE_FALSE(result);
    CHECK(result.error().code() == ErrorCode::corrupt_data);
  }
}

TEST_CASE("npy: the length of one-dimensional arrays varies, big-endian data are swapped") {
  const auto decoder = make_npy_decoder(bytes_of(npy(">i2", "(1,)", std::string("\0\1", 2))));
  REQUIRE(decoder);
  CHECK((*decoder)->output().shape == std::nullopt);
  CHECK(numbers<std::int16_t>(
            run(**decoder, bytes_of(npy(">i2", "(2,)", std::string("\1\0\0\2", 4))))) ==
        std::vector<std::int16_t>{256, 2});
  CHECK(numbers<std::int16_t>(run(**decoder, bytes_of(npy(">i2", "(0,)", "")))).empty());
}

TEST_CASE("named decoders: raw, utf8 and json leave bytes alone, dtypes parse text or convert") {
  const Field text = field(DType::bytes, std::nullopt);
  for (const char* name : {"raw", "utf8", "json"}) {
    const auto none = make_named_decoder(name, text, {});
    REQUIRE(none);
    CHECK(*none == nullptr);
  }
  const auto number = make_named_decoder("int64", text, {});
  CHECK((*number)->output().shape == Shape{});
  const auto converted = make_named_decoder("int64", field(DType::uint16, Shape{4}), {});
  CHECK((*converted)->output().shape == Shape{4});
  const auto array = make_named_decoder("npy", text, bytes_of(npy("<f4", "()", "1234")));
  CHECK((*array)->output().dtype == DType::float32);
  for (const char* name : {"jpeg", "bytes", ""}) {
    const auto unknown = make_named_decoder(name, text, {});
    REQUIRE_FALSE(unknown);
    CHECK(unknown.error().code() == ErrorCode::invalid_argument);
    CHECK_THAT(unknown.error().message(), Catch::Matchers::ContainsSubstring("float32"));
  }
  CHECK(make_named_decoder("json", field(DType::int8, std::nullopt), {}).error().code() ==
        ErrorCode::invalid_argument);
}
