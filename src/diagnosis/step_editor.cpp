// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/step_editor.h"

#include "src/base/budget.h"
#include "src/scenario/value_type.h"

namespace lockstep {

bool StepEditor::takes(std::string_view word) const { return contains_word(row_->keys, word); }

void StepEditor::add(Candidate::Kind kind, Edit edit) {
  constexpr std::int64_t units = 20;  // all of them are there at once
  Budget::spend(units);
  candidates_.push_back({kind, step_->name, std::move(edit)});
}

void StepEditor::set(Candidate::Kind kind, const char* word, const Json& value) {
  const Json* old = key(word);
  if (old == nullptr ? value.is_null() : old->same_as(value)) return;
  add(kind, Edit::set(step_->name, {{word, {}, value}}));
}

}  // namespace lockstep
