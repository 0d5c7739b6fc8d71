// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/candidate_values.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "src/base/at.h"
#include "src/diagnosis/fold_names.h"
#include "src/schedule/selector_list.h"

namespace lockstep::diagnosis {

namespace {

constexpr std::size_t most_selectors = 6;

/// All subsets of `words` that are not empty, the small ones first, each in the order of `words`.
std::vector<std::vector<std::string>> subsets(const std::vector<std::string>& words) {
  std::vector<std::vector<std::string>> list;
  for (std::size_t mask = 1; mask < std::size_t{1} << words.size(); ++mask) {
    std::vector<std::string> subset;
    for (std::size_t at = 0; at < words.size(); ++at) {
      if ((mask >> at & 1) != 0) subset.push_back(words[at]);
    }
    list.push_back(std::move(subset));
  }
  std::stable_sort(list.begin(), list.end(), [](const auto& a, const auto& b) { return a.size() < b.size(); });
  return list;
}

void find_mixed_axes(const Model& model, CandidateValues& values) {
  for (const std::string& axis : values.dense_axes) {
    bool sharded = false, whole = false;
    for (const Parameter& parameter : model.parameters()) {
      const bool here = std::any_of(parameter.shard.begin(), parameter.shard.end(),
                                    [&](const Shard& shard) { return name_of(shard.axis) == axis; });
      sharded = sharded || (here && !parameter.frozen);
      whole = whole || (!here && !parameter.frozen);
    }
    if (sharded && whole) values.mixed_axes.push_back(axis);
  }
}

void find_axes(const Mesh& mesh, CandidateValues& values) {
  const bool split = mesh.size(Axis::dp_shard) > 1 && mesh.size(Axis::dp_replicate) > 1;
  for (const Axis axis : {Axis::tp, Axis::cp, Axis::sp, Axis::dp, Axis::pp}) {
    if (mesh.size(axis) > 1) values.dense_axes.emplace_back(name_of(axis));
  }
  if (split) values.dense_axes.insert(values.dense_axes.end(), {"dp_shard", "dp_replicate"});
  if (mesh.size(Axis::ep) == 1 && mesh.size(Axis::etp) == mesh.size(Axis::tp)) return;
  for (const Axis axis : {Axis::etp, Axis::ep, Axis::edp}) {
    if (mesh.size(axis) > 1) values.expert_axes.emplace_back(name_of(axis));
  }
}

/// Picks that steps make, besides the ends of a pipeline.
void collect_picks(const std::vector<Step>& steps, std::vector<Over>& picks) {
  for (const Step& step : steps) {
    if (step.over && std::any_of(step.over->picks.begin(), step.over->picks.end(),
                                 [](const Over::Pick& pick) { return pick.coordinates.has_value(); }))
      picks.push_back(*step.over);
    collect_picks(step.steps, picks);
  }
}

using Partition = std::vector<std::vector<int>>;

bool is_of_experts(const Parameter& parameter) {
  const auto is_expert = [](Axis axis) { return is_expert_axis(axis); };
  return std::any_of(parameter.shard.begin(), parameter.shard.end(),
                     [](const Shard& shard) { return is_expert_axis(shard.axis); }) ||
         std::any_of(parameter.partial.begin(), parameter.partial.end(), is_expert) ||
         std::any_of(parameter.dispatch.begin(), parameter.dispatch.end(), is_expert);
}

bool chooses_experts(const Model& model, const Selectors& selection) {
  const schedule::SelectorList selectors(selection.items());
  bool any = false;
  for (const Parameter& parameter : model.parameters()) {
    if (parameter.frozen || !selectors.chooses(parameter, parameter.numel())) continue;
    if (!is_of_experts(parameter)) return false;
    any = true;
  }
  return any;
}

/// Which of the groups each step has, and how it says so.
void collect_written(const Schedule& schedule, const std::vector<Step>& steps,
                     const std::vector<std::vector<std::vector<int>>>& partitions, CandidateValues& values) {
  for (const Step& step : steps) {
    collect_written(schedule, step.steps, partitions, values);
    if (step.name.empty()) continue;
    std::size_t group = values.groups.size();
    if (step.over) {
      const auto found = std::find(partitions.begin(), partitions.end(), schedule.mesh.groups(*step.over).members);
      group = static_cast<std::size_t>(found - partitions.begin());
    }
    values.written.push_back({step.name, step.op, chooses_experts(schedule.model, step.params), step.over, group});
  }
}

/// The first and the last stage, which hold copies of one embedding; alone or together with another axis.
void add_ends(const Mesh& mesh, std::set<Partition>& known, CandidateValues& values) {
  const Over::Pick ends{
      Axis::pp, std::vector<int>{0, mesh.size(Axis::pp) - 1}, {{Coordinate::Kind::first}, {Coordinate::Kind::last}}};
  const auto add = [&](const Over& over) {
    known.insert(mesh.groups(over).members);
    values.groups.push_back(over);
  };
  add({{ends}});
  for (const std::string& axis : values.dense_axes) {
    if (axis != "pp") add({{ends, {*axis_named(axis), std::nullopt}}});
  }
}

void find_groups(const Schedule& schedule, CandidateValues& values) {
  const Mesh& mesh = schedule.mesh;
  std::set<Partition> known;
  const auto add = [&](const std::vector<std::string>& axes) {
    const auto has = [&](const char* axis) { return std::find(axes.begin(), axes.end(), axis) != axes.end(); };
    if (has("dp") && (has("dp_shard") || has("dp_replicate"))) return;  // counts an axis twice
    if (has("dp_shard") && has("dp_replicate")) return;                 // is dp
    Over over;
    for (const std::string& axis : axes) over.picks.push_back({*axis_named(axis), std::nullopt});
    // Often the groups of expert axes are those of dense ones.
    if (known.insert(mesh.groups(over).members).second) values.groups.push_back(over);
  };
  for (const std::vector<std::string>& axes : subsets(values.dense_axes)) add(axes);
  for (const std::vector<std::string>& axes : subsets(values.expert_axes)) add(axes);
  // For parameters of experts the same groups in axes of their mesh.
  std::map<Partition, Over> of_experts;
  for (const std::vector<std::string>& axes : subsets(values.expert_axes)) {
    Over over;
    for (const std::string& axis : axes) over.picks.push_back({*axis_named(axis), std::nullopt});
    of_experts.emplace(mesh.groups(over).members, over);
  }
  if (mesh.size(Axis::pp) > 1) add_ends(mesh, known, values);
  std::vector<Over> picks;
  collect_picks(schedule.steps, picks);
  // Copies of one parameter may live on stages in the middle.
  for (int logical = 0; logical < static_cast<int>(schedule.model.logicals().size()); ++logical) {
    if (schedule.model.original(logical) != logical) continue;
    std::set<int> stages;
    for (const int parameter : schedule.model.sites(logical)) {
      const std::optional<int>& stage = schedule.model.parameters()[at(parameter)].stage;
      if (stage) stages.insert(*stage);
    }
    if (stages.size() > 1) picks.push_back({{{Axis::pp, std::vector<int>(stages.begin(), stages.end())}}});
  }
  for (Over& over : picks) {
    for (Over::Pick& pick : over.picks) pick.written.clear();
    if (known.insert(mesh.groups(over).members).second) values.groups.push_back(std::move(over));
  }
  std::vector<Partition> partitions;
  for (const Over& over : values.groups) {
    partitions.push_back(mesh.groups(over).members);
    const auto found = of_experts.find(partitions.back());
    values.expert_groups.push_back(found == of_experts.end() ? over : found->second);
  }
  collect_written(schedule, schedule.steps, partitions, values);
}

void find_sizes(const Schedule& schedule, CandidateValues& values) {
  std::vector<std::string> names = values.dense_axes;
  for (const std::string& axis : values.expert_axes) {
    if (axis != "etp" || schedule.mesh.size(Axis::etp) != schedule.mesh.size(Axis::tp)) names.push_back(axis);
  }
  const std::vector<int>& counts = schedule.batch.micro_batch_counts;
  if (std::any_of(counts.begin(), counts.end(), [](int count) { return count > 1; })) names.push_back("micro_batches");
  for (const std::string& name : names) values.axis_sizes.push_back(Product::parse(name));
  // What an average over two data axes divides by.
  std::vector<std::string> data;
  for (const char* axis : {"dp", "cp", "sp"}) {
    if (std::find(names.begin(), names.end(), axis) != names.end()) data.emplace_back(axis);
  }
  for (const std::vector<std::string>& subset : subsets(data)) {
    if (subset.size() > 1) values.axis_sizes.push_back(Product::parse(fmt::format("{}", fmt::join(subset, " * "))));
  }
  constexpr std::size_t most_factors = 3;
  for (const std::vector<std::string>& subset : subsets(names)) {
    const auto has = [&](const char* name) { return std::find(subset.begin(), subset.end(), name) != subset.end(); };
    if (subset.size() > most_factors || (has("dp") && (has("dp_shard") || has("dp_replicate")))) continue;
    values.sizes.push_back(Product::parse(fmt::format("{}", fmt::join(subset, " * "))));
  }
  for (const std::string& top : names) {
    for (const std::string& bottom : names) {
      if (top != bottom) values.sizes.push_back(Product::parse(fmt::format("{} / {}", top, bottom)));
    }
  }
}

void find_tokens(const Batch& batch, CandidateValues& values) {
  for (const auto& [use, loss] : batch.loss_of_use) {
    if (loss.kind == Loss::Kind::weight) values.loss_weights.emplace_back(loss.weight);
  }
  std::vector<std::string> words = {"tokens"};
  for (const auto& [use, tokens] : batch.tokens_of_use) {
    if (use != "main") words.push_back("tokens." + use);
  }
  std::vector<std::string> axes;
  for (const std::string& axis : values.dense_axes) {
    if (axis == "cp" || axis == "sp" || axis == "dp") axes.push_back(axis);
  }
  std::vector<std::vector<std::string>> lists = subsets(axes);
  lists.insert(lists.begin(), std::vector<std::string>());
  for (const std::string& word : words) {
    for (const std::vector<std::string>& list : lists) {
      std::string sum = word;
      for (const std::string& axis : list) sum += ", " + axis;
      values.token_counts.push_back(Product::parse(list.empty() ? word : fmt::format("sum({})", sum)));
      values.token_totals.push_back(Product::parse(fmt::format("sum({}, micro_batch)", sum)));
    }
  }
}

std::set<std::string> chosen_by(const Model& model, const std::string& item) {
  std::set<std::string> names;
  const schedule::SelectorItem read = schedule::SelectorItem::read(item);
  for (const Parameter& parameter : model.parameters()) {
    if (!parameter.frozen && read.fits(parameter, parameter.numel(), parameter.chunk)) names.insert(parameter.name);
  }
  return names;
}

std::set<std::string> all_names(const Model& model) {
  std::set<std::string> names;
  for (const Parameter& parameter : model.parameters()) {
    if (!parameter.frozen) names.insert(parameter.name);
  }
  return names;
}

/// What one word can choose: tags, ties, folded names that differ in numbers only.
std::set<std::string> words_of(const Model& model) {
  std::set<std::string> words;
  for (const Parameter& parameter : model.parameters()) {
    for (const std::string& tag : parameter.tags) words.insert("tag:" + tag);
    if (!parameter.tied.empty()) words.insert("tied:" + parameter.tied);
    for (const Shard& shard : parameter.shard) words.insert(fmt::format("shard:{}", name_of(shard.axis)));
  }
  return words;
}

void collect_steps(const std::vector<Step>& steps, const std::set<std::string>& wrong, CandidateValues& values) {
  const auto add = [](std::vector<std::string>& list, const std::string& word) {
    if (!word.empty() && std::find(list.begin(), list.end(), word) == list.end()) list.push_back(word);
  };
  for (const Step& step : steps) {
    if (step.op != Op::each && step.op != Op::wait) add(values.buffers, step.buffer);
    add(values.buffers, step.from);
    if (step.geometry->kind == Geometry::Kind::counts &&
        std::find(values.geometries.begin(), values.geometries.end(), *step.geometry) == values.geometries.end())
      values.geometries.push_back(*step.geometry);
    const bool is_long = step.params.items().size() > most_single_items;
    std::size_t taken = 0;
    for (std::string item : step.params.items()) {
      if (item.starts_with('!')) item.erase(0, 1);
      if (is_long && !wrong.empty() && schedule::SelectorItem::read(item).is_plain_name() && !wrong.contains(item))
        continue;
      if (taken++ == most_single_items) break;
      if (!Selectors::compares_numel(item) && item != "*") add(values.selectors, item);
    }
    collect_steps(step.steps, wrong, values);
  }
}

/// Lists of selectors, one for each set of parameters that they choose.
class Selections {
 public:
  Selections(const Model& model, CandidateValues& values) : model_(model), values_(values) {}

