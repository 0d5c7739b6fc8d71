// SPDX-License-Identifier: Apache-2.0
#include "src/live/record.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "lockstep/check.h"
#include "src/live/prediction.h"
#include "src/live/recorded_cut.h"
#include "src/live/recorded_model.h"
#include "src/live/run_layout.h"
#include "src/live/verify.h"
#include "src/live/words.h"

namespace lockstep {

namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

constexpr std::int64_t most_micro_batches = 1024, most_passes_of_calls = 1'000'000;
/// The search for the step at fault tries out the schedule without and with each step.
constexpr std::size_t most_blamed_steps = 64;

}  // namespace

namespace live {

namespace {

class Recorder {
 public:
  Recorder(const CapturedRun& run, const VerifyResult& verified) : run_(run), verified_(verified) {}

  RecordedRun record(std::shared_ptr<const Scenario>* scenario) {
    describe();
    for (const VerifiedPiece& piece : verified_.pieces)
      of_parameter_[recording_.experts.lead[at(piece.parameter)]].push_back(&piece);
    const std::vector<Unseen> unseen = find_unseen();
    RecordedRun result;
    result.scenario = scenario_of(recording_, unseen);
    result.results = verified_.pieces.size();
    const std::shared_ptr<const Scenario> read = read_recorded(result.scenario);
    if (scenario != nullptr) *scenario = read;
    compare(Prediction(recording_, read, *evidence_), result);
    result.notes.insert(result.notes.end(), recording_.calls.left_out.begin(), recording_.calls.left_out.end());
    say_unseen(unseen, result.notes);
    std::set<int> untouched;
    for (std::size_t i = 0; i < recording_.placements.size(); ++i) {
      if (recording_.placements[i].untouched && !run_.parameters[i].declared.frozen)
        untouched.insert(static_cast<int>(i));
    }
    if (!untouched.empty())
      result.notes.push_back(fmt::format("no backward yields a gradient of {}: recorded as frozen.", names(untouched)));
    return result;
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw InputError({Diagnostic{{}, fmt::format("{}: {}", run_.folder, what)}});
  }

  void describe() {
    const Header& header = run_.header;
    if (verified_.pieces.empty())
      refuse("no optimizer got a gradient, so there is nothing that a schedule could be held against.");
    if (!verified_.gaps.empty())
      refuse("no schedule is recorded of a run that is not complete: " + verified_.gaps.front());
    if (!verified_.collectives.empty())
      refuse("no schedule is recorded of collectives that do not meet: " + verified_.collectives.front().what);
    if (!verified_.loss)
      refuse(
          "what each rank differentiates is not known, so nobody can say what is right; expected --loss mean, sum, "
          "token_mean or token_sum (docs/verify.md).");
    if (!header.collectives && header.world > 1)
      refuse(
          "the capture does not say whose gradients the collectives carried; expected one that was made with "
          "collectives=True by this version of the package.");
    recording_.run = &run_;
    recording_.steps = verified_.steps;
    recording_.loss = *verified_.loss;
    evidence_ = std::make_unique<Evidence>(run_, *verified_.loss);
    name_axes();
    for (const int step : recording_.steps) {
      std::set<int> counts;
      for (const RankRecord& rank : run_.ranks) counts.insert(rank.steps.at(step).micro_batches);
      if (counts.size() > 1)
        refuse(fmt::format("in optimizer step {}, ranks have {} micro-batches; in a scenario all have as many.", step,
                           fmt::join(counts, " and ")));
      recording_.micro_batches.push_back(std::max(1, *counts.begin()));
    }
    refuse_too_much();
    recording_.experts = find_experts(run_, recording_.names);
    recording_.calls = find_gradient_calls(run_, recording_.steps, recording_.names, recording_.experts);
    recording_.placements = find_placements(run_, verified_, recording_.steps, recording_.names);
    // Experts that no token has visited are touched where one of the same parameter is.
    for (const std::vector<int>& together : recording_.experts.together) {
      const bool untouched = std::all_of(together.begin(), together.end(),
                                         [&](int parameter) { return recording_.placements[at(parameter)].untouched; });
      for (const int parameter : together) recording_.placements[at(parameter)].untouched = untouched;
    }
    find_model(recording_);
    recording_.cuts = find_cuts(recording_, verified_, *evidence_);
  }

