#include "format/tar_index.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <random>

#include "format/formats.h"
#include "support/bytes.h"
#include "support/catch.h"
#include "support/tar_writer.h"

using namespace headpond;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr Digest kVersion{1, 2};

TarWalker::Read reader(const std::string& tar) {
  return [&tar](std::uint64_t offset, std::span<std::byte> out) -> Result<void> {
    std::memcpy(out.data(), tar.data() + offset, out.size());
    return {};
  };
}

Result<std::vector<std::byte>> build(const std::string& tar) {
  return build_tar_index(tar.size(), kVersion, reader(tar), nullptr);
}

std::shared_ptr<const TarIndex> index_of(const std::string& tar) {
  auto image = build(tar);
  REQUIRE(image);
  auto index = TarIndex::open(Image(*std::move(image)), tar.size(), kVersion);
  REQUIRE(index);
  return *index;
}

std::unique_ptr<const Format> format_of(std::vector<std::shared_ptr<const TarIndex>> indexes) {
  std::vector<ObjectInfo> objects;
  for (std::size_t i = 0; i < indexes.size(); ++i)
    objects.push_back({"shard-" + std::to_string(i) + ".tar", {}});
  return make_webdataset_format(*Manifest::build(*Uri::parse("/shards"), std::move(objects)),
                                std::move(indexes));
}

std::string content(const std::string& tar, const Extent& extent) {
  return tar.substr(extent.offset, extent.size);
}

std::vector<Extent> locate_all(const Format& format, std::size_t field) {
  std::vector<std::uint64_t> samples(format.size());
  for (std::size_t i = 0; i < samples.size(); ++i) samples[i] = i;
  std::vector<Extent> out(samples.size());
  format.locate(samples, field, out);
  return out;
}

}  // namespace

TEST_CASE("TarIndex: consecutive members of a key are a sample; its fields are lower case") {
  const std::string tar = TarWriter()
                              .file("d/0001.jpg", "J1")
                              .file("d/0001.CLS", "7")
                              .file("d/0002.JPG", "J2")
                              .file("d/0002.cls", "8")
                              .file("d/0002.extra", "ignored")
                              .file("d/0003.cls", "9")
                              .end()
                              .bytes();
  const auto format = format_of({index_of(tar)});
  REQUIRE(format->size() == 3);
  REQUIRE(format->fields().size() == 2);
  CHECK(format->fields()[0].name == "jpg");
  CHECK(format->fields()[1].name == "cls");
  const auto jpg = locate_all(*format, 0);
  const auto cls = locate_all(*format, 1);
  CHECK(content(tar, jpg[0]) == "J1");
  CHECK(content(tar, jpg[1]) == "J2");
  CHECK(jpg[2].object == Extent::kMissing);
  CHECK(content(tar, cls[0]) == "7");
  CHECK(content(tar, cls[2]) == "9");
  CHECK(format->key(1) == "d/0002");
}

TEST_CASE("TarIndex: samples of several shards follow each other; a shard's end ends a sample") {
  const std::string first = TarWriter().file("a.x", "1").file("b.x", "2").end().bytes();
  const std::string empty = TarWriter().end().bytes();
  const std::string last = TarWriter().file("b.x", "3").end().bytes();
  const auto format =
      format_of({index_of(empty), index_of(first), index_of(empty), index_of(last)});
  CHECK(format->shard_counts() == std::vector<std::uint64_t>{0, 2, 0, 1});
  const auto extents = locate_all(*format, 0);
  CHECK(extents[0].object == 1);
  CHECK(extents[2].object == 3);
  CHECK(content(last, extents[2]) == "3");
  CHECK(format->key(2) == "b");
}

TEST_CASE(
    "TarIndex: folders, metadata, hidden names and names without field are skipped and counted") {
  const auto index = index_of(TarWriter()
                                  .member('5', "d.dir/")
                                  .file("__meta__/info.json", "{}")
                                  .file("._a.jpg", "mac")
                                  .member('2', ".link.jpg")
                                  .file("README", "text")
                                  .member('V', "label", "x")
                                  .file("a.jpg", "1")
                                  .end()
                                  .bytes());
  CHECK(index->samples() == 1);
  CHECK(index->skipped().folders == 1);
  CHECK(index->skipped().metadata == 1);
  CHECK(index->skipped().hidden == 2);
  CHECK(index->skipped().without_field == 1);
  CHECK(index->skipped().other == 1);
}

