#include "headpond/manifest.h"

#include <cstring>
#include <random>

#include "format/front_coded.h"
#include "support/catch.h"
#include "support/temp_dir.h"

using namespace headpond;

namespace {

ObjectInfo object(std::string name, std::uint64_t size = 1) {
  return {std::move(name), {size, 5, 7, "", false}};
}

std::string name_at(const Manifest& manifest, std::uint64_t index) {
  std::string name;
  manifest.name(index, name);
  return name;
}

std::shared_ptr<const Manifest> many(std::size_t count) {
  std::vector<ObjectInfo> objects;
  for (std::size_t i = 0; i < count; ++i) {
    objects.push_back({"class-" + std::to_string(i % 7) + "/" + std::to_string(i),
                       {i, static_cast<std::int64_t>(i) * 3, i * 5,
                        i % 3 == 0 ? "etag-" + std::to_string(i) : "", i % 2 == 0}});
  }
  return *Manifest::build(*Uri::parse("/data"), std::move(objects));
}

}  // namespace

TEST_CASE("Manifest: the order is that of the names' bytes, whatever came first") {
  std::vector<std::string> names = {"b",   "a",   "C",   "10",        "2",      "\xc3\xa9",
                                    "a/b", "a-b", "a.b", "e\xcc\x81", "caf\xe9"};
  std::vector<std::string> expected = {"10",  "2", "C",       "a",         "a-b",     "a.b",
                                       "a/b", "b", "caf\xe9", "e\xcc\x81", "\xc3\xa9"};
  for (int turn = 0; turn < 2; ++turn) {
    std::vector<ObjectInfo> objects;
    for (const auto& name : names) objects.push_back(object(name));
    const auto manifest = *Manifest::build(*Uri::parse("/r"), objects);
    REQUIRE(manifest->size() == expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) CHECK(name_at(*manifest, i) == expected[i]);
    std::reverse(names.begin(), names.end());
  }
}

TEST_CASE("Manifest: a new signature changes neither order nor digests nor keys") {
  const auto build = [](const std::string& query) {
    std::vector<ObjectInfo> objects;
    for (const char* name : {"a.b", "a", "c", "a-b"}) objects.push_back(object(name + query));
    return *Manifest::build(*Uri::parse("https://host/r"), objects);
  };
  const auto plain = build(""), first = build("?sig=1"), second = build("?sig=2");
  REQUIRE(plain->size() == 4);
  for (std::uint64_t i = 0; i < 4; ++i) {
    CHECK(first->key(i) == name_at(*plain, i));
    CHECK(plain->key(i) == name_at(*plain, i));
    CHECK(name_at(*second, i) == name_at(*plain, i) + "?sig=2");
  }
  CHECK(first->digests().names == plain->digests().names);
  CHECK(first->digests().names == second->digests().names);
  CHECK(build("?part=1")->digests().names != plain->digests().names);
  // "?" is a letter of a local name.
  const auto local = *Manifest::build(*Uri::parse("/r"), {object("a?sig=1")});
  CHECK(local->key(0) == "a?sig=1");
  CHECK(local->digests().names !=
        (*Manifest::build(*Uri::parse("/r"), {object("a")}))->digests().names);
}

TEST_CASE("Manifest: what was put in comes out, built and loaded, for sizes round the groups") {
  const TempDir folder;
  for (const std::size_t count : {0, 1, 2, 63, 64, 65, 127, 128, 129, 1000}) {
    const auto built = many(count);
    const std::string path = folder.path("m.manifest");
    REQUIRE(built->save(path));
    const auto loaded = Manifest::load(path);
    REQUIRE(loaded);
    CHECK((*loaded)->root() == built->root());
    CHECK((*loaded)->digests().versions == built->digests().versions);
    REQUIRE((*loaded)->size() == count);
    for (std::size_t i = 0; i < count; ++i) {
      CHECK(name_at(**loaded, i) == name_at(*built, i));
      CHECK((*loaded)->version(i) == built->version(i));
      CHECK((*loaded)->object_size(i) == built->version(i).size);
    }
  }
}

TEST_CASE("Manifest: the same name twice, and an empty name are refused") {
  const Uri root = *Uri::parse("/r");
  CHECK(Manifest::build(root, {object("a"), object("b"), object("a")})
            .error()
            .message()
            .find("\"a\"") != std::string::npos);
  CHECK(!Manifest::build(root, {object("")}));
  CHECK(!Manifest::build(root, {object(std::string("a\0b", 3))}));
}

