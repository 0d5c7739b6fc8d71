// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/candidates.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>

#include "src/diagnosis/inserts.h"
#include "src/diagnosis/step_editor.h"
#include "src/expression/node.h"

namespace lockstep::diagnosis {

namespace {

using Kind = Candidate::Kind;

/// Of "a and (b or c)": "a" and "(b or c)".
void add_parts(const Expression::Node& node, std::vector<std::string>& parts) {
  const auto is = [&](const char* word) { return node.kind == Expression::Node::Kind::binary && node.text == word; };
  if (is("and")) {
    for (const auto& child : node.children) add_parts(*child, parts);
  } else {
    parts.push_back(is("or") ? fmt::format("({})", expression::print(node)) : expression::print(node));
  }
}

std::vector<std::string> parts_of(const std::optional<Expression>& condition) {
  std::vector<std::string> parts;
  if (condition) add_parts(condition->tree(), parts);
  return parts;
}

/// The edits of one step: where it stands, when and on which ranks it runs, and what it is.
class StepEdits : private StepEditor {
 public:
  StepEdits(const std::vector<ListedStep>& list, const ListedStep& step, const CandidateValues& values,
            std::vector<Candidate>& candidates)
      : StepEditor(step, values, candidates),
        list_(list),
        factors_(step, values, candidates),
        parameters_(step, values, candidates) {}

  void all() {
    drop();
    if (step_.op != Op::each) {
      add(Kind::duplicate, Edit::duplicate(step_.name));
      move();
      group();
      factors_.factor();
      factors_.reduction();
      parameters_.geometry();
      parameters_.parameters();
      parameters_.uses();
      kind_of_step();
      buffer();
    }
    timing();
    ranks();
  }

 private:
  void drop() {
    add(Kind::drop, Edit::drop(step_.name));
    if (listed_.each.empty()) return;
    for (const char* which : {"first", "last"}) add(Kind::timing, Edit::drop(step_.name, which));
  }

  void move() {
    if (step_.op == Op::wait) return;
    bool first_of_list = true;
    std::string list = "\n";
    for (const ListedStep& other : list_) {
      first_of_list = other.each != list && (list = other.each, true);
      if (other.name().empty() || other.name() == step_.name || is_far(other)) continue;
      // Backward has a meaning inside of `each` only.
      if (step_.op == Op::backward && other.each.empty()) continue;
      if (first_of_list && other.name() != listed_.next) move_beside(other, false);
      if (other.name() != listed_.before || other.each != listed_.each) move_beside(other, true);
    }
    to_an_iteration();
  }

  /// Of a long list the places to move to are those near by, the ends of lists, and those beside a loop or a backward.
  bool is_far(const ListedStep& other) const {
    constexpr std::ptrdiff_t moves = 40'000, least_reach = 8;
    const auto steps = static_cast<std::ptrdiff_t>(list_.size());
    const std::ptrdiff_t reach = std::max(least_reach, moves / (2 * steps));
    return steps * steps > moves && std::abs(&other - &listed_) > reach && other.op() != Op::each &&
           other.op() != Op::backward && !other.before.empty() && !other.next.empty();
  }

  /// Behind the loop there is no micro-batch, so that a condition on it stays behind.
  void move_beside(const ListedStep& other, bool after) {
    std::vector<Candidate> together;
    if (!listed_.each.empty() && other.each.empty() && is_in_iterations()) together.push_back(in_every_iteration());
    add(Kind::move, Edit::move(step_.name, other.name(), after), std::move(together));
  }

  bool is_in_iterations() const { return step_.when && step_.when->uses_micro_batch(); }

  /// Its condition without what it says of micro-batches.
  Candidate in_every_iteration() const {
    std::vector<std::string> parts = parts_of(step_.when);
    std::erase_if(parts, [](const std::string& part) { return Expression::parse(part).uses_micro_batch(); });
    if (parts.empty()) return {Kind::timing, step_.name, Edit::set(step_.name, {}, {"when"})};
    const std::optional<Expression> when = Expression::parse(fmt::format("{}", fmt::join(parts, " and ")));
    return {Kind::timing, step_.name, Edit::set(step_.name, scenario::with({}, "when", &Step::when, when))};
  }

