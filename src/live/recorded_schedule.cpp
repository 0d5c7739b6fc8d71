// SPDX-License-Identifier: Apache-2.0
#include "src/live/recorded_schedule.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <tuple>

#include "src/live/recorded_model.h"
#include "src/live/run_layout.h"

namespace lockstep::live {

namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

/// The buffer in which the gradient waits for a reduce-scatter; what comes out of that is added to the optimizer's.
constexpr const char* unreduced = "unreduced";

/// Every gradient that goes through a reduce-scatter. What FSDP and ZeRO reduce is not where they keep what came out.
bool is_scattered(const Recording& recording, int parameter) {
  const std::vector<MetCall>& met = recording.calls.of_parameter[at(parameter)];
  return std::any_of(met.begin(), met.end(),
                     [&](const MetCall& one) { return recording.calls.calls[at(one.call)].op == "reduce_scatter"; });
}

/// Whether ranks that see different tokens sum, so that somebody may divide before.
bool sums(const GradientCall& call) {
  return !call.average && call.op != "broadcast" && call.op != "all_gather" &&
         std::any_of(call.axes.begin(), call.axes.end(), splits_tokens);
}

/// With the characters alone that names of steps have.
std::string step_word(std::string text) {
  for (char& c : text) {
    const bool known = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string_view("_.-:/").find(c) != std::string_view::npos;
    if (!known) c = '_';
  }
  return text;
}

class Writer {
 public:
  Writer(const Recording& recording, const std::vector<Unseen>& unseen) : recording_(recording), unseen_(unseen) {
    const auto& parameters = recording.run->parameters;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const int parameter = static_cast<int>(i);
      if (!parameters[i].declared.frozen && !recording.placements[i].untouched && recording.experts.leads(parameter))
        all_.push_back(parameter);
    }
    most_ = *std::max_element(recording.micro_batches.begin(), recording.micro_batches.end());
    find_steps();
  }

  Json scenario() {
    Json document = described(recording_);
    Json schedule = Json::object();
    schedule.set("steps", steps());
    document.set("schedule", schedule);
    return document;
  }

 private:
  /// A step that several parameters share: what it does, when, and to which buffer.
  struct Shared {
    int call = 0;
    bool in_tail = false;  // after all micro-batches
    std::set<int> passes;
    bool owned = false, scattered = false, rows = true, in_backward = false;
    int occurrence = 0;
    int parted = -1;  // a sequence of calls that goes with no common order: steps of its own
    auto key() const {
      return std::tie(call, in_tail, passes, owned, scattered, rows, in_backward, occurrence, parted);
    }
    bool operator<(const Shared& other) const { return key() < other.key(); }
  };
  struct Placed {
    std::size_t order = SIZE_MAX;
    std::vector<int> parameters;
  };

  // The steps.

  void find_steps() {
    for (const int parameter : all_) {
      for (const auto& [step, order] : shared_of(parameter, -1)) {
        Placed& placed = placed_[step];
        placed.order = std::min(placed.order, order);
        placed.parameters.push_back(parameter);
      }
    }
    // Where the common order is not that of a parameter, its steps are its own, and those of others that go like it.
    std::map<std::vector<Shared>, int> sequences;
    for (const int parameter : all_) {
      const auto own = shared_of(parameter, -1);
      const bool ordered = std::is_sorted(own.begin(), own.end(), [&](const auto& a, const auto& b) {
        if (a.first.in_tail != b.first.in_tail) return b.first.in_tail;
        return placed_.at(a.first).order < placed_.at(b.first).order;
      });
      if (ordered) continue;
      std::vector<Shared> sequence;
      for (const auto& [step, order] : own) {
        sequence.push_back(step);
        std::erase(placed_.at(step).parameters, parameter);
      }
      const int number = sequences.try_emplace(sequence, static_cast<int>(sequences.size())).first->second;
      for (const auto& [step, order] : shared_of(parameter, number)) {
        Placed& placed = placed_[step];
        placed.order = std::min(placed.order, order);
        placed.parameters.push_back(parameter);
      }
    }
    std::erase_if(placed_, [](const auto& entry) { return entry.second.parameters.empty(); });
  }

