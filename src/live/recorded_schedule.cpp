// SPDX-License-Identifier: Apache-2.0
#include "src/live/recorded_schedule.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <set>

#include "src/base/at.h"
#include "src/live/recorded_model.h"
#include "src/live/recorded_steps.h"
#include "src/live/run_layout.h"

namespace lockstep::live {

namespace {

/// The buffer in which the gradient waits for a reduction; what comes out of that is added to the optimizer's.
constexpr const char* unreduced = "unreduced";

bool is_scattered(const Recording& recording, int parameter) {
  const std::vector<ParameterCall>& met = recording.calls.of_parameter[at(parameter)];
  return std::any_of(met.begin(), met.end(), [&](const ParameterCall& made) {
    return recording.calls.calls[at(made.call)].op == "reduce_scatter";
  });
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
  Writer(const Recording& recording, const std::vector<LocalSteps>& local_steps)
      : recording_(recording), local_steps_(local_steps) {
    const auto& parameters = recording.run->parameters;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const int parameter = static_cast<int>(i);
      if (!parameters[i].declared.frozen && !recording.placements[i].untouched && recording.experts.leads(parameter))
        all_.push_back(parameter);
    }
    most_ = most_micro_batches(recording);
    shared_ = shared_steps(recording, local_steps, all_);
  }

  Json scenario() {
    Json document = described(recording_);
    Json schedule = Json::object();
    schedule.set("steps", steps());
    document.set("schedule", schedule);
    return document;
  }

 private:
  Json steps() {
    std::vector<Json> list, inner;
    add(list, "zero", "zero", chosen([](const LocalSteps& local) { return !local.kept; }));
    add(inner, "zero_between", "zero", chosen([](const LocalSteps& local) { return local.cleared_between; }),
        [](Json& step) { step.set("when", Json::string("micro_batch != first")); });
    const auto is_aside = [](const LocalSteps& local) { return local.aside; };
    add(inner, "backward", "backward", chosen(std::not_fn(is_aside)), [&](Json& step) { by(step); });
    add(inner, "backward", "backward", chosen(is_aside), [&](Json& step) {
      by(step);
      step.set("buffer", Json::string(unreduced));
    });
    calls(inner, shared_.each, false);
    Json loop = Json::object();
    loop.set("name", Json::string("micro_batches"));
    loop.set("op", Json::string("each"));
    loop.set("steps", Json::array(std::move(inner)));
    list.push_back(loop);
    calls(list, shared_.tail, true);
    redistribute(list);
    own(list);
    multiply(list);
    return Json::array(std::move(list));
  }

  /// What is reduced in another buffer is scaled where it is collected.
  void calls(std::vector<Json>& list, const std::vector<SharedSteps::Entry>& steps, bool in_tail) {
    const auto is_after = [&](const SharedStep& step) {
      return step.aside && recording_.calls.calls[at(step.call)].scales();
    };
    for (const auto& [step, parameters] : steps) {
      if (!is_after(step)) collective(list, step, parameters);
    }
    collect(list, steps, in_tail);
    for (const auto& [step, parameters] : steps) {
      if (is_after(step)) scale(list, step, parameters);
    }
  }

  void scale(std::vector<Json>& list, const SharedStep& shared, const std::vector<int>& parameters) {
    const GradientCall& call = recording_.calls.calls[at(shared.call)];
    add(list, call.site.empty() ? "scale" : "scale/" + step_word(call.site), "scale", parameters, [&](Json& step) {
      step.set("by", Json::string(factor(call, parameters)));
      if (const auto condition = shared.in_tail ? std::nullopt : when(shared.passes))
        step.set("when", Json::string(*condition));
    });
  }