  /// What a call does is looked for in each micro-batch.
  void refuse_too_much() const {
    const std::int64_t passes =
        std::accumulate(recording_.micro_batches.begin(), recording_.micro_batches.end(), std::int64_t{0});
    const auto calls = static_cast<std::int64_t>(run_.ranks.front().collectives.size());
    if (passes > most_micro_batches || passes * calls > most_passes_of_calls)
      refuse(fmt::format(
          "{} micro-batches with {} collectives on a rank are more than are recorded at once; expected --step, or a "
          "shorter capture.",
          passes, calls));
  }

  void name_axes() {
    const Header& header = run_.header;
    const auto is_data = [&](const std::string& axis) {
      return std::find(header.data_axes.begin(), header.data_axes.end(), axis) != header.data_axes.end();
    };
    const bool known = layout_of(header).has_value();
    // One axis needs no name that lockstep knows.
    if (!known && header.axes.size() != 1)
      refuse(
          fmt::format("the axes of the mesh are {}; a layout has tp, cp, sp, dp (or dp_replicate and dp_shard) and "
                      "pp, and counts its ranks row by row.",
                      fmt::join(header.axes, ", ")));
    for (std::size_t i = 0; i < header.axes.size(); ++i) {
      std::string name = header.axes[i];
      if (!known) name = is_data(name) ? "dp" : "tp";
      // Along cp and sp a scenario splits the tokens. Where they are no data axes, a rank's loss is its part of one
      // that they have together.
      if (header.sizes[i] > 1 && !splits_sequence(name) && splits_tokens(name) != is_data(header.axes[i]))
        refuse(fmt::format("ranks along {} see {} tokens in the run, and in a scenario {} ones.", name,
                           splits_tokens(name) ? "the same" : "different",
                           splits_tokens(name) ? "different" : "the same"));
      if (splits_sequence(name) && !is_data(header.axes[i]) && header.sizes[i] > 1) recording_.shares.push_back(name);
      recording_.names.push_back(name);
      recording_.axes.emplace_back(name, header.sizes[i]);
    }
  }

  // What no collective shows.

  /// Ways in which nobody sees what ranks do, the most usual first.
  std::vector<Unseen> ways(int parameter, bool aside) const {
    std::vector<Unseen> all;
    using Divides = Unseen::Divides;
    const auto [within, outside] = summed(recording_, parameter);
    std::vector<Divides> divides = {Divides::no};
    // DDP divides before it sums, and its hooks as well; who calls a sum by himself may.
    if (within > 0)
      divides.insert(run_.header.adapter == "ddp" ? divides.begin() : divides.end(), Divides::in_backward);
    if (outside > 0) divides.push_back(Divides::everywhere);
    for (const bool kept : {false, true}) {
      if (kept && recording_.steps.size() == 1) continue;
      for (const bool cleared : {false, true}) {
        if (cleared && *std::max_element(recording_.micro_batches.begin(), recording_.micro_batches.end()) == 1)
          continue;
        for (const Divides divided : divides) {
          Unseen way;
          way.divides = divided;
          way.cleared_between = cleared;
          way.kept = kept;
          way.aside = aside;
          all.push_back(way);
        }
      }
    }
    return all;
  }

  /// How well a way does.
  enum class Fit { no, but_a_factor, yes };
  using Found = std::pair<Unseen, Fit>;

