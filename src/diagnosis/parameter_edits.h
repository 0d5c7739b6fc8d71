// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/diagnosis/step_editor.h"

namespace lockstep {

/// Edits of what a step acts on: its parameters, their uses, and how it cuts them.
class ParameterEdits : private StepEditor {
 public:
  using StepEditor::StepEditor;
  void geometry();
  void parameters();
  void uses();
};

}  // namespace lockstep
