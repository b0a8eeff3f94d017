#include "headpond/manifest.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/digest.h"
#include "format/front_coded.h"
#include "format/image.h"
#include "format/little_endian.h"
#include "format/manifest_image.h"
#include "io/http_url.h"

namespace headpond {
namespace {

// The file, all integers little-endian:
//
//   0  "HPMANIF\n"            40  root bytes            64  digest of names   (16)
//   8  u32 version            48  flags                 80  digest of sizes   (16)
//  12  u32 CRC32C of header   56  u32 CRC32C of body    96  digest of versions(16)
//  16  objects                60  zero                 112  zero to 128
//  24  bytes of names
//  32  bytes of ETags
//
// then the body in this order, each part as long as the header says: sizes, mtimes,
// inodes (8 bytes an object), offsets of the name groups, with kEtags the ends of the
// ETags, with kWeak one byte an object; root, names, ETags. Lengths fix every offset,
// so a header whose lengths add up to the file's size cannot point outside.
constexpr char kMagic[] = "HPMANIF\n";
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kHeaderBytes = 128;
constexpr std::uint64_t kEtags = 1, kWeak = 2;
// Larger bodies are not read through at opening. Damage there shows when an object
// is read: its name is not found, or its version is another one.
constexpr std::uint64_t kCheckedBodyMax = 16u << 20;
constexpr std::uint64_t kObjectsMax = 0xFFFFFFF0;  // Extent::object has 32 bits

struct Layout {
  std::uint64_t count = 0, names_bytes = 0, etag_bytes = 0, root_bytes = 0, flags = 0;

  std::uint64_t column_bytes() const { return 8 * count; }
  std::uint64_t groups_at() const { return kHeaderBytes + 3 * column_bytes(); }
  std::uint64_t groups_bytes() const { return 8 * (name_groups(count) + 1); }
  std::uint64_t etag_ends_at() const { return groups_at() + groups_bytes(); }
  std::uint64_t weak_at() const {
    return etag_ends_at() + ((flags & kEtags) != 0 ? column_bytes() : 0);
  }
  std::uint64_t root_at() const { return weak_at() + ((flags & kWeak) != 0 ? count : 0); }
  std::uint64_t names_at() const { return root_at() + root_bytes; }
  std::uint64_t etags_at() const { return names_at() + names_bytes; }
  std::uint64_t file_bytes() const { return etags_at() + etag_bytes; }
};

std::uint32_t header_crc(std::span<const std::byte> header) {
  constexpr std::array<std::byte, 4> kZero{};
  const auto before = crc32c(header.first(12));
  return crc32c(header.subspan(16, kHeaderBytes - 16), crc32c(kZero, before));
}

Error damaged(std::string what) {
  return Error(ErrorCode::corrupt_data, "not a whole manifest: " + std::move(what));
}

Result<Layout> read_layout(std::span<const std::byte> file) {
  if (file.size() < kHeaderBytes) return damaged("shorter than its header");
  if (std::memcmp(file.data(), kMagic, 8) != 0) return damaged("it does not begin with HPMANIF");
  if (const auto version = read_le<std::uint32_t>(file, 8); version > kVersion) {
    return Error(ErrorCode::unsupported, "a manifest of format " + std::to_string(version) +
                                             "; this headpond reads up to " +
                                             std::to_string(kVersion) +
                                             ": upgrade headpond or build the manifest again");
  }
  if (header_crc(file) != read_le<std::uint32_t>(file, 12))
    return damaged("the header's checksum is wrong");
  Layout layout{read_le<std::uint64_t>(file, 16), read_le<std::uint64_t>(file, 24),
                read_le<std::uint64_t>(file, 32), read_le<std::uint64_t>(file, 40),
                read_le<std::uint64_t>(file, 48)};
  // Bounded one by one before they are added: no sum can wrap.
  if (layout.count > std::min(kObjectsMax, file.size() / 24) || layout.names_bytes > file.size() ||
      layout.etag_bytes > file.size() || layout.root_bytes > file.size() ||
      layout.file_bytes() != file.size()) {
    return damaged("its parts do not add up to " + std::to_string(file.size()) + " bytes");
  }
  const auto body = file.subspan(kHeaderBytes);
  if (body.size() <= kCheckedBodyMax && crc32c(body) != read_le<std::uint32_t>(file, 56)) {
    return damaged("its checksum is wrong");
  }
  return layout;
}

Digest read_digest(std::span<const std::byte> file, std::size_t at) {
  return {read_le<std::uint64_t>(file, at), read_le<std::uint64_t>(file, at + 8)};
}

class ImageManifest final : public Manifest {
 public:
  // `root`: as built; without it the one in the image, which holds no secrets.
  static Result<std::shared_ptr<const Manifest>> open(Image image, std::optional<Uri> root) {
    const auto layout = read_layout(image.bytes());
    if (!layout) return layout.error();
    auto manifest = std::shared_ptr<ImageManifest>(new ImageManifest(std::move(image), *layout));
    if (!manifest->names_.offsets_valid()) return damaged("the name groups are out of order");
    if (root) {
      manifest->root_ = *std::move(root);
    } else if (auto read = manifest->read_root(); !read) {
      return std::move(read).error();
    }
    return std::shared_ptr<const Manifest>(std::move(manifest));
  }

