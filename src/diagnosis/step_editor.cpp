// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/step_editor.h"

#include <algorithm>

#include "src/base/budget.h"
#include "src/scenario/value_type.h"

namespace lockstep::diagnosis {

bool StepEditor::takes(std::string_view word) const { return scenario::contains_word(row_.keys, word); }

void StepEditor::add(Candidate::Kind kind, Edit edit, std::vector<Candidate> together) {
  constexpr std::int64_t units = 20;  // all of them are there at once
  Budget::spend(units);
  candidates_.push_back({kind, step_.name, std::move(edit), std::move(together)});
}

void StepEditor::set(Candidate::Kind kind, Step values) {
  const bool same = std::all_of(values.keys.begin(), values.keys.end(),
                                [&](std::string_view key) { return scenario::step_key(key).same(step_, values); });
  if (!same) add(kind, Edit::set(step_.name, std::move(values)));
}

void StepEditor::remove(Candidate::Kind kind, std::string_view key) {
  if (has(key)) add(kind, Edit::set(step_.name, {}, {key}));
}

}  // namespace lockstep::diagnosis
