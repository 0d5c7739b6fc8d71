// SPDX-License-Identifier: Apache-2.0
#include "src/live/recorded_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "src/base/at.h"

namespace lockstep::live {

namespace {

std::string title(const Recording& recording) {
  const Header& header = recording.run->header;
  std::string text = "Recorded from a training run";
  if (!header.adapter.empty()) text += ": " + header.adapter;
  for (const auto& [name, version] : header.versions) {
    if (name != "lockstep") text += fmt::format(", {} {}", name, version);
  }
  // The package's words are not a scenario's: there a text has no control characters.
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < ' ' || c == 0x7f; }, ' ');
  return text;
}

Json layout(const Recording& recording) {
  Json object = Json::object();
  std::vector<std::string> order;
  for (auto axis = recording.axes.rbegin(); axis != recording.axes.rend(); ++axis) {
    const std::string name = axis->first.starts_with("dp") ? "dp" : axis->first;
    if (order.empty() || order.back() != name) order.push_back(name);
  }
  for (const auto& [name, size] : recording.axes) object.set(name, json_number(size));
  if (recording.experts.mesh) {
    object.set("ep", json_number(recording.experts.size()));
    order.clear();
    for (const Axis axis : recording.experts.mesh->layout().order) order.emplace_back(name_of(axis));
  }
  int chunks = 1;
  for (const RecordedParameter& one : recording.model) chunks = std::max(chunks, one.chunk + 1);
  if (chunks > 1) object.set("virtual_stages", json_number(chunks));
  if (order.size() > 1) object.set("order", Json::string(fmt::format("{}", fmt::join(order, "-"))));
  return object;
}

Json parameters(const Recording& recording) {
  std::vector<Json> list;
  for (const RecordedParameter& own : recording.model) {
    const DeclaredParameter& declared = recording.run->parameters[at(own.parameter)].declared;
    const Placement& placement = recording.placements[at(own.parameter)];
    Json one = Json::object();
    one.set("name", Json::string(own.name));
    std::vector<std::int64_t> shape = placement.shape;
    const bool is_expert = recording.experts.coordinate[at(own.parameter)] >= 0;
    if (is_expert) shape.insert(shape.begin(), recording.experts.size());
    one.set("shape", list_of(shape, json_number));
    if (declared.dtype == "float64" || declared.dtype == "bfloat16" || declared.dtype == "float16")
      one.set("dtype", Json::string(declared.dtype));
    if (!placement.stages.empty()) one.set("stage", own.stage ? json_number(*own.stage) : Json::string("all"));
    if (own.chunk > 0) one.set("chunk", json_number(own.chunk));
    if (!own.tied.empty()) one.set("tied", Json::string(own.tied));
    Json shards = Json::object();
    for (const auto& [axis, dim] : placement.shard) {
      Json cut = json_number(dim);
      if (placement.shape[at(dim)] % recording.run->header.sizes[at(axis)] != 0) {
        cut = Json::object();
        cut.set("dim", json_number(dim));
        cut.set("uneven", Json::boolean(true));
      }
      shards.set(recording.names[at(axis)], cut);
    }
    if (is_expert) shards.set(std::string(name_of(Axis::ep)), json_number(0));
    if (is_expert || !placement.shard.empty()) one.set("shard", shards);
    if (is_expert)
      one.set("dispatch",
              list_of(std::vector<Axis>{Axis::ep}, [](Axis axis) { return Json::string(std::string(name_of(axis))); }));
    if (!placement.partial.empty()) one.set("partial", axis_list(recording, placement.partial));
    if (declared.frozen || placement.untouched) one.set("frozen", Json::boolean(true));
    if (placement.micro_batches && !is_expert) one.set("micro_batches", list_of(*placement.micro_batches, json_number));
    list.push_back(one);
  }
  return Json::array(std::move(list));
}

/// A glob that fits this text alone.
std::string glob(const std::string& text) {
  std::string pattern;
  for (const char c : text)
    pattern += c == '*' || c == '?' || c == '[' ? std::string("[") + c + "]" : std::string(1, c);
  return pattern;
}

/// A selector that fits this name alone.
std::string selector(const std::string& name) {
  std::string pattern = glob(name);
  if (pattern.starts_with('[')) return pattern;
  // What selectors would take for a word of theirs.
  if (name.starts_with('!')) return "?" + pattern.substr(1);
  const bool is_word = name.find_first_of(":<>=") != std::string::npos || name.starts_with(' ');
  return is_word ? fmt::format("[{}]{}", name.front(), pattern.substr(1)) : pattern;
}

int size_of(const Recording& recording, std::string_view name) {
  int size = 1;
  for (const auto& [axis, own] : recording.axes) {
    if (axis == name || (name == "dp" && axis.starts_with("dp"))) size *= own;
  }
  return size;
}

/// The coordinates on dp, cp and sp.
std::tuple<int, int, int> data_place(const Recording& recording, int rank) {
  const auto along = [&](std::string_view name) {
    int place = 0;
    for (std::size_t axis = 0; axis < recording.names.size(); ++axis) {
      const std::string& own = recording.names[axis];
      if (own != name && !(name == "dp" && own.starts_with("dp"))) continue;
      place = place * recording.run->header.sizes[axis] + recording.run->coordinates(rank, std::uint32_t{1} << axis);
    }
    return place;
  };
  return {along("dp"), along("cp"), along("sp")};
}