  Result<void> save(const std::string& path) const override {
    return publish_file(path, path + ".tmp." + std::to_string(::getpid()), image_.bytes(),
                        Flush::to_disk);
  }

  const Uri& root() const override { return root_; }
  std::uint64_t size() const override { return layout_.count; }
  void name(std::uint64_t index, std::string& name) const override { names_.get(index, name); }
  std::uint64_t object_size(std::uint64_t index) const override { return sizes_[index]; }
  const ManifestDigests& digests() const override { return digests_; }

  ObjectVersion version(std::uint64_t index) const override {
    ObjectVersion version{sizes_[index], mtimes_[index], inodes_[index], etag(index), false};
    if ((layout_.flags & kWeak) != 0)
      version.weak = part(layout_.weak_at() + index, 1)[0] != std::byte{0};
    return version;
  }

 private:
  ImageManifest(Image image, const Layout& layout) : image_(std::move(image)), layout_(layout) {
    const auto column = layout.column_bytes();
    sizes_ = Column<std::uint64_t>(part(kHeaderBytes, column));
    mtimes_ = Column<std::int64_t>(part(kHeaderBytes + column, column));
    inodes_ = Column<std::uint64_t>(part(kHeaderBytes + 2 * column, column));
    if ((layout.flags & kEtags) != 0)
      etag_ends_ = Column<std::uint64_t>(part(layout.etag_ends_at(), column));
    names_ = FrontCodedNames(layout.count,
                             Column<std::uint64_t>(part(layout.groups_at(), layout.groups_bytes())),
                             part(layout.names_at(), layout.names_bytes));
    const auto file = image_.bytes();
    digests_ = {read_digest(file, 64).hex(), read_digest(file, 80).hex(),
                read_digest(file, 96).hex()};
  }

  std::span<const std::byte> part(std::uint64_t at, std::uint64_t size) const {
    return image_.bytes().subspan(at, size);
  }

