#include <algorithm>

#include "open_fixture.h"
#include "support/catch.h"

using namespace headpond;
using Catch::Matchers::ContainsSubstring;

namespace {

using Names = std::vector<std::string>;

std::vector<std::int64_t> labels(const Dataset& dataset) {
  std::vector<std::int64_t> labels;
  for (std::uint64_t i = 0; i < dataset.size(); ++i) {
    labels.push_back(static_cast<std::int64_t>(extent_of(dataset, i, "label").offset));
  }
  return labels;
}

const FilesOptions kUnlabelled{.pattern = "**/*", .folder_labels = false};

}  // namespace

TEST_CASE("open_files: samples are sorted by path bytes, classes by name, labels by class") {
  OpenFixture fixture;
  for (const char* name : {"b/2", "a/1", "a/10", "a-b/3", "C/x", "a/sub/z", "\xc3\xa9/1"})
    fixture.folder.write(name, name);
  const auto dataset = open_files(fixture.all(), {}, fixture.context);
  REQUIRE(dataset);
  CHECK(keys(**dataset) == Names{"C/x", "a-b/3", "a/1", "a/10", "a/sub/z", "b/2", "\xc3\xa9/1"});
  CHECK((*dataset)->classes() == Names{"C", "a", "a-b", "b", "\xc3\xa9"});
  CHECK(labels(**dataset) == std::vector<std::int64_t>{0, 2, 1, 1, 1, 3, 4});
  CHECK(fixture.read(**dataset, extent_of(**dataset, 3, "data")) == "a/10");
}

TEST_CASE(
    "open_files: the fingerprint knows names and arguments, not sizes, versions or the place") {
  OpenFixture one, two;
  for (auto* fixture : {&one, &two}) fixture->folder.write("a/x", fixture == &one ? "1" : "22");
  const auto first = *open_files(one.all(), {}, one.context);
  const auto second = *open_files(two.all(), {}, two.context);
  CHECK(first->fingerprint().size() == 32);
  CHECK(first->fingerprint() == second->fingerprint());
  CHECK(first->size_digest() != second->size_digest());
  CHECK(first->snapshot() != second->snapshot());
  CHECK((*open_files(one.all(), kUnlabelled, one.context))->fingerprint() != first->fingerprint());
  two.folder.write("a/y", "1");
  CHECK((*open_files(two.all(), {}, two.context))->fingerprint() != first->fingerprint());
}

TEST_CASE("open_files: a pattern ignores case, and parts that begin with a dot are left out") {
  OpenFixture fixture;
  for (const char* name :
       {"a/1.JPG", "a/2.jpg", "a/3.txt", "a/.4.jpg", ".git/5.jpg", "a/.x/6.jpg"}) {
    fixture.folder.write(name, "x");
  }
  CHECK(keys(**open_files(fixture.all(), {.pattern = "**/*.jpg"}, fixture.context)) ==
        Names{"a/1.JPG", "a/2.jpg"});
  CHECK(keys(**open_files(fixture.all(), {}, fixture.context)) ==
        Names{"a/1.JPG", "a/2.jpg", "a/3.txt"});
}

TEST_CASE(
    "open_files: folders where nothing can match are not entered, nor links there looked at") {
  OpenFixture fixture;
  for (const char* name : {"train/a/1.jpg", "val/a/2.jpg"}) fixture.folder.write(name, "x");
  std::filesystem::create_symlink("nowhere", fixture.folder.path("val/a/3.jpg"));
  std::filesystem::create_symlink("..", fixture.folder.path("val/loop"));
  std::filesystem::create_symlink("nowhere", fixture.folder.path("train/a/note"));
  for (const bool pattern_in_source : {false, true}) {
    const auto dataset =
        pattern_in_source
            ? open_files(fixture.source({"t*/**/*.jpg"}), {}, fixture.context)
            : open_files(fixture.all(), {.pattern = "train/**/*.jpg"}, fixture.context);
    REQUIRE(dataset);
    CHECK(keys(**dataset) == Names{"train/a/1.jpg"});
  }
  std::filesystem::create_symlink("nowhere", fixture.folder.path("train/a/4.jpg"));
  const auto dangling = open_files(fixture.all(), {.pattern = "train/**/*.jpg"}, fixture.context);
  REQUIRE(!dangling);
  CHECK_THAT(dangling.error().to_string(), ContainsSubstring("train/a/4.jpg"));
}