  /// One over the size of the group over which all of these are summed, where nothing else divides, or a number.
  std::string factor(const GradientCall& scaling, const std::vector<int>& parameters) const {
    std::optional<std::vector<std::string>> axes;
    for (const int parameter : parameters) {
      if (local_steps_[at(parameter)].divides != LocalSteps::Divides::no) return scaling.factor.to_string();
      std::optional<std::vector<std::string>> own;
      for (const ParameterCall& met : recording_.calls.of_parameter[at(parameter)]) {
        const GradientCall& call = recording_.calls.calls[at(met.call)];
        if (sums(call) && call.stages.empty() && Rational(1, call.members) == scaling.factor) own = named(call.axes);
      }
      if (!own || (axes && axes != own)) return scaling.factor.to_string();
      axes = own;
    }
    return axes->size() == 1 ? "1 / " + axes->front() : fmt::format("1 / ({})", fmt::join(*axes, " * "));
  }

  void multiply(std::vector<Json>& list) {
    std::map<Rational, std::vector<int>> factors;
    std::map<std::vector<std::string>, std::vector<int>> tokens;
    for (const int parameter : all_) {
      const LocalSteps& local = local_steps_[at(parameter)];
      if (local.factor) factors[*local.factor].push_back(parameter);
      if (local.token_axes) tokens[*local.token_axes].push_back(parameter);
    }
    for (const auto& [factor, parameters] : factors) {
      add(list, "scale", "scale", parameters, [&](Json& step) { step.set("by", Json::string(factor.to_string())); });
    }
    for (const auto& [axes, parameters] : tokens) {
      add(list, "token_count_scale", "scale", parameters,
          [&](Json& step) { step.set("by", Json::string(token_count_scale(axes))); });
    }
  }

  template <class Choice>
  std::vector<int> chosen(const Choice& choice) const {
    std::vector<int> parameters;
    for (const int parameter : all_) {
      if (choice(local_steps_[at(parameter)])) parameters.push_back(parameter);
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
          std::all_of(parameters.begin(), parameters.end(), [&](int each) { return is_expert(each) == experts; }) &&
          std::all_of(others.begin(), others.end(), [&](int each) { return is_expert(each) != experts; }))
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
    if (recording_.loss == CapturedLoss::local_mean) divisors.emplace_back("micro_batches");
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

  void place(Json& step, const SharedStep& shared) const {
    if (const auto condition = shared.in_tail ? std::nullopt : when(shared.passes))
      step.set("when", Json::string(*condition));
    if (shared.aside) step.set("buffer", Json::string(unreduced));
  }

  static std::vector<std::string> named(const std::vector<std::string>& axes) {
    return axes == std::vector<std::string>{"dp_replicate", "dp_shard"} ? std::vector<std::string>{"dp"} : axes;
  }

  static Json over(const std::vector<std::string>& axes) {
    return axes.size() == 1 ? Json::string(axes.front())
                            : list_of(axes, [](const std::string& axis) { return Json::string(axis); });
  }

  Json geometry(const Cut& cut) const {
    static constexpr std::array<const char*, 4> kinds = {"parameter", "rows", "flat", "bucket"};
    Json geometry = Json::object();
    geometry.set("kind", Json::string(kinds[static_cast<std::size_t>(cut.kind)]));
    if (!cut.align.empty()) geometry.set("align", Json::string(cut.align));
    if (cut.size > 0) geometry.set("size", json_number(cut.size));
    if (!cut.align_parameter.empty()) geometry.set("align_parameter", Json::string(cut.align_parameter));
    if (!cut.align_bucket.empty()) geometry.set("align_bucket", Json::string(cut.align_bucket));
    if (!cut.separate.empty()) {
      geometry.set("separate", list_of(cut.separate, [&](int parameter) {
                     return Json::string(selector_of(recording_, parameter));
                   }));
    }
    return geometry;
  }

  static Json over(const GradientCall& call, const std::vector<std::string>& axes) {
    if (call.stages.empty()) return over(axes);
    Json picks = Json::object();
    for (const std::string& axis : axes)
      picks.set(axis, axis == name_of(Axis::pp) ? list_of(call.stages, json_number) : Json::string("all"));
    return picks;
  }

  void collective(std::vector<Json>& list, const SharedStep& shared, const std::vector<int>& parameters) {
    const GradientCall& call = recording_.calls.calls[at(shared.call)];
    if (call.scales()) return scale(list, shared, parameters);
    const std::vector<std::string> axes = named(call.axes);
    const std::string site = call.site.empty() ? "" : "/" + step_word(call.site);
    const std::string over_axes = fmt::format("{}", fmt::join(axes, "_"));
    std::vector<int> divided;
    for (const int parameter : parameters) {
      const LocalSteps::Divides divides = local_steps_[at(parameter)].divides;
      if (sums(call) && (divides == LocalSteps::Divides::everywhere ||
                         (divides == LocalSteps::Divides::in_backward && shared.in_backward)))
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
      if (call.op == "reduce_scatter") step.set("geometry", geometry(shared.cut));
      place(step, shared);
      if (shared.owned) step.set("on", Json::string("owned"));
    });
  }