  /// From one iteration to another where it stands. Where an edit of the file put it into one, another place is what
  /// takes it out of there, and not another condition.
  void to_an_iteration() {
    const std::string& beside = listed_.before.empty() ? listed_.next : listed_.before;
    if (listed_.each.empty() || !is_in_iterations() || beside.empty()) return;
    for (const char* iteration : {"first", "last"}) {
      Edit there = Edit::move(step_.name, beside, !listed_.before.empty());
      there.beside.iteration = iteration;
      const Candidate free = in_every_iteration();
      add(Kind::timing, free.edit, {{Kind::timing, step_.name, std::move(there)}});
    }
  }

  void group() {
    if (!takes("over")) return;
    if (step_.op == Op::norm) remove(Kind::group, "over");
    for (std::size_t at = 0; at < values_.groups.size(); ++at) {
      if (const std::optional<Over> group = values_.group_for(step_, at)) set(Kind::group, "over", &Step::over, group);
    }
    if (!takes("root")) return;
    for (const int position : {0, 1}) set(Kind::group, "root", &Step::root, std::optional(Root{position, {}, {}}));
  }

  void timing() {
    if (step_.op == Op::wait) return;
    if (has("async")) {
      set(Kind::timing, "async", &Step::async, false);
    } else if (row_.collective) {
      set(Kind::timing, "async", &Step::async, true);
    }
    if (listed_.each.empty()) return;
    for (const char* when : {"micro_batch == 0", "micro_batch == last", "micro_batch != last", "micro_batch != 0"})
      set_condition(Kind::timing, "when", &Step::when, when);
  }

  void ranks() {
    remove(Kind::ranks, "when");
    remove(Kind::ranks, "only");
    for (const std::string& name : values_.dense_axes) {
      const Axis axis = *axis_named(name);
      if (axis == Axis::dp_shard || axis == Axis::dp_replicate) continue;
      for (const auto kind : {Coordinate::Kind::number, Coordinate::Kind::last}) {
        const std::vector<Coordinate> written = {{kind, 0}};
        const bool same =
            step_.only.size() == 1 && step_.only.front().axis == axis && step_.only.front().written == written;
        if (!same) set(Kind::ranks, "only", &Step::only, {Only{axis, {}, written}});
      }
    }
    if (step_.op == Op::norm) counts();
  }

  void counts() {
    const std::vector<std::string> parts = parts_of(step_.count);
    std::vector<std::string> axes = values_.dense_axes;
    axes.insert(axes.end(), values_.expert_axes.begin(), values_.expert_axes.end());
    // On an axis of one rank nothing tells whether a part is right.
    std::vector<std::string> kept, choosing;
    for (const std::string& part : parts) {
      const bool chooses = std::any_of(axes.begin(), axes.end(), [&](const std::string& axis) {
        return part.find(fmt::format("rank.{} ", axis)) != std::string::npos;
      });
      (chooses || !part.starts_with("rank.") ? choosing : kept).push_back(part);
    }
    set_count(kept);
    for (const std::string& axis : axes) {
      if (axis == "dp_shard" || axis == "dp_replicate") continue;
      const std::string one = fmt::format("rank.{} == 0", axis);
      if (std::find(parts.begin(), parts.end(), one) != parts.end()) continue;
      set_count(kept, one);
      if (!choosing.empty()) set_count(parts, one);
    }
    for (const std::string& part : choosing) {
      if (choosing.size() > 1) set_count(without(parts, part));
    }
  }

  static std::vector<std::string> without(std::vector<std::string> parts, const std::string& part) {
    std::erase(parts, part);
    return parts;
  }

