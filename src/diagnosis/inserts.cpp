// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/inserts.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lockstep/operation.h"
#include "src/diagnosis/product.h"
#include "src/scenario/step_keys.h"

namespace lockstep::diagnosis {

namespace {

/// A gap between two steps, as an edit names it.
struct Gap {
  std::string each;  ///< the list that it is in
  std::string beside;
  bool after = false;
  bool end = false;  ///< behind the last step of the top level
};

class Insertions {
 public:
  Insertions(const std::vector<ListedStep>& steps, const CandidateValues& values)
      : steps_(steps), values_(values), expert_sizes_(values.sizes_for(true)) {
    find_gaps();
  }

  std::vector<Candidate> all() {
    for (const Gap& gap : gaps_) {
      for (const std::string& buffer : buffers_near(gap)) {
        for (std::size_t at = 0; at < values_.selections.size(); ++at) {
          const Selectors& selection = values_.selections[at];
          collectives(gap, buffer, selection, values_.selects_experts[at]);
          factors(gap, buffer, selection, values_.selects_experts[at] ? expert_sizes_ : values_.sizes);
        }
        put(gap, made("zero", Op::zero, buffer));
        copies(gap, buffer);
      }
      waits(gap);
      if (gap.each.empty()) more_norms(gap);
      if (gap.each.empty()) clips(gap);
      if (!gap.each.empty()) backwards(gap);
    }
    norms_before_clips();
    return std::move(candidates_);
  }

 private:
  void find_gaps() {
    std::string list = "\n";
    std::string last_top;
    for (const ListedStep& step : steps_) {
      if (step.each.empty() && !step.name().empty()) last_top = step.name();
    }
    for (const ListedStep& step : steps_) {
      const bool first = step.each != list && (list = step.each, !step.name().empty());
      if (step.name().empty()) continue;
      // Top-level steps that follow a body are not the first of their list.
      if (first && step.before.empty()) gaps_.push_back({step.each, step.name(), false});
      gaps_.push_back({step.each, step.name(), true, step.each.empty() && step.name() == last_top});
    }
  }

  /// The buffer of the optimizer, and inside of `each` the one that its backward writes.
  std::vector<std::string> buffers_near(const Gap& gap) const {
    if (gap.each.empty()) return values_.buffers;
    std::vector<std::string> buffers;
    for (const ListedStep& step : steps_) {
      if (step.each != gap.each || step.op() == Op::wait) continue;
      if (std::find(buffers.begin(), buffers.end(), step.step->buffer) == buffers.end())
        buffers.push_back(step.step->buffer);
    }
    return buffers;
  }

  std::string free_name(const std::string& wanted) const {
    std::string name = wanted;
    for (int number = 2; find_listed(steps_, name) != nullptr; ++number) name = fmt::format("{}_{}", wanted, number);
    return name;
  }

  /// A step with what most have; more is added in the order in which it is to be written.
  Step made(const std::string& name, Op op, const std::string& buffer, const Selectors& selection = {}) const {
    Step step = scenario::with(scenario::with({}, "name", &Step::name, free_name(name)), "op", &Step::op, op);
    const std::vector<std::string>& items = selection.items();
    if (!items.empty() && items != std::vector<std::string>{"*"})
      step = scenario::with(std::move(step), "params", &Step::params, selection);
    return buffer == "grad" ? step : scenario::with(std::move(step), "buffer", &Step::buffer, buffer);
  }

  void put(const Gap& gap, Step step) {
    const std::string blamed = step.op == Op::wait ? step.wait_for : step.name;
    candidates_.push_back({Candidate::Kind::insert, blamed, Edit::insert(std::move(step), gap.beside, gap.after)});
  }

  /// "dp", "dp_cp", "ends": what a step over the group is called after.
  static std::string word_for(const Over& group) {
    std::string word;
    for (const Over::Pick& pick : group.picks) {
      if (pick.coordinates) return "ends";
      word += fmt::format("{}{}", word.empty() ? "" : "_", name_of(pick.axis));
    }
    return word;
  }