TEST_CASE(
    "TarIndex: a field twice, a key that returns, links, devices and sparse members are errors "
    "with the member") {
  const auto check = [](const std::string& tar, ErrorCode code, const char* member) {
    const auto image = build(tar);
    REQUIRE(!image);
    CHECK(image.error().code() == code);
    CHECK_THAT(image.error().message(), ContainsSubstring(std::string("\"") + member + "\""));
    CHECK(image.error().range());
  };
  check(TarWriter().file("a.jpg", "1").file("a.jpg", "2").end().bytes(), ErrorCode::corrupt_data,
        "a.jpg");
  check(TarWriter().file("a.jpg", "1").file("a.JPG", "2").end().bytes(), ErrorCode::corrupt_data,
        "a.JPG");
  check(TarWriter().file("0.a", "1").file("1.a", "2").file("0.b", "3").end().bytes(),
        ErrorCode::corrupt_data, "0.b");
  check(TarWriter().member('2', "a.jpg").end().bytes(), ErrorCode::unsupported, "a.jpg");
  check(TarWriter().member('1', "a.jpg").end().bytes(), ErrorCode::unsupported, "a.jpg");
  check(TarWriter().member('3', "a.dev").end().bytes(), ErrorCode::unsupported, "a.dev");
  check(TarWriter().member('6', "a.fifo").end().bytes(), ErrorCode::unsupported, "a.fifo");
  check(TarWriter().member('S', "a.bin").end().bytes(), ErrorCode::unsupported, "a.bin");
}

TEST_CASE("TarIndex: names are keys only, whatever they say") {
  const auto index = index_of(TarWriter()
                                  .file("../../etc/passwd.txt", "1")
                                  .file("/absolute.txt", "2")
                                  .file("caf\xe9.txt", "3")
                                  .file("e\xcc\x81.txt", "4")
                                  .file("\xc3\xa9.txt", "5")
                                  .file("new\nline.txt", "6")
                                  .end()
                                  .bytes());
  REQUIRE(index->samples() == 6);
  std::string key;
  index->key(0, key);
  CHECK(key == "../../etc/passwd");
  index->key(2, key);
  CHECK(key == "caf\xe9");
  index->key(5, key);
  CHECK(key == "new\nline");
}

TEST_CASE("TarIndex: what stands behind the end mark is counted, zeros are not") {
  const std::string one = TarWriter().file("a.x", "1").end().bytes();
  CHECK(index_of(one + std::string(10240, '\0'))->bytes_behind_end() == 0);
  CHECK(index_of(one + std::string(1024, '\0') + one)->bytes_behind_end() == one.size());
  CHECK(index_of(one)->end_marked());
  CHECK(!index_of(one.substr(0, 1024))->end_marked());
}

TEST_CASE("TarIndex: archives that Python's tarfile wrote in three formats give the same samples") {
  const std::string deep = std::string(120, 'd') + "/" + std::string(130, 'f');
  const auto keys_of = [](const std::string& file) {
    std::ifstream stream(HEADPOND_CORPUS "/tar/" + file, std::ios::binary);
    const std::string tar{std::istreambuf_iterator<char>(stream), {}};
    const auto index = index_of(tar);
    std::vector<std::string> keys(index->samples());
    for (std::uint64_t i = 0; i < keys.size(); ++i) {
      index->key(i, keys[i]);
      for (auto m = index->first_member(i); m < index->first_member(i + 1); ++m) {
        // Each member's content is the end of its name.
        const auto member = index->member(m);
        const std::string name = keys[i] + "." + std::string(index->suffix(member.suffix));
        CHECK(name.ends_with(tar.substr(member.offset, member.size)));
      }
    }
    return keys;
  };
  using Keys = std::vector<std::string>;
  const Keys with_long_names = {"a/0001", "a/0002", deep, "caf\xc3\xa9"};
  CHECK(keys_of("gnu.tar") == with_long_names);
  CHECK(keys_of("pax.tar") == with_long_names);
  CHECK(keys_of("pax_times.tar") == Keys{"a/0001", "a/0002"});
  CHECK(keys_of("ustar.tar") ==
        Keys{"a/0001", "a/0002", std::string(150, 'p') + "/" + std::string(90, 'n')});
}

TEST_CASE("TarIndex: at most 32 bytes a member beside the names") {
  TarWriter tar;
  std::size_t names = 0;
  const int count = 2000;
  for (int i = 0; i < count; ++i) {
    const std::string name = std::to_string(1000000 + i) + ".jpg";
    names += name.size();
    tar.file(name, "");
  }
  const auto image = build(tar.end().bytes());
  REQUIRE(image);
  CHECK(image->size() <= 32 * count + names);
}

