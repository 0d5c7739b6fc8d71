// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/candidates.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "lockstep/operation.h"
#include "src/diagnosis/inserts.h"
#include "src/diagnosis/step_list.h"

namespace lockstep {

namespace {

using Kind = Candidate::Kind;

std::vector<std::string> items_of(const Json* selectors) {
  std::vector<std::string> items;
  if (selectors == nullptr) return items;
  if (selectors->is_string()) items.push_back(selectors->text());
  for (const Json& item : selectors->items()) items.push_back(item.text());
  return items;
}

Json list_of(const std::vector<std::string>& words) {
  std::vector<Json> items;
  for (const std::string& word : words) items.push_back(Json::string(word));
  return Json::array(std::move(items));
}

/// The edits of one step after the other.
class StepEdits {
 public:
  StepEdits(const Json& steps, const CandidateValues& values) : list_(listed_steps(steps)), values_(values) {}

  std::vector<Candidate> all() {
    for (const ListedStep& step : list_) {
      if (step.name.empty()) continue;
      step_ = &step;
      row_ = &operation(step.op);
      drop();
      if (step.op != Op::each) {
        add(Kind::duplicate, {{"duplicate", {}, name()}});
        move();
        group();
        factor();
        reduction();
        geometry();
        parameters();
        uses();
        kind_of_step();
        buffer();
      }
      timing();
      ranks();
    }
    for (Candidate& insert : insertions(list_, values_)) candidates_.push_back(std::move(insert));
    return std::move(candidates_);
  }

 private:
  Json name() const { return Json::string(step_->name); }
  const Json* key(const char* word) const { return step_->step.find(word); }
  bool takes(std::string_view word) const {
    const std::string keys = fmt::format(" {} ", row_->keys);
    return keys.find(fmt::format(" {} ", word)) != std::string::npos;
  }

  void add(Kind kind, std::vector<Json::Member> members) {
    candidates_.push_back({kind, step_->name, Json::object(std::move(members))});
  }

  void set(Kind kind, const char* word, const Json& value) {
    const Json* old = key(word);
    if (old == nullptr ? value.is_null() : old->same_as(value)) return;
    add(kind, {{"set", {}, name()}, {word, {}, value}});
  }

  void drop() {
    add(Kind::drop, {{"drop", {}, name()}});
    if (step_->each.empty()) return;
    for (const char* which : {"first", "last"})
      add(Kind::timing, {{"drop", {}, Json::string(fmt::format("{}[{}]", step_->name, which))}});
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
      if (first_of_list && other.name != step_->next)
        add(Kind::move, {{"move", {}, name()}, {"before", {}, Json::string(other.name)}});
      if (other.name != step_->before || other.each != step_->each)
        add(Kind::move, {{"move", {}, name()}, {"after", {}, Json::string(other.name)}});
    }
  }

  void group() {
    if (!takes("over")) return;
    for (const Json& group : values_.groups) set(Kind::group, "over", group);
    if (!takes("root")) return;
    for (const char* root : {"0", "1"}) set(Kind::group, "root", Json::number(root));
  }

  void factor() {
    if (takes("by")) {
      const Json* by = key("by");
      const Product old = by == nullptr ? Product() : Product::parse(by->text());
      for (const Product& size : values_.sizes) {
        set_factor(old.times(size));
        set_factor(old.over(size));
      }
      set_factor(Product());
      normalize(old);
    }
    if (!row_->collective || row_->value != Operation::Value::reduction) return;
    // A reduction has no factor of its own: a scale behind it.
    for (const Product& size : values_.sizes) {
      for (const Product& by : {size, Product().over(size)}) {
        Json scale =
            Json::object({{"name", {}, Json::string(step_->name + "_scale")}, {"op", {}, Json::string("scale")}});
        for (const char* word : {"params", "buffer", "when", "only"}) {
          if (const Json* value = key(word)) scale.set(word, *value);
        }
        scale.set("by", Json::string(by.to_string()));
        add(Kind::factor, {{"insert", {}, scale}, {"after", {}, name()}});
      }
    }
  }

