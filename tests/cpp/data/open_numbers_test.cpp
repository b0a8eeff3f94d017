#include "open_fixture.h"
#include "support/catch.h"

using namespace headpond;
using Catch::Matchers::ContainsSubstring;

namespace {

std::string npy(const std::string& descr, const std::string& shape, const std::string& data) {
  const std::string header =
      "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }\n";
  std::string file = std::string("\x93NUMPY\x01\0", 8);
  file += static_cast<char>(header.size());
  file += '\0';
  return file + header + data;
}

RecordsOptions records(DType dtype, Shape shape, std::uint64_t header_bytes = 0) {
  RecordsOptions options;
  options.dtype = dtype;
  options.shape = std::move(shape);
  options.header_bytes = header_bytes;
  return options;
}

TokensOptions tokens(DType dtype, std::uint64_t window, std::uint64_t stride = 0) {
  return {.dtype = dtype, .swapped = false, .window = window, .stride = stride};
}

std::string message(const Result<std::shared_ptr<const Dataset>>& dataset, ErrorCode code) {
  REQUIRE(!dataset);
  CHECK(dataset.error().code() == code);
  return dataset.error().to_string();
}

}  // namespace

TEST_CASE("open_records: files of one record size are one sequence, in name order") {
  OpenFixture fixture;
  fixture.folder.write("b.bin", "hdEEFFGG");
  fixture.folder.write("a.bin", "hdAABB");
  fixture.folder.write("c.bin", "hd");
  const auto dataset = open_records(fixture.all(), records(DType::uint8, {2}, 2), fixture.context);
  REQUIRE(dataset);
  REQUIRE((*dataset)->size() == 5);
  CHECK((*dataset)->fields()[0] == Field{"data", DType::uint8, Shape{2}, false});
  CHECK(fixture.read(**dataset, extent_of(**dataset, 1, "data")) == "BB");
  CHECK(fixture.read(**dataset, extent_of(**dataset, 4, "data")) == "GG");
  CHECK((*dataset)->key(2) == "b.bin:0");
}

TEST_CASE("open_records: a remainder is an error that names file and remainder") {
  OpenFixture fixture;
  fixture.folder.write("a.bin", "12345678");
  fixture.folder.write("b.bin", "1234567");
  const auto text = message(open_records(fixture.all(), records(DType::int32, {}), fixture.context),
                            ErrorCode::corrupt_data);
  CHECK_THAT(text, ContainsSubstring("b.bin"));
  CHECK_THAT(text, ContainsSubstring("3 bytes remain"));
  CHECK_THAT(message(open_records(fixture.all(), records(DType::int32, {}, 10), fixture.context),
                     ErrorCode::corrupt_data),
             ContainsSubstring("header"));
}

TEST_CASE("open_records: .npy files bring dtype, byte order and shape") {
  OpenFixture fixture;
  fixture.folder.write("1.npy", npy(">u2", "(2, 3)", "aabbccddeeff"));
  fixture.folder.write("2.NPY", npy(">u2", "(1, 3)", "gghhii"));
  const auto dataset = open_records(fixture.all(), {}, fixture.context);
  REQUIRE(dataset);
  CHECK((*dataset)->size() == 3);
  CHECK((*dataset)->fields()[0] == Field{"data", DType::uint16, Shape{3}, true});
  CHECK(fixture.read(**dataset, extent_of(**dataset, 1, "data")) == "ddeeff");
  CHECK(fixture.read(**dataset, extent_of(**dataset, 2, "data")) == "gghhii");
}

