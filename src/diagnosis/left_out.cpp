// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/left_out.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "lockstep/operation.h"
#include "lockstep/scenario.h"
#include "src/base/at.h"
#include "src/diagnosis/step_list.h"
#include "src/diagnosis/step_words.h"
#include "src/scenario/step_keys.h"

namespace lockstep::diagnosis {

namespace {

/// Parameters that are wrong and that the inserted step is for.
std::vector<const Parameter*> wrong_ones(const CheckResult& result, const Step& inserted) {
  std::vector<const Parameter*> list;
  const schedule::SelectorList selectors(inserted.params.items());
  const std::vector<Parameter>& parameters = result.scenario->schedule->model.parameters();
  for (const int index : wrong_set(result).parameters) {
    const Parameter& parameter = parameters[at(index)];
    if (selectors.chooses(parameter, parameter.numel())) list.push_back(&parameter);
  }
  return list;
}

/// "over" without axes of one rank, in one order; with coordinates as it is written.
std::vector<std::string> axes_of(const Mesh& mesh, const Step& step) {
  std::vector<std::string> axes;
  for (const Over::Pick& pick : step.over->picks) {
    if (pick.coordinates) return {words_of_key(step, "over")};
    if (mesh.size(pick.axis) > 1) axes.emplace_back(name_of(pick.axis));
  }
  std::sort(axes.begin(), axes.end());
  return axes;
}

std::string names_of(const std::vector<const Parameter*>& parameters, const Step& inserted) {
  if (parameters.size() == 1) return parameters.front()->name;
  if (scenario::says(inserted, "params")) return words_of_key(inserted, "params");
  return fmt::format("{} parameters such as {}", parameters.size(), parameters.front()->name);
}

bool reduces_over(const Step& step) { return step.over && operation(step.op).reduces(); }

/// Where a step reduces a part of what is wrong, which goes wrong in another way too.
LeftOut rest_left_out(const std::string& step, const std::vector<const Parameter*>& left, const Step& inserted) {
  constexpr std::size_t most_names = 3;
  LeftOut rest = {{step, fmt::format("leaves out {} parameters such as {}", left.size(), left.front()->name), {}},
                  inserted,
                  left.size() <= most_names};
  if (!rest.all_told) return rest;
  std::vector<std::string> names;
  names.reserve(left.size());
  for (const Parameter* parameter : left) names.push_back(parameter->name);
  rest.blame.why = fmt::format("leaves out {}", fmt::join(names, ", "));
  scenario::set_key(rest.missing, "params", scenario::with({}, "params", &Step::params, Selectors(std::move(names))));
  return rest;
}

}  // namespace

std::optional<LeftOut> left_out_by(const CheckResult& result, const Step& inserted) {
  if (!reduces_over(inserted)) return std::nullopt;
  const std::vector<const Parameter*> wrong = wrong_ones(result, inserted);
  if (wrong.empty()) return std::nullopt;
  const Mesh& mesh = result.scenario->schedule->mesh;
  std::vector<const Parameter*> left = wrong;
  std::string first;
  for (const ListedStep& listed : listed_steps(result.scenario->schedule->steps)) {
    const Step& step = *listed.step;
    if (!reduces_over(step) || step.name.empty() || axes_of(mesh, step) != axes_of(mesh, inserted)) continue;
    const schedule::SelectorList selectors(step.params.items());
    const auto is_chosen = [&](const Parameter* parameter) {
      return selectors.chooses(*parameter, parameter->numel());
    };
    const auto blamed = [&](std::string why) { return LeftOut{{step.name, std::move(why), {}}, inserted}; };
    if (std::none_of(wrong.begin(), wrong.end(), is_chosen))
      return blamed(fmt::format("leaves out {}", names_of(wrong, inserted)));
    for (const char* key : {"when", "only"}) {
      if (scenario::says(step, key)) return blamed(fmt::format("runs only where {}", words_of_key(step, key)));
    }
    if (step.buffer != inserted.buffer)
      return blamed(fmt::format("acts on the buffer {}, not on {}", step.buffer, inserted.buffer));
    if (first.empty()) first = step.name;
    std::erase_if(left, is_chosen);
  }
  return left.empty() || first.empty() ? std::nullopt : std::optional(rest_left_out(first, left, inserted));
}

}  // namespace lockstep::diagnosis