  /// Which are tried is no column of the operation table: each is put into every gap, for every buffer, selection and
  /// group, so that a search can pay for few. What rows tell apart (who is read, what is written, whether there is a
  /// root) would also try those that need what no other step says, as the counts of a reduce_scatter_v, or that change
  /// no value, as own. The order is that in which they are ranked among equals.
  void collectives(const Gap& gap, const std::string& buffer, const Selectors& selection, bool of_experts) {
    for (std::size_t at = 0; at < values_.groups.size(); ++at) {
      const std::string word = word_for(of_experts ? values_.expert_groups[at] : values_.groups[at]);
      const auto over_group = [&](Op op) {
        return scenario::with(made(fmt::format("{}_{}", word, operation(op).name), op, buffer, selection), "over",
                              &Step::over, std::optional(values_.group_of_new(op, of_experts, at)));
      };
      const auto to_first = [&](Op op) {
        return scenario::with(over_group(op), "root", &Step::root, std::optional(Root{0, {}, {}}));
      };
      put(gap, over_group(Op::all_reduce));
      put(gap, scenario::with(over_group(Op::all_reduce), "reduce", &Step::reduction, Reduction::average));
      put(gap, to_first(Op::broadcast));
      if (!gap.each.empty()) continue;
      put(gap, over_group(Op::reduce_scatter));
      put(gap, to_first(Op::reduce));
      put(gap, over_group(Op::all_gather));
    }
  }

  void factors(const Gap& gap, const std::string& buffer, const Selectors& selection,
               const std::vector<Product>& sizes) {
    const auto scale = [&](const Product& by) {
      put(gap,
          scenario::with(made("scale", Op::scale, buffer, selection), "by", &Step::by, std::optional(by.expression())));
    };
    for (const Product& size : sizes) {
      scale(size);
      scale(Product().over(size));
    }
    if (!gap.each.empty()) return;
    for (const Product& tokens : values_.token_totals) {
      scale(Product().over(tokens));
      scale(tokens);
    }
  }

  void copies(const Gap& gap, const std::string& buffer) {
    for (const std::string& from : values_.buffers) {
      if (from == buffer) continue;
      for (const Op op : {Op::copy, Op::accumulate}) {
        Step step = made(fmt::format("{}_{}", operation(op).name, from), op, "grad");
        put(gap,
            scenario::with(scenario::with(std::move(step), "from", &Step::from, from), "to", &Step::buffer, buffer));
      }
    }
  }

  void waits(const Gap& gap) {
    for (const ListedStep& step : steps_) {
      if (step.step->async)
        put(gap, scenario::with(scenario::with({}, "op", &Step::op, Op::wait), "for", &Step::wait_for, step.name()));
    }
  }

  const Step* first_of(Op op) const {
    const auto found =
        std::find_if(steps_.begin(), steps_.end(), [&](const ListedStep& one) { return one.op() == op; });
    return found == steps_.end() ? nullptr : found->step;
  }

  /// Where a norm is taken: without one there is none to be right.
  void more_norms(const Gap& gap) {
    const Step* norm = first_of(Op::norm);
    if (norm != nullptr && gap.end) parts_of_norm(gap, norm->over);
  }

  /// A clip needs a norm in front of it, all of it or the part that is missing.
  void norms_before_clips() {
    const Step* norm = first_of(Op::norm);
    for (const ListedStep& clip : steps_) {
      if (clip.op() != Op::clip || !clip.each.empty() || clip.name().empty()) continue;
      const Gap gap = {"", clip.name(), false};
      if (norm != nullptr) {
        parts_of_norm(gap, norm->over);
        for (const std::string& axis : values_.mixed_axes) {
          put(gap, norm_of_sharded(axis, norm->over));
          put(gap, norm_of_whole(axis, norm->over));
        }
        continue;
      }
      whole_norms(gap, std::nullopt);
      for (std::size_t at = 0; at < values_.groups.size(); ++at)
        whole_norms(gap, values_.group_of_new(Op::norm, false, at));
    }
  }

  /// A norm step of some parameters, with all ranks' counts or those of one rank along an axis.
  void parts_of_norm(const Gap& gap, const std::optional<Over>& over) {
    for (const Selectors& selection : values_.selections) {
      put(gap, norm_of(selection, over));
      for (const std::string& axis : values_.dense_axes) put(gap, counted_once(norm_of(selection, over), axis));
    }
  }

