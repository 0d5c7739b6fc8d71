// SPDX-License-Identifier: Apache-2.0
#include "lockstep/parametric.h"

#include <algorithm>

#include "src/symbolic/parametric/evaluation.h"

namespace lockstep {

using namespace parametric;

ParametricResult run_parametric(const Schedule& schedule) {
  ParametricResult result;
  try {
    World world(schedule, {});
    const Choices choices(world);
    result.classes = static_cast<int>(choices.classes().size());
    std::vector<ClassResult> classes;
    for (const Class& members : choices.classes()) classes.push_back(run_class(world, choices, members, false));
    int race = schedule.batch.steps(), mismatch = schedule.batch.steps();
    for (const ClassResult& one : classes) {
      if (one.race) race = std::min(race, one.race->optimizer_step);
    }
    for (const ClassResult& one : classes) {
      Evaluation evaluation(world, world, one, *one.members);
      bool wrong = false;
      for (const Cell& cell : one.cells) {
        if (cell.optimizer_step >= race || (wrong && cell.optimizer_step >= mismatch) || !evaluation.example(cell)) continue;
        mismatch = std::min(mismatch, cell.optimizer_step);
        wrong = true;
      }
      if (wrong) result.wrong.push_back(one.members->logicals.front());
    }
    if (mismatch < schedule.batch.steps()) {
      result.verdict = ParametricResult::Verdict::mismatch;
      result.step = mismatch;
    } else if (race < schedule.batch.steps()) {
      result.verdict = ParametricResult::Verdict::race;
      result.step = race;
    } else {
      result.verdict = ParametricResult::Verdict::match;
      result.step = schedule.batch.steps() - 1;
    }
  } catch (const OutOfReach& limit) {
    result.verdict = ParametricResult::Verdict::undecided;
    result.undecided_step = limit.step;
    result.why = limit.what();
  }
  return result;
}

}  // namespace lockstep
