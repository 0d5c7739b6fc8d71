// SPDX-License-Identifier: Apache-2.0
#include "src/live/flight_dump.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <set>
#include <string_view>

#include "lockstep/json.h"
#include "src/live/event.h"
#include "src/live/words.h"

namespace lockstep::live {

namespace {

constexpr std::int64_t most_ranks = 1 << 20, most_counted_elements = INT64_MAX / 4, most_number = INT64_MAX / 2;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// A whole number from 0 on, which PyTorch writes as a string here and there.
std::optional<std::int64_t> whole_of(const Json& value) {
  std::int64_t number = 0;
  if (value.is_string()) {
    const std::string& text = value.text();
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  } else {
    const std::optional<std::int64_t> found = whole_number_of(value);
    if (!found) return std::nullopt;
    number = *found;
  }
  return number >= 0 && number <= most_number ? std::optional(number) : std::nullopt;
}

/// The last number in a file's name: "nccl_trace_rank_3" is of rank 3, and so is "trace_3.json".
std::optional<int> rank_in(const std::string& file) {
  std::string name = std::filesystem::path(file).filename().string();
  if (name.ends_with(".json")) name.resize(name.size() - 5);
  const auto last = std::find_if(name.rbegin(), name.rend(), is_digit);
  const auto before = std::find_if_not(last, name.rend(), is_digit);
  const std::string digits(before.base(), last.base());
  int rank = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), rank);
  if (digits.empty() || error != std::errc() || rank >= most_ranks) return std::nullopt;
  return rank;
}

/// "nccl:_all_gather_base" as "all_gather": the names of captures, others as they are.
std::string operation_of(std::string name) {
  if (const std::size_t colon = name.find(':'); colon != std::string::npos) name.erase(0, colon + 1);
  static const std::map<std::string, std::string, std::less<>> names = {
      {"allreduce", "all_reduce"},
      {"allreduce_coalesced", "all_reduce"},
      {"all_reduce_sparse", "all_reduce"},
      {"all_reduce_barrier", "barrier"},
      {"allgather", "all_gather"},
      {"_all_gather_base", "all_gather"},
      {"_allgather_base", "all_gather"},
      {"all_gather_into_tensor_coalesced", "all_gather"},
      {"_broadcast_oop", "broadcast"},
      {"_reduce_oop", "reduce"},
      {"_reduce_scatter_base", "reduce_scatter"},
      {"reduce_scatter_tensor_coalesced", "reduce_scatter"},
      {"alltoall", "all_to_all"},
      {"alltoall_base", "all_to_all"},
  };
  const auto found = names.find(name);
  return found == names.end() ? name : found->second;
}

std::string dtype_of(const std::string& scalar_type) {
  static const std::map<std::string, std::string, std::less<>> names = {
      {"Float", "float32"}, {"Double", "float64"}, {"BFloat16", "bfloat16"}, {"Half", "float16"}, {"Long", "int64"},
      {"Int", "int32"},     {"Short", "int16"},    {"Char", "int8"},         {"Byte", "uint8"},   {"Bool", "bool"},
  };
  const auto found = names.find(scalar_type);
  return found == names.end() ? scalar_type : found->second;
}

class DumpReader {
 public:
  explicit DumpReader(const std::shared_ptr<const Source>& source) : source_(source) {}

  FlightDump run() {
    dump_.file = source_->name;
    const Json json = parse_json(source_, mistakes_);
    if (mistakes_.empty()) read(json);
    if (!mistakes_.empty()) throw InputError(mistakes_.sorted());
    return std::move(dump_);
  }

 private:
  void mistake(const Json& where, std::string message) { mistakes_.add(where.place(), std::move(message)); }

