// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "src/diagnosis/candidates.h"
#include "src/diagnosis/step_list.h"
#include "src/scenario/step_keys.h"

namespace lockstep::diagnosis {

namespace {

struct Halves {
  std::vector<std::string> sharded, whole;  ///< selectors of either
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

Step with_params(Step step, std::vector<std::string> items) {
  scenario::set_key(step, "params", scenario::with({}, "params", &Step::params, Selectors(std::move(items))));
  return step;
}

}  // namespace

std::vector<Candidate> norm_splits(const std::vector<Step>& steps, const CandidateValues& values,
                                   const std::vector<Parameter>& parameters) {
  const std::vector<ListedStep> list = listed_steps(steps);
  std::vector<Candidate> candidates;
  for (const ListedStep& norm : list) {
    if (norm.op() != Op::norm || norm.name().empty()) continue;
    for (const std::string& axis : values.mixed_axes) {
      std::optional<Halves> halves = halves_of(norm.step->params, "shard:" + axis, parameters);
      const std::string name = norm.name() + "_replicated";
      if (!halves || find_listed(list, name) != nullptr) continue;
      const std::string first = fmt::format("rank.{} == 0", axis);
      const std::optional<Expression>& count = norm.step->count;
      Step whole = with_params(*norm.step, std::move(halves->whole));
      whole.name = name;
      const Expression counts =
          Expression::parse(count ? fmt::format("({}) and {}", count->to_string(), first) : first);
      scenario::set_key(whole, "count", scenario::with({}, "count", &Step::count, std::optional(counts)));
      Step keys = with_params({}, std::move(halves->sharded));
      candidates.push_back({Candidate::Kind::parameters, norm.name(), Edit::set(norm.name(), std::move(keys))});
      candidates.back().together = {
          {Candidate::Kind::insert, whole.name, Edit::insert(std::move(whole), norm.name(), true)}};
    }
  }
  return candidates;
}

}  // namespace lockstep::diagnosis