  /// What one parameter takes part in, in its order, each with its place in the run.
  std::vector<std::pair<Shared, std::size_t>> shared_of(int parameter, int parted) const {
    const std::vector<MetCall>& met = recording_.calls.of_parameter[at(parameter)];
    std::size_t tail = met.size();
    const std::set<int> last = {most_ - 1};
    while (tail > 0 && met[tail - 1].passes == last && (most_ > 1 || !met[tail - 1].in_backward)) --tail;
    std::vector<std::pair<Shared, std::size_t>> own;
    const bool scattered = is_scattered(recording_, parameter);
    bool owned = false;
    std::map<Shared, int> times;
    for (std::size_t i = 0; i < met.size(); ++i) {
      const GradientCall& call = recording_.calls.calls[at(met[i].call)];
      Shared step;
      step.call = met[i].call;
      step.in_tail = i >= tail;
      step.passes = met[i].passes;
      step.in_backward = met[i].in_backward;
      step.scattered = scattered;
      if (i == tail) owned = false;
      step.owned = owned && call.op != "all_gather";
      step.rows = call.op != "reduce_scatter" || cut_by_rows(parameter);
      owned = owned || call.op == "reduce_scatter";
      step.parted = parted;
      step.occurrence = times[step]++;
      own.emplace_back(std::move(step), met[i].order);
    }
    return own;
  }

  bool cut_by_rows(int parameter) const {
    const DeclaredParameter& declared = recording_.run->parameters[at(parameter)].declared;
    for (std::size_t i = 0; i < declared.pieces.size(); ++i) {
      if (!box_of_piece(declared, static_cast<int>(i), declared.shape)) return false;
    }
    return true;
  }

  Json steps() {
    std::vector<std::pair<std::size_t, const Shared*>> each, tail;
    for (const auto& [step, placed] : placed_) (step.in_tail ? tail : each).emplace_back(placed.order, &step);
    std::sort(each.begin(), each.end(), [](const auto& a, const auto& b) {
      return a.first < b.first || (a.first == b.first && *a.second < *b.second);
    });
    std::sort(tail.begin(), tail.end(), [](const auto& a, const auto& b) {
      return a.first < b.first || (a.first == b.first && *a.second < *b.second);
    });
    std::vector<Json> list, inner;
    add(list, "zero", "zero", chosen([](const Unseen& one) { return !one.kept; }));
    add(inner, "zero_between", "zero", chosen([](const Unseen& one) { return one.cleared_between; }),
        [](Json& step) { step.set("when", Json::string("micro_batch != first")); });
    std::vector<int> direct, scattered;
    for (const int parameter : all_) (is_scattered(recording_, parameter) ? scattered : direct).push_back(parameter);
    add(inner, "backward", "backward", direct, [&](Json& step) { by(step); });
    add(inner, "backward", "backward", scattered, [&](Json& step) {
      by(step);
      step.set("buffer", Json::string(unreduced));
    });
    for (const auto& [order, step] : each) collective(inner, *step, placed_.at(*step).parameters);
    collect(inner, each, false);
    Json loop = Json::object();
    loop.set("name", Json::string("micro_batches"));
    loop.set("op", Json::string("each"));
    loop.set("steps", Json::array(std::move(inner)));
    list.push_back(loop);
    for (const auto& [order, step] : tail) collective(list, *step, placed_.at(*step).parameters);
    collect(list, tail, true);
    redistribute(list);
    std::map<Rational, std::vector<int>> factors;
    for (const int parameter : all_) {
      if (const auto& factor = unseen_[at(parameter)].factor) factors[*factor].push_back(parameter);
    }
    for (const auto& [factor, parameters] : factors) {
      add(list, "scale", "scale", parameters, [&](Json& step) { step.set("by", Json::string(factor.to_string())); });
    }
    return Json::array(std::move(list));
  }

  template <class Choice>
  std::vector<int> chosen(const Choice& choice) const {
    std::vector<int> parameters;
    for (const int parameter : all_) {
      if (choice(unseen_[at(parameter)])) parameters.push_back(parameter);
    }
    return parameters;
  }

