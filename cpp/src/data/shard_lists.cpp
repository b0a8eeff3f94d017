#include "data/shard_lists.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace headpond {
namespace {

using Json = nlohmann::json;

Error no_list(const std::string& why) { return Error(ErrorCode::corrupt_data, why); }

// Takes what lies at known places of a JSON text while it is read: no tree is built, so that a
// hostile text costs no more than itself.
class Reader : public nlohmann::json_sax<Json> {
 public:
  // Parses all of it. Errors: corrupt_data.
  Result<void> read(std::string_view text) {
    nlohmann::json_sax<Json>* events = this;
    if (!Json::sax_parse(text.begin(), text.end(), events) && why_.empty()) why_ = "it is no JSON";
    if (!why_.empty()) return no_list(why_);
    return {};
  }

 protected:
  // Of the containers around a value, from the outermost; an array's is empty.
  const std::string& key(std::size_t depth) const { return keys_[depth]; }
  std::size_t depth() const { return keys_.size(); }

  // Each says whether to go on; see refuse().
  virtual bool on_text(std::string& value) = 0;
  virtual bool on_number(std::optional<std::uint64_t> value) = 0;  // none: negative or a fraction
  virtual bool on_open(bool is_object) = 0;  // before it is one of the containers around
  virtual bool on_close() = 0;               // after

  bool refuse(std::string why) {
    if (why_.empty()) why_ = std::move(why);
    return false;
  }

 private:
  bool null() override { return on_number(std::nullopt); }
  bool boolean(bool) override { return on_number(std::nullopt); }
  bool number_integer(number_integer_t) override { return on_number(std::nullopt); }
  bool number_unsigned(number_unsigned_t value) override { return on_number(value); }
  bool number_float(number_float_t, const string_t&) override { return on_number(std::nullopt); }
  bool string(string_t& value) override { return on_text(value); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(true); }
  bool start_array(std::size_t) override { return open(false); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& value) override {
    keys_.back().assign(value);
    return true;
  }
  bool parse_error(std::size_t at, const std::string&, const Json::exception&) override {
    return refuse("it is no JSON: byte " + std::to_string(at));
  }

  bool open(bool is_object) {
    constexpr std::size_t kDepthMax = 64;
    if (keys_.size() == kDepthMax) return refuse("it is nested too deeply");
    if (!on_open(is_object)) return false;
    keys_.emplace_back();
    return true;
  }
  bool close() {
    keys_.pop_back();
    return on_close();
  }

  std::vector<std::string> keys_;
  std::string why_;
};

class WidsReader final : public Reader {
 public:
  WidsIndex index;
  std::string kind;
  std::uint64_t version = 1;
  bool has_list = false, has_datasets = false;

 private:
  bool in_entry() const { return depth() == 3 && key(0) == "shardlist"; }

  bool on_text(std::string& value) override {
    if (depth() == 1 && key(0) == "__kind__") kind = value;
    if (depth() == 1 && key(0) == "base") index.base = value;
    if (in_entry() && key(2) == "url") url_ = std::move(value);
    return in_order();
  }
  bool on_number(std::optional<std::uint64_t> value) override {
    if (depth() == 1 && key(0) == "wids_version") version = value.value_or(0);
    if (in_entry() && key(2) == "nsamples") {
      if (!value || *value > kShardSamplesMax)
        return refuse("the nsamples of shard " + place() + " are no number of samples");
      samples_ = value;
    }
    return in_order();
  }
  bool on_open(bool is_object) override {
    if (depth() == 0) return is_object || refuse("it is no JSON object");
    if (depth() == 1 && key(0) == "datasets" && !is_object) has_datasets = true;
    if (depth() == 1 && key(0) == "shardlist") {
      if (is_object || has_list) return refuse("its shardlist is no list");
      has_list = true;
    }
    if (depth() == 2 && key(0) == "shardlist") {
      if (!is_object) return refuse("shard " + place() + " is no JSON object");
      url_.reset();
      samples_.reset();
    }
    return true;
  }
  bool on_close() override {
    if (depth() != 2 || key(0) != "shardlist") return true;
    if (!url_ || url_->empty() || !samples_)
      return refuse("shard " + place() + " has no url or no nsamples");
    index.shards.push_back({*std::move(url_), *samples_});
    return true;
  }

  // A plain value where an entry should be.
  bool in_order() {
    if (depth() == 2 && key(0) == "shardlist")
      return refuse("shard " + place() + " is no JSON object");
    return true;
  }
  std::string place() const { return std::to_string(index.shards.size()) + " of its list"; }

  std::optional<std::string> url_;
  std::optional<std::uint64_t> samples_;
};

class EnergonReader final : public Reader {
 public:
  std::vector<ShardCount> shards;
  bool has_counts = false;