/// A list [micro-batch][dp][cp][sp], or "even" where what a rank's loss is does not depend on them, or nobody told.
Json tokens(const Recording& recording) {
  const bool needed = recording.loss == CapturedLoss::token_mean || recording.loss == CapturedLoss::token_sum;
  std::map<std::tuple<int, int, int, int>, std::int64_t> known;
  int passes = 0;
  std::set<std::int64_t> different;
  for (std::size_t step = 0; step < recording.steps.size(); ++step) {
    for (const RankRecord& rank : recording.run->ranks) {
      const auto found = rank.steps.find(recording.steps[step]);
      if (found == rank.steps.end()) continue;
      const auto [dp, cp, sp] = data_place(recording, rank.header.rank);
      for (std::size_t i = 0; i < found->second.tokens.size(); ++i) {
        const auto& count = found->second.tokens[i];
        if (!count) continue;
        known[{passes + static_cast<int>(i), dp, cp, sp}] = *count;
        different.insert(*count);
      }
    }
    passes += recording.micro_batches[step];
  }
  const int dp = size_of(recording, "dp"), cp = size_of(recording, "cp"), sp = size_of(recording, "sp");
  const std::size_t all = static_cast<std::size_t>(passes) * at(dp) * at(cp) * at(sp);
  if (known.size() != all || (!needed && (different.size() < 2 || different.contains(0)))) return Json::string("even");
  const auto list = [](int count, const auto& make) {
    std::vector<int> numbers(at(count));
    std::iota(numbers.begin(), numbers.end(), 0);
    return list_of(numbers, make);
  };
  return list(passes, [&](int m) {
    return list(dp, [&](int d) {
      return list(cp, [&](int c) { return list(sp, [&](int s) { return json_number(known.at({m, d, c, s})); }); });
    });
  });
}

Json batch(const Recording& recording) {
  Json object = Json::object();
  const std::vector<int>& counts = recording.micro_batches;
  if (std::all_of(counts.begin(), counts.end(), [&](int count) { return count == counts.front(); })) {
    object.set("micro_batches", json_number(counts.front()));
  } else {
    object.set("micro_batches", list_of(counts, json_number));
  }
  if (counts.size() > 1) object.set("steps", json_number(static_cast<std::int64_t>(counts.size())));
  object.set("tokens", tokens(recording));
  const bool by_tokens = recording.loss == CapturedLoss::token_mean || recording.loss == CapturedLoss::token_sum;
  object.set("loss", Json::string(by_tokens                             ? "token_mean"
                                  : recording.loss == CapturedLoss::sum ? "sum"
                                                                        : "local_mean"));
  return object;
}

}  // namespace

Json json_number(std::int64_t value) { return Json::number(std::to_string(value)); }

Json axis_list(const Recording& recording, const std::vector<int>& axes) {
  return list_of(axes, [&](int axis) { return Json::string(recording.names[at(axis)]); });
}

void find_model(Recording& recording) {
  const CapturedRun& run = *recording.run;
  std::set<std::string> names;
  for (const RunParameter& parameter : run.parameters) names.insert(parameter.declared.name);
  recording.in_model.assign(run.parameters.size(), -1);
  const int stages = size_of(recording, name_of(Axis::pp));
  const auto axis = std::find(recording.names.begin(), recording.names.end(), name_of(Axis::pp));
  const std::uint32_t bit = stages > 1 ? std::uint32_t{1} << (axis - recording.names.begin()) : 0;
  std::set<std::pair<int, int>> done;  // parameters on their stages
  for (const RankRecord& rank : run.ranks) {
    const int stage = bit != 0 ? run.coordinates(rank.header.rank, bit) : 0;
    for (const int parameter : rank.run_parameters) {
      if (!recording.experts.leads(parameter)) continue;
      const std::vector<StageName>& held = recording.placements[at(parameter)].stages;
      const bool everywhere =
          static_cast<int>(held.size()) == stages && std::all_of(held.begin(), held.end(), [&](const StageName& one) {
            return one.name == held.front().name && one.chunk == held.front().chunk;
          });
      if (!done.emplace(parameter, everywhere ? 0 : stage).second) continue;
      int& first = recording.in_model[at(parameter)];
      RecordedParameter one;
      one.parameter = parameter;
      const std::vector<int>& together = recording.experts.together[at(parameter)];
      one.name = together.empty() ? run.parameters[at(parameter)].declared.name : name_of_experts(run, together);
      if (!held.empty()) {
        const auto own = std::find_if(held.begin(), held.end(), [&](const StageName& at) { return at.stage == stage; });
        one.chunk = own->chunk;
        if (!everywhere) one.stage = stage;
        if (!everywhere && held.size() > 1) one.tied = one.name;
        if (!everywhere && first >= 0)
          one.name = names.insert(own->name).second ? own->name : fmt::format("{} (stage {})", one.name, stage);
      }
      if (first < 0) first = static_cast<int>(recording.model.size());
      recording.model.push_back(std::move(one));
    }
  }
  for (std::size_t i = 0; i < recording.in_model.size(); ++i)
    recording.in_model[i] = recording.in_model[at(recording.experts.lead[i])];
}

std::string selector_of(const Recording& recording, int parameter) {
  const RecordedParameter& own = recording.model[at(recording.in_model[at(parameter)])];
  return own.tied.empty() ? selector(own.name) : "tied:" + glob(own.tied);
}

bool has_tokens(const Recording& recording) { return tokens(recording).is_array(); }

Json described(const Recording& recording) {
  Json document = Json::object();
  document.set("lockstep", json_number(1));
  document.set("name", Json::string("recorded"));
  document.set("title", Json::string(title(recording)));
  document.set("layout", layout(recording));
  Json model = Json::object();
  model.set("parameters", parameters(recording));
  document.set("model", model);
  document.set("batch", batch(recording));
  return document;
}

}  // namespace lockstep::live
