// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/inserts.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/operation.h"

namespace lockstep {

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
  Insertions(const std::vector<ListedStep>& steps, const CandidateValues& values) : steps_(steps), values_(values) {
    find_gaps();
  }

  std::vector<Candidate> all() {
    for (const Gap& gap : gaps_) {
      for (const std::string& buffer : buffers_near(gap)) {
        for (const Json& selection : values_.selections) {
          collectives(gap, buffer, selection);
          factors(gap, buffer, selection);
        }
        put(gap, "zero", "zero", buffer, nullptr, {});
        copies(gap, buffer);
      }
      waits(gap);
      if (gap.each.empty()) norms(gap);
      if (!gap.each.empty()) backwards(gap);
    }
    return std::move(candidates_);
  }

 private:
  void find_gaps() {
    std::string list = "\n";
    std::string last_top;
    for (const ListedStep& step : steps_) {
      if (step.each.empty() && !step.name.empty()) last_top = step.name;
    }
    for (const ListedStep& step : steps_) {
      const bool first = step.each != list && (list = step.each, !step.name.empty());
      if (step.name.empty()) continue;
      // Top-level steps that follow a body are not the first of their list.
      if (first && step.before.empty()) gaps_.push_back({step.each, step.name, false});
      gaps_.push_back({step.each, step.name, true, step.each.empty() && step.name == last_top});
    }
  }

  /// The buffer of the optimizer, and inside of `each` the one that its backward writes.
  std::vector<std::string> buffers_near(const Gap& gap) const {
    if (gap.each.empty()) return values_.buffers;
    std::vector<std::string> buffers;
    for (const ListedStep& step : steps_) {
      if (step.each != gap.each || step.op == Op::wait) continue;
      const std::string buffer = text_of(step.step, step.step.find("to") != nullptr ? "to" : "buffer");
      const std::string name = buffer.empty() ? "grad" : buffer;
      if (std::find(buffers.begin(), buffers.end(), name) == buffers.end()) buffers.push_back(name);
    }
    return buffers;
  }

  std::string free_name(const std::string& wanted) const {
    std::string name = wanted;
    for (int number = 2; find_listed(steps_, name) != nullptr; ++number) name = fmt::format("{}_{}", wanted, number);
    return name;
  }

  void put(const Gap& gap, const std::string& name, const char* op, const std::string& buffer, const Json* selection,
           const std::vector<Json::Member>& more) {
    Json step = Json::object({{"name", {}, Json::string(free_name(name))}, {"op", {}, Json::string(op)}});
    if (selection != nullptr && !is_all(*selection)) step.set("params", *selection);
    if (buffer != "grad") step.set("buffer", Json::string(buffer));
    for (const Json::Member& member : more) step.set(member.key, member.value);
    add(gap, step.find("name")->text(), step);
  }

  void add(const Gap& gap, const std::string& blamed, const Json& step) {
    candidates_.push_back({Candidate::Kind::insert, blamed, Edit::insert(step, gap.beside, gap.after)});
  }

  static bool is_all(const Json& selection) {
    return selection.items().size() == 1 && selection.items().front().text() == "*";
  }

  /// "dp", "dp_cp", "ends": what a step over the group is called after.
  static std::string word_for(const Json& group) {
    if (group.is_string()) return group.text();
    if (group.is_object()) return "ends";
    std::string word;
    for (const Json& axis : group.items()) word += (word.empty() ? "" : "_") + axis.text();
    return word;
  }

  void collectives(const Gap& gap, const std::string& buffer, const Json& selection) {
    for (const Json& group : values_.groups) {
      const std::string word = word_for(group);
      const Json::Member over{"over", {}, group};
      put(gap, word + "_all_reduce", "all_reduce", buffer, &selection, {over});
      put(gap, word + "_all_reduce", "all_reduce", buffer, &selection, {over, {"reduce", {}, Json::string("avg")}});
      put(gap, word + "_broadcast", "broadcast", buffer, &selection, {over, {"root", {}, Json::number("0")}});
      if (!gap.each.empty()) continue;
      put(gap, word + "_reduce_scatter", "reduce_scatter", buffer, &selection, {over});
      put(gap, word + "_reduce", "reduce", buffer, &selection, {over, {"root", {}, Json::number("0")}});
      put(gap, word + "_all_gather", "all_gather", buffer, &selection, {over});
    }
  }

  void factors(const Gap& gap, const std::string& buffer, const Json& selection) {
    const auto scale = [&](const Product& by) {
      put(gap, "scale", "scale", buffer, &selection, {{"by", {}, Json::string(by.to_string())}});
    };
    for (const Product& size : values_.sizes) {
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
      for (const char* op : {"copy", "accumulate"}) {
        put(gap, fmt::format("{}_{}", op, from), op, "grad", nullptr,
            {{"from", {}, Json::string(from)}, {"to", {}, Json::string(buffer)}});
      }
    }
  }

  void waits(const Gap& gap) {
    for (const ListedStep& step : steps_) {
      const Json* async = step.step.find("async");
      if (async == nullptr || !async->is_boolean() || !async->as_boolean()) continue;
      const Json wait = Json::object({{"op", {}, Json::string("wait")}, {"for", {}, Json::string(step.name)}});
      add(gap, step.name, wait);
    }
  }

  /// Only where a norm is taken: without one there is none to be right.
  void norms(const Gap& gap) {
    const auto norm =
        std::find_if(steps_.begin(), steps_.end(), [](const ListedStep& one) { return one.op == Op::norm; });
    if (norm == steps_.end() || !gap.end) return;
    for (const Json& selection : values_.selections) {
      std::vector<Json::Member> members;
      if (const Json* over = norm->step.find("over")) members.push_back({"over", {}, *over});
      put(gap, "norm", "norm", "grad", &selection, members);
      for (const std::string& axis : values_.dense_axes) {
        std::vector<Json::Member> counted = members;
        counted.push_back({"count", {}, Json::string(fmt::format("rank.{} == 0", axis))});
        put(gap, "norm", "norm", "grad", &selection, counted);
      }
    }
  }

  void backwards(const Gap& gap) {
    const auto backward =
        std::find_if(steps_.begin(), steps_.end(), [](const ListedStep& one) { return one.op == Op::backward; });
    if (backward == steps_.end() || values_.uses.size() < 2) return;
    const std::string buffer = text_of(backward->step, "buffer");
    const Json* by = backward->step.find("by");
    std::vector<Product> factors = {by == nullptr ? Product() : Product::parse(by->text())};
    for (const Product& weight : values_.loss_weights) {
      factors.push_back(weight);
      for (const Product& size : values_.axis_sizes) factors.push_back(weight.times(size));
    }
    for (const std::string& use : values_.uses) {
      const Json uses = Json::array({Json::string(use)});
      for (const Product& factor : factors)
        put(gap, "backward_" + use, "backward", buffer.empty() ? "grad" : buffer, nullptr,
            {{"uses", {}, uses}, {"by", {}, Json::string(factor.to_string())}});
    }
  }

  const std::vector<ListedStep>& steps_;
  const CandidateValues& values_;
  std::vector<Gap> gaps_;
  std::vector<Candidate> candidates_;
};

}  // namespace

std::vector<Candidate> insertions(const std::vector<ListedStep>& steps, const CandidateValues& values) {
  return Insertions(steps, values).all();
}

}  // namespace lockstep