  /// For each parameter the first way in which prediction and measurement meet; else the first in which they are one
  /// factor apart; else the most usual. Where what comes out of reductions is kept is the same for all that are cut
  /// together.
  std::vector<Unseen> find_unseen() const {
    std::vector<Unseen> chosen;
    std::vector<int> all;
    for (std::size_t i = 0; i < run_.parameters.size(); ++i) {
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
    std::vector<Unseen> others = chosen;
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

  /// Looks through the ways of these parameters; the others stay as in `start`, which says for all where what comes out
  /// of reductions is kept.
  std::map<int, Found> search(const std::vector<Unseen>& start, const std::vector<int>& parameters) const {
    std::map<int, Found> found;
    std::map<int, std::vector<Unseen>> all;
    std::size_t most = 0;
    for (const int parameter : parameters) {
      all[parameter] = ways(parameter, start[at(parameter)].aside);
      found[parameter] = {all[parameter].front(), Fit::no};
      most = std::max(most, all[parameter].size());
    }
    std::map<int, Unseen> with_tokens;
    const auto try_all = [&](const auto& way_of, const auto& judge) {
      std::vector<Unseen> tried = start;
      std::vector<int> open;
      for (const int parameter : parameters) {
        const auto& [way, fit] = found.at(parameter);
        tried[at(parameter)] = way;
        const std::optional<Unseen> other = fit == Fit::yes ? std::nullopt : way_of(parameter);
        if (!other) continue;
        tried[at(parameter)] = *other;
        open.push_back(parameter);
      }
      if (open.empty()) return;
      const Prediction prediction(recording_, read_recorded(scenario_of(recording_, tried)), *evidence_);
      for (const int parameter : open) {
        const Agreement agreement = meet(prediction, parameter);
        if (agreement.meets) {
          found[parameter] = {tried[at(parameter)], Fit::yes};
        } else {
          judge(parameter, tried[at(parameter)], agreement);
        }
      }
    };
    for (std::size_t number = 0; number < most; ++number) {
      try_all(
          [&](int parameter) -> std::optional<Unseen> {
            const std::vector<Unseen>& own = all.at(parameter);
            return number < own.size() ? std::optional(own[number]) : std::nullopt;
          },
          [&](int parameter, Unseen way, const Agreement& agreement) {
            if (agreement.proportional && way.divides == Unseen::Divides::no) with_tokens.try_emplace(parameter, way);
            if (!agreement.factor || found.at(parameter).second == Fit::but_a_factor) return;
            way.factor = agreement.factor;
            found[parameter] = {way, Fit::but_a_factor};
          });
    }
    for (const std::vector<std::string>& axes : token_axes()) {
      try_all(
          [&](int parameter) -> std::optional<Unseen> {
            const auto way = with_tokens.find(parameter);
            if (way == with_tokens.end()) return std::nullopt;
            Unseen divided = way->second;
            divided.token_axes = axes;
            return divided;
          },
          [](int, const Unseen&, const Agreement&) {});
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

  struct Agreement {
    bool meets = true;               ///< in all results of a parameter
    bool proportional = true;        ///< each result is a multiple of what is predicted
    std::optional<Rational> factor;  ///< the same for all
  };

  Agreement meet(const Prediction& prediction, int parameter) const {
    Agreement all;
    bool same = true;
    for (const VerifiedPiece* piece : of_parameter_.at(parameter)) {
      const Meeting one = prediction.meet(*piece);
      all.meets = all.meets && one.meets;
      if (one.meets && !one.ratio) continue;  // nothing arrives, and nothing should
      all.proportional = all.proportional && one.ratio;
      same = same && one.ratio && (!all.factor || *all.factor == *one.ratio);
      all.factor = one.ratio;
    }
    if (!same) all.factor.reset();
    return all;
  }

  // What is said.

  /// "norm.weight", "norm.weight and 3 others".
  std::string names(const std::set<int>& parameters) const {
    const std::string& first = run_.parameters[at(*parameters.begin())].declared.name;
    if (parameters.size() == 1) return first;
    return parameters.size() == 2
               ? fmt::format("{} and {}", first, run_.parameters[at(*parameters.rbegin())].declared.name)
               : fmt::format("{} and {} others", first, parameters.size() - 1);
  }

  void compare(const Prediction& prediction, RecordedRun& result) const {
    std::map<std::pair<std::string, std::vector<int>>, std::set<int>> unmet;
    std::set<int> uncertain;
    std::vector<std::pair<std::string, std::vector<int>>> order;
    const auto add = [&](const std::string& why, const std::vector<int>& ranks, int parameter) {
      const auto [found, is_new] = unmet.try_emplace({why, ranks});
      if (is_new) order.emplace_back(why, ranks);
      found->second.insert(parameter);
    };
    std::map<std::pair<int, int>, std::map<int, std::vector<int>>> pieces;  // by step and parameter; by rank
    for (const VerifiedPiece& piece : verified_.pieces) {
      const Meeting one = prediction.meet(piece);
      if (!one.meets) add(one.why, piece.ranks, piece.parameter);
      if (one.meets && !one.certain) uncertain.insert(piece.parameter);
      for (const int rank : piece.ranks) pieces[{piece.step, piece.parameter}][rank].push_back(piece.piece);
    }
    for (const auto& [key, of_rank] : pieces) {
      const std::vector<int> ranks = prediction.other_owners(key.second, key.first, of_rank);
      if (!ranks.empty()) add("the schedule's optimizers get other elements of it than the run's", ranks, key.second);
    }
    for (const auto& key : order) {
      const auto& [why, ranks] = key;
      result.unmet.push_back(
          fmt::format("{}{}: {}.", names(unmet.at(key)), ranks.empty() ? "" : " on " + rank_words(ranks), why));
    }
    if (!uncertain.empty())
      result.notes.push_back(
          fmt::format("{}: coefficients alone do not say it; what the schedule predicts leaves nothing but noise.",
                      names(uncertain)));
  }

  void say_unseen(const std::vector<Unseen>& unseen, std::vector<std::string>& notes) const {
    std::set<int> divides, cleared, kept, aside, in_place;
    std::map<std::string, std::set<int>> factors;
    for (const auto& [parameter, pieces] : of_parameter_) {
      const Unseen& one = unseen[at(parameter)];
      if (one.divides != Unseen::Divides::no) divides.insert(parameter);
      if (one.cleared_between) cleared.insert(parameter);
      if (one.kept) kept.insert(parameter);
      if (one.aside != usual(recording_, parameter).aside) (one.aside ? aside : in_place).insert(parameter);
      if (one.factor) factors[one.factor->to_string()].insert(parameter);
      if (one.token_axes) factors[token_count_scale(*one.token_axes)].insert(parameter);
    }
    const auto say = [&](const std::set<int>& parameters, const std::string& what) {
      if (parameters.empty()) return;
      notes.push_back(fmt::format("{}: {}, which no collective shows; the coefficients do.",
                                  parameters.size() == of_parameter_.size() ? "all parameters" : names(parameters),
                                  what));
    };
    say(divides, "divided by the group's size before a sum");
    say(cleared, "cleared between the micro-batches");
    say(kept, "not cleared after an optimizer step");
    say(aside, "reduced in another buffer than what comes out is added up in");
    say(in_place, "reduced in the buffer to which later micro-batches are added");
    for (const auto& [factor, parameters] : factors) say(parameters, "multiplied with " + factor);
  }

  const CapturedRun& run_;
  const VerifyResult& verified_;
  Recording recording_;
  std::unique_ptr<Evidence> evidence_;
  std::map<int, std::vector<const VerifiedPiece*>> of_parameter_;  // by the one that leads
};

}  // namespace

RecordedRun record(const CapturedRun& run, const VerifyResult& verified, std::shared_ptr<const Scenario>* scenario) {
  return Recorder(run, verified).record(scenario);
}

std::shared_ptr<const Scenario> read_recorded(const Json& document) {
  try {
    return std::make_shared<const Scenario>(
        read_scenario(std::make_shared<Source>(Source{"the recorded scenario", write_json(document)})));
  } catch (const InputError& error) {
    throw InputError({Diagnostic{
        {}, fmt::format("what the run did is no valid scenario: {}", error.diagnostics().front().message)}});
  }
}

void blame(std::shared_ptr<const Scenario> scenario, VerifyResult& result) {
  if (scenario->schedule->steps.size() > most_blamed_steps) {
    result.not_blamed =
        fmt::format("no step is named: the recorded schedule has {} steps, and the search takes up to {}.",
                    scenario->schedule->steps.size(), most_blamed_steps);
    return;
  }
  CheckOptions options;
  options.host = false;
  const CheckResult checked = check_scenario(std::move(scenario), options);
  for (const Blame& one : checked.blame) result.blame.push_back({one.step, one.why});
  if (!checked.repairs.empty()) result.repair = checked.repairs.front().edits;
}

}  // namespace live

RecordedRun record_run(const std::string& folder, const RecordOptions& options) {
  const live::CapturedRun run = live::read_run(folder, options.threads);
  VerifyOptions verify;
  verify.loss = options.loss;
  verify.step = options.step;
  verify.coefficients = true;
  verify.blame = false;
  verify.threads = options.threads;
  return live::record(run, live::verify(run, verify));
}

}  // namespace lockstep