TEST_CASE("TarIndex: one that is cut, changed or of another shard is refused") {
  const std::string tar =
      TarWriter().file("a.jpg", "1").file("a.cls", "2").file("b.jpg", "3").end().bytes();
  const auto image = *build(tar);
  const auto open = [&](std::vector<std::byte> bytes, Digest version = kVersion,
                        std::uint64_t extra = 0) {
    return TarIndex::open(Image(std::move(bytes)), tar.size() + extra, version);
  };
  REQUIRE(open(image));
  CHECK(!open(image, Digest{1, 3}));
  CHECK(!open(image, kVersion, 512));
  for (std::size_t size = 0; size < image.size(); ++size) {
    CHECK(!open({image.begin(), image.begin() + static_cast<std::ptrdiff_t>(size)}));
  }
  for (std::size_t at = 0; at < image.size(); ++at) {
    auto changed = image;
    changed[at] ^= std::byte{0x10};
    CHECK(!open(changed));
  }
}

TEST_CASE("TarIndex: a well-sealed one with wrong numbers stays within its bounds") {
  TarWriter tar;
  for (int i = 0; i < 100; ++i)
    tar.file("k" + std::to_string(i) + ".jpg", "12").file("k" + std::to_string(i) + ".cls", "1");
  tar.end();
  const auto image = *build(tar.bytes());
  std::mt19937 random(5);
  int accepted = 0;
  for (int turn = 0; turn < 5000; ++turn) {
    auto changed = image;
    for (int change = 0; change < 2; ++change)
      changed[16 + random() % (changed.size() - 16)] = static_cast<std::byte>(random());
    seal_tar_index(changed);
    const auto index = TarIndex::open(Image(std::move(changed)), tar.bytes().size(), kVersion);
    if (!index) continue;
    ++accepted;
    std::string key;
    for (std::uint64_t sample = 0; sample < (*index)->samples(); ++sample) {
      (*index)->key(sample, key);
      for (auto m = (*index)->first_member(sample); m < (*index)->first_member(sample + 1); ++m) {
        const auto member = (*index)->member(m);
        CHECK(member.offset + member.size <= tar.bytes().size());
        (*index)->suffix(member.suffix);
      }
    }
  }
  CHECK(accepted > 0);
}

TEST_CASE("TarIndex: building stops when it is told to") {
  const std::string tar = TarWriter().file("a.x", "1").end().bytes();
  const auto image = build_tar_index(tar.size(), kVersion, reader(tar), [] { return false; });
  REQUIRE(!image);
  CHECK(image.error().code() == ErrorCode::cancelled);
}

TEST_CASE("TarIndexing: a shard that arrives piece by piece gets the index of the whole one") {
  TarWriter writer;
  for (int i = 0; i < 300; ++i) {
    const std::string key = (i % 7 == 0 ? std::string(150, 'n') : "k") + std::to_string(i);
    writer.file(key + ".jpg", std::string(static_cast<std::size_t>(i) * 37 % 5000, 'x'));
    writer.file(key + ".cls", std::to_string(i));
  }
  const std::string tar = writer.end().bytes();
  const auto whole = build(tar);
  REQUIRE(whole);
  std::mt19937 random(3);
  for (int turn = 0; turn < 20; ++turn) {
    const std::size_t step = turn == 0 ? 1 + tar.size() / 3000 : 1 + random() % 40'000;
    std::uint64_t available = 0;
    std::uint64_t dropped = 0;
    const auto inner = reader(tar);
    const auto read = [&](std::uint64_t offset, std::span<std::byte> out) {
      CHECK(offset >= dropped);
      CHECK(offset + out.size() <= available);
      return inner(offset, out);
    };
    TarIndexing indexing(tar.size(), kVersion, read);
    std::optional<std::vector<std::byte>> image;
    for (; !image; available = std::min<std::uint64_t>(available + step, tar.size())) {
      auto advanced = indexing.advance(available, 1 + random() % 50);
      REQUIRE(advanced);
      image = *std::move(advanced);
      CHECK(indexing.needed() >= dropped);
      dropped = indexing.needed();
    }
    CHECK(*image == *whole);
  }
}

TEST_CASE("TarIndexing: a damaged header is told when it arrives") {
  std::string tar = TarWriter().file("a.x", "1").file("b.x", "2").end().bytes();
  tar[1024 + 10] = 'z';  // the second header's checksum is wrong now
  TarIndexing indexing(tar.size(), kVersion, reader(tar));
  const auto first = indexing.advance(1024, 100);
  REQUIRE(first);
  CHECK(!*first);
  const auto second = indexing.advance(1536, 100);
  REQUIRE(!second);
  CHECK(second.error().code() == ErrorCode::corrupt_data);
}
