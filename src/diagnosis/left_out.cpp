// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/left_out.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/operation.h"
#include "lockstep/scenario.h"
#include "src/base/at.h"
#include "src/diagnosis/step_list.h"
#include "src/diagnosis/step_words.h"

namespace lockstep {

namespace {

/// Parameters that are wrong and that the inserted step is for.
std::vector<const Parameter*> wrong_ones(const CheckResult& result, const Json& inserted) {
  std::vector<const Parameter*> list;
  const SelectorList selectors = selectors_of(inserted.find("params"));
  const std::vector<Parameter>& parameters = result.scenario->schedule->model.parameters();
  for (const int index : wrong_set(result).parameters) {
    const Parameter& parameter = parameters[at(index)];
    if (selectors.chooses(parameter, parameter.numel())) list.push_back(&parameter);
  }
  return list;
}

/// "over" without axes of one rank, in one order.
std::vector<std::string> axes_of(const Mesh& mesh, const Json& over) {
  if (over.is_object()) return {text_of_value(&over)};
  std::vector<std::string> axes;
  const auto add = [&](const std::string& name) {
    const std::optional<Axis> axis = axis_named(name);
    if (!axis || mesh.size(*axis) > 1) axes.push_back(name);
  };
  if (over.is_string()) add(over.text());
  for (const Json& item : over.items()) add(item.text());
  std::sort(axes.begin(), axes.end());
  return axes;
}

std::string names_of(const std::vector<const Parameter*>& parameters, const Json& inserted) {
  if (parameters.size() == 1) return parameters.front()->name;
  const Json* params = inserted.find("params");
  if (params != nullptr) return text_of_value(params);
  return fmt::format("{} parameters such as {}", parameters.size(), parameters.front()->name);
}

}  // namespace

std::optional<Blame> left_out_by(const CheckResult& result, const Json& inserted) {
  const Json* over = inserted.find("over");
  const std::optional<Op> op = op_named(text_of(inserted, "op"));
  if (over == nullptr || !op || operation(*op).value != Operation::Value::reduction) return std::nullopt;
  const std::vector<const Parameter*> wrong = wrong_ones(result, inserted);
  if (wrong.empty()) return std::nullopt;
  const Mesh& mesh = result.scenario->schedule->mesh;
  const auto buffer_of = [](const Json& step) {
    const std::string buffer = text_of(step, "buffer");
    return buffer.empty() ? std::string("grad") : buffer;
  };
  for (const ListedStep& step : listed_steps(*result.scenario->resolved.find("schedule")->find("steps"))) {
    const Json* groups = step.step.find("over");
    if (operation(step.op).value != Operation::Value::reduction || groups == nullptr || step.name.empty() ||
        axes_of(mesh, *groups) != axes_of(mesh, *over))
      continue;
    const SelectorList selectors = selectors_of(step.step.find("params"));
    const bool any = std::any_of(wrong.begin(), wrong.end(), [&](const Parameter* parameter) {
      return selectors.chooses(*parameter, parameter->numel());
    });
    if (!any) return Blame{step.name, fmt::format("leaves out {}", names_of(wrong, inserted))};
    for (const char* key : {"when", "only"}) {
      if (const Json* where = step.step.find(key))
        return Blame{step.name, fmt::format("runs only where {}", text_of_value(where))};
    }
    if (buffer_of(step.step) != buffer_of(inserted))
      return Blame{step.name,
                   fmt::format("acts on the buffer {}, not on {}", buffer_of(step.step), buffer_of(inserted))};
  }
  return std::nullopt;
}

}  // namespace lockstep
