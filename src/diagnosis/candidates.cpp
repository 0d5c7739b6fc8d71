// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/candidates.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "src/diagnosis/inserts.h"
#include "src/diagnosis/step_editor.h"

namespace lockstep::diagnosis {

namespace {

using Kind = Candidate::Kind;

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
      if (other.name().empty() || other.name() == step_.name) continue;
      // Backward has a meaning inside of `each` only.
      if (step_.op == Op::backward && other.each.empty()) continue;
      if (first_of_list && other.name() != listed_.next) add(Kind::move, Edit::move(step_.name, other.name(), false));
      if (other.name() != listed_.before || other.each != listed_.each)
        add(Kind::move, Edit::move(step_.name, other.name(), true));
    }
  }

  void group() {
    if (!takes("over")) return;
    for (const Over& group : values_.groups) set(Kind::group, "over", &Step::over, std::optional(group));
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
    remove(Kind::ranks, "count");
    const std::string old = step_.count ? step_.count->text() : "";
    std::vector<std::string> axes = values_.dense_axes;
    axes.insert(axes.end(), values_.expert_axes.begin(), values_.expert_axes.end());
    for (const std::string& axis : axes) {
      if (axis == "dp_shard" || axis == "dp_replicate") continue;
      const std::string one = fmt::format("rank.{} == 0", axis);
      if (old == one) continue;
      set_condition(Kind::ranks, "count", &Step::count, one);
      if (!old.empty()) set_condition(Kind::ranks, "count", &Step::count, fmt::format("{} and {}", old, one));
    }
  }

  /// Another op in its place that says the same otherwise.
  void kind_of_step() {
    const auto become = [&](Op op, std::vector<std::string_view> without) {
      std::erase_if(without, [&](std::string_view key) { return !has(key); });
      add(Kind::operation, Edit::set(step_.name, scenario::with({}, "op", &Step::op, op), std::move(without)));
    };
    switch (step_.op) {
      case Op::all_reduce:
        become(Op::reduce_scatter, {});
        break;
      case Op::reduce_scatter:
      case Op::reduce_scatter_v:
        become(Op::all_reduce, {"geometry", "on"});
        break;
      case Op::reduce:
      case Op::broadcast:
        become(Op::all_reduce, {"root"});
        break;
      case Op::copy:
        become(Op::accumulate, {});
        break;
      case Op::accumulate:
        become(Op::copy, {});
        break;
      default:
        break;
    }
    if (step_.on_owned) {
      remove(Kind::operation, "on");
    } else if (has("on")) {
      set(Kind::operation, "on", &Step::on_owned, true);
    }
  }

  void buffer() {
    if (values_.buffers.size() < 2 || step_.op == Op::wait) return;
    const bool two = step_.op == Op::copy || step_.op == Op::accumulate;
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
      "restored", "dropped",    "doubled", "moved",           "other group", "factor", "sum or avg",
      "geometry", "parameters", "timing",  "a rank left out", "operation",   "buffer", "inserted"};
  return names[static_cast<std::size_t>(kind)];
}

std::vector<Candidate> single_edits(const std::vector<Step>& steps, const CandidateValues& values) {
  const std::vector<ListedStep> list = listed_steps(steps);
  std::vector<Candidate> candidates;
  for (const ListedStep& step : list) {
    if (!step.name().empty()) StepEdits(list, step, values, candidates).all();
  }
  for (Candidate& insert : insertions(list, values)) candidates.push_back(std::move(insert));
  return candidates;
}

}  // namespace lockstep::diagnosis