  void add(const std::vector<std::string>& items) {
    std::set<std::string> chosen;
    const schedule::SelectorList selectors(items);
    for (const Parameter& parameter : model_.parameters()) {
      if (!parameter.frozen && selectors.chooses(parameter, parameter.numel())) chosen.insert(parameter.name);
    }
    if (!known_.insert(chosen).second) return;
    values_.selections.emplace_back(items);
    values_.selects_experts.push_back(chooses_experts(model_, values_.selections.back()));
  }

 private:
  const Model& model_;
  CandidateValues& values_;
  std::set<std::set<std::string>> known_;
};

}  // namespace

void keep_sizes(CandidateValues& values, const Environment& environment, const std::set<Rational>& factors) {
  std::erase_if(values.sizes, [&](const Product& size) {
    try {
      const auto value = size.expression().constant(environment);
      if (!value || !std::holds_alternative<Rational>(*value)) return false;
      const Rational& number = std::get<Rational>(*value);
      return !factors.contains(number) && !factors.contains(Rational(1) / number);
    } catch (const ExpressionError&) {
      return true;
    }
  });
}

std::vector<std::string> selectors_for(const Model& model, const std::set<std::string>& names) {
  const std::set<std::string> all = all_names(model);
  if (names == all || names.empty()) return {"*"};
  std::string all_but;
  const std::set<std::string> words = words_of(model);
  for (auto word = words.rbegin(); word != words.rend(); ++word) {  // ties and tags before shards
    const std::set<std::string> chosen = chosen_by(model, *word);
    if (chosen == names) return {*word};
    std::set<std::string> others;
    std::set_difference(all.begin(), all.end(), chosen.begin(), chosen.end(), std::inserter(others, others.end()));
    if (others == names && all_but.empty()) all_but = "!" + *word;
  }
  const std::string folded = folded_name(*names.begin());
  if (names.size() > 1 && chosen_by(model, folded) == names) return {folded};
  if (!all_but.empty()) return {all_but};
  std::vector<std::string> items;
  std::set<std::string> left = names;
  while (!left.empty() && items.size() <= most_selectors) {
    std::string item = folded_name(*left.begin());
    std::set<std::string> chosen = chosen_by(model, item);
    // A pattern that stands for one name is harder to read than that.
    if (chosen.size() < 2 || !std::includes(names.begin(), names.end(), chosen.begin(), chosen.end())) {
      item = *left.begin();
      chosen = {item};
    }
    for (const std::string& name : chosen) left.erase(name);
    items.push_back(std::move(item));
  }
  return left.empty() && items.size() <= most_selectors ? items : std::vector<std::string>();
}

CandidateValues candidate_values(const Schedule& schedule, const WrongNames& names) {
  const std::set<std::string>& wrong = names.all;
  CandidateValues values;
  find_axes(schedule.mesh, values);
  find_mixed_axes(schedule.model, values);
  find_groups(schedule, values);
  find_sizes(schedule, values);
  find_tokens(schedule.batch, values);
  values.buffers.push_back(schedule.result);
  collect_steps(schedule.steps, wrong, values);
  const Model& model = schedule.model;
  const std::set<std::string> all = all_names(model);
  for (const std::string& word : words_of(model)) {
    const bool says_something = chosen_by(model, word) != all;
    const bool known = std::find(values.selectors.begin(), values.selectors.end(), word) != values.selectors.end();
    if (says_something && !known && !word.starts_with("shard:")) values.selectors.push_back(word);
  }
  Selections selections(model, values);
  const std::vector<std::string> exact = selectors_for(model, wrong);
  if (!wrong.empty() && !exact.empty()) selections.add(exact);
  // What is counted wrong or clipped by another norm is not what a sum is missing of.
  if (!names.in_value.empty() && names.in_value != wrong) {
    if (const std::vector<std::string> items = selectors_for(model, names.in_value); !items.empty())
      selections.add(items);
  }
  if (!names.counted.empty() && names.counted != all) values.counted_wrong = selectors_for(model, names.counted);
  if (exact.size() == 1 && exact.front() != "*" && !exact.front().starts_with('!') &&
      std::find(values.selectors.begin(), values.selectors.end(), exact.front()) == values.selectors.end())
    values.selectors.insert(values.selectors.begin(), exact.front());
  for (const std::string& item : values.selectors) {
    const std::set<std::string> chosen = chosen_by(model, item);
    const bool of_interest = wrong.empty() || std::any_of(chosen.begin(), chosen.end(), [&](const std::string& name) {
                               return wrong.contains(name);
                             });
    if (of_interest) selections.add({item});
  }
  if (wrong.empty() || exact.empty()) selections.add({"*"});
  std::set<std::string> uses;
  for (const Parameter& parameter : model.parameters()) uses.insert(parameter.uses.begin(), parameter.uses.end());
  values.uses.assign(uses.begin(), uses.end());
  return values;
}

}  // namespace lockstep::diagnosis
