#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "data/arguments.h"
#include "data/glob.h"
#include "data/source.h"
#include "format/formats.h"
#include "headpond/dataset.h"

namespace headpond {
namespace {

struct Labels {
  std::vector<LabelRun> runs;
  std::vector<std::string> classes;
  std::uint64_t without_class = 0;  // files directly under the root
};

// The first object after `first` whose name does not begin with `prefix`. Names are
// sorted, so those that do lie together.
std::uint64_t end_of_prefix(const Manifest& manifest, std::uint64_t first,
                            std::string_view prefix) {
  std::string name;
  const auto inside = [&](std::uint64_t index) {
    manifest.name(index, name);
    return name.starts_with(prefix);
  };
  std::uint64_t step = 1;
  std::uint64_t low = first;  // inside
  while (low + step < manifest.size() && inside(low + step)) {
    low += step;
    step *= 2;
  }
  std::uint64_t high = std::min(low + step, manifest.size());  // not inside
  while (high - low > 1) {
    const std::uint64_t middle = low + (high - low) / 2;
    (inside(middle) ? low : high) = middle;
  }
  return high;
}

// Runs of one first component, labelled by its place among the sorted ones. The
// runs are sorted by "class/", the classes by "class": "a-b/" comes before "a/".
Labels find_labels(const Manifest& manifest) {
  Labels labels;
  std::vector<std::string> names;  // of the runs
  std::string name;
  for (std::uint64_t at = 0; at < manifest.size();) {
    manifest.name(at, name);
    const auto slash = name.find('/');
    if (slash == std::string::npos) {
      ++labels.without_class;
      ++at;
      continue;
    }
    labels.runs.push_back({at, 0});
    names.push_back(name.substr(0, slash));
    at = end_of_prefix(manifest, at, std::string_view(name).substr(0, slash + 1));
  }
  std::vector<std::size_t> order(names.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return names[a] < names[b]; });
  for (std::size_t label = 0; label < order.size(); ++label) {
    labels.runs[order[label]].label = static_cast<std::int64_t>(label);
    labels.classes.push_back(names[order[label]]);
  }
  return labels;
}

Error flat_folder(const Manifest& manifest) {
  return Error(ErrorCode::invalid_argument, "the " + count_of(manifest.size(), "file") +
                                                " here lie in no class folder: pass label=None for "
                                                "samples without a label, or the folder above")
      .at_uri(manifest.root().to_string());
}

// A class without a file, as torchvision's ImageFolder: left out, it would shift the labels of
// the classes behind it.
std::optional<Error> empty_classes(const std::vector<std::string>& folders,
                                   const std::string& keep_text) {
  constexpr std::size_t kShown = 3;
  std::vector<std::string> classes;
  for (const auto& folder : folders) {
    if (!folder.empty() && folder.find('/') + 1 == folder.size())
      classes.push_back(folder.substr(0, folder.size() - 1));
  }
  if (classes.empty()) return std::nullopt;
  std::string text = "no file" + (keep_text.empty() ? "" : " that matches " + keep_text) + " in " +
                     count_of(classes.size(), "class folder") + ":";
  for (std::size_t i = 0; i < std::min(kShown, classes.size()); ++i) text += " " + classes[i];
  if (classes.size() > kShown) text += " ...";
  return Error(ErrorCode::not_found, text + "; remove empty folders, or pass label=None");
}

}  // namespace

Result<std::shared_ptr<const Dataset>> open_files(const Source& source, const FilesOptions& options,
                                                  OpenContext& context) {
  Selection selection;
  const Glob glob(options.pattern, Glob::Case::ignored);
  if (!glob.is_everything()) {
    selection.keep = [&glob](std::string_view name) {
      return name.ends_with('/') ? glob.may_match_below(name) : glob.matches(name);
    };
    selection.keep_text = "pattern \"" + options.pattern + "\"";
  }
  std::vector<std::string> empty_folders;
  if (options.folder_labels) selection.empty_folders = &empty_folders;
  auto resolved = resolve_source(source, selection, context);
  if (!resolved) return std::move(resolved).error();
  Dataset::Parts parts;
  parts.caching = context.caching;
  parts.manifest = *std::move(resolved);
  std::optional<std::vector<LabelRun>> runs;
  if (options.folder_labels) {
    Labels labels = find_labels(*parts.manifest);
    if (labels.runs.empty()) return flat_folder(*parts.manifest);
    if (auto error = empty_classes(empty_folders, selection.keep_text))
      return std::move(*error).at_uri(parts.manifest->root().to_string());
    if (labels.without_class > 0) {
      parts.notes.push_back(count_of(labels.without_class, "file") + " directly under " +
                            parts.manifest->root().to_string() + " left out: no class folder");
      auto inside = filter_manifest(
          *parts.manifest, [](std::string_view name) { return name.find('/') != name.npos; });
      if (!inside) return std::move(inside).error();
      parts.manifest = *std::move(inside);
      labels = find_labels(*parts.manifest);
    }
    runs = std::move(labels.runs);
    parts.classes = std::move(labels.classes);
  }
  parts.format = make_files_format(parts.manifest, std::move(runs));
  parts.arguments = arguments_text({{"format", "files"},
                                    {"pattern", options.pattern},
                                    {"label", options.folder_labels ? "folder" : "none"}});
  return std::make_shared<const Dataset>(std::move(parts));
}

}  // namespace headpond
