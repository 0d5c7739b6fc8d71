// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <random>
#include <string>
#include <vector>

#include "tests/schedule/builder.h"

namespace lockstep::test {

/// Schedules at random, sensible and not; the same one for the same seed. `copies`: some with a lost tie.
class RandomSchedule {
 public:
  explicit RandomSchedule(unsigned seed, bool copies = false) : random_(seed), copies_(copies) {}

  Schedule make() {
    Layout layout = dp(pick({1, 2, 3, 4}));
    layout.tp = pick({1, 1, 2});
    layout.pp = pick({1, 2});
    layout.cp = pick({1, 1, 2});
    if (layout.dp == 4) layout.dp_shard = layout.dp_replicate = 2;
    if (layout.dp % 2 == 0) layout.ep = pick({1, 2});
    if (chance(4)) return sensible(layout);
    std::vector<Step> steps;
    if (chance(2)) steps.push_back(step(Op::zero, "zero"));
    Step backward = backwards();
    if (chance(2))
      backward.steps[0].by =
          Expression::parse(pick_text({"1/tokens", "1/3", "1/sum(tokens, dp, cp, micro_batch)", "tokens/7",
                                       "1/(999983 + 36 * rank.dp)/(999961 + rank.cp)/(99991 + micro_batch)"}));
    if (chance(5)) backward.steps.push_back(random_step(layout, 99));
    steps.push_back(backward);
    const int count = pick({1, 2, 3, 4, 5});
    for (int i = 0; i < count; ++i) steps.push_back(random_step(layout, i));
    // One draw a statement: the order of a call's arguments is the compiler's.
    const std::vector<Parameter> parts = parameters(layout);
    const int micro_batches = pick({1, 2, 3}), optimizer_steps = pick({1, 1, 2});
    Schedule result = schedule_of(layout, parts, steps, micro_batches, optimizer_steps);
    result.batch.loss_of_use["main"].kind = pick_kind();
    if (chance(3)) result.batch.tokens_of_use["main"].kind = Batch::Tokens::Kind::even;
    return result;
  }

 private:
  // Reduced over all axes that split the tokens or the parameters' shares, with the loss's weight.
  Schedule sensible(Layout layout) {
    layout.tp = layout.ep = 1;
    Step reduce = step(chance(2) ? Op::all_reduce : Op::reduce_scatter, "reduce");
    reduce.over = Over{{{Axis::dp, std::nullopt}, {Axis::cp, std::nullopt}}};
    if (reduce.op == Op::reduce_scatter && chance(2)) {
      // Every parameter has a multiple of four elements.
      reduce.op = Op::reduce_scatter_v;
      Geometry& geometry = reduce.geometry.own();
      geometry.kind = Geometry::Kind::counts;
      geometry.counts.assign(static_cast<std::size_t>(layout.dp) * static_cast<std::size_t>(layout.cp), 0);
      for (int part = 0; part < 4; ++part) ++geometry.counts[random_() % geometry.counts.size()];
    }
    Step backward = backwards();
    backward.steps[0].by = Expression::parse("1/sum(tokens, dp, cp, micro_batch)");
    std::vector<Parameter> untied = parameters(layout);
    for (Parameter& each : untied) each.tied = each.copy = "";
    const int micro_batches = pick({1, 2, 3}), optimizer_steps = pick({1, 2});
    return schedule_of(layout, untied, {step(Op::zero, "zero"), backward, reduce}, micro_batches, optimizer_steps);
  }

  int pick(std::vector<int> choices) { return choices[random_() % choices.size()]; }
  std::string pick_text(std::vector<std::string> choices) { return choices[random_() % choices.size()]; }
  bool chance(unsigned of) { return random_() % of == 0; }
  Loss::Kind pick_kind() {
    return std::vector{Loss::Kind::token_mean, Loss::Kind::micro_batch_mean, Loss::Kind::local_mean,
                       Loss::Kind::sum}[random_() % 4];
  }