  void set_count(std::vector<std::string> parts, const std::string& another = "") {
    if (!another.empty()) parts.push_back(another);
    if (parts.empty()) return remove(Kind::ranks, "count");
    set_condition(Kind::ranks, "count", &Step::count, fmt::format("{}", fmt::join(parts, " and ")));
  }

  /// Another op in its place that says the same otherwise.
  void kind_of_step() {
    for (const Operation::Instead& instead : row_.instead) {
      const bool from_collective = row_.of_a_group() && row_.collective;
      if (from_collective || !operation(instead.op).collective) {
        become(instead);
      } else if (!row_.of_a_group()) {
        sum_instead(instead);
      } else if (step_.over && !step_.over->picks.empty()) {
        reduce_as_well(instead);
      }
    }
    if (step_.on_owned) {
      remove(Kind::operation, "on");
    } else if (has("on")) {
      set(Kind::operation, "on", &Step::on_owned, true);
    }
  }

  void become(const Operation::Instead& instead) {
    std::vector<std::string_view> without = instead.without;
    std::erase_if(without, [&](std::string_view key) { return !has(key); });
    add(Kind::operation, Edit::set(step_.name, scenario::with({}, "op", &Step::op, instead.op), std::move(without)));
  }

  /// Who says who owns what may have been meant to add it up too: here or where backward writes it.
  void reduce_as_well(const Operation::Instead& instead) {
    const Step reduction = scenario::with({}, "op", &Step::op, instead.op);
    add(Kind::operation, Edit::set(step_.name, reduction));
    for (const std::string& buffer : values_.buffers) {
      if (buffer != step_.buffer)
        add(Kind::operation, Edit::set(step_.name, scenario::with(reduction, "buffer", &Step::buffer, buffer)));
    }
  }

  /// A factor that is the number of ranks is the sum over them where all have the same.
  void sum_instead(const Operation::Instead& instead) {
    const std::string by = Product::of(step_.by).to_string();
    for (const Over& group : values_.groups) {
      if (group.picks.size() != 1 || group.picks.front().coordinates || name_of(group.picks.front().axis) != by)
        continue;
      Step sum = scenario::with({}, "op", &Step::op, instead.op);
      sum = scenario::with(std::move(sum), "over", &Step::over, std::optional(group));
      add(Kind::operation, Edit::set(step_.name, std::move(sum), instead.without));
    }
  }

  void buffer() {
    if (values_.buffers.size() < 2 || step_.op == Op::wait) return;
    const bool two = row_.reads_from();
    for (const std::string& other : values_.buffers) {
      if (two) set(Kind::buffer, "from", &Step::from, other);
      set(Kind::buffer, two ? "to" : "buffer", &Step::buffer, other);
    }
  }

  const std::vector<ListedStep>& list_;
  FactorEdits factors_;
  ParameterEdits parameters_;
};

}  // namespace

std::string_view name_of(Candidate::Kind kind) {
  constexpr std::array<std::string_view, candidate_kind_count> names = {
      "restored",   "dropped", "doubled",         "moved",     "other group", "factor",   "sum or avg",     "geometry",
      "parameters", "timing",  "a rank left out", "operation", "buffer",      "inserted", "flag, placement"};
  return names[static_cast<std::size_t>(kind)];
}

std::vector<Candidate> edits_of_steps(const std::vector<Step>& steps, const CandidateValues& values) {
  const std::vector<ListedStep> list = listed_steps(steps);
  std::vector<Candidate> candidates;
  for (const ListedStep& step : list) {
    if (!step.name().empty()) StepEdits(list, step, values, candidates).all();
  }
  return candidates;
}

std::vector<Candidate> single_edits(const std::vector<Step>& steps, const CandidateValues& values) {
  std::vector<Candidate> candidates = edits_of_steps(steps, values);
  for (Candidate& insert : insertions(listed_steps(steps), values)) candidates.push_back(std::move(insert));
  return candidates;
}

}  // namespace lockstep::diagnosis
