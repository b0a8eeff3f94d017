#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "headpond/dataset.h"

namespace headpond {

// Which of the objects found are taken.
struct Selection {
  // Of names found by listing a directory: what a directory of this kind is made of (".tar").
  std::string directory_suffix;
  // Of every name relative to the root; none: all. Of one that ends with "/", a folder:
  // may there be such a name below it? From several threads at once.
  std::function<bool(std::string_view name)> keep;
  // How `keep` is called in messages: "pattern \"**/*.jpg\"".
  std::string keep_text;
  // Objects of a remote store that are named one by one are not asked for: their versions
  // stay unknown.
  bool versions_may_come_later = false;
  // Filled, where set, with the folders below listed directories, relative to the root and with
  // "/" at the end, that hold nothing that is kept.
  std::vector<std::string>* empty_folders = nullptr;
};

// The objects that a source names, as one manifest. Names are relative to the
// longest common directory of what the source lists (the directory itself, a
// pattern's part before its first wild card, a file's folder); parts that begin with "."
// are left out of listings. Local paths become absolute.
// Errors: invalid_argument; not_found (also when nothing is left, saying what is
// there); cancelled; those of the stores.
Result<std::shared_ptr<const Manifest>> resolve_source(const Source& source,
                                                       const Selection& selection,
                                                       OpenContext& context);

// The objects of a manifest whose name `keep` takes.
Result<std::shared_ptr<const Manifest>> filter_manifest(
    const Manifest& manifest, const std::function<bool(std::string_view)>& keep);

// Goes on as long as the context's progress does; the context outlives it.
inline GoOn go_on_with(OpenContext& context, const char* what, std::uint64_t done,
                       std::uint64_t total) {
  if (!context.progress) return {};
  return [&context, what, done, total] { return context.progress(what, done, total); };
}

// "1 shard", "2 shards".
std::string count_of(std::uint64_t count, const std::string& what);

// ".jpg (5), .txt (1)" of names, for messages; the most frequent first.
std::string describe_suffixes(const std::vector<ObjectInfo>& objects);

}  // namespace headpond
