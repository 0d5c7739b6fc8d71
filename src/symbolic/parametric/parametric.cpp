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
    Verdicts verdicts(schedule.batch.steps());
    for (const ClassResult& one : classes)
      verdicts.add(Evaluation(world, world, one, *one.members).first(), one.members->logicals.front());
    verdicts.write(result);
  } catch (const OutOfReach& limit) {
    result.verdict = ParametricResult::Verdict::undecided;
    result.undecided_step = limit.step;
    result.why = limit.what();
  }
  return result;
}

}  // namespace lockstep
