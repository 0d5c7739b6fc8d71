// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/diagnosis/step_editor.h"

namespace lockstep {

/// Edits of the number by which a step multiplies: times and over each size and token count, and sum for average.
class FactorEdits : private StepEditor {
 public:
  using StepEditor::StepEditor;
  void factor();
  void reduction();

 private:
  /// Divisors by token counts, with and without what else divides.
  void normalize(const Product& old);
  void set_factor(const Product& by);
};

}  // namespace lockstep