  /// Adds a step on these parameters, if there are any.
  void add(std::vector<Json>& list, const std::string& name, std::string_view op, const std::vector<int>& parameters,
           const std::function<void(Json&)>& fill = {}) {
    if (parameters.empty()) return;
    Json step = Json::object();
    const int times = ++names_[name];
    step.set("name", Json::string(times == 1 ? name : fmt::format("{}.{}", name, times)));
    step.set("op", Json::string(std::string(op)));
    if (parameters.size() != all_.size()) step.set("params", selectors(parameters));
    if (fill) fill(step);
    list.push_back(step);
  }

  Json selectors(const std::vector<int>& parameters) const {
    std::vector<int> others;
    std::set_difference(all_.begin(), all_.end(), parameters.begin(), parameters.end(), std::back_inserter(others));
    const auto is_expert = [&](int parameter) { return recording_.experts.coordinate[at(parameter)] >= 0; };
    // All experts, or all others.
    for (const bool experts : {true, false}) {
      if (recording_.experts.mesh &&
          std::all_of(parameters.begin(), parameters.end(), [&](int one) { return is_expert(one) == experts; }) &&
          std::all_of(others.begin(), others.end(), [&](int one) { return is_expert(one) != experts; }))
        return Json::array({Json::string(experts ? "shard:ep" : "!shard:ep")});
    }
    const bool exclude = others.size() < parameters.size();
    std::vector<Json> items;
    for (const int parameter : exclude ? others : parameters) {
      const std::string item = selector_of(recording_, parameter);
      items.push_back(Json::string(exclude ? "!" + item : item));
    }
    return Json::array(std::move(items));
  }

  /// What each rank's backward is the gradient of (docs/verify.md).
  void by(Json& step) const {
    if (recording_.loss == CapturedLoss::sum) return;
    std::vector<std::string> divisors;
    if (recording_.loss != CapturedLoss::token_sum) divisors.emplace_back("tokens");
    if (recording_.loss == CapturedLoss::mean) divisors.emplace_back("micro_batches");
    divisors.insert(divisors.end(), recording_.shares.begin(), recording_.shares.end());
    if (divisors.empty()) return;
    step.set("by", Json::string(divisors.size() == 1 ? "1 / " + divisors.front()
                                                     : fmt::format("1 / ({})", fmt::join(divisors, " * "))));
  }

  std::optional<std::string> when(const std::set<int>& passes) const {
    const int count = static_cast<int>(passes.size());
    if (count == most_) return std::nullopt;
    if (passes == std::set<int>{0}) return "micro_batch == first";
    if (passes == std::set<int>{most_ - 1}) return "micro_batch == last";
    if (count == most_ - 1 && !passes.contains(0)) return "micro_batch != first";
    if (count == most_ - 1 && !passes.contains(most_ - 1)) return "micro_batch != last";
    return fmt::format("micro_batch == {}", fmt::join(passes, " or micro_batch == "));
  }

  void place(Json& step, const Shared& shared) const {
    if (const auto condition = shared.in_tail ? std::nullopt : when(shared.passes))
      step.set("when", Json::string(*condition));
    if (shared.scattered) step.set("buffer", Json::string(unreduced));
  }

  static Json over(const GradientCall& call, const std::vector<std::string>& axes) {
    if (call.stages.empty())
      return axes.size() == 1 ? Json::string(axes.front())
                              : list_of(axes, [](const std::string& axis) { return Json::string(axis); });
    Json picks = Json::object();
    for (const std::string& axis : axes)
      picks.set(axis, axis == name_of(Axis::pp) ? list_of(call.stages, json_number) : Json::string("all"));
    return picks;
  }

