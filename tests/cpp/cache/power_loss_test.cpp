// Cuts the power at any call: of what was not synced, sectors are lost, kept, old or garbage in any
// combination, and names come and go with or without them. What is read afterwards is right.
//
// HEADPOND_POWER_CUTS: how many seeds (60).
#include <fcntl.h>
#include <sys/stat.h>

#include <map>
#include <random>

#include "cache/cache_fixture.h"

using namespace headpond;
namespace fs = std::filesystem;

namespace {

constexpr std::size_t kSectorBytes = 512;

// The real calls, with a record of what a disk would have been told.
class RecordingOps final : public CacheOps {
 public:
  struct Entry {
    enum Kind { write, resize, sync_file, make_file, make_folder, rename, remove, sync_names } kind;
    std::uint64_t inode = 0;
    std::uint64_t offset = 0;  // or size
    Bytes bytes;
    std::string path, to;
  };
  const std::vector<Entry>& log() const { return log_; }

  int open_root(const char* path) override { return named(CacheOps::open_root(path), ""); }
  int openat(int dir, const char* path, int flags, mode_t mode) override {
    struct stat before {};
    const bool made = (flags & O_CREAT) != 0 && CacheOps::fstatat(dir, path, &before) < 0;
    const int fd = named(CacheOps::openat(dir, path, flags, mode), below(dir, path));
    if (fd >= 0 && made) log_.push_back({Entry::make_file, inode_of(fd), 0, {}, paths_[fd], {}});
    return fd;
  }
  int mkdirat(int dir, const char* name, mode_t mode) override {
    const int result = CacheOps::mkdirat(dir, name, mode);
    if (result == 0 && dir != AT_FDCWD)
      log_.push_back({Entry::make_folder, 0, 0, {}, below(dir, name), {}});
    return result;
  }
  ssize_t pwrite(int fd, const std::byte* bytes, std::size_t size, std::uint64_t offset) override {
    log_.push_back({Entry::write, inode_of(fd), offset, Bytes(bytes, bytes + size), {}, {}});
    return CacheOps::pwrite(fd, bytes, size, offset);
  }
  int ftruncate(int fd, std::uint64_t size) override {
    log_.push_back({Entry::resize, inode_of(fd), size, {}, {}, {}});
    return CacheOps::ftruncate(fd, size);
  }
  int fsync(int fd) override {
    struct stat what {};
    CacheOps::fstat(fd, &what);
    log_.push_back(
        {S_ISDIR(what.st_mode) ? Entry::sync_names : Entry::sync_file, what.st_ino, 0, {}, {}, {}});
    return 0;  // in memory
  }
  int renameat2(int from_dir, const char* from, int to_dir, const char* to,
                unsigned int flags) override {
    const int result = CacheOps::renameat2(from_dir, from, to_dir, to, flags);
    if (result == 0)
      log_.push_back({Entry::rename, 0, 0, {}, below(from_dir, from), below(to_dir, to)});
    return result;
  }
  int unlinkat(int dir, const char* name) override {
    const int result = CacheOps::unlinkat(dir, name);
    if (result == 0) log_.push_back({Entry::remove, 0, 0, {}, below(dir, name), {}});
    return result;
  }

 private:
  int named(int fd, const std::string& path) {
    if (fd >= 0) paths_[fd] = path;
    return fd;
  }
  std::string below(int dir, const std::string& name) const {
    const auto found = paths_.find(dir);
    return found == paths_.end() || found->second.empty() ? name : found->second + "/" + name;
  }
  static std::uint64_t inode_of(int fd) {
    struct stat what {};
    ::fstat(fd, &what);
    return what.st_ino;
  }

  std::map<int, std::string> paths_;  // of the newest file under each number
  std::vector<Entry> log_;
};

using Entry = RecordingOps::Entry;
using Random = std::mt19937_64;

// A disk's state after a power cut. Folders and files by path.
struct Disk {
  struct File {
    std::uint64_t inode = 0;
    Bytes bytes;
  };
  std::map<std::string, File> files;
  std::set<std::string> folders;

