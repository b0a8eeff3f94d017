#include "headpond/loader_state.h"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

namespace headpond {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::uint64_t kVersion = 1;
// Four times what to_json writes at most, for states that were indented on their way.
constexpr std::size_t kTextBytesMax = 4096;
constexpr int kDepthMax = 2;
constexpr std::size_t kDigestCharsMax = 64;

constexpr std::array kModes{ShuffleMode::none, ShuffleMode::full, ShuffleMode::window};

Error mismatch(std::string message) { return Error(ErrorCode::state_mismatch, std::move(message)); }

std::string in_quotes(std::string_view text) { return '"' + std::string(text) + '"'; }

// A value as it may stand in a message: short, in ASCII.
std::string shown(const json& value) {
  constexpr std::size_t kShownMax = 40;
  std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true, json::error_handler_t::replace);
  std::replace(text.begin(), text.end(), '\x7f', '?');  // ASCII, and not printable
  if (text.size() > kShownMax) text = text.substr(0, kShownMax) + "...";
  return text;
}

// The JSON tree, or why the text is none. A name that stands twice is refused,
// because readers differ on which of the two counts.
Result<json> parse(std::string_view text) {
  if (text.size() > kTextBytesMax) {
    return mismatch("the text has " + std::to_string(text.size()) + " bytes, and a loader state " +
                    std::to_string(kTextBytesMax) + " at most");
  }
  std::array<std::set<std::string>, kDepthMax + 1> names;
  bool too_deep = false;
  std::optional<std::string> twice;
  const auto watch = [&](int depth, json::parse_event_t event, json& parsed) {
    // `depth` is that of what encloses the event.
    const bool opens =
        event == json::parse_event_t::object_start || event == json::parse_event_t::array_start;
    if (opens && depth >= kDepthMax) too_deep = true;
    if (too_deep) return false;
    if (opens) names[static_cast<std::size_t>(depth) + 1].clear();
    if (event == json::parse_event_t::key) {
      auto& name = parsed.get_ref<const std::string&>();
      if (!names[static_cast<std::size_t>(depth)].insert(name).second) twice = name;
    }
    return true;
  };
  json tree = json::parse(text, watch, /*allow_exceptions=*/false);
  if (too_deep) return mismatch("the text is nested too deeply for a loader state");
  if (tree.is_discarded()) return mismatch("the text is not JSON");
  if (!tree.is_object()) return mismatch("the text is not a JSON object");
  if (twice) return mismatch("the entry " + shown(json(*twice)) + " stands twice");
  return tree;
}

// Takes entries out of an object; the first failure is kept and later calls do
// nothing, so that a reader is a plain list of entries.
class Entries {
 public:
  Entries(const json& object, std::string path, std::optional<Error>& failure)
      : object_(object), path_(std::move(path)), failure_(failure) {}

  void take(const char* name, std::uint64_t& out,
            std::uint64_t max = std::numeric_limits<std::uint64_t>::max()) {
    const json* entry = find(name);
    if (entry == nullptr) return;
    if (!entry->is_number_unsigned() || entry->get<std::uint64_t>() > max) {
      return refuse(name, *entry, "a whole number of 0 to " + std::to_string(max));
    }
    out = entry->get<std::uint64_t>();
  }

  // null: none.
  void take(const char* name, std::optional<std::uint64_t>& out) {
    const json* entry = find(name);
    if (entry == nullptr || entry->is_null()) return;
    out.emplace();
    take(name, *out);
  }

  void take(const char* name, bool& out) {
    const json* entry = find(name);
    if (entry == nullptr) return;
    if (!entry->is_boolean()) return refuse(name, *entry, "true or false");
    out = entry->get<bool>();
  }

  // Printable ASCII, so that nothing strange reaches a message or a terminal.
  void take(const char* name, std::string& out) {
    const json* entry = find(name);
    if (entry == nullptr) return;
    const auto* text = entry->get_ptr<const std::string*>();
    const auto printable = [](char c) { return c >= ' ' && c <= '~'; };
    if (text == nullptr || text->size() > kDigestCharsMax ||
        !std::all_of(text->begin(), text->end(), printable)) {
      return refuse(name, *entry,
                    "a text of " + std::to_string(kDigestCharsMax) + " ASCII letters at most");
    }
    out = *text;
  }

  const json* take_object(const char* name) {
    const json* entry = find(name);
    if (entry == nullptr || entry->is_object()) return entry;
    refuse(name, *entry, "an object");
    return nullptr;
  }

  // To be called last: whatever was not taken is unknown.
  void refuse_others() {
    for (const auto& [name, value] : object_.items()) {
      if (failure_ || taken_.count(name) > 0) continue;
      failure_ = mismatch("the entry " + shown(json(path_ + name)) + " is unknown");
    }
  }

 private:
  const json* find(const char* name) {
    if (failure_) return nullptr;
    taken_.insert(name);
    const auto found = object_.find(name);
    if (found != object_.end()) return &*found;
    failure_ = mismatch("the entry " + in_quotes(path_ + name) + " is missing");
    return nullptr;
  }

  void refuse(const char* name, const json& value, const std::string& expected) {
    failure_ = mismatch("the entry " + in_quotes(path_ + name) + " is " + shown(value) + ", not " +
                        expected);
  }

  const json& object_;
  std::string path_;
  std::optional<Error>& failure_;
  std::set<std::string> taken_;
};