TEST_CASE("open_files: a class folder without a file is an error, as it would shift the labels") {
  OpenFixture fixture;
  for (const char* name : {"a/1.jpg", "b/2.png", "b/sub/3.jpg", "d/4.txt"})
    fixture.folder.write(name, "x");
  for (const char* folder : {"b/empty", ".hidden"})
    std::filesystem::create_directories(fixture.folder.path(folder));
  CHECK((*open_files(fixture.all(), {}, fixture.context))->classes() == Names{"a", "b", "d"});
  const auto error_of = [&](const Source& source, const FilesOptions& options) {
    const auto dataset = open_files(source, options, fixture.context);
    REQUIRE(!dataset);
    CHECK(dataset.error().code() == ErrorCode::not_found);
    return dataset.error().to_string();
  };
  // None that matches is as good as none.
  CHECK_THAT(error_of(fixture.all(), {.pattern = "**/*.jpg"}),
             ContainsSubstring("1 class folder: d;") && ContainsSubstring("**/*.jpg") &&
                 ContainsSubstring("label=None"));
  std::filesystem::create_directories(fixture.folder.path("c/deep"));
  CHECK_THAT(error_of(fixture.all(), {}), ContainsSubstring("1 class folder: c;"));
  CHECK_THAT(error_of(fixture.source({"a", "c"}), {}), ContainsSubstring("1 class folder: c;"));
  CHECK(open_files(fixture.all(), kUnlabelled, fixture.context));
  // A glob and a list of files say themselves what they mean.
  CHECK((*open_files(fixture.source({"*/*"}), {}, fixture.context))->classes() ==
        Names{"a", "b", "d"});
}

TEST_CASE("open_files: a flat folder is an error that names label=None, which opens it") {
  OpenFixture fixture;
  fixture.folder.write("1.jpg", "x");
  const auto labelled = open_files(fixture.all(), {}, fixture.context);
  REQUIRE(!labelled);
  CHECK(labelled.error().code() == ErrorCode::invalid_argument);
  CHECK_THAT(labelled.error().to_string(), ContainsSubstring("label=None"));
  CHECK_THAT(labelled.error().to_string(), ContainsSubstring(fixture.folder.path()));
  const auto plain = open_files(fixture.all(), kUnlabelled, fixture.context);
  REQUIRE(plain);
  CHECK((*plain)->fields().size() == 1);
}

TEST_CASE("open_files: files beside the class folders are left out and noted") {
  OpenFixture fixture;
  for (const char* name : {"README", "a/1", "b/2", "zzz"}) fixture.folder.write(name, "x");
  const auto dataset = *open_files(fixture.all(), {}, fixture.context);
  CHECK(keys(*dataset) == Names{"a/1", "b/2"});
  CHECK(labels(*dataset) == std::vector<std::int64_t>{0, 1});
  REQUIRE(dataset->notes().size() == 1);
  CHECK_THAT(dataset->notes()[0], ContainsSubstring("2 files"));
}

TEST_CASE("open_files: nothing to read is an error that says what is there") {
  OpenFixture fixture;
  CHECK(open_files(fixture.all(), {}, fixture.context).error().code() == ErrorCode::not_found);
  for (const char* name : {"a/1.jpg", "a/2.jpg", "a/3.png"}) fixture.folder.write(name, "x");
  const auto none = open_files(fixture.all(), {.pattern = "**/*.jpeg"}, fixture.context);
  REQUIRE(!none);
  CHECK(none.error().code() == ErrorCode::not_found);
  CHECK_THAT(none.error().to_string(), ContainsSubstring(".jpg (2), .png (1)"));
  const auto missing = open_files(fixture.source({"none"}), {}, fixture.context);
  REQUIRE(!missing);
  CHECK(missing.error().code() == ErrorCode::not_found);
  CHECK_THAT(missing.error().to_string(), ContainsSubstring(fixture.folder.path("none")));
}

TEST_CASE("open_files: a zero-byte file is a sample of no bytes") {
  OpenFixture fixture;
  fixture.folder.write("a/1", "");
  const auto dataset = *open_files(fixture.all(), {}, fixture.context);
  CHECK(extent_of(*dataset, 0, "data").size == 0);
}