  void collective(std::vector<Json>& list, const Shared& shared, std::vector<int> parameters) {
    std::sort(parameters.begin(), parameters.end());
    const GradientCall& call = recording_.calls.calls[at(shared.call)];
    std::vector<std::string> axes = call.axes;
    if (axes == std::vector<std::string>{"dp_replicate", "dp_shard"}) axes = {"dp"};
    const std::string site = call.site.empty() ? "" : "/" + step_word(call.site);
    const std::string over_axes = fmt::format("{}", fmt::join(axes, "_"));
    std::vector<int> divided;
    for (const int parameter : parameters) {
      const Unseen::Divides divides = unseen_[at(parameter)].divides;
      if (sums(call) &&
          (divides == Unseen::Divides::everywhere || (divides == Unseen::Divides::in_backward && shared.in_backward)))
        divided.push_back(parameter);
    }
    add(list, over_axes + "_scale" + site, "scale", divided, [&](Json& step) {
      step.set("by", Json::string(axes.size() == 1 ? "1 / " + axes.front()
                                                   : fmt::format("1 / ({})", fmt::join(axes, " * "))));
      place(step, shared);
    });
    add(list, fmt::format("{}_{}{}", over_axes, call.op, site), call.op, parameters, [&](Json& step) {
      step.set("over", over(call, axes));
      if (call.average) step.set("reduce", Json::string("avg"));
      if (call.root >= 0) step.set("root", json_number(call.root));
      if (call.op == "reduce_scatter") {
        Json geometry = Json::object();
        geometry.set("kind", Json::string(shared.rows ? "rows" : "parameter"));
        step.set("geometry", geometry);
      }
      place(step, shared);
      if (shared.owned) step.set("on", Json::string("owned"));
    });
  }

  /// What came out of a reduce-scatter is added to what the optimizer gets, and the rest begins anew.
  void collect(std::vector<Json>& list, const std::vector<std::pair<std::size_t, const Shared*>>& steps, bool in_tail) {
    std::map<int, std::set<int>> passes;  // by parameter
    for (const auto& [order, step] : steps) {
      if (!step->scattered) continue;
      for (const int parameter : placed_.at(*step).parameters)
        passes[parameter].insert(step->passes.begin(), step->passes.end());
    }
    std::map<std::set<int>, std::vector<int>> together;
    for (const auto& [parameter, own] : passes) together[own].push_back(parameter);
    for (const auto& [own, parameters] : together) {
      const auto condition = in_tail ? std::nullopt : when(own);
      add(list, "accumulate", "accumulate", parameters, [&](Json& step) {
        step.set("from", Json::string(unreduced));
        step.set("to", Json::string("grad"));
        step.set("on", Json::string("owned"));
        if (condition) step.set("when", Json::string(*condition));
      });
      add(list, "zero_unreduced", "zero", parameters, [&](Json& step) {
        step.set("buffer", Json::string(unreduced));
        if (condition) step.set("when", Json::string(*condition));
      });
    }
  }

  /// DTensor adds up what is Partial where it is used first, which may be in the optimizer.
  void redistribute(std::vector<Json>& list) {
    std::map<std::vector<int>, std::vector<int>> together;
    for (const int parameter : all_) {
      const std::vector<int>& axes = recording_.placements[at(parameter)].redistributed;
      if (!axes.empty()) together[axes].push_back(parameter);
    }
    for (const auto& [axes, parameters] : together) {
      std::vector<std::string> names;
      for (const int axis : axes) names.push_back(recording_.names[at(axis)]);
      add(list, fmt::format("{}_all_reduce/optimizer", fmt::join(names, "_")), "all_reduce", parameters,
          [&](Json& step) { step.set("over", axis_list(recording_, axes)); });
    }
  }

  const Recording& recording_;
  const std::vector<Unseen>& unseen_;
  std::vector<int> all_;  // parameters that take a gradient
  int most_ = 1;          // micro-batches
  std::map<Shared, Placed> placed_;
  std::map<std::string, int> names_;
};

}  // namespace

Json scenario_of(const Recording& recording, const std::vector<Unseen>& unseen) {
  return Writer(recording, unseen).scenario();
}

std::pair<int, int> summed(const Recording& recording, int parameter) {
  std::pair<int, int> count;
  for (const MetCall& met : recording.calls.of_parameter[at(parameter)]) {
    if (sums(recording.calls.calls[at(met.call)])) ++(met.in_backward ? count.first : count.second);
  }
  return count;
}

}  // namespace lockstep::live
