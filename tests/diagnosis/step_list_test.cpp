// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/step_list.h"

#include "tests/catch.h"
#include "tests/schedule/builder.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

Step scale_step(const std::string& name, const std::string& params = "") {
  Step result = step(Op::scale, name);
  result.by = Expression::parse("2");
  if (!params.empty()) result.params = Selectors({params});
  return result;
}

Step sum_step(const std::string& name, const std::string& params = "") {
  Step result = collective(Op::all_reduce, name, Axis::dp);
  if (!params.empty()) result.params = Selectors({params});
  return result;
}

/// "half sum, other"
std::string together(const std::vector<Step>& steps) {
  const std::vector<diagnosis::ListedStep> list = diagnosis::listed_steps(steps);
  std::string text;
  for (const auto& run : diagnosis::steps_together(list)) {
    text += text.empty() ? "" : ", ";
    for (const diagnosis::ListedStep* one : run) text += (one == run.front() ? "" : " ") + one->name();
  }
  return text;
}

}  // namespace

TEST_CASE("steps are listed in order, with the loop that they are in and their neighbours there") {
  Step loop = backwards();
  loop.steps.push_back(scale_step("inside"));
  const std::vector<Step> steps = {step(Op::zero, "zero"), loop, sum_step("sum")};
  const std::vector<diagnosis::ListedStep> list = diagnosis::listed_steps(steps);
  REQUIRE(list.size() == 5);
  const auto is = [&](std::size_t at, const char* name, const char* each, const char* before, const char* next) {
    CHECK(list[at].name() == name);
    CHECK(list[at].each == each);
    CHECK(list[at].before == before);
    CHECK(list[at].next == next);
  };
  is(0, "zero", "", "", "micro_batches");
  is(1, "micro_batches", "", "zero", "sum");
  is(2, "backward", "micro_batches", "", "inside");
  is(3, "inside", "micro_batches", "backward", "");
  is(4, "sum", "", "micro_batches", "");
  CHECK(diagnosis::find_listed(list, "inside") == &list[3]);
  CHECK(diagnosis::find_listed(list, "none") == nullptr);
  const std::vector<Step> waits = {step(Op::wait, "")};
  CHECK(diagnosis::find_listed(diagnosis::listed_steps(waits), "") == nullptr);
}

TEST_CASE("a reduction and the scales beside it belong together where they act on the same") {
  CHECK(together({scale_step("half"), sum_step("sum")}) == "half sum");
  CHECK(together({sum_step("sum"), scale_step("half")}) == "sum half");
  CHECK(together({scale_step("a"), sum_step("sum"), scale_step("b")}) == "a sum b");
  CHECK(together({scale_step("a"), scale_step("b")}).empty());
  CHECK(together({sum_step("sum")}).empty());
  CHECK(together({scale_step("half", "w"), sum_step("sum")}).empty());
  CHECK(together({scale_step("half", "w"), sum_step("sum", "w")}) == "half sum");
  CHECK(together({scale_step("half"), step(Op::zero, "zero"), sum_step("sum")}).empty());
  CHECK(together({when(scale_step("half"), "rank.dp == 0"), sum_step("sum")}).empty());
  Step other = sum_step("sum");
  other.buffer = "main";
  CHECK(together({scale_step("half"), other}).empty());
  // One reduction each.
  CHECK(together({scale_step("a"), sum_step("sum"), sum_step("again"), scale_step("b")}) == "a sum, again b");
  CHECK(together({sum_step("sum"), sum_step("again")}).empty());
  CHECK(together({scale_step("a"), step(Op::all_gather, "gather")}).empty());
  CHECK(
      together({scale_step("a"), scale_step("", ""), sum_step("sum")}).empty());  // without a name no edit can name it
  Step loop = backwards();
  loop.steps.push_back(scale_step("inside"));
  CHECK(together({loop, sum_step("sum")}).empty());
}

TEST_CASE("a step acts on what its selectors choose, a backward on what has its uses") {
  Parameter main = parameter("w", {4}), both = parameter("v", {4});
  main.uses = {"main"};
  both.uses = {"main", "aux"};
  const auto acts = [](const Step& step, const Parameter& on) { return diagnosis::ActingStep(step).acts_on(on); };
  const Step chosen = sum_step("sum", "w"), all = sum_step("sum");
  CHECK((acts(chosen, main) && !acts(chosen, both)));
  CHECK((acts(all, main) && acts(all, both)));
  Step backward = step(Op::backward, "backward");
  CHECK((acts(backward, main) && acts(backward, both)));
  backward.uses = {"aux"};
  CHECK((!acts(backward, main) && acts(backward, both)));
  backward.uses = {"aux", "main"};
  CHECK((acts(backward, main) && acts(backward, both)));
}
