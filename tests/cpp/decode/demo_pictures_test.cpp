#include "decode/demo_pictures.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>
// Needs <cstdio> before it.
#include <jpeglib.h>

#include "data/open_fixture.h"
#include "support/catch.h"
#include "support/temp_dir.h"

using namespace headpond;
using Catch::Matchers::ContainsSubstring;
namespace fs = std::filesystem;

namespace {

using Picture = std::vector<std::byte>;

Picture picture_of(std::uint32_t label, std::uint64_t index) {
  auto picture = make_demo_picture(label, index);
  REQUIRE(picture);
  return *std::move(picture);
}

struct Decoded {
  unsigned width = 0;
  unsigned height = 0;
  bool halved_colors = false;
  long warnings = 0;
  std::array<double, 3> mean{};
};

// libjpeg's own error exit ends the program, which a test may.
Decoded decode(const Picture& picture) {
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_decompress(&info);
  jpeg_mem_src(&info, reinterpret_cast<const unsigned char*>(picture.data()), picture.size());
  jpeg_read_header(&info, TRUE);
  Decoded decoded;
  decoded.width = info.image_width;
  decoded.height = info.image_height;
  REQUIRE(info.num_components == 3);
  const int h = info.comp_info[0].h_samp_factor;
  const int v = info.comp_info[0].v_samp_factor;
  REQUIRE(h == v);
  decoded.halved_colors = h == 2;
  jpeg_start_decompress(&info);
  std::vector<unsigned char> row(std::size_t{3} * info.output_width);
  while (info.output_scanline < info.output_height) {
    JSAMPROW line = row.data();
    jpeg_read_scanlines(&info, &line, 1);
    for (std::size_t i = 0; i < row.size(); ++i) decoded.mean[i % 3] += row[i];
  }
  for (auto& mean : decoded.mean) mean /= decoded.width * decoded.height;
  jpeg_finish_decompress(&info);
  decoded.warnings = errors.num_warnings;
  jpeg_destroy_decompress(&info);
  return decoded;
}

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string text_of(const Picture& picture) {
  return {reinterpret_cast<const char*>(picture.data()), picture.size()};
}

// Every file below a folder by its path in there.
std::map<std::string, std::string> files_below(const fs::path& root) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(root)) {
    if (entry.is_regular_file()) files[fs::relative(entry, root)] = text_of(entry.path());
  }
  return files;
}

// A reader that knows nothing but the ustar layout and checks what it can.
std::vector<std::pair<std::string, std::string>> tar_members(const std::string& tar) {
  std::vector<std::pair<std::string, std::string>> members;
  REQUIRE(tar.size() % 512 == 0);
  std::size_t at = 0;
  for (; tar.at(at) != '\0';) {
    const std::string header = tar.substr(at, 512);
    unsigned sum = 0;
    for (std::size_t i = 0; i < 512; ++i) {
      sum += i >= 148 && i < 156 ? ' ' : static_cast<unsigned char>(header[i]);
    }
    REQUIRE(std::stoul(header.substr(148, 6), nullptr, 8) == sum);
    REQUIRE(header.substr(257, 8) == std::string("ustar\0"
                                                 "00",
                                                 8));
    REQUIRE(header[156] == '0');
    const std::size_t size = std::stoul(header.substr(124, 11), nullptr, 8);
    members.emplace_back(header.c_str(), tar.substr(at + 512, size));
    at += 512 + (size + 511) / 512 * 512;
  }
  REQUIRE(tar.substr(at) == std::string(1024, '\0'));
  return members;
}

}  // namespace

