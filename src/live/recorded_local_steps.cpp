// SPDX-License-Identifier: Apache-2.0
#include "src/live/recorded_local_steps.h"

#include <algorithm>
#include <map>

#include "src/base/at.h"
#include "src/live/prediction.h"
#include "src/live/record.h"
#include "src/live/recorded_model.h"

namespace lockstep::live {

namespace {

class LocalStepSearch {
 public:
  LocalStepSearch(const Recording& recording, const VerifyResult& verified, Evidence& evidence)
      : recording_(recording), evidence_(evidence) {
    for (const VerifiedPiece& piece : verified.pieces)
      of_parameter_[recording.experts.lead[at(piece.parameter)]].push_back(&piece);
  }

  std::vector<LocalSteps> find() const {
    std::vector<LocalSteps> chosen;
    std::vector<int> all;
    for (std::size_t i = 0; i < recording_.run->parameters.size(); ++i) {
      const int parameter = static_cast<int>(i);
      chosen.push_back(ways(parameter, usual(recording_, parameter).aside).front());
      if (of_parameter_.contains(parameter)) all.push_back(parameter);
    }
    const std::map<int, Found> first = search(chosen, all);
    for (const auto& [parameter, found] : first) chosen[at(parameter)] = found.first;
    // Those of which some do not meet.
    std::map<Cut, std::vector<int>> together;
    std::vector<std::vector<int>> groups;
    for (const int parameter : all) {
      const Cut& cut = recording_.cuts[at(parameter)];
      const bool by_itself = cut.kind == Geometry::Kind::parameter || cut.kind == Geometry::Kind::rows;
      if (by_itself || !cut.own.empty()) {
        groups.push_back({parameter});
      } else {
        together[cut].push_back(parameter);
      }
    }
    for (auto& [cut, parameters] : together) groups.push_back(std::move(parameters));
    std::erase_if(groups, [&](const std::vector<int>& group) {
      return std::all_of(group.begin(), group.end(),
                         [&](int parameter) { return first.at(parameter).second == Fit::yes; }) ||
             std::none_of(group.begin(), group.end(),
                          [&](int parameter) { return may_be_aside(recording_, parameter); });
    });
    std::vector<LocalSteps> others = chosen;
    std::vector<int> tried;
    for (const std::vector<int>& group : groups) {
      for (const int parameter : group) others[at(parameter)] = ways(parameter, !chosen[at(parameter)].aside).front();
      tried.insert(tried.end(), group.begin(), group.end());
    }
    std::sort(tried.begin(), tried.end());
    const std::map<int, Found> second = search(others, tried);
    const auto worst = [](const std::map<int, Found>& found, const std::vector<int>& group) {
      Fit fit = Fit::yes;
      for (const int parameter : group) fit = std::min(fit, found.at(parameter).second);
      return fit;
    };
    for (const std::vector<int>& group : groups) {
      if (worst(second, group) <= worst(first, group)) continue;
      for (const int parameter : group) chosen[at(parameter)] = second.at(parameter).first;
    }
    return chosen;
  }

 private:
  /// How well a way does.
  enum class Fit { no, but_a_factor, yes };
  using Found = std::pair<LocalSteps, Fit>;

  struct Agreement {
    bool meets = true;               ///< in all results of a parameter
    bool proportional = true;        ///< each result is a multiple of what is predicted
    std::optional<Rational> factor;  ///< the same for all
  };

  /// Ways in which nobody sees what ranks do, the most usual first.
  std::vector<LocalSteps> ways(int parameter, bool aside) const {
    std::vector<LocalSteps> all;
    using Divides = LocalSteps::Divides;
    const auto [within, outside] = summed(recording_, parameter);
    std::vector<Divides> divides = {Divides::no};
    // DDP divides before it sums, and its hooks as well; who calls a sum by himself may.
    if (within > 0)
      divides.insert(recording_.run->header.adapter == "ddp" ? divides.begin() : divides.end(), Divides::in_backward);
    if (outside > 0) divides.push_back(Divides::everywhere);
    for (const bool as_seen : {true, false}) {
      if (!as_seen && !is_seen_scaled(recording_, parameter)) continue;
      add_ways(all, divides, aside, as_seen);
    }
    return all;
  }

  void add_ways(std::vector<LocalSteps>& all, const std::vector<LocalSteps::Divides>& divides, bool aside,
                bool as_seen) const {
    for (const bool kept : {false, true}) {
      if (kept && recording_.steps.size() == 1) continue;
      for (const bool cleared : {false, true}) {
        if (cleared && *std::max_element(recording_.micro_batches.begin(), recording_.micro_batches.end()) == 1)
          continue;
        for (const LocalSteps::Divides divided : divides) {
          LocalSteps way;
          way.as_seen = as_seen;
          way.divides = divided;
          way.cleared_between = cleared;
          way.kept = kept;
          way.aside = aside;
          all.push_back(way);
        }
      }
    }
  }