TEST_CASE("Source: a list's root is its longest common directory, whatever form its members have") {
  OpenFixture fixture;
  for (const char* name : {"d/train/a/1", "d/train/a/2", "d/train/b/3", "d/train/c/4"})
    fixture.folder.write(name, name);
  const auto open = [&](const Names& names) {
    auto dataset = open_files(fixture.source(names), {}, fixture.context);
    REQUIRE(dataset);
    CHECK((*dataset)->manifest().root().path == fixture.folder.path("d/train"));
    return keys(**dataset);
  };
  CHECK(open({"d/train"}) == Names{"a/1", "a/2", "b/3", "c/4"});
  CHECK(open({"d/train/"}) == Names{"a/1", "a/2", "b/3", "c/4"});
  CHECK(open({"d//train/./"}) == Names{"a/1", "a/2", "b/3", "c/4"});
  CHECK(open({"d/train/a", "d/train/c"}) == Names{"a/1", "a/2", "c/4"});
  CHECK(open({"d/train/c/4", "d/train/a"}) == Names{"a/1", "a/2", "c/4"});
  CHECK(open({"d/train/b/3", "d/train/a/2"}) == Names{"a/2", "b/3"});
  CHECK(open({"d/train/{c,a}"}) == Names{"a/1", "a/2", "c/4"});
  CHECK(open({"d/train/*/[23]"}) == Names{"a/2", "b/3"});
  CHECK(open({"d/train/*"}) == Names{"a/1", "a/2", "b/3", "c/4"});
  CHECK(open({"d/train/[ab]"}) == Names{"a/1", "a/2", "b/3"});
  CHECK(open({"d/train/*/1", "d/train/c/4"}) == Names{"a/1", "c/4"});
}

TEST_CASE(
    "Source: one file has its folder as root; file:// and paths relative to the working directory "
    "are the same") {
  OpenFixture fixture;
  fixture.folder.write("a/x y", "1");
  const auto plain = *open_files(fixture.source({"a/x y"}), kUnlabelled, fixture.context);
  CHECK(plain->manifest().root().path == fixture.folder.path("a"));
  const auto uri = *open_files({{"file://" + fixture.folder.path("a/x%20y")}, nullptr}, kUnlabelled,
                               fixture.context);
  CHECK(uri->snapshot() == plain->snapshot());
  const auto relative = std::filesystem::proximate(fixture.folder.path("a/x y")).string();
  const auto from_here = *open_files({{relative}, nullptr}, kUnlabelled, fixture.context);
  CHECK(from_here->locate(0)->at(0).uri.ends_with("a/x y"));
  CHECK(from_here->manifest().root().path.starts_with('/'));
}

TEST_CASE("Source: a name that looks like a pattern and exists is that name") {
  OpenFixture fixture;
  for (const char* name :
       {"d/x[1].bin", "d/x1.bin", "d/what?", "d/50%.npy", "d/a+b=c:d", "d/caf\xe9"}) {
    fixture.folder.write(name, name);
  }
  CHECK(keys(**open_files(fixture.source({"d/x[1].bin"}), kUnlabelled, fixture.context)) ==
        Names{"x[1].bin"});
  CHECK(keys(**open_files(fixture.source({"d/x[12].bin"}), kUnlabelled, fixture.context)) ==
        Names{"x1.bin"});
  const auto all = *open_files(fixture.source({"d"}), kUnlabelled, fixture.context);
  REQUIRE(all->size() == 6);
  for (std::uint64_t i = 0; i < 6; ++i)
    CHECK(fixture.read(*all, extent_of(*all, i, "data")) == "d/" + all->key(i));
}

TEST_CASE("Source: mistakes are named") {
  OpenFixture fixture;
  fixture.folder.write("a/1", "x");
  CHECK(open_files({}, {}, fixture.context).error().code() == ErrorCode::invalid_argument);
  CHECK(open_files({{""}, nullptr}, {}, fixture.context).error().code() ==
        ErrorCode::invalid_argument);
  CHECK_THAT(open_files(fixture.source({"a", "a"}), {}, fixture.context).error().to_string(),
             ContainsSubstring("twice"));
  CHECK(open_files(fixture.source({"a/*.x"}), {}, fixture.context).error().code() ==
        ErrorCode::not_found);
  CHECK_THAT(
      open_files({{"/a", "https://host/b"}, nullptr}, {}, fixture.context).error().to_string(),
      ContainsSubstring("one store"));
  CHECK(open_files({{"gopher://host/b"}, nullptr}, {}, fixture.context).error().code() ==
        ErrorCode::unsupported);
}