std::optional<ShuffleMode> mode_named(std::string_view name) {
  for (const ShuffleMode mode : kModes) {
    if (name_of(mode) == name) return mode;
  }
  return std::nullopt;
}

std::optional<Error> check_version(const json& object) {
  std::optional<Error> failure;
  std::uint64_t version = 0;
  Entries(object, "", failure).take("version", version);
  if (!failure && version != kVersion) {
    failure = mismatch("the state has version " + std::to_string(version) +
                       ", and this headpond reads version " + std::to_string(kVersion));
  }
  return failure;
}

std::optional<Error> read_state(const json& object, LoaderState& state) {
  std::optional<Error> failure;
  std::uint64_t version = 0;
  std::uint64_t sampler_version = 0;
  std::string mode;
  Entries entries(object, "", failure);
  entries.take("version", version);
  entries.take("fingerprint", state.order.fingerprint);
  entries.take("n", state.order.n);
  entries.take("size_digest", state.order.size_digest);
  entries.take("seed", state.order.seed);
  entries.take("augmentation_seed", state.order.augmentation_seed);
  entries.take("mode", mode);
  entries.take("window", state.order.window);
  entries.take("sampler_version", sampler_version, std::numeric_limits<int>::max());
  entries.take("epoch", state.epoch);
  entries.take("cursor", state.cursor);
  entries.take("pass_step", state.pass_step);
  entries.take("ended", state.ended);
  if (const json* group = entries.take_object("group")) {
    Entries inner(*group, "group.", failure);
    inner.take("first_shard", state.group.first_shard);
    inner.take("cursor", state.group.cursor);
    inner.refuse_others();
  }
  entries.refuse_others();
  if (failure) return failure;

  state.order.sampler_version = static_cast<int>(sampler_version);
  const auto known = mode_named(mode);
  if (!known)
    return mismatch("the entry \"mode\" is " + in_quotes(mode) + ", not none, full or window");
  state.order.mode = *known;
  return std::nullopt;
}

std::optional<Error> check_places(const LoaderState& state) {
  if (state.order.n && state.cursor > *state.order.n) {
    return mismatch("the entry \"cursor\" is " + std::to_string(state.cursor) +
                    ", past the end of " + std::to_string(*state.order.n) + " samples");
  }
  if (state.group.cursor > state.cursor) {
    return mismatch("the entry \"group.cursor\" is " + std::to_string(state.group.cursor) +
                    ", past the cursor " + std::to_string(state.cursor));
  }
  return std::nullopt;
}

Result<void> differ(std::string_view what, const std::string& state, const std::string& loader) {
  return mismatch("the state belongs to another loader: " + std::string(what) + " is " + state +
                  " in the state and " + loader + " here");
}

}  // namespace

std::string LoaderState::to_json() const {
  const ordered_json n = order.n ? ordered_json(*order.n) : ordered_json(nullptr);
  const ordered_json tree{
      {"version", kVersion},
      {"fingerprint", order.fingerprint},
      {"n", n},
      {"size_digest", order.size_digest},
      {"seed", order.seed},
      {"augmentation_seed", order.augmentation_seed},
      {"mode", name_of(order.mode)},
      {"window", order.window},
      {"sampler_version", order.sampler_version},
      {"epoch", epoch},
      {"cursor", cursor},
      {"pass_step", pass_step},
      {"group", {{"first_shard", group.first_shard}, {"cursor", group.cursor}}},
      {"ended", ended},
  };
  return tree.dump(-1, ' ', /*ensure_ascii=*/true, ordered_json::error_handler_t::replace);
}

Result<LoaderState> LoaderState::from_json(std::string_view text) {
  auto tree = parse(text);
  if (!tree) return std::move(tree).error().in("loader state");
  LoaderState state;
  auto failure = check_version(*tree);
  if (!failure) failure = read_state(*tree, state);
  if (!failure) failure = check_places(state);
  if (failure) return std::move(*failure).in("loader state");
  return state;
}

// What says most comes first: another dataset also has another n.
Result<void> check_compatible(const OrderIdentity& state, const OrderIdentity& loader) {
  const auto number = [](auto value) { return std::to_string(value); };
  if (state.fingerprint != loader.fingerprint) {
    return differ("the dataset's fingerprint", in_quotes(state.fingerprint),
                  in_quotes(loader.fingerprint));
  }
  if (state.n && loader.n && *state.n != *loader.n)
    return differ("the number of samples", number(*state.n), number(*loader.n));
  if (!state.size_digest.empty() && !loader.size_digest.empty() &&
      state.size_digest != loader.size_digest) {
    return differ("the digest of sizes and counts", in_quotes(state.size_digest),
                  in_quotes(loader.size_digest));
  }
  if (state.mode != loader.mode) {
    return differ("the shuffle mode", in_quotes(name_of(state.mode)),
                  in_quotes(name_of(loader.mode)));
  }
  if (state.seed != loader.seed) return differ("the seed", number(state.seed), number(loader.seed));
  if (state.window != loader.window) {
    return differ("the shuffle window", number(state.window), number(loader.window));
  }
  if (state.augmentation_seed != loader.augmentation_seed) {
    return differ("the augmentation seed", number(state.augmentation_seed),
                  number(loader.augmentation_seed));
  }
  if (state.sampler_version != loader.sampler_version) {
    return differ("the sampler version", number(state.sampler_version),
                  number(loader.sampler_version));
  }
  return {};
}

}  // namespace headpond