  static Disk read(const std::string& root) {
    Disk disk;
    std::error_code none;
    for (const auto& entry : fs::recursive_directory_iterator(root, none)) {
      const std::string path = fs::relative(entry.path(), root);
      if (entry.is_directory()) {
        disk.folders.insert(path);
      } else {
        struct stat what {};
        ::stat(entry.path().c_str(), &what);
        disk.files[path] = {what.st_ino, read_file(entry.path())};
      }
    }
    return disk;
  }
  void make(const std::string& root) const {
    fs::create_directory(root);
    fs::permissions(root, fs::perms::owner_all);
    for (const std::string& path : folders) {
      fs::create_directories(root + "/" + path);
      fs::permissions(root + "/" + path, fs::perms::owner_all);
    }
    for (const auto& [path, file] : files) write_file(root + "/" + path, file.bytes);
  }
};

// What becomes of the first `count` entries.
class PowerCut {
 public:
  PowerCut(const Disk& before, std::span<const Entry> log, Random& random)
      : log_(log), random_(random), disk_(before) {
    constexpr double kKept[] = {0.0, 0.1, 0.5, 0.9, 1.0};
    keep_ = kKept[random_() % 5];
    in_order_ = random_() % 2 == 0;
  }

  Disk cut() {
    replay_names();
    for (auto& [path, file] : disk_.files) file.bytes = contents(file.inode, file.bytes);
    return disk_;
  }

 private:
  bool chance(double share) { return static_cast<double>(random_() % 1000) < share * 1000; }

  // A journal keeps a beginning of the changes of names; without one each is kept or not.
  void replay_names() {
    std::size_t durable = 0;
    for (std::size_t i = 0; i < log_.size(); ++i) {
      if (log_[i].kind == Entry::sync_names) durable = i;
    }
    const std::size_t end = durable + random_() % (log_.size() - durable + 1);
    for (std::size_t i = 0; i < log_.size(); ++i) {
      if (i < durable || (in_order_ ? i < end : chance(std::max(keep_, 0.5)))) apply(log_[i]);
    }
  }

  bool has_folder_of(const std::string& path) const {
    const auto slash = path.rfind('/');
    return slash == std::string::npos || disk_.folders.count(path.substr(0, slash)) > 0;
  }

  void apply(const Entry& entry) {
    auto& files = disk_.files;
    if (entry.kind == Entry::make_folder && has_folder_of(entry.path))
      disk_.folders.insert(entry.path);
    if (entry.kind == Entry::make_file && has_folder_of(entry.path))
      files.emplace(entry.path, Disk::File{entry.inode, {}});
    if (entry.kind == Entry::remove) files.erase(entry.path);
    if (entry.kind == Entry::rename && has_folder_of(entry.to)) {
      const auto from = files.find(entry.path);
      if (from == files.end()) return;
      files[entry.to] = from->second;
      // Without order the old name may outlive the new one's coming.
      if (in_order_ || chance(0.5)) files.erase(entry.path);
    }
  }

  // Each sector is that of some moment since the last sync, or what lay on the disk before.
  Bytes contents(std::uint64_t inode, const Bytes& before) {
    Bytes now = before;
    std::size_t durable = 0;
    for (std::size_t i = 0; i < log_.size(); ++i) {
      if (log_[i].inode == inode && log_[i].kind == Entry::sync_file) durable = i;
    }
    for (std::size_t i = 0; i < log_.size(); ++i) {
      const Entry& entry = log_[i];
      if (entry.inode != inode) continue;
      const bool synced = i < durable;
      if (entry.kind == Entry::resize && (synced || chance(std::max(keep_, 0.7))))
        now.resize(entry.offset);
      if (entry.kind == Entry::write) write(now, entry, synced);
    }
    return now;
  }

  void write(Bytes& now, const Entry& entry, bool synced) {
    if (now.size() < entry.offset + entry.bytes.size()) {
      if (!synced && chance(0.1)) return;  // its new size was lost
      now.resize(entry.offset + entry.bytes.size());
    }
    for (std::size_t at = 0; at < entry.bytes.size();) {
      const std::size_t place = entry.offset + at;
      const std::size_t size =
          std::min(kSectorBytes - place % kSectorBytes, entry.bytes.size() - at);
      if (synced || chance(keep_)) {
        std::copy_n(entry.bytes.begin() + static_cast<std::ptrdiff_t>(at), size,
                    now.begin() + static_cast<std::ptrdiff_t>(place));
      } else if (chance(0.2)) {
        garble(now, place / kSectorBytes * kSectorBytes);
      }
      at += size;
    }
  }

  // A whole sector of noise, or of another write: what lay there before the file got it.
  void garble(Bytes& now, std::size_t start) {
    const std::size_t size = std::min(kSectorBytes, now.size() - start);
    const Entry& other = log_[random_() % log_.size()];
    for (std::size_t i = 0; i < size; ++i) {
      now[start + i] = i < other.bytes.size() ? other.bytes[i] : static_cast<std::byte>(random_());
    }
  }