TEST_CASE("open_records: .npy files that do not fit are named") {
  const auto text = [](const std::string& second, RecordsOptions options, ErrorCode code) {
    OpenFixture fixture;
    fixture.folder.write("1.npy", npy("<i4", "(1,)", "aaaa"));
    fixture.folder.write("2.npy", second);
    const auto said = message(open_records(fixture.all(), options, fixture.context), code);
    CHECK_THAT(said, ContainsSubstring("2.npy"));
    return said;
  };
  CHECK_THAT(text(npy("<i8", "(1,)", "aaaaaaaa"), {}, ErrorCode::invalid_argument),
             ContainsSubstring("int64"));
  text(npy("<i4", "(1, 2)", "aaaaaaaa"), {}, ErrorCode::invalid_argument);
  text(npy("<i4", "()", "aaaa"), {}, ErrorCode::invalid_argument);
  text(npy("<i4", "(2,)", "aaaa"), {}, ErrorCode::corrupt_data);
  text(npy("<i4", "(1,)", "aaaaa"), {}, ErrorCode::corrupt_data);
  text("", {}, ErrorCode::corrupt_data);
  text(npy("|O", "(1,)", "aaaa"), {}, ErrorCode::unsupported);
}

TEST_CASE("open_records: raw records need a dtype, and a shape with bytes") {
  OpenFixture fixture;
  fixture.folder.write("a.bin", "12");
  CHECK_THAT(message(open_records(fixture.all(), {}, fixture.context), ErrorCode::invalid_argument),
             ContainsSubstring("dtype"));
  message(open_records(fixture.all(), records(DType::uint8, {0}), fixture.context),
          ErrorCode::invalid_argument);
  message(open_records(fixture.all(), records(DType::bytes, {1}), fixture.context),
          ErrorCode::invalid_argument);
  message(
      open_records(fixture.all(), records(DType::uint8, {~std::uint64_t{0}, 2}), fixture.context),
      ErrorCode::invalid_argument);
}

TEST_CASE("open_records: only empty files are an error, an empty one among others is not") {
  OpenFixture fixture;
  fixture.folder.write("a.bin", "");
  message(open_records(fixture.all(), records(DType::uint8, {2}), fixture.context),
          ErrorCode::invalid_argument);
  fixture.folder.write("b.bin", "12");
  CHECK((*open_records(fixture.all(), records(DType::uint8, {2}), fixture.context))->size() == 1);
}

TEST_CASE("open_records: a record behind 4 GiB is found") {
  OpenFixture fixture;
  const std::string path = fixture.folder.write("big.bin", "");
  const std::uint64_t bytes = std::uint64_t{5} << 30;
  std::filesystem::resize_file(path, bytes);
  {
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp((std::int64_t{4} << 30) + 8);
    file.write("wanted!!", 8);
  }
  const auto dataset = *open_records(fixture.all(), records(DType::int64, {}), fixture.context);
  CHECK(dataset->size() == bytes / 8);
  CHECK(fixture.read(*dataset, extent_of(*dataset, (std::uint64_t{1} << 29) + 1, "data")) ==
        "wanted!!");
}

TEST_CASE("open_tokens: windows never cross files, tails are left out and counted") {
  OpenFixture fixture;
  fixture.folder.write("a", "aabbccddee");
  fixture.folder.write("b", "ff");
  fixture.folder.write("c", "gghhii");
  const auto dataset = *open_tokens(fixture.all(), tokens(DType::uint16, 2), fixture.context);
  REQUIRE(dataset->size() == 3);
  CHECK(dataset->fields()[0] == Field{"tokens", DType::uint16, Shape{2}, false});
  CHECK(fixture.read(*dataset, extent_of(*dataset, 1, "tokens")) == "ccdd");
  CHECK(fixture.read(*dataset, extent_of(*dataset, 2, "tokens")) == "gghh");
  REQUIRE(dataset->notes().size() == 1);
  CHECK_THAT(dataset->notes()[0], ContainsSubstring("3 tokens at the end of 3 files"));
  const auto overlapping =
      *open_tokens(fixture.all(), tokens(DType::uint16, 2, 1), fixture.context);
  CHECK(overlapping->size() == 6);
  CHECK(fixture.read(*overlapping, extent_of(*overlapping, 1, "tokens")) == "bbcc");
  CHECK(overlapping->fingerprint() != dataset->fingerprint());
}

