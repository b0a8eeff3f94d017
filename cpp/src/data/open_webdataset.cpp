#include <memory>
#include <utility>

#include "data/arguments.h"
#include "data/beside.h"
#include "data/index_shards.h"
#include "data/source.h"
#include "format/formats.h"
#include "format/store_reading.h"
#include "format/tar_index_folder.h"

namespace headpond {
namespace {

std::string describe(const TarSkipped& skipped) {
  const std::pair<std::uint64_t, const char*> kinds[] = {
      {skipped.folders, "folders"},
      {skipped.metadata, "of __metadata__"},
      {skipped.hidden, "with a name that begins with \".\""},
      {skipped.without_field, "without an extension"},
      {skipped.other, "of unknown type"}};
  std::string text;
  for (const auto& [count, what] : kinds) {
    if (count > 0) text += (text.empty() ? "" : ", ") + std::to_string(count) + " " + what;
  }
  return text;
}

// A list of shards would drown the log: the first few say where to look.
class ShardList {
 public:
  void add(std::string uri) {
    if (count_++ < 3) text_ += (text_.empty() ? "" : ", ") + std::move(uri);
  }
  bool empty() const { return count_ == 0; }
  std::string text() const {
    return count_ > 3 ? text_ + " and " + std::to_string(count_ - 3) + " more" : text_;
  }

 private:
  std::string text_;
  std::uint64_t count_ = 0;
};

struct Findings {
  std::uint64_t samples = 0;
  TarSkipped skipped;
  ShardList unmarked, followed, empty;

  void add(const TarIndex& index, const std::string& uri) {
    const auto& more = index.skipped();
    samples += index.samples();
    skipped.folders += more.folders;
    skipped.metadata += more.metadata;
    skipped.hidden += more.hidden;
    skipped.without_field += more.without_field;
    skipped.other += more.other;
    if (!index.end_marked()) unmarked.add(uri);
    if (index.bytes_behind_end() > 0)
      followed.add(uri + " (" + count_of(index.bytes_behind_end(), "byte") + ")");
    if (index.samples() == 0) empty.add(uri);
  }

  std::vector<std::string> notes() const {
    std::vector<std::string> notes;
    if (skipped.total() > 0)
      notes.push_back(count_of(skipped.total(), "member") + " left out: " + describe(skipped));
    if (!unmarked.empty()) {
      notes.push_back(
          "no end-of-archive mark, perhaps cut between two members or still being written: " +
          unmarked.text());
    }
    if (!followed.empty()) {
      notes.push_back(
          "data behind the end-of-archive mark are not read (archives joined with cat?): " +
          followed.text());
    }
    if (!empty.empty()) notes.push_back("no sample in " + empty.text());
    return notes;
  }
};

// The first sample there is: headers of the first shards are read until it has ended. Its
// bytes' places go to `extents`.
Result<std::vector<Field>> first_fields(Store& store, const Manifest& manifest,
                                        std::vector<Extent>& extents, OpenContext& context) {
  std::string name;
  for (std::uint64_t shard = 0; shard < manifest.size(); ++shard) {
    manifest.name(shard, name);
    const GoOn go_on = go_on_with(context, "opening", shard, manifest.size());
    auto version = version_of(store, name, manifest.version(shard), go_on);
    if (!version) return std::move(version).error().at_uri(object_uri(manifest, shard));
    auto first =
        find_first_sample(version->size, [&](std::uint64_t offset, std::span<std::byte> out) {
          return read_exactly(store, name, *version, offset, out, go_on);
        });
    if (!first) return std::move(first).error().at_uri(object_uri(manifest, shard));
    if (first->fields.empty()) continue;
    for (const auto& range : first->ranges)
      extents.push_back({static_cast<std::uint32_t>(shard), range.start, range.size()});
    return std::move(first->fields);
  }
  return Error(ErrorCode::corrupt_data, "no sample in " + count_of(manifest.size(), "shard"))
      .at_uri(manifest.root().to_string());
}

// Shards of a store that is reached through a network: they are indexed while they are read.
Result<std::shared_ptr<const Dataset>> open_late(Dataset::Parts parts, Beside beside, Store& store,
                                                 OpenContext& context) {
  auto fields = first_fields(store, *parts.manifest, parts.first_sample, context);
  if (!fields) return std::move(fields).error();
  parts.format = make_late_webdataset_format(
      *std::move(fields), parts.manifest,
      std::make_shared<TarIndexFolder>(context.index_folder, context.log), beside.promises);
  parts.beside = std::make_shared<const Beside>(std::move(beside));
  return std::make_shared<const Dataset>(std::move(parts));
}

// Local shards are indexed at once.
Result<std::shared_ptr<const Dataset>> open_now(Dataset::Parts parts, const Beside& beside,
                                                Store& store, OpenContext& context) {
  const Manifest& manifest = *parts.manifest;
  auto indexes = index_local_shards(manifest, store, beside, context);
  if (!indexes) return std::move(indexes).error().in("indexing");
  Findings findings;
  for (std::uint64_t i = 0; i < manifest.size(); ++i) {
    const TarIndex& index = *(*indexes)[i];
    const std::string uri = object_uri(manifest, i);
    if (auto kept = check_promise(beside.promises, i, index.samples()); !kept)
      return std::move(kept).error().at_uri(uri);
    findings.add(index, uri);
  }
  if (findings.samples == 0) {
    const std::string left_out = describe(findings.skipped);
    return Error(ErrorCode::corrupt_data,
                 "no sample in " + count_of(manifest.size(), "shard") +
                     (left_out.empty() ? ": no member" : "; left out are members " + left_out))
        .at_uri(manifest.root().to_string());
  }
  parts.notes = findings.notes();
  parts.format = make_webdataset_format(parts.manifest, *std::move(indexes));
  return std::make_shared<const Dataset>(std::move(parts));
}

}  // namespace

Result<std::shared_ptr<const Manifest>> resolve_shards(const Source& source, OpenContext& context) {
  Selection selection;
  selection.directory_suffix = ".tar";
  selection.versions_may_come_later = true;
  return resolve_source(source, selection, context);
}

Result<std::shared_ptr<const Dataset>> open_webdataset(const Source& shards, OpenContext& context) {
  std::optional<WidsSource> wids;
  if (is_wids_source(shards)) {
    auto read = read_wids_source(shards, context);
    if (!read) return std::move(read).error();
    wids = *std::move(read);
  }
  auto resolved = resolve_shards(wids ? wids->shards : shards, context);
  if (!resolved) return std::move(resolved).error();
  Dataset::Parts parts;
  parts.caching = context.caching;
  parts.manifest = *std::move(resolved);
  parts.arguments = arguments_text({{"format", "webdataset"}});
  const Manifest& manifest = *parts.manifest;
  auto store = context.stores->open(manifest.root());
  if (!store) return std::move(store).error().at_uri(manifest.root().to_string());
  auto beside = look_beside(**store, manifest, context);
  if (!beside) return std::move(beside).error().at_uri(manifest.root().to_string());
  if (wids) beside->promises = promises_of(*wids, manifest);
  if ((*store)->is_remote())
    return open_late(std::move(parts), *std::move(beside), **store, context);
  return open_now(std::move(parts), *beside, **store, context);
}

}  // namespace headpond
