#include "data/source.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "data/glob.h"
#include "data/places.h"
#include "data/store_questions.h"

namespace headpond {
namespace {

// What one path of a source turned out to name.
struct Found {
  Uri base;                         // a directory
  std::vector<ObjectInfo> objects;  // relative to it; empty folders too, where they are looked for
};

bool is_folder(std::string_view name) { return name.empty() || name.ends_with('/'); }

// What to look for at a place. As Selection, but `keep` is set only where names relative to the
// root are already known.
struct Search {
  std::string_view suffix;
  std::function<bool(std::string_view name)> keep;
  bool empty_folders = false;
  bool versions_may_come_later = false;
};

bool ends_with_ignoring_case(std::string_view text, std::string_view suffix) {
  if (text.size() < suffix.size()) return false;
  return std::equal(
      suffix.begin(), suffix.end(), text.end() - static_cast<std::ptrdiff_t>(suffix.size()),
      [](unsigned char a, unsigned char b) { return std::tolower(a) == std::tolower(b); });
}

Result<Found> list_directory(const Uri& directory, const Search& search, OpenContext& context) {
  auto store = context.stores->open(directory);
  if (!store) return std::move(store).error().at_uri(directory.to_string());
  ListRequest request;
  request.empty_folders = search.empty_folders;
  if (!search.suffix.empty() || search.keep) {
    request.wanted = [&search](std::string_view name) {
      return (is_folder(name) || ends_with_ignoring_case(name, search.suffix)) &&
             (!search.keep || search.keep(name));
    };
  }
  auto objects = list_objects(**store, std::move(request), context);
  if (!objects) return std::move(objects).error().at_uri(directory.to_string());
  if (objects->empty() && !search.suffix.empty()) {
    const auto all = list_objects(**store, {}, context);
    return Error(ErrorCode::not_found,
                 "no " + std::string(search.suffix) + " file in this folder; there is " +
                     describe_suffixes(all.value_or(std::vector<ObjectInfo>())))
        .at_uri(directory.to_string());
  }
  const bool empty = std::all_of(objects->begin(), objects->end(),
                                 [](const ObjectInfo& object) { return is_folder(object.name); });
  if (empty && search.empty_folders) objects->assign(1, {});  // the directory itself
  return Found{directory, *std::move(objects)};
}

// Does the pattern match a folder above the object? Then it means what is in there.
bool matches_folder_of(const Glob& glob, std::string_view name) {
  for (auto slash = name.find('/'); slash != name.npos; slash = name.find('/', slash + 1)) {
    if (glob.matches(name.substr(0, slash))) return true;
  }
  return false;
}

// The directory before the first part with a wild card, and the pattern below it. The suffix is
// that of objects in folders that match.
Result<Found> list_pattern(const Uri& uri, const Search& search, OpenContext& context) {
  const auto wild = uri.path.find_first_of("*?[");
  const auto slash = uri.path.rfind('/', wild);
  const std::string directory =
      slash == std::string::npos ? "" : uri.path.substr(0, std::max<std::size_t>(slash, 1));
  const std::size_t below = slash == std::string::npos ? 0 : slash + 1;
  const Uri base = with_path(uri, directory);
  auto store = context.stores->open(base);
  if (!store) return std::move(store).error().at_uri(base.to_string());
  const Glob glob(std::string_view(uri.path).substr(below));
  ListRequest request;
  request.prefix = uri.path.substr(below, wild - below);
  request.wanted = [&search, &glob](std::string_view name) {
    if (search.keep && !search.keep(name)) return false;
    if (is_folder(name)) return glob.may_match_below(name) || matches_folder_of(glob, name);
    return glob.matches(name) ||
           (ends_with_ignoring_case(name, search.suffix) && matches_folder_of(glob, name));
  };
  auto objects = list_objects(**store, std::move(request), context);
  if (!objects) return std::move(objects).error().at_uri(base.to_string());
  if (objects->empty() && !search.keep) {
    return Error(ErrorCode::not_found, "no object matches this pattern").at_uri(uri.to_string());
  }
  return Found{base, *std::move(objects)};
}

// A path without wild cards (or one that exists although it looks like a pattern).
// `parents`: the common directory of all paths, whose store answers for every one of them.
Result<std::optional<Found>> find_plain(const Uri& uri, const Uri& parents, const Search& search,
                                        OpenContext& context) {
  if (uri.path.ends_with('/')) {
    const auto directory = uri.path.size() > 1 ? uri.path.substr(0, uri.path.size() - 1) : uri.path;
    auto found = list_directory(with_path(uri, directory), search, context);
    if (!found) return std::move(found).error();
    return std::optional<Found>(*std::move(found));
  }
  auto store = context.stores->open(parents);
  if (!store && store.error().code() == ErrorCode::not_found && Glob::is_pattern(uri.path)) {
    return std::optional<Found>();
  }
  if (!store) return std::move(store).error().at_uri(uri.to_string());
  const auto [folder, name] = split_last(uri.path);
  const std::size_t skip =
      parents.path.size() + (parents.path.empty() || parents.path.ends_with('/') ? 0 : 1);
  auto info = stat_blocking(**store, std::string_view(uri.path).substr(skip),
                            go_on_with(context, "listing", 0, 0));
  if (info) {
    info->name = name;
    Found found{with_path(uri, folder), {}};
    found.objects.push_back(*std::move(info));
    return std::optional<Found>(std::move(found));
  }
  if (info.error().code() == ErrorCode::not_found && Glob::is_pattern(uri.path))
    return std::optional<Found>();
  if (info.error().code() != ErrorCode::not_regular)
    return std::move(info).error().at_uri(uri.to_string());
  auto found = list_directory(uri, search, context);
  if (!found) return std::move(found).error();
  return std::optional<Found>(*std::move(found));
}

// Objects of a store that is reached through a network, named one by one: all are asked for
// at once, or (`later`) none.
Result<std::vector<Found>> find_remote(Store& store, const std::vector<Uri>& places,
                                       const Uri& parents, bool later, OpenContext& context) {
  Found found{parents, {}};
  for (const auto& place : places) {
    std::string name = place.path.substr(parents.path.size());
    if (name.starts_with('/')) name.erase(0, 1);
    if (!place.query.empty()) name += "?" + place.query;
    found.objects.push_back({std::move(name), {}});
  }
  if (later) return std::vector<Found>{std::move(found)};
  std::vector<std::string> names;
  for (const auto& object : found.objects) names.push_back(object.name);
  auto infos = stat_objects(store, names, context);
  if (!infos) return std::move(infos).error();
  for (std::size_t i = 0; i < places.size(); ++i) {
    auto& info = (*infos)[i];
    if (!info) return std::move(info).error().at_uri(places[i].to_string());
    found.objects[i].version = std::move(info->version);
  }
  return std::vector<Found>{std::move(found)};
}

Result<std::vector<Found>> find_all(const std::vector<Uri>& places, const Search& search,
                                    OpenContext& context) {
  const Uri parents = common_parent(places);
  if (parents.scheme != "file" && std::all_of(places.begin(), places.end(), names_one_object)) {
    auto store = context.stores->open(parents);
    if (!store) return std::move(store).error().at_uri(parents.to_string());
    if ((*store)->is_remote()) {
      return find_remote(**store, places, parents, search.versions_may_come_later, context);
    }
  }
  std::vector<Found> all;
  for (const auto& place : places) {
    auto plain = find_plain(place, parents, search, context);
    if (!plain) return std::move(plain).error();
    if (*plain) {
      all.push_back(**std::move(plain));
    } else {
      auto matched = list_pattern(place, search, context);
      if (!matched) return std::move(matched).error();
      all.push_back(*std::move(matched));
    }
    if (context.progress && all.size() % 1024 == 0 &&
        !context.progress("listing", all.size(), places.size())) {
      return Error(ErrorCode::cancelled, "listing was stopped");
    }
  }
  return all;
}

// Patterns are of paths.
std::string_view without_query(const Uri& root, std::string_view name) {
  return root.scheme == "file" ? name : name.substr(0, name.find('?'));
}

struct Listing {
  Uri root;
  std::vector<ObjectInfo> objects;
  std::vector<std::string> empty_folders;
};

Listing under_one_root(std::vector<Found> all) {
  std::string root = all.front().base.path;
  for (const auto& found : all) root = common_directory(root, found.base.path);
  Listing listing{with_path(all.front().base, root), {}, {}};
  for (auto& found : all) {
    std::string below = found.base.path.substr(root.size());
    if (below.starts_with('/')) below.erase(0, 1);
    if (!below.empty()) below += '/';
    for (auto& object : found.objects) {
      const bool folder = is_folder(object.name);
      if (!below.empty()) object.name.insert(0, below);
      if (folder) {
        listing.empty_folders.push_back(std::move(object.name));
      } else {
        listing.objects.push_back(std::move(object));
      }
    }
    found.objects = {};
  }
  return listing;
}

Error nothing_left(const Listing& listing, const Selection& selection) {
  std::string text = "no file here";
  if (!listing.objects.empty()) {
    text = "no file here matches " + selection.keep_text + "; there is " +
           describe_suffixes(listing.objects);
  }
  return Error(ErrorCode::not_found, text).at_uri(listing.root.to_string());
}

Result<Listing> list_all(const std::vector<Uri>& places, const Selection& selection,
                         bool all_there_is, OpenContext& context) {
  Search search;
  search.suffix = selection.directory_suffix;
  search.empty_folders = selection.empty_folders != nullptr;
  search.versions_may_come_later = selection.versions_may_come_later;
  // The root of one place is known beforehand.
  if (places.size() == 1 && !all_there_is) search.keep = selection.keep;
  auto found = find_all(places, search, context);
  if (!found) return std::move(found).error();
  return under_one_root(*std::move(found));
}

Result<std::shared_ptr<const Manifest>> list_places(const Source& source,
                                                    const Selection& selection,
                                                    OpenContext& context) {
  const auto places = expand_places(source);
  if (!places) return places.error();
  auto listing = list_all(*places, selection, false, context);
  // Nothing: what there is belongs into the message.
  if (listing && listing->objects.empty() && selection.keep)
    listing = list_all(*places, selection, true, context);
  if (!listing) return std::move(listing).error();
  std::vector<ObjectInfo> kept;
  if (selection.keep) {
    for (const auto& object : listing->objects) {
      if (selection.keep(without_query(listing->root, object.name))) kept.push_back(object);
    }
  }
  if ((selection.keep ? kept : listing->objects).empty()) return nothing_left(*listing, selection);
  if (selection.empty_folders != nullptr) *selection.empty_folders = listing->empty_folders;
  const std::string root = listing->root.to_string();
  auto manifest =
      Manifest::build(listing->root, std::move(selection.keep ? kept : listing->objects));
  if (!manifest) return std::move(manifest).error().at_uri(root);
  return manifest;
}

}  // namespace

std::string count_of(std::uint64_t count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

std::string describe_suffixes(const std::vector<ObjectInfo>& objects) {
  if (objects.empty()) return "nothing";
  std::map<std::string, std::uint64_t> counts;
  for (const auto& object : objects) {
    const std::string base = split_last(object.name).second;
    const auto dot = base.rfind('.');
    ++counts[dot == std::string::npos ? "no suffix" : base.substr(dot)];
  }
  std::vector<std::pair<std::string, std::uint64_t>> sorted(counts.begin(), counts.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  constexpr std::size_t kShown = 8;
  std::string text;
  for (std::size_t i = 0; i < std::min(sorted.size(), kShown); ++i) {
    text += (i == 0 ? "" : ", ") + sorted[i].first + " (" + std::to_string(sorted[i].second) + ")";
  }
  return sorted.size() > kShown ? text + ", ..." : text;
}

Result<std::shared_ptr<const Manifest>> filter_manifest(
    const Manifest& manifest, const std::function<bool(std::string_view)>& keep) {
  std::vector<ObjectInfo> kept;
  std::string name;
  for (std::uint64_t i = 0; i < manifest.size(); ++i) {
    manifest.name(i, name);
    if (keep(without_query(manifest.root(), name))) kept.push_back({name, manifest.version(i)});
  }
  return Manifest::build(manifest.root(), std::move(kept));
}

Result<std::shared_ptr<const Manifest>> resolve_source(const Source& source,
                                                       const Selection& selection,
                                                       OpenContext& context) {
  auto manifest = source.manifest;
  if (!manifest && source.paths.size() == 1 && source.paths[0].ends_with(".manifest")) {
    const auto place = parse_place(source.paths[0]);
    if (!place) return place.error();
    if (place->scheme != "file") {
      return Error(ErrorCode::unsupported, "a manifest is read from a local path: fetch it first")
          .at_uri(place->to_string());
    }
    auto loaded = Manifest::load(place->path);
    if (!loaded) return loaded;
    manifest = *std::move(loaded);
  }
  if (!manifest) return list_places(source, selection, context);
  const std::string root = manifest->root().to_string();
  if (selection.keep) {
    auto kept = filter_manifest(*manifest, selection.keep);
    if (!kept) return std::move(kept).error().at_uri(root);
    manifest = *std::move(kept);
  }
  if (manifest->size() == 0) {
    return Error(ErrorCode::not_found,
                 selection.keep ? "the manifest has no object that matches " + selection.keep_text
                                : "the manifest is empty")
        .at_uri(root);
  }
  return manifest;
}

Result<std::shared_ptr<const Manifest>> list_source(const Source& source, OpenContext& context) {
  return resolve_source(source, {}, context);
}

}  // namespace headpond