TEST_CASE("Manifest: a saved one keeps neither password nor signature of its root") {
  const TempDir folder;
  const Uri root = *Uri::parse("https://user:secret@host/data?X-Sig=signature");
  const auto built = *Manifest::build(root, {object("a")});
  CHECK(built->root() == root);
  REQUIRE(built->save(folder.path("m")));
  const std::string file = folder.read("m");
  CHECK(file.find("secret") == std::string::npos);
  CHECK(file.find("signature") == std::string::npos);
  CHECK((*Manifest::load(folder.path("m")))->root().to_string() == "https://host/data");
}

TEST_CASE("Manifest: digests tell names, sizes and versions apart") {
  const Uri root = *Uri::parse("/r");
  const auto base = (*Manifest::build(root, {object("a", 1), object("b", 2)}))->digests();
  const auto renamed = (*Manifest::build(root, {object("a", 1), object("c", 2)}))->digests();
  const auto resized = (*Manifest::build(root, {object("a", 1), object("b", 3)}))->digests();
  const auto touched =
      (*Manifest::build(root, {object("a", 1), {"b", {2, 6, 7, "", false}}}))->digests();
  CHECK((renamed.names != base.names && renamed.sizes == base.sizes));
  CHECK((resized.names == base.names && resized.sizes != base.sizes));
  CHECK((touched.sizes == base.sizes && touched.versions != base.versions));
}

TEST_CASE("Manifest: a file cut at any byte, or with any byte changed, is corrupt") {
  const TempDir folder;
  REQUIRE(many(70)->save(folder.path("whole")));
  const std::string whole = folder.read("whole");
  for (std::size_t size = 0; size < whole.size(); size += (size < 200 ? 1 : 7)) {
    const auto loaded = Manifest::load(folder.write("cut", whole.substr(0, size)));
    REQUIRE(!loaded);
    CHECK(loaded.error().code() == ErrorCode::corrupt_data);
  }
  for (std::size_t at = 0; at < whole.size(); at += (at < 200 ? 1 : 13)) {
    std::string changed = whole;
    changed[at] = static_cast<char>(changed[at] ^ 0x55);
    const auto loaded = Manifest::load(folder.write("changed", changed));
    REQUIRE(!loaded);
    CHECK((loaded.error().code() == ErrorCode::corrupt_data || (at >= 8 && at < 12)));
  }
}

TEST_CASE(
    "Manifest: a newer format is unsupported, a missing file not found, a folder not regular") {
  const TempDir folder;
  REQUIRE(many(3)->save(folder.path("m")));
  std::string file = folder.read("m");
  file[8] = 9;
  CHECK(Manifest::load(folder.write("newer", file)).error().code() == ErrorCode::unsupported);
  CHECK(Manifest::load(folder.path("none")).error().code() == ErrorCode::not_found);
  CHECK(Manifest::load(folder.path()).error().code() == ErrorCode::not_regular);
}

TEST_CASE("Manifest: saving into a folder that does not exist leaves nothing behind") {
  const TempDir folder;
  CHECK(many(3)->save(folder.path("none/m")).error().code() == ErrorCode::not_found);
  CHECK(std::filesystem::is_empty(folder.path()));
}

TEST_CASE("FrontCodedNames: damaged blobs are read within their bounds") {
  FrontCodedWriter writer;
  for (int i = 0; i < 200; ++i) writer.add("prefix/" + std::to_string(i * i));
  std::vector<std::byte> offsets;
  for (const std::uint64_t offset : writer.group_offsets()) append(offsets, offset);
  std::mt19937 random(1);
  for (int turn = 0; turn < 2000; ++turn) {
    std::vector<std::byte> blob(writer.blob().begin(), writer.blob().end());
    for (int change = 0; change < 3; ++change)
      blob[random() % blob.size()] = static_cast<std::byte>(random());
    const FrontCodedNames names(200, Column<std::uint64_t>(offsets), blob);
    std::string name;
    for (std::uint64_t i = 0; i < 200; ++i) {
      const bool whole = names.get(i, name);
      CHECK((whole || name.empty()));
    }
  }
}
