#include "data/places.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>

#include "data/glob.h"

namespace headpond {
namespace {

Result<void> check_one_store(const std::vector<Uri>& places) {
  for (const auto& place : places) {
    const auto& first = places.front();
    if (place.scheme != first.scheme || place.authority != first.authority) {
      return Error(ErrorCode::invalid_argument, "one dataset lies in one store, but " +
                                                    first.to_string() + " and " +
                                                    place.to_string() + " do not");
    }
  }
  return {};
}

}  // namespace

Result<Uri> parse_place(std::string_view text) {
  auto uri = Uri::parse(text);
  if (!uri) return uri;
  if (uri->scheme != "file") {
    if (uri->path.empty()) uri->path = "/";  // "https://host"
    return uri;
  }
  std::string whole = uri->path;
  if (!whole.starts_with('/')) {
    std::error_code error;
    const auto here = std::filesystem::current_path(error);
    if (error) return system_error(error.value(), "asking for the working directory");
    whole = here.string() + "/" + whole;
  }
  std::string clean;
  for (std::size_t at = 0; at < whole.size();) {
    const auto stop = std::min(whole.find('/', at), whole.size());
    const std::string_view part = std::string_view(whole).substr(at, stop - at);
    if (!part.empty() && part != ".") clean.append("/").append(part);
    at = stop + 1;
  }
  const bool directory = whole.ends_with('/') || whole.ends_with("/.");
  if (clean.empty() || directory) clean += '/';
  uri->path = clean;
  return uri;
}

Result<std::vector<Uri>> expand_places(const Source& source) {
  std::vector<Uri> places;
  for (const auto& path : source.paths) {
    auto words = expand_braces(path);
    if (!words) return std::move(words).error().in("source \"" + path + "\"");
    for (const auto& word : *words) {
      auto place = parse_place(word);
      if (!place) return std::move(place).error().in("source \"" + path + "\"");
      places.push_back(*std::move(place));
    }
  }
  if (places.empty()) return Error(ErrorCode::invalid_argument, "the source names no path");
  if (auto one = check_one_store(places); !one) return std::move(one).error();
  return places;
}

Uri with_path(const Uri& uri, std::string_view path) {
  Uri changed = uri;
  changed.path = path;
  return changed;
}

bool names_one_object(const Uri& place) {
  return !place.path.ends_with('/') && !Glob::is_pattern(place.path);
}

std::pair<std::string, std::string> split_last(const std::string& path) {
  const auto slash = path.rfind('/');
  if (slash == std::string::npos) return {"", path};
  return {slash == 0 ? "/" : path.substr(0, slash), path.substr(slash + 1)};
}

std::string common_directory(const std::string& a, const std::string& b) {
  std::size_t same = 0;  // ends after a whole part
  std::size_t at = 0;
  for (; at < a.size() && at < b.size() && a[at] == b[at]; ++at) {
    if (a[at] == '/') same = at;
  }
  const bool a_ends = at == a.size() && (at == b.size() || b[at] == '/' || a.ends_with('/'));
  const bool b_ends = at == b.size() && at < a.size() && (a[at] == '/' || b.ends_with('/'));
  if (a_ends) return a;
  if (b_ends) return b;
  return same == 0 && a.starts_with('/') ? "/" : a.substr(0, same);
}

Uri common_parent(const std::vector<Uri>& places) {
  std::optional<std::string> common;
  for (const auto& place : places) {
    const std::string folder =
        split_last(place.path.substr(0, place.path.find_first_of("*?["))).first;
    common = common ? common_directory(*common, folder) : folder;
  }
  return with_path(places.front(), *common);
}

}  // namespace headpond
