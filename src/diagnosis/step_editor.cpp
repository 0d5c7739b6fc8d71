// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/step_editor.h"

#include "src/base/budget.h"
#include "src/scenario/value_type.h"

namespace lockstep {

bool StepEditor::takes(std::string_view word) const { return contains_word(row_->keys, word); }

void StepEditor::add(Candidate::Kind kind, std::vector<Json::Member> members) {
  constexpr std::int64_t units = 20;  // all of them are there at once
  Budget::spend(units);
  candidates_.push_back({kind, step_->name, Json::object(std::move(members))});
}

void StepEditor::set(Candidate::Kind kind, const char* word, const Json& value) {
  const Json* old = key(word);
  if (old == nullptr ? value.is_null() : old->same_as(value)) return;
  add(kind, {{"set", {}, name()}, {word, {}, value}});
}

}  // namespace lockstep
