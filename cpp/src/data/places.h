#pragma once

#include <string>
#include <utility>
#include <vector>

#include "headpond/dataset.h"
#include "headpond/result.h"
#include "headpond/uri.h"

namespace headpond {

// Places: the texts of a source as URIs whose paths may hold wild cards. No I/O.

// Local paths are made absolute, so that a later chdir changes nothing; "//" and
// "/./" go. ".." stays: behind a symlink it is not what the text says.
Result<Uri> parse_place(std::string_view text);

// All places of a source, braces expanded. Errors: invalid_argument, also where they do not lie
// in one store.
Result<std::vector<Uri>> expand_places(const Source& source);

Uri with_path(const Uri& uri, std::string_view path);
// Neither a directory nor a pattern.
bool names_one_object(const Uri& place);

// "/a/b" to "/a" and "b"; a root keeps its slash.
std::pair<std::string, std::string> split_last(const std::string& path);
std::string common_directory(const std::string& a, const std::string& b);
// The common directory of the folders that hold the places (of a pattern: before its
// first wild card).
Uri common_parent(const std::vector<Uri>& places);

}  // namespace headpond
