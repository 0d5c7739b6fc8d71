// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "src/diagnosis/candidates.h"
#include "src/diagnosis/step_list.h"
#include "src/scenario/step_keys.h"
#include "src/schedule/selector_list.h"

namespace lockstep::diagnosis {

namespace {

/// Of what a norm counts, by selectors: what is to be counted by every rank, as it may have a shard of it, and what
/// each rank has whole, which one of them counts.
struct Halves {
  std::vector<std::string> sharded, whole;
};

/// Of a list any item that matches chooses, less what those with "!" leave out: each goes to the half of what it
/// chooses. Nothing where one chooses of both.
std::optional<Halves> divided(const std::vector<std::string>& items, const std::string& shard,
                              const std::vector<Parameter>& parameters) {
  Halves halves;
  for (const std::string& item : items) {
    bool sharded = false, whole = false;
    for (const Parameter& parameter : parameters) {
      if (parameter.frozen || !Selectors::fits(item, parameter, parameter.numel())) continue;
      (Selectors::fits(shard, parameter, parameter.numel()) ? sharded : whole) = true;
    }
    if (sharded && whole) return std::nullopt;
    if (sharded) halves.sharded.push_back(item);
    if (whole) halves.whole.push_back(item);
  }
  if (halves.sharded.empty() || halves.whole.empty()) return std::nullopt;
  return halves;
}

std::optional<Halves> halves_of(const Selectors& selection, const std::string& shard,
                                const std::vector<Parameter>& parameters) {
  std::vector<std::string> chosen, left_out;
  for (const std::string& item : selection.items()) {
    if (item != "*") (Selectors::excludes(item) ? left_out : chosen).push_back(item);
  }
  const bool all = chosen.empty();
  std::optional<Halves> halves = all ? Halves{{shard}, {"!" + shard}} : divided(chosen, shard, parameters);
  if (!halves) return std::nullopt;
  for (std::vector<std::string>* half : {&halves->sharded, &halves->whole}) {
    half->insert(all ? half->begin() : half->end(), left_out.begin(), left_out.end());
  }
  return halves;
}

/// The same of what `wrong` chooses and of the rest: nothing where selectors cannot say it, or where one half is empty.
std::optional<Halves> halves_by(const Selectors& selection, const std::vector<std::string>& wrong,
                                const std::vector<Parameter>& parameters) {
  std::vector<std::string> chosen, left_out;
  for (const std::string& item : selection.items()) {
    if (item != "*") (Selectors::excludes(item) ? left_out : chosen).push_back(item);
  }
  Halves halves = {chosen, wrong};
  for (const std::string& item : wrong) {
    if (!Selectors::excludes(item)) {
      halves.sharded.push_back("!" + item);
    } else if (chosen.empty()) {
      halves.sharded.push_back(item.substr(1));
    }
  }
  for (std::vector<std::string>* half : {&halves.sharded, &halves.whole})
    half->insert(half->end(), left_out.begin(), left_out.end());
  const schedule::SelectorList all(selection.items()), sharded(halves.sharded), whole(halves.whole);
  std::size_t in_sharded = 0, in_whole = 0;
  for (const Parameter& parameter : parameters) {
    if (parameter.frozen) continue;
    const auto is_in = [&](const schedule::SelectorList& list) { return list.chooses(parameter, parameter.numel()); };
    if (is_in(sharded) && is_in(whole)) return std::nullopt;
    if (is_in(all) != (is_in(sharded) || is_in(whole))) return std::nullopt;
    in_sharded += is_in(sharded) ? 1 : 0;
    in_whole += is_in(whole) ? 1 : 0;
  }
  if (in_sharded == 0 || in_whole == 0) return std::nullopt;
  return halves;
}

/// Each choice of axes, along which one rank may count for all, among those that a norm goes over.
std::vector<std::vector<std::string>> axes_counted_once(const Step& norm, const CandidateValues& values) {
  std::vector<std::string> axes;
  for (const Over::Pick& pick : norm.over ? norm.over->picks : std::vector<Over::Pick>()) {
    const std::string axis(name_of(pick.axis));
    const auto is_in = [&](const std::vector<std::string>& list) {
      return std::find(list.begin(), list.end(), axis) != list.end();
    };
    if (!pick.coordinates && (is_in(values.dense_axes) || is_in(values.expert_axes))) axes.push_back(axis);
  }
  std::vector<std::vector<std::string>> choices;
  for (std::size_t mask = 1; mask < std::size_t{1} << axes.size(); ++mask) {
    std::vector<std::string>& choice = choices.emplace_back();
    for (std::size_t at = 0; at < axes.size(); ++at) {
      if ((mask >> at & 1U) != 0) choice.push_back(axes[at]);
    }
  }
  return choices;
}

Step with_params(Step step, std::vector<std::string> items) {
  scenario::set_key(step, "params", scenario::with({}, "params", &Step::params, Selectors(std::move(items))));
  return step;
}

/// Of one half every rank's part, of the other that of one rank along each of `axes`.
Candidate split(const Step& norm, const std::string& name, const Halves& halves, const std::vector<std::string>& axes) {
  Step whole = with_params(norm, halves.whole);
  whole.name = name;
  std::string counts = norm.count ? norm.count->to_string() : "";
  if (counts.find(" or ") != std::string::npos) counts = "(" + counts + ")";
  for (const std::string& axis : axes) counts += fmt::format("{}rank.{} == 0", counts.empty() ? "" : " and ", axis);
  scenario::set_key(whole, "count",
                    scenario::with({}, "count", &Step::count, std::optional<Expression>(Expression::parse(counts))));
  Candidate candidate = {Candidate::Kind::parameters, norm.name, Edit::set(norm.name, with_params({}, halves.sharded))};
  candidate.together = {{Candidate::Kind::insert, whole.name, Edit::insert(std::move(whole), norm.name, true)}};
  return candidate;
}

/// Of a norm that asks no other rank along an axis: what is sharded there is counted over it.
std::optional<Candidate> split_over(const Step& norm, const Halves& halves, const std::string& axis) {
  const Over::Pick pick = {*axis_named(axis), std::nullopt};
  Over over = norm.over.value_or(Over());
  if (std::ranges::count(over.picks, pick.axis, &Over::Pick::axis) > 0) return std::nullopt;
  over.picks.insert(over.picks.begin(), pick);
  Step sharded = with_params(norm, halves.sharded);
  sharded.name = norm.name + "_sharded";
  scenario::set_key(sharded, "over", scenario::with({}, "over", &Step::over, std::optional(std::move(over))));
  Candidate candidate = {Candidate::Kind::parameters, norm.name, Edit::set(norm.name, with_params({}, halves.whole))};
  candidate.together = {{Candidate::Kind::insert, sharded.name, Edit::insert(std::move(sharded), norm.name, true)}};
  return candidate;
}

}  // namespace

std::vector<Candidate> norm_splits(const std::vector<Step>& steps, const CandidateValues& values,
                                   const std::vector<Parameter>& parameters) {
  const std::vector<ListedStep> list = listed_steps(steps);
  std::vector<Candidate> candidates;
  for (const ListedStep& norm : list) {
    const std::string name = norm.name() + (norm.name().ends_with("_replicated") ? "_once" : "_replicated");
    if (norm.op() != Op::norm || norm.name().empty() || find_listed(list, name) != nullptr) continue;
    for (const std::string& axis : values.mixed_axes) {
      const auto halves = halves_of(norm.step->params, "shard:" + axis, parameters);
      if (!halves) continue;
      candidates.push_back(split(*norm.step, name, *halves, {axis}));
      if (find_listed(list, norm.name() + "_sharded") != nullptr) continue;
      if (auto over = split_over(*norm.step, *halves, axis)) candidates.push_back(std::move(*over));
    }
    if (values.counted_wrong.empty()) continue;
    const auto halves = halves_by(norm.step->params, values.counted_wrong, parameters);
    if (!halves) continue;
    for (const std::vector<std::string>& axes : axes_counted_once(*norm.step, values))
      candidates.push_back(split(*norm.step, name, *halves, axes));
  }
  return candidates;
}

}  // namespace lockstep::diagnosis