  /// What came out of reductions is added to what the optimizer gets, and the rest begins anew.
  void collect(std::vector<Json>& list, const std::vector<SharedSteps::Entry>& steps, bool in_tail) {
    std::map<int, std::set<int>> passes;  // by parameter
    for (const auto& [step, parameters] : steps) {
      if (!step.aside || recording_.calls.calls[at(step.call)].scales()) continue;
      for (const int parameter : parameters) passes[parameter].insert(step.passes.begin(), step.passes.end());
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

  /// Optimizers that get a part of what is reduced whole.
  void own(std::vector<Json>& list) {
    std::map<Cut, std::vector<int>> together;
    for (const int parameter : all_) {
      const Cut& cut = recording_.cuts[at(parameter)];
      if (!cut.own.empty()) together[cut].push_back(parameter);
    }
    for (const auto& [cut, parameters] : together) {
      std::vector<std::string> axes;
      axes.reserve(cut.own.size());
      for (const int axis : cut.own) axes.push_back(recording_.names[at(axis)]);
      axes = named(axes);
      add(list, fmt::format("{}_own", fmt::join(axes, "_")), "own", parameters, [&](Json& step) {
        step.set("over", over(axes));
        step.set("geometry", geometry(cut));
      });
    }
  }

  const Recording& recording_;
  const std::vector<LocalSteps>& local_steps_;
  std::vector<int> all_;  // parameters that take a gradient
  int most_ = 1;          // micro-batches
  SharedSteps shared_;
  std::map<std::string, int> names_;
};

}  // namespace

LocalSteps usual(const Recording& recording, int parameter) {
  LocalSteps steps;
  // FSDP and ZeRO reduce gradients where they do not keep what came out. Where that is done once it is all the same.
  steps.aside = is_scattered(recording, parameter) && may_be_aside(recording, parameter) &&
                recording.run->header.adapter != "megatron";
  return steps;
}

bool may_be_aside(const Recording& recording, int parameter) {
  const std::vector<ParameterCall>& met = recording.calls.of_parameter[at(parameter)];
  const auto reduces = [&](const ParameterCall& made) { return !recording.calls.calls[at(made.call)].scales(); };
  const auto loop_end = met.begin() + static_cast<std::ptrdiff_t>(calls_in_loop(recording, parameter));
  return std::any_of(met.begin(), recording.steps.size() > 1 ? met.end() : loop_end, reduces);
}

bool is_seen_scaled(const Recording& recording, int parameter) {
  const std::vector<ParameterCall>& met = recording.calls.of_parameter[at(parameter)];
  return std::any_of(met.begin(), met.end(),
                     [&](const ParameterCall& made) { return recording.calls.calls[at(made.call)].scales(); });
}

std::string token_count_scale(const std::vector<std::string>& axes) {
  return axes.empty() ? "1 / sum(tokens, micro_batch)"
                      : fmt::format("1 / sum(tokens, {}, micro_batch)", fmt::join(axes, ", "));
}

Json scenario_of(const Recording& recording, const std::vector<LocalSteps>& local_steps) {
  return Writer(recording, local_steps).scenario();
}

std::pair<int, int> summed(const Recording& recording, int parameter) {
  std::pair<int, int> count;
  for (const ParameterCall& met : recording.calls.of_parameter[at(parameter)]) {
    if (sums(recording.calls.calls[at(met.call)])) ++(met.in_backward ? count.first : count.second);
  }
  return count;
}

}  // namespace lockstep::live