TEST_CASE("Source: links are followed; one that leads nowhere is an error with its path") {
  OpenFixture fixture;
  TempDir elsewhere;
  elsewhere.write("x/1", "far");
  fixture.folder.write("a/0", "near");
  std::filesystem::create_directory_symlink(elsewhere.path("x"), fixture.folder.path("b"));
  std::filesystem::create_symlink(elsewhere.path("x/1"), fixture.folder.path("a/link"));
  const auto dataset = *open_files(fixture.all(), {}, fixture.context);
  CHECK(keys(*dataset) == Names{"a/0", "a/link", "b/1"});
  CHECK(fixture.read(*dataset, extent_of(*dataset, 1, "data")) == "far");
  std::filesystem::create_symlink("nowhere", fixture.folder.path("a/dangling"));
  const auto dangling = open_files(fixture.all(), {}, fixture.context);
  REQUIRE(!dangling);
  CHECK_THAT(dangling.error().to_string(), ContainsSubstring("a/dangling"));
}

TEST_CASE("list_source: the objects of a folder, for a manifest of its own") {
  OpenFixture fixture;
  for (const char* name : {"b/2", "a/1", ".x/3"}) fixture.folder.write(name, name);
  const auto manifest = list_source(fixture.all(), fixture.context);
  REQUIRE(manifest);
  CHECK((*manifest)->size() == 2);
  CHECK((*manifest)->object_size(1) == 3);
}

TEST_CASE("Source: a manifest stands for its listing, filtered by the pattern") {
  OpenFixture fixture;
  for (const char* name : {"a/1.jpg", "a/2.txt", "b/3.jpg"}) fixture.folder.write(name, name);
  const auto listed = *open_files(fixture.all(), {}, fixture.context);
  const std::string path = fixture.folder.path("x.manifest");
  REQUIRE(listed->manifest().save(path));
  const auto loaded = open_files({{path}, nullptr}, {}, fixture.context);
  REQUIRE(loaded);
  CHECK((*loaded)->snapshot() == listed->snapshot());
  CHECK((*loaded)->classes() == listed->classes());
  const auto filtered = *open_files({{path}, nullptr}, {.pattern = "**/*.jpg"}, fixture.context);
  CHECK(keys(*filtered) == Names{"a/1.jpg", "b/3.jpg"});
  CHECK(!open_files({{path}, nullptr}, {.pattern = "*.png"}, fixture.context));
}

TEST_CASE("Source: progress is asked on the calling thread and may stop the listing") {
  OpenFixture fixture;
  fixture.folder.write("a/1", "x");
  const auto caller = std::this_thread::get_id();
  bool elsewhere = false;
  fixture.context.progress = [&](const char*, std::uint64_t, std::uint64_t) {
    elsewhere = elsewhere || std::this_thread::get_id() != caller;
    return true;
  };
  CHECK(open_files(fixture.all(), {}, fixture.context));
  CHECK(!elsewhere);
}

TEST_CASE("Dataset: locate and describe say where a sample lies") {
  OpenFixture fixture;
  fixture.folder.write("a/1", "12345");
  const auto dataset = *open_files(fixture.all(), {}, fixture.context);
  const auto ranges = dataset->locate(0);
  REQUIRE(ranges);
  REQUIRE(ranges->size() == 1);
  CHECK(ranges->at(0).uri == fixture.folder.path("a/1"));
  CHECK(ranges->at(0).range == ByteRange{0, 5});
  CHECK(dataset->locate(1).error().code() == ErrorCode::invalid_argument);
  const Error error = dataset->describe(Error(ErrorCode::corrupt_data, "bad"), 0, std::nullopt);
  CHECK(error.to_string() ==
        "sample 0 (key \"a/1\") of " + fixture.folder.path("a/1") + "[0, 5): bad");
  CHECK(error.sample_index() == 0);
  CHECK_THAT(dataset->field_index("image").error().message(),
             ContainsSubstring("\"data\", \"label\""));
}