  std::span<const Entry> log_;
  Random& random_;
  Disk disk_;
  double keep_ = 0;
  bool in_order_ = false;
};

std::vector<Block> some_blocks(Random& random) {
  std::vector<Block> blocks;
  for (int i = 0; i < 3; ++i)
    blocks.push_back(test_block(1 + random() % (5 * 4096), "block" + std::to_string(i)));
  return blocks;
}

std::unique_ptr<FillFile> begin_fill(const std::shared_ptr<CacheFolder>& folder, const Block& block,
                                     FillClaims& claims) {
  auto begun = FillFile::begin(folder, block, *claims.claim(block.key));
  REQUIRE(begun);
  auto* const file = std::get_if<std::unique_ptr<FillFile>>(&*begun);
  return file != nullptr ? std::move(*file) : nullptr;
}

// A job: fills blocks or parts of them, leaves some behind, evicts.
void work(const std::string& root, const std::vector<Block>& blocks,
          const std::shared_ptr<CacheOps>& ops, Random& random) {
  const auto folder = CacheFolder::open(root, ops);
  REQUIRE(folder);
  FillClaims claims;
  for (int turn = 0; turn < 6; ++turn) {
    const Block& block = blocks[random() % blocks.size()];
    if (random() % 4 == 0) REQUIRE((*folder)->remove_block(block.key));
    const auto file = begin_fill(*folder, block, claims);
    if (!file) continue;
    const Bytes payload = payload_of(block);
    for (auto missing = file->missing(); !missing.empty() && random() % 8 != 0;
         missing = file->missing()) {
      const ByteRange range = missing[random() % missing.size()];
      const std::uint64_t cells = 1 + random() % ((range.size() + 4095) / 4096);
      REQUIRE(file->write(range.start,
                          part(payload, range.start, std::min(range.size(), cells * 4096))));
    }
    if (file->complete()) {
      REQUIRE(*file->publish(nullptr));
    } else if (random() % 3 == 0) {
      file->abandon();
    }
  }
}

// Every block is right or a miss; and afterwards all of them can be filled and read.
std::uint64_t check(const std::string& root, const std::vector<Block>& blocks) {
  const auto folder = CacheFolder::open(root, std::make_shared<CacheOps>());
  REQUIRE(folder);
  FillClaims claims;
  std::uint64_t hits = 0;
  const auto is_right = [&](const Block& block) {
    const auto opened = PublishedBlock::open(*folder, block);
    REQUIRE(opened);
    if (!*opened) return false;
    Bytes bytes(block.bytes());
    const Piece piece{0, bytes};
    const auto read = (*opened)->read({&piece, 1}, Wait::allowed);
    if (!read) return false;
    CHECK(bytes == payload_of(block));
    return true;
  };
  for (const Block& block : blocks) {
    if (is_right(block)) {
      ++hits;
      continue;
    }
    const auto file = begin_fill(*folder, block, claims);
    REQUIRE(file);
    const Bytes payload = payload_of(block);
    for (const ByteRange range : file->missing())
      REQUIRE(file->write(range.start, part(payload, range.start, range.size())));
    REQUIRE(*file->publish(nullptr));
    CHECK(is_right(block));
  }
  return hits;
}

}  // namespace

TEST_CASE("power cut: whatever of the unsynced survives, a block is right or a miss") {
  std::uint64_t hits = 0;
  const std::uint64_t count = number_from("HEADPOND_POWER_CUTS", 60);
  for (std::uint64_t seed = 1; seed <= count; ++seed) {
    Random random(seed);
    const auto blocks = some_blocks(random);
    const TempDir temp = TempDir::in_memory();
    Disk disk;
    // After a cut the next job goes on with what is left, and loses power as well.
    for (int generation = 0; generation < 3; ++generation) {
      const std::string name = std::to_string(generation);
      const std::string live = temp.path("live" + name);
      if (generation > 0) disk.make(live);
      const Disk before = Disk::read(live);
      const auto ops = std::make_shared<RecordingOps>();
      work(live, blocks, ops, random);
      const auto& log = ops->log();
      for (int cut = 0; cut < 20; ++cut) {
        INFO("seed " << seed << ", generation " << generation << ", cut " << cut);
        const auto so_far = std::span(log).first(random() % (log.size() + 1));
        const std::string root = temp.path("cut" + name + "-" + std::to_string(cut));
        disk = PowerCut(before, so_far, random).cut();
        disk.make(root);
        hits += check(root, blocks);
      }
    }
  }
  std::printf("%llu hits after power cuts\n", static_cast<unsigned long long>(hits));
  CHECK(hits > 2 * count);  // else nothing survived and nothing was tested
}