  /// The same of all parameters; and one of what is sharded along an axis beside one of what every rank there has.
  void whole_norms(const Gap& gap, const std::optional<Over>& over) {
    put(gap, norm_of({}, over));
    for (const std::string& axis : values_.dense_axes) put(gap, counted_once(norm_of({}, over), axis));
    for (const std::string& axis : values_.mixed_axes) {
      put(gap, norm_of_sharded(axis, over));
      Step whole = norm_of_whole(axis, over);
      whole.name = free_name("norm_replicated");
      candidates_.back().together = {
          {Candidate::Kind::insert, whole.name, Edit::insert(std::move(whole), gap.beside, gap.after)}};
    }
  }

  Step norm_of(const Selectors& selection, const std::optional<Over>& over) const {
    Step step = made("norm", Op::norm, "grad", selection);
    return over ? scenario::with(std::move(step), "over", &Step::over, over) : step;
  }

  Step norm_of_sharded(const std::string& axis, const std::optional<Over>& over) const {
    return norm_of(Selectors({"shard:" + axis}), over);
  }

  Step norm_of_whole(const std::string& axis, const std::optional<Over>& over) const {
    return counted_once(norm_of(Selectors({"!shard:" + axis}), over), axis);
  }

  static Step counted_once(Step norm, const std::string& axis) {
    return scenario::with(std::move(norm), "count", &Step::count,
                          std::optional(Expression::parse(fmt::format("rank.{} == 0", axis))));
  }

  /// Only where something is clipped: what is clipped nowhere need not be.
  void clips(const Gap& gap) {
    if (first_of(Op::clip) == nullptr || !gap.end) return;
    for (const Selectors& selection : values_.selections) put(gap, made("clip", Op::clip, "grad", selection));
  }

  void backwards(const Gap& gap) {
    const Step* backward = first_of(Op::backward);
    if (backward == nullptr || values_.uses.size() < 2) return;
    std::vector<Product> factors = {Product::of(backward->by)};
    for (const Product& weight : values_.loss_weights) {
      factors.push_back(weight);
      for (const Product& size : values_.axis_sizes) factors.push_back(weight.times(size));
    }
    for (const std::string& use : values_.uses) {
      for (const Product& factor : factors) {
        Step step = scenario::with(made("backward_" + use, Op::backward, backward->buffer), "uses", &Step::uses, {use});
        put(gap, scenario::with(std::move(step), "by", &Step::by, std::optional(factor.expression())));
      }
    }
  }

  const std::vector<ListedStep>& steps_;
  const CandidateValues& values_;
  const std::vector<Product> expert_sizes_;
  std::vector<Gap> gaps_;
  std::vector<Candidate> candidates_;
};

}  // namespace

std::vector<Candidate> insertions(const std::vector<ListedStep>& steps, const CandidateValues& values) {
  return Insertions(steps, values).all();
}

std::optional<Candidate> in_two_steps(const Candidate& mean) {
  const Edit& edit = mean.edit;
  if (edit.action != Edit::Action::insert || edit.values.reduction != Reduction::average || !edit.values.over)
    return std::nullopt;
  Product ranks;
  for (const Over::Pick& pick : edit.values.over->picks) {
    if (pick.coordinates) return std::nullopt;
    ranks = ranks.times(Product::parse(name_of(pick.axis)));
  }
  Step sum = edit.values;
  scenario::remove_key(sum, "reduce");
  Step scale = sum;
  scenario::remove_key(scale, "over");
  scale.name = sum.name + "_scale";
  scale.op = Op::scale;
  scale = scenario::with(std::move(scale), "by", &Step::by, std::optional(Product().over(ranks).expression()));
  Candidate two = {Candidate::Kind::insert, scale.name, Edit::insert(scale, edit.beside.name, edit.after)};
  two.together = {{Candidate::Kind::insert, sum.name, Edit::insert(sum, scale.name, true)}};
  return two;
}

}  // namespace lockstep::diagnosis