  /// Divisors by token counts, with and without what else divides.
  void normalize(const Product& old) {
    const bool inside = !step_->each.empty();
    for (const Product& tokens : inside ? values_.token_counts : values_.token_totals) {
      set_factor(Product().over(tokens));
      set_factor(old.times(tokens));
      set_factor(old.over(tokens));
    }
    if (!inside) return;
    for (const Product& tokens : values_.token_totals) {
      set_factor(Product().over(tokens));
      set_factor(old.over(tokens));
      for (const Product& own : values_.token_counts) set_factor(old.times(own).over(tokens));
    }
    for (const Product& tokens : values_.token_counts) {
      for (const Product& size : values_.sizes) set_factor(Product().over(tokens).over(size));
      for (const Product& own : values_.token_counts) set_factor(old.times(own).over(tokens));
    }
  }

  void set_factor(const Product& by) {
    const std::string text = by.to_string();
    const Json* old = key("by");
    if (old != nullptr && Product::parse(old->text()).to_string() == text) return;
    if (old == nullptr && text == "1") return;
    set(Kind::factor, "by", text == "1" && step_->op == Op::backward ? Json() : Json::string(text));
  }

  void reduction() {
    if (takes("reduce"))
      set(Kind::reduction, "reduce", Json::string(text_of(step_->step, "reduce") == "avg" ? "sum" : "avg"));
    if (step_->op == Op::norm)
      set(Kind::reduction, "combine", text_of(step_->step, "combine").empty() ? Json::string("mean_of_norms") : Json());
  }

  void geometry() {
    if (!takes("geometry")) return;
    const Json* old = key("geometry");
    const std::string kind = old == nullptr ? "" : text_of(*old, "kind");
    const auto change = [&](std::vector<Json::Member> members) {
      add(Kind::geometry, {{"set", {}, name()}, {"geometry", {}, Json::object(std::move(members))}});
    };
    for (const char* other : {"parameter", "rows", "flat", "bucket"}) {
      if (kind != other && !(kind.empty() && std::string_view(other) == "parameter"))
        change({{"kind", {}, Json::string(other)}});
    }
    if (kind != "bucket") return;
    std::vector<std::string> separate = items_of(old->find("separate"));
    if (!separate.empty()) change({{"separate", {}, Json::array()}});
    for (const Json& selection : values_.selections) {
      std::vector<std::string> more = separate;
      for (const std::string& item : items_of(&selection)) {
        if (std::find(more.begin(), more.end(), item) == more.end()) more.push_back(item);
      }
      if (more.size() > separate.size()) change({{"separate", {}, list_of(more)}});
    }
    if (old->find("size") != nullptr) change({{"size", {}, Json()}});
  }

  void parameters() {
    if (step_->op == Op::wait || step_->op == Op::backward) return;
    const std::vector<std::string> old = items_of(key("params"));
    if (!old.empty()) set(Kind::parameters, "params", Json());
    for (std::size_t at = 0; at < old.size() && old.size() > 1; ++at) {
      std::vector<std::string> fewer = old;
      fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(at));
      set(Kind::parameters, "params", list_of(fewer));
    }
    for (const Json& selection : values_.selections) set(Kind::parameters, "params", selection);
    const auto with = [&](const std::string& item) {
      if (std::find(old.begin(), old.end(), item) != old.end()) return;
      std::vector<std::string> more = old;
      more.push_back(item);
      set(Kind::parameters, "params", list_of(more));
    };
    const bool all_but =
        std::all_of(old.begin(), old.end(), [](const std::string& item) { return item.starts_with('!'); });
    for (const std::string& item : values_.selectors) {
      with("!" + item);
      if (!all_but) with(item);
    }
    if (all_but) return;
    for (const Json& selection : values_.selections) {
      std::vector<std::string> more = old;
      for (const std::string& item : items_of(&selection)) {
        if (std::find(more.begin(), more.end(), item) == more.end()) more.push_back(item);
      }
      if (more.size() > old.size() + 1) set(Kind::parameters, "params", list_of(more));
    }
  }