 private:
  bool in_counts() const { return depth() == 2 && key(0) == "shard_counts"; }

  bool on_text(std::string&) override { return no_count(); }
  bool on_number(std::optional<std::uint64_t> value) override {
    if (!in_counts()) return no_count();
    if (!value || *value > kShardSamplesMax) return refuse_count();
    shards.push_back({key(1), *value});
    return true;
  }
  bool on_open(bool is_object) override {
    if (depth() == 0) return is_object || refuse("it is no JSON object");
    if (depth() == 1 && key(0) == "shard_counts") {
      if (!is_object) return refuse("its shard_counts are no JSON object");
      has_counts = true;
    }
    return !in_counts() || refuse_count();
  }
  bool on_close() override { return true; }

  bool no_count() { return !in_counts() || refuse_count(); }
  bool refuse_count() { return refuse("the count of \"" + key(1) + "\" is no number of samples"); }
};

// --- YAML, as far as Energon writes it

std::string_view trimmed_end(std::string_view text) {
  const auto last = text.find_last_not_of(" \r");
  return last == std::string_view::npos ? std::string_view() : text.substr(0, last + 1);
}

// A name, or nothing where it is written in one of YAML's other ways.
std::optional<std::string> yaml_name(std::string_view text) {
  if (text.size() >= 2 && text.front() == '\'' && text.back() == '\'') {
    std::string name;
    text = text.substr(1, text.size() - 2);
    for (std::size_t at = 0; at < text.size(); ++at) {
      if (text[at] == '\'' && (++at == text.size() || text[at] != '\'')) return std::nullopt;
      name += text[at];
    }
    return name;
  }
  // What YAML reads as it stands, beyond all doubt.
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("_-./+=").find(c) != std::string_view::npos;
  };
  if (text.empty() || text.front() == '-' || !std::all_of(text.begin(), text.end(), plain))
    return std::nullopt;
  return std::string(text);
}

std::optional<std::uint64_t> yaml_count(std::string_view text) {
  if (text.empty() || text.size() > 10 || (text.size() > 1 && text.front() == '0'))
    return std::nullopt;
  std::uint64_t value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + static_cast<std::uint64_t>(c - '0');
  }
  if (value > kShardSamplesMax) return std::nullopt;
  return value;
}

std::optional<ShardCount> yaml_row(std::string_view line) {
  line.remove_prefix(line.find_first_not_of(' '));
  const auto colon = line.rfind(": ");
  if (colon == std::string_view::npos) return std::nullopt;
  auto name = yaml_name(line.substr(0, colon));
  const auto count = yaml_count(line.substr(colon + 2));
  if (!name || !count) return std::nullopt;
  return ShardCount{*std::move(name), *count};
}

}  // namespace

Result<WidsIndex> parse_wids_index(std::string_view json) {
  WidsReader reader;
  if (auto read = reader.read(json); !read) return std::move(read).error();
  if (reader.kind != "wids-shard-index-v1" || reader.version != 1) {
    return Error(ErrorCode::unsupported,
                 "it is no index of wids in version 1, whose \"__kind__\" is "
                 "\"wids-shard-index-v1\"");
  }
  if (reader.has_datasets) {
    return Error(ErrorCode::unsupported,
                 "it lists several datasets; give the shards of one of them");
  }
  if (reader.index.shards.empty()) return no_list("it lists no shard");
  return std::move(reader.index);
}

Result<std::vector<ShardCount>> parse_energon_json(std::string_view json) {
  EnergonReader reader;
  if (auto read = reader.read(json); !read) return std::move(read).error();
  if (!reader.has_counts) return no_list("it has no shard_counts");
  return std::move(reader.shards);
}

Result<std::vector<ShardCount>> parse_energon_yaml(std::string_view yaml) {
  std::vector<ShardCount> shards;
  bool inside = false, found = false;
  for (std::uint64_t number = 1; !yaml.empty(); ++number) {
    const auto stop = std::min(yaml.find('\n'), yaml.size());
    const auto line = trimmed_end(yaml.substr(0, stop));
    yaml.remove_prefix(std::min(stop + 1, yaml.size()));
    if (line.empty() || line.front() == '#') continue;
    if (line.front() != ' ') {
      inside = line == "shard_counts:";
      if (inside && found) return no_list("it has shard_counts twice");
      found = found || inside;
      if (!inside && line.starts_with("shard_counts"))
        return no_list("its shard_counts are no mapping of a line for each shard");
      continue;
    }
    if (!inside) continue;
    auto row = yaml_row(line);
    if (!row)
      return no_list("line " + std::to_string(number) + " is not a name and a number of samples");
    shards.push_back(*std::move(row));
  }
  if (!found) return no_list("it has no shard_counts");
  return shards;
}

}  // namespace headpond