  std::string etag(std::uint64_t index) const {
    if ((layout_.flags & kEtags) == 0) return {};
    const std::uint64_t start = index == 0 ? 0 : etag_ends_[index - 1];
    const std::uint64_t stop = etag_ends_[index];
    if (start > stop || stop > layout_.etag_bytes) return {};
    const auto bytes = part(layout_.etags_at() + start, stop - start);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  Result<void> read_root() {
    const auto bytes = part(layout_.root_at(), layout_.root_bytes);
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    const auto first = text.find('\0');
    const auto second = first == std::string_view::npos ? first : text.find('\0', first + 1);
    if (second == std::string_view::npos || first == 0) return damaged("its root is not readable");
    root_.scheme = text.substr(0, first);
    root_.authority = text.substr(first + 1, second - first - 1);
    root_.path = text.substr(second + 1);
    return {};
  }

  Image image_;
  Layout layout_;
  Uri root_;
  Column<std::uint64_t> sizes_, inodes_, etag_ends_;
  Column<std::int64_t> mtimes_;
  FrontCodedNames names_;
  ManifestDigests digests_;
};

// What an object is called in digests and keys.
std::string_view lasting_name(const Uri& root, std::string_view name) {
  return root.scheme == "file" ? name : without_signature(name);
}

Result<void> check_objects(const std::vector<ObjectInfo>& sorted, const Uri& root) {
  if (sorted.size() > kObjectsMax) {
    return Error(ErrorCode::unsupported,
                 "a manifest holds at most " + std::to_string(kObjectsMax) + " objects");
  }
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    const auto& object = sorted[i];
    if (object.name.empty() || object.name.find('\0') != std::string::npos) {
      return Error(ErrorCode::invalid_argument, "an object's name is empty or holds a NUL byte");
    }
    if (i > 0 && sorted[i - 1].name == object.name) {
      const std::string shown(lasting_name(root, object.name));
      return Error(ErrorCode::invalid_argument, "\"" + shown + "\" is named twice");
    }
  }
  return {};
}

// Userinfo and query may hold secrets: a saved manifest has neither.
std::string printable_root(const Uri& root) {
  const auto at = root.authority.rfind('@');
  const auto host = at == std::string::npos ? root.authority : root.authority.substr(at + 1);
  return root.scheme + '\0' + host + '\0' + root.path;
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

struct Built {
  Layout layout;
  FrontCodedWriter names;
  Digest names_digest, sizes_digest, versions_digest;
};

Built collect(const std::vector<ObjectInfo>& objects, const Uri& root, std::string_view root_text) {
  Built built;
  DigestBuilder names, sizes, versions;
  for (const auto& object : objects) {
    const auto& version = object.version;
    built.names.add(object.name);
    names.add(lasting_name(root, object.name));
    sizes.add(version.size);
    versions.add(version.size)
        .add(static_cast<std::uint64_t>(version.mtime_ns))
        .add(version.inode)
        .add(version.etag);
    built.layout.etag_bytes += version.etag.size();
    if (!version.etag.empty()) built.layout.flags |= kEtags;
    if (version.weak) built.layout.flags |= kWeak;
  }
  built.layout.count = objects.size();
  built.layout.names_bytes = built.names.blob().size();
  built.layout.root_bytes = root_text.size();
  built.names_digest = names.finish();
  built.sizes_digest = sizes.finish();
  built.versions_digest = versions.finish();
  return built;
}

void write_bytes(std::span<std::byte> file, std::uint64_t at, std::span<const std::byte> bytes) {
  if (!bytes.empty()) std::memcpy(file.data() + at, bytes.data(), bytes.size());
}

void write_etags(std::span<std::byte> file, const std::vector<ObjectInfo>& objects,
                 const Layout& layout) {
  std::uint64_t end = 0;
  for (std::size_t i = 0; i < objects.size(); ++i) {
    const std::string& etag = objects[i].version.etag;
    write_bytes(file, layout.etags_at() + end, bytes_of(etag));
    write_le(file, layout.etag_ends_at() + 8 * i, end += etag.size());
  }
}

void write_body(std::span<std::byte> file, const std::vector<ObjectInfo>& objects,
                const Built& built, std::string_view root) {
  const Layout& layout = built.layout;
  const std::uint64_t column = layout.column_bytes();
  for (std::size_t i = 0; i < objects.size(); ++i) {
    const ObjectVersion& version = objects[i].version;
    const std::uint64_t at = kHeaderBytes + 8 * i;
    write_le(file, at, version.size);
    write_le(file, at + column, version.mtime_ns);
    write_le(file, at + 2 * column, version.inode);
    if ((layout.flags & kWeak) != 0)
      write_le(file, layout.weak_at() + i, static_cast<std::uint8_t>(version.weak));
  }
  if ((layout.flags & kEtags) != 0) write_etags(file, objects, layout);
  const auto offsets = built.names.group_offsets();
  write_bytes(file, layout.groups_at(), std::as_bytes(std::span(offsets)));
  write_bytes(file, layout.root_at(), bytes_of(root));
  write_bytes(file, layout.names_at(), built.names.blob());
}

void write_header(std::span<std::byte> file, const Built& built) {
  const auto& layout = built.layout;
  std::memcpy(file.data(), kMagic, 8);
  write_le(file, 8, kVersion);
  std::size_t at = 16;
  for (const std::uint64_t number :
       {layout.count, layout.names_bytes, layout.etag_bytes, layout.root_bytes, layout.flags}) {
    write_le(file, at, number);
    at += 8;
  }
  at = 64;
  for (const Digest& digest : {built.names_digest, built.sizes_digest, built.versions_digest}) {
    write_le(file, at, digest.high);
    write_le(file, at + 8, digest.low);
    at += 16;
  }
  seal_manifest(file);
}

}  // namespace

void seal_manifest(std::span<std::byte> image) {
  if (image.size() < kHeaderBytes) return;
  write_le(image, 56, crc32c(image.subspan(kHeaderBytes)));
  write_le(image, 12, header_crc(image));
}

Result<std::shared_ptr<const Manifest>> open_manifest_image(std::vector<std::byte> bytes) {
  return ImageManifest::open(Image(std::move(bytes)), std::nullopt);
}

Result<std::shared_ptr<const Manifest>> Manifest::build(Uri root, std::vector<ObjectInfo> objects) {
  const auto by_name = [&root](const ObjectInfo& a, const ObjectInfo& b) {
    const auto order = lasting_name(root, a.name).compare(lasting_name(root, b.name));
    return order == 0 ? a.name < b.name : order < 0;
  };
  if (!std::is_sorted(objects.begin(), objects.end(), by_name))
    std::sort(objects.begin(), objects.end(), by_name);
  if (auto checked = check_objects(objects, root); !checked) return std::move(checked).error();
  const std::string root_text = printable_root(root);
  const Built built = collect(objects, root, root_text);
  std::vector<std::byte> file(built.layout.file_bytes());
  write_body(file, objects, built, root_text);
  write_header(file, built);
  return ImageManifest::open(Image(std::move(file)), std::move(root));
}

std::optional<std::uint64_t> Manifest::find(std::string_view wanted) const {
  const auto order_of = [&](std::string_view text) {
    return std::pair(lasting_name(root(), text), text);
  };
  const auto key = order_of(wanted);
  std::string here;
  std::uint64_t first = 0;
  for (std::uint64_t stop = size(); first < stop;) {
    const std::uint64_t middle = first + (stop - first) / 2;
    name(middle, here);
    if (order_of(here) < key) {
      first = middle + 1;
    } else {
      stop = middle;
    }
  }
  if (first == size()) return std::nullopt;
  name(first, here);
  return here == wanted ? std::optional(first) : std::nullopt;
}

std::string Manifest::key(std::uint64_t index) const {
  std::string whole;
  name(index, whole);
  return std::string(lasting_name(root(), whole));
}

Result<std::shared_ptr<const Manifest>> Manifest::load(const std::string& path) {
  auto image = Image::map(path);
  if (!image) return std::move(image).error();
  auto manifest = ImageManifest::open(*std::move(image), std::nullopt);
  if (!manifest) return std::move(manifest).error().at_uri(path).in("opening a manifest");
  return manifest;
}

}  // namespace headpond
