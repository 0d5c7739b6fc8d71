// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/mutation_sizes.h"

#include "src/base/budget.h"
#include "src/scenario/open_sizes.h"
#include "src/scenario/step_keys.h"
#include "src/scenario/writing.h"

namespace lockstep::diagnosis {

void MutationSizes::set_edit(const Edit& edit) {
  clear_edit();
  edit_ = {edit};
}

void MutationSizes::clear_edit() {
  edit_.clear();
  ++number_;
}

MutationSizes::Entry& MutationSizes::entry(const Json& document) {
  const Json *layout = document.find("layout"), *batch = document.find("batch");
  const auto [found, is_new] = entries_.try_emplace(
      write_json(Json::array({layout != nullptr ? *layout : Json(), batch != nullptr ? *batch : Json()})));
  Entry& entry = found->second;
  if (!is_new) return entry;
  try {
    entry.scenario = scenario::read_scenario_of_open_sizes(document, file_);
    const Schedule& schedule = *entry.scenario.schedule;
    entry.steps = std::make_shared<scenario::EditableSteps>(schedule, schedule.model.parameters());
    entry.scenario.schedule = nullptr;
  } catch (const InputError& error) {
    entry.refused = error.diagnostics();
  } catch (const OverBudget&) {
    entries_.erase(found);  // nothing refuses these sizes
    throw;
  }
  return entry;
}

Scenario MutationSizes::read(const Json& document) {
  Entry& here = entry(document);
  if (!here.refused.empty()) throw InputError(here.refused);
  // Whoever has read these sizes already holds pointers to their steps.
  if (here.edit != number_) {
    std::optional<std::vector<Step>> steps = here.steps->edited(edit_);  // or ends a budget
    if (!steps || !here.steps->are_valid(*steps)) {
      here.edit = -1;
      throw InputError({Diagnostic{document.place(), "the edit cannot be applied at these sizes"}});
    }
    here.steps->schedule().steps = std::move(*steps);
    here.edit = number_;
  }
  Scenario scenario = here.scenario;
  scenario.edits.insert(scenario.edits.end(), edit_.begin(), edit_.end());
  scenario.document = edit_.empty() ? document : scenario::with_edits(document, edit_);
  Json schedule = *scenario.resolved.find("schedule");
  schedule.set("steps", scenario::list_of(here.steps->schedule().steps, scenario::as_written));
  scenario.resolved.set("schedule", schedule);
  scenario.schedule = std::shared_ptr<const Schedule>(here.steps, &here.steps->schedule());
  return scenario;
}

}  // namespace lockstep::diagnosis
