#include "format/shipped_index.h"

#include <cstring>

#include "format/tar_index.h"
#include "format/tar_index_folder.h"
#include "support/bytes.h"
#include "support/catch.h"
#include "support/tar_writer.h"

using namespace headpond;
using Catch::Matchers::ContainsSubstring;

namespace {

struct Shard {
  std::string tar;
  ObjectVersion version;
  std::vector<std::uint64_t> read;  // offsets

  explicit Shard(std::string bytes) : tar(std::move(bytes)) {
    version.size = tar.size();
    version.mtime_ns = 7;
  }

  TarWalker::Read reader() {
    return [this](std::uint64_t offset, std::span<std::byte> out) -> Result<void> {
      read.push_back(offset);
      if (offset + out.size() > tar.size()) return Error(ErrorCode::corrupt_data, "past the end");
      std::memcpy(out.data(), tar.data() + offset, out.size());
      return {};
    };
  }
  // A walk, which reads all headers.
  std::vector<std::byte> own() {
    return *build_tar_index(tar.size(), digest_of(version), reader(), {});
  }
  Result<std::vector<std::byte>> take(ShippedKind kind, std::vector<std::byte> file) {
    read.clear();
    return take_shipped_index(kind, std::move(file), version, reader());
  }
  Result<std::vector<std::byte>> take_dali(std::string_view text) {
    return take(ShippedKind::dali, bytes_of(text));
  }
};

Shard plain_shard() {
  TarWriter tar;
  for (int i = 0; i < 7; ++i) {
    const std::string key = "d/" + std::to_string(i);
    tar.file(key + ".jpg", std::string(100 + 512 * static_cast<std::size_t>(i), 'j'))
        .file(key + ".Cls", std::to_string(i));
  }
  return Shard(tar.end().bytes());
}

// As wds2idx writes it.
std::string dali_text(Shard& shard) {
  const auto index =
      *TarIndex::open(Image(shard.own()), shard.tar.size(), digest_of(shard.version));
  std::string text = "v1.2 " + std::to_string(index->samples()) + "\n";
  for (std::uint64_t sample = 0; sample < index->samples(); ++sample) {
    for (auto at = index->first_member(sample); at < index->first_member(sample + 1); ++at) {
      const auto member = index->member(at);
      const std::string extension(index->suffix(member.suffix));
      std::string name;
      index->key(sample, name);
      if (at > index->first_member(sample)) text += " ";
      text += extension + " " + std::to_string(member.offset) + " " + std::to_string(member.size) +
              " " + name + "." + extension;
    }
    text += "\n";
  }
  return text;
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const auto at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("shipped index: names beside a shard") {
  using Kind = ShippedKind;
  CHECK(shipped_name(Kind::headpond, "a/train-0.tar") == "a/train-0.tar.hpindex");
  CHECK(shipped_name(Kind::dali, "a.b/train-0.tar") == "a.b/train-0.idx");
  CHECK(shipped_name(Kind::dali, "train.0.tar") == "train.idx");
  CHECK(shipped_name(Kind::dali, ".train.tar") == ".train.idx");
  CHECK(shipped_name(Kind::dali, "train") == "train.idx");
}

TEST_CASE("shipped index: ours is the index that walking the shard gives, and reads three blocks") {
  for (const char* more : {"", "README"}) {
    auto shard = plain_shard();
    if (*more != '\0') {
      TarWriter tar;
      tar.raw(std::string_view(shard.tar).substr(0, shard.tar.size() - 1024)).file(more, "text");
      shard = Shard(tar.end().bytes());
    }
    const auto own = shard.own();
    const auto file = shipped_index(own);
    CHECK(is_shipped_index(ShippedKind::headpond, std::span(file).first(kShippedStartBytes)));
    const auto taken = shard.take(ShippedKind::headpond, file);
    REQUIRE(taken);
    CHECK(*taken == own);
    CHECK(shard.read.size() <= 3);
  }
}

TEST_CASE("shipped index: DALI's is the index that walking the shard gives") {
  auto shard = plain_shard();
  const std::string text = dali_text(shard);
  CHECK(is_shipped_index(ShippedKind::dali, bytes_of(text.substr(0, kShippedStartBytes))));
  const auto taken = shard.take_dali(text);
  REQUIRE(taken);
  CHECK(*taken == shard.own());
  CHECK(shard.take_dali(text.substr(0, text.size() - 1)));  // the last line feed
  std::string lines = text;
  for (std::size_t at = 0; (at = lines.find('\n', at)) != std::string::npos; at += 2)
    lines.replace(at, 1, "\r\n");
  CHECK(*shard.take_dali(lines) == *taken);
}

TEST_CASE("shipped index: members with pax headers, long names and none that is a sample's") {
  TarWriter tar;
  const std::string deep(150, 'n');
  const std::string pax = TarWriter::pax_record("path", deep + "/a.jpg");
  tar.member('x', "PaxHeader", pax).file(deep.substr(0, 100), "first");
  tar.file("b.jpg", "second").file("._b.jpg", "a Mac's").member('5', "folder/");
  Shard shard(tar.end().bytes());
  const auto own = shard.own();
  CHECK(*shard.take(ShippedKind::headpond, shipped_index(own)) == own);
  // DALI lists what we skip, and not what is no file: the shard goes on behind its last member.
  const auto taken = shard.take_dali("v1.2 2\njpg 1536 5 " + deep + "/a.jpg\njpg 2560 6 b.jpg\n");
  REQUIRE(!taken);
  CHECK_THAT(taken.error().message(), ContainsSubstring("goes on"));
}

TEST_CASE("shipped index: of another version of the shard none is used") {
  auto shard = plain_shard();
  const auto ours = shipped_index(shard.own());
  const std::string dali = dali_text(shard);
  const auto refuses = [&](Shard other) {
    const auto first = other.take(ShippedKind::headpond, ours);
    const auto second = other.take_dali(dali);
    CHECK((!first && first.error().code() == ErrorCode::corrupt_data));
    CHECK((!second && second.error().code() == ErrorCode::corrupt_data));
  };
  refuses(Shard(shard.tar.substr(0, shard.tar.size() - 4096)));  // cut
  refuses(Shard(TarWriter()
                    .raw(std::string_view(shard.tar).substr(0, shard.tar.size() - 1024))
                    .file("d/7.jpg", "new")
                    .end()
                    .bytes()));
  // The same size, other members.
  std::string first_longer = shard.tar;
  TarWriter other;
  other.file("d/0.jpg", std::string(100 + 512, 'j'));
  first_longer.replace(0, 1024, other.bytes());
  refuses(Shard(first_longer.substr(0, shard.tar.size())));
  refuses(Shard(std::string(shard.tar.size(), '\0')));
}

TEST_CASE("shipped index: one of a shard without samples") {
  Shard shard(TarWriter().end().bytes());
  const auto own = shard.own();
  CHECK(*shard.take(ShippedKind::headpond, shipped_index(own)) == own);
  CHECK(shard.take_dali("v1.2 0\n"));
  Shard filled(TarWriter().file("a.x", "").end().bytes().substr(0, 1024));
  CHECK(!filled.take(ShippedKind::headpond, shipped_index(own)));
  CHECK(!filled.take_dali("v1.2 0\n"));
}

TEST_CASE("shipped index: ours cut or damaged anywhere is refused") {
  auto shard = plain_shard();
  const auto file = shipped_index(shard.own());
  for (std::size_t size = 0; size < file.size(); size += 7)
    CHECK(!shard.take(ShippedKind::headpond, part(file, 0, size)));
  for (std::size_t at = 0; at < file.size(); ++at) {
    auto damaged = file;
    damaged[at] ^= std::byte{0x10};
    CHECK(!shard.take(ShippedKind::headpond, damaged));
  }
}

TEST_CASE("shipped index: DALI's cut anywhere is refused") {
  auto shard = plain_shard();
  const std::string text = dali_text(shard);
  for (std::size_t size = 0; size + 1 < text.size(); ++size)
    CHECK(!shard.take_dali(text.substr(0, size)));
}

TEST_CASE("shipped index: what is no text of DALI's says why") {
  auto shard = plain_shard();
  const std::string text = dali_text(shard);
  const auto why = [](const Result<std::vector<TarMember>>& members) {
    return members ? std::string("nothing") : members.error().message();
  };
  CHECK_THAT(why(parse_dali_index(replaced(text, "v1.2", "v1.1"))), ContainsSubstring("v1.1"));
  CHECK_THAT(why(parse_dali_index(replaced(text, "v1.2", "v1.3"))), ContainsSubstring("v1.2"));
  CHECK_THAT(why(parse_dali_index("")), ContainsSubstring("v1.2"));
  CHECK_THAT(why(parse_dali_index(replaced(text, " 7\n", " 8\n"))),
             ContainsSubstring("7 samples and says 8"));
  CHECK_THAT(why(parse_dali_index(replaced(text, "jpg 512", "jpg 513"))),
             ContainsSubstring("line 2 gives an offset"));
  CHECK_THAT(why(parse_dali_index(replaced(text, "jpg 512", "jpg 0"))),
             ContainsSubstring("line 2 gives an offset"));
  CHECK_THAT(why(parse_dali_index(replaced(text, "jpg 512 100", "jpg 512 -1"))),
             ContainsSubstring("line 2 is no row"));
  CHECK_THAT(why(parse_dali_index(replaced(text, "jpg 512 100", "jpg 512 18446744073709551615"))),
             ContainsSubstring("line 2 gives an offset"));
  CHECK_THAT(why(parse_dali_index(replaced(text, "100 d/0.jpg", "100 d/0 x.jpg"))),
             ContainsSubstring("line 2"));
  CHECK_THAT(why(parse_dali_index(replaced(text, "d/0.jpg", "d/0.png"))),
             ContainsSubstring("extension"));
  CHECK(why(parse_dali_index(text)) == "nothing");
}