  void read(const Json& json) {
    if (!json.is_object() || json.find("version") == nullptr || !json.find("version")->is_string())
      return mistake(json,
                     "expected a dump of PyTorch's Flight Recorder: an object with \"version\" and \"entries\"; "
                     "docs/flight-recorder.md says how to get one");
    dump_.version = json.find("version")->text();
    if (!dump_.version.starts_with("2."))
      return mistake(*json.find("version"),
                     fmt::format("the dump is of version {}; this program reads 2, which PyTorch writes from 2.4 on",
                                 dump_.version));
    rank(json);
    if (const Json* groups = json.find("pg_config"); groups != nullptr) {
      for (const Json::Member& member : groups->members()) group(member.key, member.value);
    }
    // The key is not there where nothing was recorded.
    const Json* entries = json.find("entries");
    if (entries == nullptr || entries->is_null()) return;
    if (!entries->is_array())
      return mistake(*entries, fmt::format("\"entries\": expected a list, found {}", entries->describe()));
    for (const Json& one : entries->items()) entry(one);
    order();
  }

  void rank(const Json& json) {
    const Json* said = json.find("rank");
    if (said != nullptr) {
      const std::optional<std::int64_t> number = whole_of(*said);
      if (!number || *number >= most_ranks)
        return mistake(*said, fmt::format("\"rank\": expected a rank, found {}", said->describe()));
      dump_.rank = static_cast<int>(*number);
      return;
    }
    const std::optional<int> named = rank_in(source_->name);
    if (!named)
      return mistake(json,
                     "which rank's dump is it? Expected a file name with the rank at its end, such as "
                     "trace_3.json");
    dump_.rank = *named;
  }

  void group(const std::string& name, const Json& config) {
    FlightGroupNames& group = dump_.groups[name];
    if (const Json* description = config.find("desc"); description != nullptr && description->is_string())
      group.description = description->text();
    const Json* ranks = config.find("ranks");
    if (ranks == nullptr) return;
    std::vector<std::int64_t> list;
    bool right = ranks->is_array() || ranks->is_string();
    if (ranks->is_array()) {
      for (const Json& rank : ranks->items()) list.push_back(whole_of(rank).value_or(-1));
    } else if (ranks->is_string()) {
      right = numbers_in(ranks->text(), list);
    }
    for (const std::int64_t rank : list) {
      right = right && rank >= 0 && rank < most_ranks;
      if (right) group.ranks.push_back(static_cast<int>(rank));
    }
    std::sort(group.ranks.begin(), group.ranks.end());
    if (!right || std::adjacent_find(group.ranks.begin(), group.ranks.end()) != group.ranks.end())
      mistake(*ranks,
              fmt::format("\"ranks\": expected different ranks such as \"[0, 1]\", found {}", ranks->describe()));
  }