  void uses() {
    if (!takes("uses") || values_.uses.size() < 2) return;
    set(Kind::parameters, "uses", Json());
    for (const std::string& use : values_.uses) set(Kind::parameters, "uses", list_of({use}));
    for (const std::string& use : values_.uses) {
      std::vector<std::string> others = values_.uses;
      std::erase(others, use);
      if (others.size() > 1) set(Kind::parameters, "uses", list_of(others));
    }
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
      std::vector<Json::Member> members = {{"set", {}, name()}, {"op", {}, Json::string(op)}};
      members.insert(members.end(), more.begin(), more.end());
      add(Kind::operation, std::move(members));
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

  std::vector<ListedStep> list_;
  const CandidateValues& values_;
  std::vector<Candidate> candidates_;
  const ListedStep* step_ = nullptr;
  const Operation* row_ = nullptr;
};

/// Where a step of `right` would go in `steps`: behind its nearest neighbour before it that is there, or in front of
/// the nearest after it.
std::optional<Json::Member> place_in(const std::vector<ListedStep>& steps, const std::vector<ListedStep>& right,
                                     std::size_t index) {
  const ListedStep& step = right[index];
  for (std::size_t at = index; at-- > 0;) {
    if (right[at].each == step.each && find_listed(steps, right[at].name) != nullptr)
      return Json::Member{"after", {}, Json::string(right[at].name)};
  }
  for (std::size_t at = index + 1; at < right.size(); ++at) {
    if (right[at].each == step.each && find_listed(steps, right[at].name) != nullptr)
      return Json::Member{"before", {}, Json::string(right[at].name)};
  }
  return std::nullopt;
}

/// Edits merge a geometry key by key.
Json::Member changed_keys(const Json& old, const Json::Member& right) {
  if (text_of(old, "kind") != text_of(right.value, "kind")) return right;
  Json geometry = Json::object();
  for (const Json::Member& member : right.value.members()) {
    const Json* same = old.find(member.key);
    if (same == nullptr || !same->same_as(member.value)) geometry.set(member.key, member.value);
  }
  for (const Json::Member& member : old.members()) {
    if (right.value.find(member.key) == nullptr) geometry.set(member.key, Json());
  }
  return {right.key, {}, geometry};
}

}  // namespace

std::string_view name_of(Candidate::Kind kind) {
  constexpr std::array<std::string_view, candidate_kind_count> names = {
      "restored", "dropped",    "doubled", "moved",           "other group", "factor", "sum or avg",
      "geometry", "parameters", "timing",  "a rank left out", "operation",   "buffer", "inserted"};
  return names[static_cast<std::size_t>(kind)];
}

std::vector<Candidate> single_edits(const Json& steps, const CandidateValues& values) {
  return StepEdits(steps, values).all();
}

std::vector<Candidate> restoring_edits(const Json& steps, const Json& right) {
  const std::vector<ListedStep> now = listed_steps(steps), then = listed_steps(right);
  std::vector<Candidate> candidates;
  for (std::size_t index = 0; index < then.size(); ++index) {
    const ListedStep& step = then[index];
    if (step.name.empty()) continue;
    const ListedStep* same = find_listed(now, step.name);
    if (same == nullptr) {
      if (const auto place = place_in(now, then, index))
        candidates.push_back({Kind::restore, step.name, Json::object({{"insert", {}, step.step}, *place})});
      continue;
    }
    std::vector<Json::Member> members = {{"set", {}, Json::string(step.name)}};
    for (const Json::Member& member : step.step.members()) {
      const Json* old = same->step.find(member.key);
      if (member.key == "steps" || (old != nullptr && old->same_as(member.value))) continue;
      members.push_back(old != nullptr && member.key == "geometry" ? changed_keys(*old, member) : member);
    }
    for (const Json::Member& member : same->step.members()) {
      if (step.step.find(member.key) == nullptr) members.push_back({member.key, {}, Json()});
    }
    if (members.size() > 1) candidates.push_back({Kind::restore, step.name, Json::object(std::move(members))});
  }
  return candidates;
}

}  // namespace lockstep
