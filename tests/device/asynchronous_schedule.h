// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <random>
#include <string>
#include <vector>

#include "tests/schedule/builder.h"

namespace lockstep::test {

/// Schedules at random with asynchronous steps, whose waits come somewhere behind them, or not at all; the same one for
/// the same seed.
class AsynchronousSchedule {
 public:
  explicit AsynchronousSchedule(unsigned seed) : random_(seed) {}

  Schedule make() {
    Layout layout = dp(pick({2, 3, 4, 20}));
    layout.tp = layout.dp < 20 ? pick({1, 2}) : 1;
    Step each = backwards();
    std::vector<Step> steps = {step(Op::zero, "zero"), each};
    const int count = pick({1, 2, 3, 4});
    for (int i = 0; i < count; ++i) {
      Step made = random_step(layout, i);
      const bool waited_for = made.async && !chance(6);
      steps.push_back(made);
      if (!waited_for) continue;
      Step wait = step(Op::wait, "");
      wait.wait_for = made.name;
      later_.push_back(wait);
      if (chance(2)) put_waits(steps);
    }
    put_waits(steps);
    if (chance(3)) {  // inside the loop, so that it is started again and again
      Step inner = random_step(layout, 99);
      inner.async = true;
      Step wait = step(Op::wait, "");
      wait.wait_for = inner.name;
      steps[1].steps.push_back(inner);
      if (chance(2)) {
        steps[1].steps.push_back(wait);
      } else {
        steps[1].steps.insert(steps[1].steps.begin(), wait);
        steps.insert(steps.begin() + 2, wait);
      }
    }
    std::vector<Parameter> parameters;
    for (int i = pick({1, 2, 3}); i > 0; --i) {
      Parameter made =
          parameter("p" + std::to_string(i - 1), {pick({1, 3, 4}) * std::int64_t{2}, pick({1, 5}) * std::int64_t{2}});
      if (layout.tp > 1 && chance(2)) made.shard = {{Axis::tp, 0, false}};
      parameters.push_back(made);
    }
    const int micro_batches = pick({1, 2}), optimizer_steps = pick({1, 1, 2});
    Schedule result = schedule_of(layout, parameters, steps, micro_batches, optimizer_steps);
    result.batch.loss_of_use["main"].kind = Loss::Kind::sum;
    return result;
  }

 private:
  int pick(std::vector<int> choices) { return choices[random_() % choices.size()]; }
  bool chance(unsigned of) { return random_() % of == 0; }

  void put_waits(std::vector<Step>& steps) {
    std::shuffle(later_.begin(), later_.end(), random_);
    steps.insert(steps.end(), later_.begin(), later_.end());
    later_.clear();
  }

  Step random_step(const Layout& layout, int number) {
    const std::vector<Op> ops = {Op::all_reduce, Op::all_reduce, Op::reduce_scatter, Op::all_gather, Op::broadcast,
                                 Op::scale,      Op::copy,       Op::accumulate,     Op::zero};
    const Op op = ops[random_() % ops.size()];
    Step result = step(op, "step" + std::to_string(number));
    if (operation(op).collective) {
      result.over = over(layout.tp > 1 && chance(3) ? Axis::tp : Axis::dp);
      if (chance(3)) result.reduction = Reduction::average;
    }
    if (op == Op::broadcast) result.root = Root{0, {}};
    if (op == Op::scale) result.by = Expression::parse("rank.dp + 2");
    if (op == Op::copy || op == Op::accumulate) {
      const bool back = chance(2);
      result.from = back ? "main" : "grad";
      result.buffer = back ? "grad" : "main";
    } else {
      result.buffer = chance(4) ? "main" : "grad";
    }
    if (chance(2)) result.params = Selectors({chance(2) ? "p0" : "!p0"});
    if (chance(8)) result.when = Expression::parse("rank.dp == 0");
    result.async = chance(2);
    if (operation(op).collective) result.when.reset();
    return result;
  }

  std::mt19937 random_;
  std::vector<Step> later_;
};

}  // namespace lockstep::test