  /// "[0, 1]".
  static bool numbers_in(std::string_view text, std::vector<std::int64_t>& list) {
    for (std::size_t at = 0; at < text.size();) {
      if (!is_digit(text[at])) {
        if (std::string_view("[], ").find(text[at]) == std::string_view::npos) return false;
        ++at;
        continue;
      }
      std::int64_t number = 0;
      const auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), number);
      if (error != std::errc()) return false;
      list.push_back(number);
      at = static_cast<std::size_t>(end - text.data());
    }
    return true;
  }

  std::optional<std::int64_t> number(const Json& entry, const char* key) {
    const Json* found = entry.find(key);
    const std::optional<std::int64_t> value = found == nullptr ? std::nullopt : whole_of(*found);
    if (!value)
      mistake(found == nullptr ? entry : *found,
              fmt::format("\"{}\" of an entry: expected a whole number up to {}, found {}", key, most_number,
                          found == nullptr ? "nothing" : found->describe()));
    return value;
  }

  std::string text(const Json& entry, const char* key) {
    const Json* found = entry.find(key);
    if (found != nullptr && found->is_string()) return found->text();
    mistake(found == nullptr ? entry : *found, fmt::format("\"{}\" of an entry: expected a text, found {}", key,
                                                           found == nullptr ? "nothing" : found->describe()));
    return "";
  }

  void entry(const Json& entry) {
    if (!entry.is_object()) return mistake(entry, fmt::format("expected an entry, found {}", entry.describe()));
    const std::optional<std::int64_t> record = number(entry, "record_id");
    const Json* single = entry.find("is_p2p");
    Recorded one;
    one.record = record.value_or(0);
    if (single != nullptr && single->is_boolean() && single->as_boolean()) {
      first_record_ = std::min(first_record_, one.record);
      return;
    }
    const std::optional<std::int64_t> sequence = number(entry, "collective_seq_id");
    const std::string name = text(entry, "profiling_name");
    const Json* group = entry.find("process_group");
    if (group == nullptr || group->items().size() != 2 || !group->items()[0].is_string() ||
        !group->items()[1].is_string())
      return mistake(group == nullptr ? entry : *group,
                     "\"process_group\" of an entry: expected its name and its description, [\"0\", \"default_pg\"]");
    one.call.group = group->items()[0].text();
    FlightGroupNames& names = dump_.groups[one.call.group];
    if (names.description.empty()) names.description = group->items()[1].text();
    const std::vector<int>& ranks = names.ranks;
    if (!ranks.empty() && !std::binary_search(ranks.begin(), ranks.end(), dump_.rank) && foreign_.insert(&names).second)
      mistake(*group,
              fmt::format("the dump of rank {} has a call of a process group that is of {}: is the dump rank {}'s?",
                          dump_.rank, rank_words(ranks), dump_.rank));
    CapturedCollective& call = one.call.call;
    call.step = -1;
    call.number = sequence.value_or(0);
    call.op = operation_of(name);
    tensors(entry, call);
    if (const Json* where = entry.find("call"); where != nullptr && where->is_string()) call.call = where->text();
    one.call.state = text(entry, "state");
    const Json* retired = entry.find("retired");
    // Others than NCCL never say "completed".
    const bool retires = !name.starts_with("nccl:") && retired != nullptr && retired->is_boolean();
    one.call.done = one.call.state == "completed" || (retires && retired->as_boolean());
    first_record_ = std::min(first_record_, one.record);
    recorded_.push_back(std::move(one));
  }

  /// What the rank puts in: all elements together, and each type once.
  void tensors(const Json& entry, CapturedCollective& call) {
    const Json* sizes = entry.find("input_sizes");
    const Json* types = entry.find("input_dtypes");
    if (sizes != nullptr) {
      for (const Json& shape : sizes->items()) {
        std::int64_t product = 1;
        for (const Json& size : shape.items()) {
          const std::optional<std::int64_t> extent = whole_of(size);
          if (!extent || (*extent > 0 && product > most_counted_elements / *extent))
            return mistake(size, fmt::format("\"input_sizes\" of an entry: expected sizes, found {}", size.describe()));
          product *= *extent;
        }
        call.elements = std::min(most_counted_elements, call.elements + product);
      }
    }
    if (types == nullptr) return;
    std::set<std::string> each;
    for (const Json& type : types->items()) {
      if (!type.is_string())
        return mistake(type, fmt::format("\"input_dtypes\" of an entry: expected names, found {}", type.describe()));
      const std::string name = dtype_of(type.text());
      if (each.insert(name).second) call.dtype += (call.dtype.empty() ? "" : "+") + name;
    }
  }

  void order() {
    std::stable_sort(recorded_.begin(), recorded_.end(),
                     [](const Recorded& a, const Recorded& b) { return a.record < b.record; });
    dump_.lost_start = first_record_ != INT64_MAX && first_record_ > 0;
    for (const Recorded& one : recorded_) {
      // Of several calls that were issued as one, the ring may have lost some.
      const FlightCall& first = recorded_.front().call;
      const bool cut = dump_.lost_start && one.call.group == first.group && one.call.call.number == first.call.number;
      if (!cut) dump_.calls.push_back(one.call);
    }
  }

  struct Recorded {
    std::int64_t record = 0;
    FlightCall call;
  };

  std::shared_ptr<const Source> source_;
  Diagnostics mistakes_;
  FlightDump dump_;
  std::vector<Recorded> recorded_;
  std::set<const FlightGroupNames*> foreign_;  // groups without the rank, with calls of it: each is told once
  std::int64_t first_record_ = INT64_MAX;
};

}  // namespace

FlightDump read_flight_dump(const std::shared_ptr<const Source>& dump) { return DumpReader(dump).run(); }

}  // namespace lockstep::live