  std::vector<Parameter> parameters(const Layout& layout) {
    std::vector<Parameter> result;
    const int count = pick({1, 2, 3, 4});
    for (int i = 0; i < count; ++i) {
      Parameter made =
          parameter("p" + std::to_string(i), {pick({1, 3, 4, 8}) * std::int64_t{2}, pick({1, 2, 5}) * std::int64_t{2}});
      made.dtype = std::vector{Dtype::float32, Dtype::float32, Dtype::float64, Dtype::bfloat16}[random_() % 4];
      made.stage = static_cast<int>(random_() % static_cast<unsigned>(layout.pp));
      if (layout.tp > 1) {
        const int kind = pick({0, 1, 2});
        if (kind == 1) made.shard = {{Axis::tp, pick({0, 1}), false}};
        if (kind == 2) made.partial = {Axis::tp};
      }
      if (layout.ep > 1 && chance(3)) {
        made.partial.clear();
        made.shard = {{Axis::ep, 0, false}};
        made.dispatch = {Axis::ep};
      }
      if (chance(4)) made.micro_batches = std::vector<int>{0};
      if (chance(5)) made.uses = {"main", "aux"};
      result.push_back(made);
    }
    if (layout.pp > 1 && chance(2)) {
      Parameter other = result.front();
      other.name = "tied";
      other.stage = 1 - *other.stage;
      result.front().tied = other.tied = "group";
      result.push_back(other);
    }
    // A lost tie: another copy on the same ranks, or on those of the other stage.
    if (copies_ && chance(3)) {
      Parameter other = result.back();
      other.name = "copy";
      other.copy = "second";
      if (layout.pp > 1 && chance(2)) other.stage = 1 - *other.stage;
      result.back().tied = other.tied = "group";
      result.push_back(other);
    }
    return result;
  }

  Step random_step(const Layout& layout, int number) {
    const std::string name = "step" + std::to_string(number);
    std::vector<std::string> axes = {"dp", "dp", "dp"};
    if (layout.cp > 1) axes.push_back("cp");
    if (layout.tp > 1) axes.push_back("tp");
    if (layout.pp > 1) axes.push_back("pp");
    if (layout.ep > 1) axes.push_back("edp");
    if (layout.dp_replicate > 1) axes.insert(axes.end(), {"dp_shard", "dp_replicate"});
    const std::vector<Op> ops = {
        Op::all_reduce, Op::all_reduce, Op::reduce_scatter, Op::reduce_scatter, Op::reduce_scatter, Op::all_gather,
        Op::broadcast,  Op::reduce,     Op::scale,          Op::copy,           Op::accumulate,     Op::leftover,
        Op::own};
    const Op op = ops[random_() % ops.size()];
    Step result = collective(op, name, *axis_named(axes[random_() % axes.size()]));
    if (!operation(result.op).collective && result.op != Op::own) result.over.reset();
    if (chance(2)) result.reduction = Reduction::average;
    if (chance(3)) result.params = Selectors({pick_text({"p0", "p1", "!p0", "tied:group"})});
    if (result.op == Op::broadcast || result.op == Op::reduce) result.root = Root{0, {}};
    if (result.op == Op::scale || result.op == Op::leftover)
      result.by = Expression::parse(pick_text({"1/2", "2", "1/3", "-3/5", "0", "rank.dp + 1"}));
    if (result.op == Op::leftover) result.what = "noise";
    if (result.op == Op::leftover) result.per_rank = chance(2);
    if (result.op == Op::copy || result.op == Op::accumulate) {
      result.from = pick_text({"grad", "main"});
      result.buffer = pick_text({"grad", "main"});
    }
    result.geometry.own().kind = std::vector{Geometry::Kind::parameter, Geometry::Kind::rows, Geometry::Kind::flat,
                                             Geometry::Kind::bucket}[random_() % 4];
    result.geometry.own().align_parameter = Expression(Rational(1));
    const bool is_local =
        result.op == Op::scale || result.op == Op::copy || result.op == Op::accumulate || result.op == Op::leftover;
    const bool can_be_owned = is_local || result.op == Op::all_reduce || result.op == Op::reduce_scatter;
    result.on_owned = can_be_owned && chance(3);
    if (chance(6)) result.when = Expression::parse(pick_text({"rank.pp == 0", "rank.tp == 0", "step == 0"}));
    return result;
  }

  std::mt19937 random_;
  bool copies_;
};

}  // namespace lockstep::test