TEST_CASE("open_tokens: the number of windows is exact for all small sizes") {
  OpenFixture fixture;
  for (std::uint64_t size = 1; size <= 7; ++size) {
    fixture.folder.write("t", std::string(size, 'x'));
    for (std::uint64_t window = 1; window <= 7; ++window) {
      for (std::uint64_t stride = 1; stride <= 8; ++stride) {
        std::uint64_t expected = 0;
        for (std::uint64_t at = 0; at + window <= size; at += stride) ++expected;
        const auto dataset =
            open_tokens(fixture.all(), tokens(DType::uint8, window, stride), fixture.context);
        CHECK((dataset ? (*dataset)->size() : 0) == expected);
      }
    }
  }
}

TEST_CASE("open_tokens: mistakes are named") {
  OpenFixture fixture;
  fixture.folder.write("a", "12345");
  CHECK_THAT(message(open_tokens(fixture.all(), tokens(DType::uint16, 2), fixture.context),
                     ErrorCode::corrupt_data),
             ContainsSubstring("1 remain"));
  CHECK_THAT(message(open_tokens(fixture.all(), tokens(DType::uint8, 6), fixture.context),
                     ErrorCode::invalid_argument),
             ContainsSubstring("5 tokens"));
  message(open_tokens(fixture.all(), tokens(DType::uint8, 0), fixture.context),
          ErrorCode::invalid_argument);
  message(open_tokens(fixture.all(), tokens(DType::bytes, 1), fixture.context),
          ErrorCode::invalid_argument);
  message(open_tokens(fixture.all(), tokens(DType::int64, ~std::uint64_t{0}), fixture.context),
          ErrorCode::invalid_argument);
}

TEST_CASE("open_tokens: an .npy file of the asked dtype is read behind its header") {
  OpenFixture fixture;
  fixture.folder.write("a.npy", npy("<u2", "(3,)", "aabbcc"));
  const auto dataset = *open_tokens(fixture.all(), tokens(DType::uint16, 2, 1), fixture.context);
  CHECK(fixture.read(*dataset, extent_of(*dataset, 1, "tokens")) == "bbcc");
  message(open_tokens(fixture.all(), tokens(DType::uint32, 1), fixture.context),
          ErrorCode::invalid_argument);
}

TEST_CASE("open_arrays: rows of held arrays, in the order they were given") {
  const std::vector<float> y = {1, 2, 3};
  const std::vector<std::uint16_t> x = {1, 2, 3, 4, 5, 6};
  const auto column = [](const char* name, DType dtype, Shape shape, auto& data) {
    return ArrayColumn{name,   dtype, false, std::move(shape), 3, std::as_bytes(std::span(data)),
                       nullptr};
  };
  const auto dataset =
      open_arrays({column("y", DType::float32, {}, y), column("x", DType::uint16, {2}, x)});
  REQUIRE(dataset);
  CHECK((*dataset)->size() == 3);
  CHECK((*dataset)->fields()[0].name == "y");
  StoreRegistry none;
  const auto store = *(*dataset)->store(none);
  const Extent extent = extent_of(**dataset, 2, "x");
  std::string name;
  (*dataset)->manifest().name(extent.object, name);
  CHECK(name == "x");
  std::uint16_t row[2];
  REQUIRE(read_blocking(*store, name, extent.offset, std::as_writable_bytes(std::span(row))));
  CHECK(row[1] == 6);
}

TEST_CASE("open_arrays: unequal lengths are an error naming both; no rows are a dataset of none") {
  const auto column = [](const char* name, std::uint64_t rows) {
    static const std::byte data[16] = {};
    return ArrayColumn{name, DType::uint8, false, {}, rows, std::span(data).first(rows), nullptr};
  };
  const auto text =
      message(open_arrays({column("a", 3), column("b", 4)}), ErrorCode::invalid_argument);
  CHECK_THAT(text, ContainsSubstring("\"a\" has 3 rows, \"b\" has 4"));
  message(open_arrays({}), ErrorCode::invalid_argument);
  message(open_arrays({column("a", 1), column("a", 1)}), ErrorCode::invalid_argument);
  auto wrong = column("a", 3);
  wrong.shape = {2};
  message(open_arrays({wrong}), ErrorCode::invalid_argument);
  CHECK((*open_arrays({column("a", 0)}))->size() == 0);
}