TEST_CASE("demo pictures: the mean is 80 to 120 KB, and none is far from it") {
  std::size_t total = 0;
  constexpr std::uint32_t kCount = 200;
  for (std::uint32_t i = 0; i < kCount; ++i) {
    const std::size_t size = picture_of(i % 10, i / 10).size();
    CHECK(size > 40'000);
    CHECK(size < 160'000);
    total += size;
  }
  CHECK(total / kCount > 80'000);
  CHECK(total / kCount < 120'000);
}

TEST_CASE("demo pictures: each decodes without a warning, a quarter of them in 4:2:0") {
  std::set<std::pair<unsigned, unsigned>> sizes;
  int halved = 0;
  for (std::uint64_t index = 0; index < 40; ++index) {
    for (const std::uint32_t label : {0u, 3u, 1'000'003u}) {
      const Decoded decoded = decode(picture_of(label, index));
      CHECK(decoded.warnings == 0);
      CHECK(decoded.width >= 375);
      CHECK(decoded.height >= 333);
      CHECK(decoded.width <= 512);
      CHECK(decoded.height <= 500);
      sizes.emplace(decoded.width, decoded.height);
      halved += decoded.halved_colors ? 1 : 0;
    }
  }
  CHECK(halved == 30);
  CHECK(sizes.size() >= 5);
}

TEST_CASE("demo pictures: a picture is a function of class and index, on any thread") {
  std::set<std::string> seen;
  for (std::uint32_t label = 0; label < 4; ++label) {
    for (std::uint64_t index = 0; index < 4; ++index)
      seen.insert(text_of(picture_of(label, index)));
  }
  CHECK(seen.size() == 16);
  for (std::uint32_t label = 0; label < 4; ++label) {
    std::optional<Picture> elsewhere;
    std::thread([&] { elsewhere = *make_demo_picture(label, 2); }).join();
    CHECK(*elsewhere == picture_of(label, 2));
  }
}

TEST_CASE("demo pictures: a class is recognised by its colours alone, mostly") {
  constexpr std::uint32_t kClasses = 10;
  constexpr std::uint64_t kKnown = 12;
  std::array<std::array<double, 3>, kClasses> centres{};
  for (std::uint32_t label = 0; label < kClasses; ++label) {
    for (std::uint64_t index = 0; index < kKnown; ++index) {
      const auto mean = decode(picture_of(label, index)).mean;
      for (std::size_t c = 0; c < 3; ++c) centres[label][c] += mean[c] / kKnown;
    }
  }
  int right = 0;
  for (std::uint32_t label = 0; label < kClasses; ++label) {
    for (std::uint64_t index = kKnown; index < kKnown + 6; ++index) {
      const auto mean = decode(picture_of(label, index)).mean;
      const auto distance = [&](const std::array<double, 3>& centre) {
        return std::hypot(mean[0] - centre[0], mean[1] - centre[1], mean[2] - centre[2]);
      };
      const auto nearest =
          std::min_element(centres.begin(), centres.end(),
                           [&](const auto& a, const auto& b) { return distance(a) < distance(b); });
      right += nearest - centres.begin() == static_cast<std::ptrdiff_t>(label) ? 1 : 0;
    }
  }
  // Guessing gets 6 of 60.
  CHECK(right >= 30);
}

TEST_CASE("demo corpus: folder and shards hold the same pictures, each once, with their classes") {
  const TempDir dir;
  DemoCorpus corpus{dir.path("a/b"), 23, 3, 4, 2, {}};
  REQUIRE(write_demo_corpus(corpus));

  const auto files = files_below(dir.path("a/b/folder"));
  const auto shards = files_below(dir.path("a/b/shards"));
  REQUIRE(files.size() == 23);
  REQUIRE(shards.size() == 4);
  std::vector<std::pair<std::string, std::string>> members;
  for (const auto& [name, tar] : shards) {
    const auto some = tar_members(tar);
    CHECK((some.size() == 10 || some.size() == 12));
    members.insert(members.end(), some.begin(), some.end());
  }
  REQUIRE(members.size() == 46);
  CHECK(shards.begin()->first == "demo-000000.tar");
  for (std::uint64_t number = 0; number < 23; ++number) {
    char key[16];
    std::snprintf(key, sizeof key, "%06d", static_cast<int>(number));
    const auto label = static_cast<std::uint32_t>(number % 3);
    const std::string expected = text_of(picture_of(label, number / 3));
    const auto file = files.find("class-0" + std::to_string(label) + "/" + key + ".jpg");
    REQUIRE(file != files.end());
    CHECK(file->second == expected);
    CHECK(members[2 * number].first == std::string(key) + ".jpg");
    CHECK(members[2 * number].second == expected);
    CHECK(members[2 * number + 1].first == std::string(key) + ".cls");
    CHECK(members[2 * number + 1].second == std::to_string(label));
  }
}

TEST_CASE("demo corpus: it opens as files and as shards, with equal bytes and labels") {
  OpenFixture fixture;
  REQUIRE(write_demo_corpus({fixture.folder.path(), 12, 3, 2, 1, {}}));
  const auto files = open_files(fixture.source({"folder"}), {}, fixture.context);
  const auto shards = open_webdataset(fixture.source({"shards"}), fixture.context);
  REQUIRE(files);
  REQUIRE(shards);
  CHECK((*files)->classes() == std::vector<std::string>{"class-00", "class-01", "class-02"});
  REQUIRE((*files)->size() == 12);
  REQUIRE((*shards)->size() == 12);
  CHECK((*shards)->format().shard_counts() == std::vector<std::uint64_t>{6, 6});
  for (std::uint64_t number = 0; number < 12; ++number) {
    // The folder's order is by class, then by number.
    const std::uint64_t place = number % 3 * 4 + number / 3;
    const std::string picture = fixture.read(**shards, extent_of(**shards, number, "jpg"));
    CHECK(picture == fixture.read(**files, extent_of(**files, place, "data")));
    CHECK(picture == text_of(picture_of(static_cast<std::uint32_t>(number % 3), number / 3)));
    CHECK(fixture.read(**shards, extent_of(**shards, number, "cls")) == std::to_string(number % 3));
  }
}

TEST_CASE("demo corpus: any number of threads writes the same bytes") {
  std::vector<std::map<std::string, std::string>> results;
  for (const int threads : {1, 3}) {
    const TempDir dir;
    REQUIRE(write_demo_corpus({dir.path(), 20, 10, 5, threads, {}}));
    results.push_back(files_below(dir.path()));
  }
  CHECK(results[0] == results[1]);
}

TEST_CASE("demo corpus: names of many classes sort as their numbers do") {
  const TempDir dir;
  REQUIRE(write_demo_corpus({dir.path(), 101, 101, 1, 1, {}}));
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(dir.path("folder"))) {
    names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  CHECK(names[2] == "class-002");
  CHECK(names[100] == "class-100");
}

TEST_CASE("demo corpus: progress grows to the count, on the calling thread") {
  const TempDir dir;
  std::vector<std::uint64_t> seen;
  const auto caller = std::this_thread::get_id();
  bool elsewhere = false;
  const auto progress = [&](std::uint64_t done, std::uint64_t count) {
    elsewhere |= std::this_thread::get_id() != caller || count != 12;
    seen.push_back(done);
    return true;
  };
  REQUIRE(write_demo_corpus({dir.path(), 12, 2, 3, 2, progress}));
  CHECK(!elsewhere);
  CHECK(std::is_sorted(seen.begin(), seen.end()));
  CHECK(std::adjacent_find(seen.begin(), seen.end()) == seen.end());
  CHECK(seen.back() == 12);
}

TEST_CASE("demo corpus: a progress that refuses or throws ends the work early") {
  const TempDir dir;
  const auto refused = write_demo_corpus(
      {dir.path(), 100'000, 2, 100, 2, [](std::uint64_t, std::uint64_t) { return false; }});
  REQUIRE(!refused);
  CHECK(refused.error().code() == ErrorCode::cancelled);

  const auto throwing = [](std::uint64_t, std::uint64_t) -> bool {
    throw std::runtime_error("no");
  };
  CHECK_THROWS_WITH(write_demo_corpus({dir.path(), 100'000, 2, 100, 2, throwing}), "no");
}

TEST_CASE("demo corpus: what cannot be written is named") {
  const TempDir dir;
  dir.write("file", "x");
  const auto no_folder = write_demo_corpus({dir.path("file"), 4, 2, 1, 1, {}});
  REQUIRE(!no_folder);
  CHECK_THAT(no_folder.error().to_string(), ContainsSubstring(dir.path("file")));

  fs::create_directories(dir.path("corpus/shards/demo-000001.tar"));
  const auto no_shard = write_demo_corpus({dir.path("corpus"), 4, 2, 2, 2, {}});
  REQUIRE(!no_shard);
  CHECK_THAT(no_shard.error().to_string(), ContainsSubstring("demo-000001.tar"));
}

TEST_CASE("demo corpus: impossible numbers are refused before anything is written") {
  const TempDir dir;
  const std::string path = dir.path("corpus");
  const std::vector<DemoCorpus> wrong{{"", 4, 2, 1, 1, {}},   {path, 4, 0, 1, 1, {}},
                                      {path, 1, 2, 1, 1, {}}, {path, 4, 2, 0, 1, {}},
                                      {path, 4, 2, 5, 1, {}}, {path, 4, 2, 1, 0, {}}};
  for (const auto& corpus : wrong) {
    const auto result = write_demo_corpus(corpus);
    REQUIRE(!result);
    CHECK(result.error().code() == ErrorCode::invalid_argument);
  }
  CHECK(!fs::exists(path));
}
