#include "data/beside.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <string_view>
#include <utility>

#include "data/places.h"
#include "data/shard_lists.h"
#include "format/store_reading.h"

namespace headpond {
namespace {

constexpr std::uint64_t kListBytesMax = std::uint64_t{64} << 20;
constexpr std::uint64_t kIndexBytesMax = std::uint64_t{1} << 30;
constexpr const char* kWidsName = "shardindex.json";  // of `wids-index create`
constexpr const char* kEnergonJson = ".nv-meta/.info.json";
constexpr const char* kEnergonYaml = ".nv-meta/.info.yaml";

using Bytes = std::vector<std::byte>;

std::string_view text_of(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Several objects, or their starts, read at once.
class Reading {
 public:
  struct Ask {
    std::string object;
    std::uint64_t start_bytes = 0;  // 0: all of it
    std::uint64_t most = 0;
  };

  // One answer to each, in order. Errors of all: cancelled.
  static Result<std::vector<Result<Bytes>>> run(Store& store, std::vector<Ask> asks,
                                                OpenContext& context) {
    if (!store.is_remote()) return read_here(store, asks);
    const auto reading = std::make_shared<Reading>(asks.size());
    StopSource stop;
    std::vector<ReadRequest> requests(asks.size());
    for (std::size_t i = 0; i < asks.size(); ++i) {
      Ask& ask = asks[i];
      ReadRequest& request = requests[i];
      Bytes& bytes = reading->bytes_[i];
      request.object = std::move(ask.object);
      request.stop = stop.get_token();
      if (ask.start_bytes > 0) {
        bytes.resize(ask.start_bytes);
        request.out = bytes;
      } else {
        request.allocate = [&bytes, reading,
                            most = ask.most](std::uint64_t size) -> std::span<std::byte> {
          if (size > most) return {};
          bytes.resize(size);
          return bytes;
        };
      }
      request.done = [reading, i](Result<ReadOutcome> outcome) {
        reading->set(i, std::move(outcome));
      };
    }
    store.read(requests);
    if (!reading->wait(context)) {
      stop.request_stop();
      return Error(ErrorCode::cancelled, "looking for indexes was stopped");
    }
    return reading->take();
  }

  explicit Reading(std::size_t count) : bytes_(count), outcomes_(count), left_(count) {}

 private:
  // On the calling thread: opening local data starts no thread of the store.
  static std::vector<Result<Bytes>> read_here(Store& store, const std::vector<Ask>& asks) {
    std::vector<Result<Bytes>> answers;
    for (const Ask& ask : asks) answers.push_back(read_here(store, ask));
    return answers;
  }
  static Result<Bytes> read_here(Store& store, const Ask& ask) {
    const auto info = stat_blocking(store, ask.object);
    if (!info) return info.error();
    const std::uint64_t size = info->version.size;
    if (ask.start_bytes == 0 && size > ask.most)
      return Error(ErrorCode::resource_limit, "it is larger than any: " + std::to_string(size));
    Bytes bytes(ask.start_bytes == 0 ? size : std::min(size, ask.start_bytes));
    if (auto read = read_exactly(store, ask.object, info->version, 0, bytes); !read)
      return std::move(read).error();
    return bytes;
  }

  void set(std::size_t index, Result<ReadOutcome> outcome) {
    const std::lock_guard lock(mutex_);
    outcomes_[index] = std::move(outcome);
    if (--left_ == 0) changed_.notify_all();
  }
  bool wait(OpenContext& context) {
    std::unique_lock lock(mutex_);
    while (left_ > 0) {
      changed_.wait_for(lock, std::chrono::milliseconds(100));
      if (!context.progress || left_ == 0) continue;
      lock.unlock();
      if (!context.progress("looking for indexes", 0, 0)) return false;
      lock.lock();
    }
    return true;
  }
  std::vector<Result<Bytes>> take() {
    std::vector<Result<Bytes>> answers;
    for (std::size_t i = 0; i < bytes_.size(); ++i) {
      Result<ReadOutcome>& outcome = *outcomes_[i];
      if (!outcome) {
        answers.emplace_back(std::move(outcome).error());
        continue;
      }
      bytes_[i].resize(std::min<std::uint64_t>(bytes_[i].size(), outcome->bytes));
      answers.emplace_back(std::move(bytes_[i]));
    }
    return answers;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Bytes> bytes_;
  std::vector<std::optional<Result<ReadOutcome>>> outcomes_;
  std::size_t left_;
};

// Stores that may not be listed answer so for what is not there.
bool is_missing(const Error& error) {
  return error.code() == ErrorCode::not_found || error.code() == ErrorCode::access_denied ||
         error.code() == ErrorCode::not_regular;
}

// Some servers answer every question with a page.
bool is_page(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r\n");
  return first == std::string_view::npos || text[first] == '<';
}

std::string named(std::string_view what, const Manifest& manifest, const std::string& name) {
  return std::string(what) + " " + manifest.root().join(name).to_string();
}

void warn(const std::shared_ptr<LogQueue>& log, const Manifest& manifest, const std::string& text) {
  if (log) log->push_once(LogLevel::warning, "beside " + manifest.root().to_string(), text);
}

std::string base_name(std::string_view name) {
  name = name.substr(0, name.find('?'));
  return std::string(name.substr(name.rfind('/') + 1));
}

// Which shard of the manifest each count belongs to, by `name_of` both. What is not unique tells
// nothing.
template <class NameOfEntry, class NameOfShard>
std::vector<std::optional<std::uint64_t>> assign(const std::vector<ShardCount>& list,
                                                 const Manifest& manifest,
                                                 NameOfEntry name_of_entry,
                                                 NameOfShard name_of_shard) {
  struct Entry {
    std::uint64_t samples = 0;
    std::uint64_t entries = 0, shards = 0;
  };
  std::map<std::string, Entry, std::less<>> entries;
  for (const auto& shard : list) {
    Entry& entry = entries[name_of_entry(shard.name)];
    entry.samples = shard.samples;
    ++entry.entries;
  }
  const auto find = [&](std::uint64_t shard) -> Entry* {
    const auto found = entries.find(name_of_shard(manifest.key(shard)));
    return found == entries.end() ? nullptr : &found->second;
  };
  for (std::uint64_t i = 0; i < manifest.size(); ++i) {
    if (Entry* entry = find(i)) ++entry->shards;
  }
  std::vector<std::optional<std::uint64_t>> counts(manifest.size());
  for (std::uint64_t i = 0; i < manifest.size(); ++i) {
    const Entry* entry = find(i);
    if (entry != nullptr && entry->entries == 1 && entry->shards == 1) counts[i] = entry->samples;
  }
  return counts;
}

// The list in one of the answers, if it is one.
class ListFinder {
 public:
  ListFinder(const Manifest& manifest, OpenContext& context)
      : manifest_(manifest), context_(context) {}

  // `read`: the text to the promises' counts.
  template <class Read>
  std::optional<ShardPromises> find(const Result<Bytes>& answer, const char* what, const char* name,
                                    Read read) const {
    if (!answer && is_missing(answer.error())) return std::nullopt;
    if (answer && is_page(text_of(*answer))) return std::nullopt;
    const std::string list = named(what, manifest_, name);
    auto counts = answer ? read(text_of(*answer))
                         : Result<std::vector<std::optional<std::uint64_t>>>(answer.error());
    if (!counts) {
      warn(context_.log, manifest_, list + " is not used: " + counts.error().to_string());
      return std::nullopt;
    }
    const bool tells = std::any_of(counts->begin(), counts->end(),
                                   [](const auto& count) { return count.has_value(); });
    if (!tells) return std::nullopt;
    return ShardPromises{list, *std::move(counts)};
  }

 private:
  const Manifest& manifest_;
  OpenContext& context_;
};

using Counts = Result<std::vector<std::optional<std::uint64_t>>>;

}  // namespace

Result<Beside> look_beside(Store& store, const Manifest& manifest, OpenContext& context) {
  Beside beside;
  std::string first;
  manifest.name(0, first);
  if (manifest.root().scheme != "file" && first.find('?') != std::string::npos) return beside;
  constexpr ShippedKind kKinds[] = {ShippedKind::headpond, ShippedKind::dali};
  std::vector<Reading::Ask> asks;
  for (const auto kind : kKinds) asks.push_back({shipped_name(kind, first), kShippedStartBytes, 0});
  if (store.is_remote()) {
    for (const char* name : {kWidsName, kEnergonJson, kEnergonYaml})
      asks.push_back({name, 0, kListBytesMax});
  }
  auto answers = Reading::run(store, std::move(asks), context);
  if (!answers) return std::move(answers).error();
  for (std::size_t i = 0; i < std::size(kKinds); ++i) {
    const auto& answer = (*answers)[i];
    if (answer && is_shipped_index(kKinds[i], *answer) && !beside.kind) beside.kind = kKinds[i];
  }
  if (beside.kind || !store.is_remote()) return beside;
  const ListFinder lists(manifest, context);
  const auto same = [](const std::string& name) { return name; };
  auto found = lists.find((*answers)[2], "wids'", kWidsName, [&](std::string_view text) -> Counts {
    auto index = parse_wids_index(text);
    if (!index) return std::move(index).error();
    // Its URLs tell where the shards lay when it was made; beside it they have the same names.
    return assign(index->shards, manifest, base_name, base_name);
  });
  using Parse = Result<std::vector<ShardCount>> (*)(std::string_view);
  const std::pair<const char*, Parse> energon[] = {{kEnergonJson, parse_energon_json},
                                                   {kEnergonYaml, parse_energon_yaml}};
  for (std::size_t i = 0; i < 2 && !found; ++i) {
    found = lists.find((*answers)[3 + i], "Energon's", energon[i].first,
                       [&](std::string_view text) -> Counts {
                         auto list = energon[i].second(text);
                         if (!list) return std::move(list).error();
                         return assign(*list, manifest, same, same);
                       });
  }
  if (found) beside.promises = *std::move(found);
  return beside;
}

std::function<std::optional<std::vector<std::byte>>()> shipped_index_reader(
    const Beside& beside, Store& store, const Manifest& manifest, std::uint64_t shard,
    const ObjectVersion& version, const std::shared_ptr<LogQueue>& log, const GoOn& go_on) {
  if (!beside.kind) return nullptr;
  return [kind = *beside.kind, &store, &manifest, shard, version, log,
          go_on]() -> std::optional<std::vector<std::byte>> {
    std::string name;
    manifest.name(shard, name);
    const std::string file = shipped_name(kind, name);
    OpenContext quiet;  // on a thread that may not report progress
    if (go_on) quiet.progress = [&](const char*, std::uint64_t, std::uint64_t) { return go_on(); };
    auto answers = Reading::run(store, {{file, 0, kIndexBytesMax}}, quiet);
    if (!answers) return std::nullopt;
    auto& answer = answers->front();
    if (!answer && is_missing(answer.error())) return std::nullopt;
    Result<Bytes> image =
        answer ? take_shipped_index(kind, *std::move(answer), version,
                                    [&](std::uint64_t offset, std::span<std::byte> out) {
                                      return read_exactly(store, name, version, offset, out, go_on);
                                    })
               : std::move(answer);
    if (image) return *std::move(image);
    warn(log, manifest,
         named(std::string(name_of(kind)) + " index", manifest, file) +
             " is not used, nor are others that do not fit (not named): " +
             image.error().to_string());
    return std::nullopt;
  };
}

bool is_wids_source(const Source& source) {
  if (source.manifest || source.paths.size() != 1) return false;
  const std::string& path = source.paths[0];
  return std::string_view(path)
      .substr(0, path.find("://") == std::string::npos ? path.size() : path.find('?'))
      .ends_with(".json");
}

namespace {

bool is_absolute(std::string_view url) { return url.find("://") != std::string_view::npos; }

std::string below(const std::string& folder, const std::string& path) {
  if (path.starts_with('/')) return path;
  return (folder.ends_with('/') ? folder : folder + "/") + path;
}

// Where the URLs of an index lead to.
Result<std::string> resolve(Uri folder, const std::optional<std::string>& base,
                            const std::string& url) {
  if (is_absolute(url)) return url;
  if (base && is_absolute(*base)) {
    auto place = Uri::parse(*base);
    if (!place) return std::move(place).error();
    folder = *std::move(place);
  } else if (base && !base->empty()) {
    folder.path = below(folder.path, *base);
  }
  const std::string path = below(folder.path, url);
  return folder.scheme == "file" ? path : folder.scheme + "://" + folder.authority + path;
}

bool leaves_the_web(const Uri& index, const Uri& shard) {
  if (index.scheme == "file") return false;
  return shard.scheme != index.scheme && !(index.scheme == "http" && shard.scheme == "https");
}

}  // namespace

Result<WidsSource> read_wids_source(const Source& source, OpenContext& context) {
  auto place = parse_place(source.paths[0]);
  if (!place) return std::move(place).error();
  WidsSource wids;
  wids.uri = place->to_string();
  auto [path, name] = split_last(place->path);
  Uri folder = with_path(*place, path);
  folder.query.clear();
  if (!place->query.empty()) name += "?" + place->query;
  auto store = context.stores->open(folder);
  if (!store) return std::move(store).error().at_uri(wids.uri);
  auto answers = Reading::run(**store, {{name, 0, kListBytesMax}}, context);
  if (!answers) return std::move(answers).error().at_uri(wids.uri);
  if (!answers->front()) return std::move(answers->front()).error().at_uri(wids.uri);
  auto index = parse_wids_index(text_of(*answers->front()));
  if (!index) return std::move(index).error().at_uri(wids.uri);
  for (const auto& shard : index->shards) {
    auto url = resolve(folder, index->base, shard.name);
    if (!url) return std::move(url).error().at_uri(wids.uri);
    const auto uri = parse_place(*url);
    if (!uri) return Error(uri.error()).at_uri(wids.uri);
    if (leaves_the_web(*place, *uri) || url->find_first_of("{}") != std::string::npos) {
      return Error(ErrorCode::invalid_argument,
                   "an index from there may not name the shard \"" + uri->to_string() + "\"")
          .at_uri(wids.uri);
    }
    wids.counts.emplace_back(uri->to_string(), shard.samples);
    wids.shards.paths.push_back(*std::move(url));
  }
  std::sort(wids.counts.begin(), wids.counts.end());
  return wids;
}

ShardPromises promises_of(const WidsSource& source, const Manifest& manifest) {
  ShardPromises promises;
  promises.list = "wids' " + source.uri;
  promises.counts.resize(manifest.size());
  for (std::uint64_t i = 0; i < manifest.size(); ++i) {
    const std::string uri = object_uri(manifest, i);
    const auto found = std::lower_bound(source.counts.begin(), source.counts.end(),
                                        std::pair(uri, std::uint64_t{0}));
    if (found != source.counts.end() && found->first == uri) promises.counts[i] = found->second;
  }
  return promises;
}

}  // namespace headpond
