// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/candidates.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "src/diagnosis/inserts.h"
#include "src/diagnosis/step_editor.h"

namespace lockstep {

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
    if (step_->op != Op::each) {
      add(Kind::duplicate, Edit::duplicate(step_->name));
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
    add(Kind::drop, Edit::drop(step_->name));
    if (step_->each.empty()) return;
    for (const char* which : {"first", "last"}) add(Kind::timing, Edit::drop(step_->name, which));
  }

  void move() {
    if (step_->op == Op::wait) return;
    bool first_of_list = true;
    std::string list = "\n";
    for (const ListedStep& other : list_) {
      first_of_list = other.each != list && (list = other.each, true);
      if (other.name.empty() || other.name == step_->name) continue;
      // Backward has a meaning inside of `each` only.
      if (step_->op == Op::backward && other.each.empty()) continue;
      if (first_of_list && other.name != step_->next) add(Kind::move, Edit::move(step_->name, other.name, false));
      if (other.name != step_->before || other.each != step_->each)
        add(Kind::move, Edit::move(step_->name, other.name, true));
    }
  }

  void group() {
    if (!takes("over")) return;
    for (const Json& group : values_.groups) set(Kind::group, "over", group);
    if (!takes("root")) return;
    for (const char* root : {"0", "1"}) set(Kind::group, "root", Json::number(root));
  }

  void timing() {
    if (step_->op == Op::wait) return;
    if (key("async") != nullptr) {
      set(Kind::timing, "async", Json::boolean(false));
    } else if (row_->collective) {
      set(Kind::timing, "async", Json::boolean(true));
    }
    if (step_->each.empty()) return;
    for (const char* when : {"micro_batch == 0", "micro_batch == last", "micro_batch != last", "micro_batch != 0"})
      set(Kind::timing, "when", Json::string(when));
  }

  void ranks() {
    if (key("when") != nullptr) set(Kind::ranks, "when", Json());
    if (key("only") != nullptr) set(Kind::ranks, "only", Json());
    for (const std::string& axis : values_.dense_axes) {
      if (axis == "dp_shard" || axis == "dp_replicate") continue;
      set(Kind::ranks, "only", Json::object({{axis, {}, Json::array({Json::number("0")})}}));
      set(Kind::ranks, "only", Json::object({{axis, {}, Json::array({Json::string("last")})}}));
    }
    if (step_->op == Op::norm) counts();
  }

  void counts() {
    const std::string old = text_of(step_->step, "count");
    if (!old.empty()) set(Kind::ranks, "count", Json());
    std::vector<std::string> axes = values_.dense_axes;
    axes.insert(axes.end(), values_.expert_axes.begin(), values_.expert_axes.end());
    for (const std::string& axis : axes) {
      if (axis == "dp_shard" || axis == "dp_replicate") continue;
      const std::string one = fmt::format("rank.{} == 0", axis);
      if (old == one) continue;
      set(Kind::ranks, "count", Json::string(one));
      if (!old.empty()) set(Kind::ranks, "count", Json::string(fmt::format("{} and {}", old, one)));
    }
  }

  /// Another op in its place that says the same otherwise.
  void kind_of_step() {
    const auto become = [&](const char* op, std::vector<Json::Member> more) {
      more.insert(more.begin(), Json::Member{"op", {}, Json::string(op)});
      add(Kind::operation, Edit::set(step_->name, std::move(more)));
    };
    const auto without = [&](std::initializer_list<const char*> words) {
      std::vector<Json::Member> members;
      for (const char* word : words) {
        if (key(word) != nullptr) members.push_back({word, {}, Json()});
      }
      return members;
    };
    switch (step_->op) {
      case Op::all_reduce:
        become("reduce_scatter", {});
        break;
      case Op::reduce_scatter:
      case Op::reduce_scatter_v:
        become("all_reduce", without({"geometry", "on"}));
        break;
      case Op::reduce:
        become("all_reduce", without({"root"}));
        break;
      case Op::broadcast:
        become("all_reduce", without({"root"}));
        break;
      case Op::copy:
        become("accumulate", {});
        break;
      case Op::accumulate:
        become("copy", {});
        break;
      default:
        break;
    }
    if (const Json* on = key("on")) set(Kind::operation, "on", on->text() == "owned" ? Json() : Json::string("owned"));
  }

  void buffer() {
    if (values_.buffers.size() < 2 || step_->op == Op::wait) return;
    const bool two = step_->op == Op::copy || step_->op == Op::accumulate;
    for (const std::string& other : values_.buffers) {
      for (const char* word : two ? std::vector<const char*>{"from", "to"} : std::vector<const char*>{"buffer"}) {
        const std::string old = text_of(step_->step, word);
        if (other == (old.empty() ? "grad" : old)) continue;
        set(Kind::buffer, word, Json::string(other));
      }
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

std::vector<Candidate> single_edits(const Json& steps, const CandidateValues& values) {
  const std::vector<ListedStep> list = listed_steps(steps);
  std::vector<Candidate> candidates;
  for (const ListedStep& step : list) {
    if (!step.name.empty()) StepEdits(list, step, values, candidates).all();
  }
  for (Candidate& insert : insertions(list, values)) candidates.push_back(std::move(insert));
  return candidates;
}

}  // namespace lockstep