  /// Looks through the ways of these parameters; the others stay as in `start`, which says for all where what comes out
  /// of reductions is kept.
  std::map<int, Found> search(const std::vector<LocalSteps>& start, const std::vector<int>& parameters) const {
    std::map<int, Found> found;
    std::map<int, std::vector<LocalSteps>> all;
    std::size_t most = 0;
    for (const int parameter : parameters) {
      all[parameter] = ways(parameter, start[at(parameter)].aside);
      found[parameter] = {all[parameter].front(), Fit::no};
      most = std::max(most, all[parameter].size());
    }
    std::map<int, LocalSteps> with_tokens;
    const auto try_all = [&](const auto& way_of, const auto& decide) {
      std::vector<LocalSteps> tried = start;
      std::vector<int> open;
      for (const int parameter : parameters) {
        const auto& [way, fit] = found.at(parameter);
        tried[at(parameter)] = way;
        const std::optional<LocalSteps> other = fit == Fit::yes ? std::nullopt : way_of(parameter);
        if (!other) continue;
        tried[at(parameter)] = *other;
        open.push_back(parameter);
      }
      if (open.empty()) return;
      const Prediction prediction(recording_, read_recorded(scenario_of(recording_, tried)), evidence_);
      for (const int parameter : open) {
        const Agreement agreement = meet(prediction, parameter);
        if (agreement.meets) {
          found[parameter] = {tried[at(parameter)], Fit::yes};
        } else {
          decide(parameter, tried[at(parameter)], agreement);
        }
      }
    };
    for (std::size_t number = 0; number < most; ++number) {
      try_all(
          [&](int parameter) -> std::optional<LocalSteps> {
            const std::vector<LocalSteps>& own = all.at(parameter);
            return number < own.size() ? std::optional(own[number]) : std::nullopt;
          },
          [&](int parameter, LocalSteps way, const Agreement& agreement) {
            if (agreement.proportional && way.divides == LocalSteps::Divides::no)
              with_tokens.try_emplace(parameter, way);
            if (!agreement.factor || found.at(parameter).second == Fit::but_a_factor) return;
            way.factor = agreement.factor;
            found[parameter] = {way, Fit::but_a_factor};
          });
    }
    for (const std::vector<std::string>& axes : token_axes()) {
      try_all(
          [&](int parameter) -> std::optional<LocalSteps> {
            const auto way = with_tokens.find(parameter);
            if (way == with_tokens.end()) return std::nullopt;
            LocalSteps divided = way->second;
            divided.token_axes = axes;
            return divided;
          },
          [](int, const LocalSteps&, const Agreement&) {});
    }
    return found;
  }

  /// Sets of axes over which tokens may have been counted, the widest first; none where the scenario has no numbers of
  /// tokens.
  std::vector<std::vector<std::string>> token_axes() const {
    if (!has_tokens(recording_)) return {};
    std::vector<std::string> axes;
    for (const auto& [name, size] : recording_.axes) {
      const std::string axis = name.starts_with("dp") ? "dp" : name;
      if (size > 1 && (axis == "dp" || axis == "cp" || axis == "sp") &&
          std::find(axes.begin(), axes.end(), axis) == axes.end())
        axes.push_back(axis);
    }
    std::vector<std::vector<std::string>> sets;
    for (unsigned left_out = 0; left_out < 1U << axes.size(); ++left_out) {
      std::vector<std::string>& set = sets.emplace_back();
      for (std::size_t i = 0; i < axes.size(); ++i) {
        if ((left_out >> i & 1) == 0) set.push_back(axes[i]);
      }
    }
    std::stable_sort(sets.begin(), sets.end(), [](const auto& a, const auto& b) { return a.size() > b.size(); });
    return sets;
  }

  Agreement meet(const Prediction& prediction, int parameter) const {
    Agreement result;
    Meetings pieces;
    for (const VerifiedPiece* piece : of_parameter_.at(parameter)) {
      const Meeting one = prediction.meet(*piece);
      pieces.add(one);
      result.proportional = result.proportional && (one.nothing_arrives() || one.ratio);
    }
    result.meets = pieces.all().meets;
    result.factor = pieces.all().ratio;
    return result;
  }

  const Recording& recording_;
  Evidence& evidence_;
  std::map<int, std::vector<const VerifiedPiece*>> of_parameter_;
};

}  // namespace

std::vector<LocalSteps> find_local_steps(const Recording& recording, const VerifyResult& verified, Evidence& evidence) {
  return LocalStepSearch(recording, verified, evidence).find();
}

}  // namespace lockstep::live
