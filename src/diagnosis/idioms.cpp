// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/idioms.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <string_view>

#include "lockstep/operation.h"
#include "src/diagnosis/product.h"
#include "src/diagnosis/repair_order.h"
#include "src/diagnosis/step_words.h"

namespace lockstep::diagnosis {

namespace {

/// The loss of a micro-batch is the mean over its tokens, and that of the step the mean over the micro-batches.
bool takes_mean(const Step& backward) {
  return backward.op == Op::backward &&
         Product::of(backward.by).to_string() == Product::parse("1 / (tokens * micro_batches)").to_string();
}

/// A sum over ranks that a scale by one over their number, or over that of one of the axes, makes a mean of.
bool completes(const Schedule& schedule, const Step& scale, const Step& sum) {
  const Operation& row = operation(sum.op);
  if (scale.op != Op::scale || !scale.by || !row.collective || row.value != Operation::Value::reduction ||
      sum.reduction != Reduction::sum || scale.buffer != sum.buffer || scale.params != sum.params)
    return false;
  const int ranks = ranks_over(schedule, sum.over);
  if (ranks < 2) return false;
  const std::optional<Rational> by = constant_of(schedule, *scale.by);
  return by == Rational(1, ranks) ||
         std::any_of(sum.over->picks.begin(), sum.over->picks.end(), [&](const Over::Pick& pick) {
           const int size = schedule.mesh.size(pick.axis);
           return !pick.coordinates && size > 1 && by == Rational(1, size);
         });
}

/// What the loss of a step is divided by, with axes of more than one rank: "sum(tokens, dp, micro_batch)".
std::string tokens_of_loss(const Schedule& schedule) {
  const auto main = schedule.batch.loss_of_use.find("main");
  const Loss::Kind kind = main == schedule.batch.loss_of_use.end() ? Loss::Kind::token_mean : main->second.kind;
  if (kind == Loss::Kind::sum || kind == Loss::Kind::weight) return "";
  std::string sum = "tokens";
  const bool all = kind == Loss::Kind::token_mean;
  for (const Axis axis : {Axis::cp, Axis::dp, Axis::sp}) {
    if (schedule.mesh.size(axis) > 1 && kind != Loss::Kind::local_mean && (all || axis != Axis::dp))
      sum += fmt::format(", {}", name_of(axis));
  }
  if (all) return fmt::format("sum({}, micro_batch)", sum);
  return fmt::format("{} * micro_batches", sum == "tokens" ? sum : fmt::format("sum({})", sum));
}

/// The same sums over the same axes have one text, as tokens_of_loss() has it: "sum(tokens, cp, dp, micro_batch)".
std::string with_axes_in_order(std::string text) {
  constexpr std::string_view begin_of_sum = "sum(";
  for (std::size_t at = text.find(begin_of_sum); at != std::string::npos; at = text.find(begin_of_sum, at)) {
    at += begin_of_sum.size();
    const std::size_t end = text.find(')', at);
    std::vector<std::string> parts;
    for (std::size_t begin = at; begin < end;) {
      const std::size_t comma = std::min(text.find(", ", begin), end);
      parts.push_back(text.substr(begin, comma - begin));
      begin = comma == end ? end : comma + 2;
    }
    std::sort(parts.begin() + 1, parts.end());
    text.replace(at, end - at, fmt::format("{}", fmt::join(parts, ", ")));
  }
  return text;
}

}  // namespace

Idioms::Idioms(const std::vector<Step>& steps, const Schedule& schedule)
    : list_(listed_steps(steps)),
      mesh_(schedule.mesh),
      parameters_(schedule.model.parameters()),
      result_(schedule.result),
      loss_tokens_(tokens_of_loss(schedule)) {
  find_means(schedule);
}

void Idioms::find_means(const Schedule& schedule) {
  std::map<std::string, std::set<std::string>> scales;  // by the sum
  const ListedStep* before = nullptr;
  for (const ListedStep& step : list_) {
    if (step.op() == Op::wait) continue;
    if (before != nullptr && before->each == step.each) {
      if (completes(schedule, *before->step, *step.step)) scales[step.name()].insert(before->name());
      if (completes(schedule, *step.step, *before->step)) scales[before->name()].insert(step.name());
    }
    before = &step;
  }
  for (const auto& [sum, names] : scales) {
    // Of two, one is too many, and nothing says which.
    if (names.size() == 1) completes_mean_.insert(*names.begin());
  }
}

/// A norm that counts something wrongly can be dropped, for what is in no norm is in none wrongly; but then the
/// gradient is not clipped by the norm of all of it. The same goes for a clip.
bool Idioms::loses_norm(const std::vector<Candidate>& edits) const {
  const auto of_norm = [](const ListedStep& step) {
    const Operation& row = operation(step.op());
    return row.counts || row.clips();
  };
  const auto is_dropped = [&](const ListedStep& step) {
    return std::any_of(edits.begin(), edits.end(), [&](const Candidate& edit) {
      return edit.edit.action == Edit::Action::drop && edit.edit.step.name == step.name();
    });
  };
  const auto counts = [](const ListedStep& step, const Parameter& parameter) {
    return !parameter.frozen && ActingStep(*step.step).acts_on(parameter);
  };
  return std::any_of(list_.begin(), list_.end(), [&](const ListedStep& lost) {
    return of_norm(lost) && is_dropped(lost) &&
           std::any_of(parameters_.begin(), parameters_.end(), [&](const Parameter& parameter) {
             return counts(lost, parameter) && std::none_of(list_.begin(), list_.end(), [&](const ListedStep& other) {
                      return other.op() == lost.op() && !is_dropped(other) && counts(other, parameter);
                    });
           });
  });
}

bool Idioms::leaves_owners_to_reductions(const std::vector<Candidate>& edits) const {
  if (edits.size() != 1 || edits.front().edit.action != Edit::Action::drop) return false;
  const ListedStep* step = find_listed(list_, edits.front().step);
  // What every rank owns all of is asked for; slices are what reductions leave.
  if (step == nullptr || step->op() != Op::own || !step->step->over || step->step->over->picks.empty()) return false;
  if (step->step->geometry->kind == Geometry::Kind::counts) return false;  // no rule, but what ranks hold
  return std::any_of(list_.begin(), list_.end(), [&](const ListedStep& other) {
    if (operation(other.op()).ownership != Operation::Ownership::intersects_own_slice) return false;
    const ActingStep own(*step->step), reduction(*other.step);
    return std::any_of(parameters_.begin(), parameters_.end(), [&](const Parameter& parameter) {
      return !parameter.frozen && own.acts_on(parameter) && reduction.acts_on(parameter);
    });
  });
}

bool Idioms::repeats(const std::vector<Candidate>& edits) const {
  if (edits.size() != 1 || edits.front().edit.action != Edit::Action::insert) return false;
  const Step& added = edits.front().edit.values;
  if (!added.over || !operation(added.op).reduces()) return false;
  const std::vector<std::vector<int>> groups = mesh_.groups(*added.over).members;
  const ActingStep acting(added);
  return std::any_of(list_.begin(), list_.end(), [&](const ListedStep& other) {
    const Step& step = *other.step;
    if (!step.over || !operation(step.op).reduces() || step.buffer != added.buffer || step.when || !step.only.empty() ||
        mesh_.groups(*step.over).members != groups)
      return false;
    const ActingStep there(step);
    return std::all_of(parameters_.begin(), parameters_.end(), [&](const Parameter& parameter) {
      return parameter.frozen || !acting.acts_on(parameter) || there.acts_on(parameter);
    });
  });
}

int Idioms::alike(const std::vector<Candidate>& edits) const {
  const ListedStep* first = find_listed(list_, edits.front().step);
  return static_cast<int>(std::count_if(edits.begin(), edits.end(), [&](const Candidate& edit) {
    const ListedStep* step = find_listed(list_, edit.step);
    return edit.is_with_previous && edit.edit.action == edits.front().edit.action && first != nullptr &&
           step != nullptr && step->op() == first->op();
  }));
}

bool Idioms::leaves_loop(const std::vector<Candidate>& edits) const {
  return std::any_of(edits.begin(), edits.end(), [&](const Candidate& edit) {
    if (edit.edit.action != Edit::Action::move) return false;
    const ListedStep *step = find_listed(list_, edit.step), *beside = find_listed(list_, edit.edit.beside.name);
    return step != nullptr && beside != nullptr && step->each != beside->each;
  });
}

bool Idioms::moves_only_backward(const std::vector<Candidate>& edits) const {
  const ListedStep* moved = find_listed(list_, edits.front().step);
  if (edits.size() != 1 || edits.front().edit.action != Edit::Action::move || moved == nullptr ||
      moved->op() != Op::backward)
    return false;
  const ActingStep own(*moved->step);
  return std::none_of(list_.begin(), list_.end(), [&](const ListedStep& other) {
    if (other.op() != Op::backward || other.name() == moved->name()) return false;
    const ActingStep acting(*other.step);
    return std::any_of(parameters_.begin(), parameters_.end(), [&](const Parameter& parameter) {
      return !parameter.frozen && own.acts_on(parameter) && acting.acts_on(parameter);
    });
  });
}

bool Idioms::drops_meeting(const std::vector<Candidate>& edits) const {
  return std::any_of(edits.begin(), edits.end(), [&](const Candidate& edit) {
    const ListedStep* step = find_listed(list_, edit.step);
    return edit.edit.action == Edit::Action::drop && step != nullptr && operation(step->op()).collective;
  });
}

/// Where backward writes a buffer for one micro-batch, its own shares over the axes that parameters are partial over
/// are summed there, as automatic differentiation does; what ranks have from other data is summed wherever that costs
/// least.
bool Idioms::ends_backward(const std::vector<Candidate>& edits) const {
  if (edits.size() != 1) return false;
  const Edit& edit = edits.front().edit;
  const Step& added = edit.values;
  if (edit.action != Edit::Action::insert || added.op != Op::all_reduce || added.reduction != Reduction::sum ||
      !added.over || added.buffer == result_)
    return false;
  const ListedStep* beside = find_listed(list_, edit.beside.name);
  if (beside == nullptr || beside->each.empty()) return false;
  const ActingStep acting(added);
  return std::all_of(parameters_.begin(), parameters_.end(), [&](const Parameter& parameter) {
    return parameter.frozen || !acting.acts_on(parameter) ||
           std::all_of(added.over->picks.begin(), added.over->picks.end(), [&](const Over::Pick& pick) {
             return std::find(parameter.partial.begin(), parameter.partial.end(), pick.axis) != parameter.partial.end();
           });
  });
}

int Idioms::distance(const std::vector<Candidate>& edits) const {
  constexpr int moved_backward = 1, broken = 3;
  int sum = 0;
  const std::string* leading = nullptr;
  for (std::size_t i = 0; i < edits.size(); ++i) {
    const Candidate& edit = edits[i];
    if (!edit.is_with_previous) leading = &edit.step;
    // The same of a step that goes with it is no way further; another change of the same step is.
    if (edit.step != *leading) continue;
    const bool has_partner = edit.is_with_previous || (i + 1 < edits.size() && edits[i + 1].is_with_previous);
    int one = distance_of(edit);
    const ListedStep* step = find_listed(list_, edit.step);
    const bool is_new = edit.edit.action == Edit::Action::insert;
    if (step != nullptr && !is_new && edit.kind != Candidate::Kind::restore) {
      // The model decides where it runs.
      if (edit.kind == Candidate::Kind::move && step->op() == Op::backward) one += moved_backward;
      if (edit.kind == Candidate::Kind::duplicate && step->op() == Op::backward) one += moved_backward;
      if (completes_mean_.contains(edit.step) && !has_partner) one = broken;
      if (step->op() == Op::norm && edit.edit.changes("over") && !edit.edit.values.over) one = broken;
      if (edit.kind == Candidate::Kind::factor && takes_mean(*step->step)) one = broken;
    }
    sum += one;
  }
  return sum;
}

int Idioms::place(const std::vector<Candidate>& edits) const {
  const Edit& edit = edits.front().edit;
  // A mean may be brought in as a scale and a sum.
  const bool in_two = edits.size() == 2 && edits.back().is_with_previous && edit.values.op == Op::scale;
  if ((edits.size() != 1 && !in_two) || edit.action != Edit::Action::insert) return 0;
  const Step& reduction = edits.back().edit.values;
  const ListedStep* beside = find_listed(list_, edit.beside.name);
  if (beside == nullptr || operation(reduction.op).value != Operation::Value::reduction) return 0;
  auto last = list_.begin() + (beside - list_.data());
  if (!edit.after) {
    if (last == list_.begin()) return 0;
    --last;
  } else if (beside->op() == Op::each) {
    while (last + 1 != list_.end() && !(last + 1)->each.empty()) ++last;
  }
  const ActingStep added(reduction);
  const bool too_late = std::any_of(list_.begin(), last + 1, [&](const ListedStep& step) {
    const Operation& row = operation(step.op());
    if (row.counts || row.ownership != Operation::Ownership::intersects_own_slice) return row.counts;
    const ActingStep acting(*step.step);
    return std::any_of(parameters_.begin(), parameters_.end(), [&](const Parameter& parameter) {
      return !parameter.frozen && added.acts_on(parameter) && acting.acts_on(parameter);
    });
  });
  return too_late ? 1 : -static_cast<int>(last - list_.begin());
}

bool Idioms::counts_otherwise(const std::vector<Candidate>& edits) const {
  return !loss_tokens_.empty() && std::any_of(edits.begin(), edits.end(), [&](const Candidate& edit) {
    if (!edit.edit.changes("by")) return false;
    const std::string by = with_axes_in_order(Product::of(edit.edit.values.by).to_string());
    return by.find("tokens") != std::string::npos && !Product::parse(by).divides_by(Product::parse(loss_tokens_));
  });
}

int Idioms::factor_place(const std::vector<Candidate>& edits) const {
  int place = 0;
  for (std::size_t i = 0; i < edits.size(); ++i) {
    const bool has_partner = i + 1 < edits.size() && edits[i + 1].is_with_previous;
    if (!edits[i].is_with_previous && !has_partner) place = std::max(place, factor_place(edits[i]));
  }
  return place;
}

int Idioms::factor_place(const Candidate& candidate) const {
  enum Place { loss = 0, scale, elsewhere, added };
  const Edit& edit = candidate.edit;
  if (edit.action == Edit::Action::insert) return edit.values.op == Op::scale ? added : 0;
  const ListedStep* step = find_listed(list_, candidate.step);
  if (step == nullptr || edit.action != Edit::Action::set) return 0;
  if (edit.changes("reduce")) return elsewhere;
  if (!edit.changes("by")) return 0;
  if (step->op() != Op::backward) return scale;
  return Product::of(step->step->by).to_string() == "1" ? elsewhere : loss;
}

}  // namespace lockstep::diagnosis
