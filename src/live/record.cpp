// SPDX-License-Identifier: Apache-2.0
#include "src/live/record.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <string_view>

#include "lockstep/check.h"
#include "src/base/at.h"
#include "src/live/columns.h"
#include "src/live/prediction.h"
#include "src/live/recorded_cut.h"
#include "src/live/recorded_local_steps.h"
#include "src/live/recorded_model.h"
#include "src/live/run_layout.h"
#include "src/live/verify.h"
#include "src/live/words.h"

namespace lockstep {

namespace {

constexpr double most_recorded_elements = 1e15;
constexpr std::int64_t most_micro_batches = 1024, most_passes_of_calls = 1'000'000;
/// The search for the step at fault tries out the schedule without and with each step.
constexpr std::size_t most_blamed_steps = 64;

}  // namespace

namespace live {

namespace {

class Recorder {
 public:
  Recorder(const CapturedRun& run, const VerifyResult& verified) : run_(run), verified_(verified) {}

  bool scaled_unseen() const { return scaled_unseen_; }

  RecordedRun record(std::shared_ptr<const Scenario>* scenario) {
    describe();
    for (const VerifiedPiece& piece : verified_.pieces) measured_.insert(recording_.experts.lead[at(piece.parameter)]);
    const std::vector<LocalSteps> local_steps = find_local_steps(recording_, verified_, *evidence_);
    RecordedRun result;
    result.scenario = scenario_of(recording_, local_steps);
    result.results = verified_.pieces.size();
    const std::shared_ptr<const Scenario> read = read_recorded(result.scenario);
    if (scenario != nullptr) *scenario = read;
    compare(Prediction(recording_, read, *evidence_), result);
    result.notes.insert(result.notes.end(), recording_.calls.left_out.begin(), recording_.calls.left_out.end());
    say_local_steps(local_steps, result);
    std::set<int> experts;
    for (std::size_t i = 0; i < recording_.experts.coordinate.size(); ++i) {
      if (recording_.experts.coordinate[i] >= 0) experts.insert(static_cast<int>(i));
    }
    if (!experts.empty())
      result.notes.push_back(
          fmt::format("{}: recorded as experts, for some ranks hold them and others have not.", names(experts)));
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
    if (std::any_of(verified_.pieces.begin(), verified_.pieces.end(), [](const auto& one) { return one.left_out > 0; }))
      refuse("results that are not right have more coefficients than are kept at once; expected --step.");
    if (!verified_.collectives.empty())
      refuse("no schedule is recorded of collectives that do not meet: " + verified_.collectives.front().what);
    if (!verified_.loss)
      refuse(
          "what each rank differentiates is not known, so nobody can say what is right; expected --loss local_mean, "
          "sum, "
          "token_mean or token_sum (docs/verify.md).");
    if (!header.collectives && header.world > 1)
      refuse(
          "the capture does not say whose gradients the collectives carried; expected one that was made with "
          "collectives=True by this version of the package.");
    if (!run_.waiting.empty() && run_.waiting.begin()->first <= verified_.steps.back())
      refuse(fmt::format(
          "in optimizer step {} the optimizer of {} did not step, and others did; in a scenario all step together.",
          run_.waiting.begin()->first, run_.parameters[at(run_.waiting.begin()->second)].declared.name));
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
    refuse_unsaid();
    recording_.placements = find_placements(run_, verified_, recording_.steps, recording_.names);
    // Experts that no token has visited are touched where one of the same parameter is.
    for (const std::vector<int>& together : recording_.experts.together) {
      const bool untouched = std::all_of(together.begin(), together.end(),
                                         [&](int parameter) { return recording_.placements[at(parameter)].untouched; });
      for (const int parameter : together) recording_.placements[at(parameter)].untouched = untouched;
    }
    find_model(recording_);
    find_cuts(recording_, verified_, *evidence_);
  }

  /// Of plain tensors along an axis of which nothing is said, not even coefficients are known.
  void refuse_unsaid() const {
    bool is_said = true;
    for (std::size_t axis = 0; axis < run_.header.axes.size(); ++axis) is_said = is_said && is_said_along(run_, axis);
    for (const VerifiedPiece& piece : verified_.pieces) {
      const bool is_judged = piece.verdict != VerifiedPiece::Verdict::undecided || !piece.formula.empty();
      if (is_said || is_judged || piece.finding < 0) continue;
      refuse(fmt::format("no schedule is recorded, for of {} nothing is known: {}.",
                         run_.parameters[at(piece.parameter)].declared.name,
                         verified_.findings[at(piece.finding)].what));
    }
  }

  /// What a call does is looked for in each micro-batch.
  void refuse_too_much() const {
    double elements = 0;
    for (const RunParameter& parameter : run_.parameters) {
      double own = 1;
      for (const std::int64_t size : parameter.declared.shape) own *= static_cast<double>(size);
      elements += own;
    }
    if (elements > most_recorded_elements)
      refuse(fmt::format("its parameters have {:.3g} elements; up to {:.0g} are recorded.", elements,
                         most_recorded_elements));
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

  void say_local_steps(const std::vector<LocalSteps>& local_steps, RecordedRun& result) {
    std::set<int> divides, cleared, kept, aside, in_place, unlike_seen;
    std::map<std::string, std::set<int>> factors;
    for (const int parameter : measured_) {
      const LocalSteps& one = local_steps[at(parameter)];
      if (one.divides != LocalSteps::Divides::no) divides.insert(parameter);
      if (one.cleared_between) cleared.insert(parameter);
      if (one.kept) kept.insert(parameter);
      if (!one.as_seen) unlike_seen.insert(parameter);
      if (one.aside != usual(recording_, parameter).aside) (one.aside ? aside : in_place).insert(parameter);
      if (one.factor) factors[one.factor->to_string()].insert(parameter);
      if (one.token_axes) factors[token_count_scale(*one.token_axes)].insert(parameter);
    }
    const auto say = [&](const std::set<int>& parameters, const std::string& what) {
      if (parameters.empty()) return;
      result.notes.push_back(fmt::format("{}: {}, which no collective shows; the coefficients do.",
                                         parameters.size() == measured_.size() ? "all parameters" : names(parameters),
                                         what));
    };
    say(divides, "divided by the group's size before a sum");
    say(cleared, "cleared between the micro-batches");
    say(kept, "not cleared after an optimizer step");
    say(aside, "reduced in another buffer than what comes out is added up in");
    say(in_place, "reduced in the buffer to which later micro-batches are added");
    for (const auto& [factor, parameters] : factors) say(parameters, "multiplied with " + factor);
    if (!unlike_seen.empty())
      result.notes.push_back(fmt::format(
          "{}: multiplied with other numbers than the capture has seen, by lines that it has not; what it has seen is "
          "left out.",
          unlike_seen.size() == measured_.size() ? "all parameters" : names(unlike_seen)));
    scaled_unseen_ = !unlike_seen.empty();
  }

  const CapturedRun& run_;
  const VerifyResult& verified_;
  Recording recording_;
  std::unique_ptr<Evidence> evidence_;
  bool scaled_unseen_ = false;
  std::set<int> measured_;  // parameters, of an expert the one that leads
};

}  // namespace

RecordedRun record(const CapturedRun& run, const VerifyResult& verified, std::shared_ptr<const Scenario>* scenario,
                   bool* scaled_unseen) {
  Recorder recorder(run, verified);
  RecordedRun result = recorder.record(scenario);
  if (scaled_unseen != nullptr) *scaled_unseen = recorder.scaled_unseen();
  return result;
}

std::shared_ptr<const Scenario> read_recorded(const Json& document) {
  try {
    return std::make_shared<const Scenario>(read_scenario(document, "the recorded scenario"));
  } catch (const InputError& error) {
    throw InputError({Diagnostic{
        {}, fmt::format("what the run did is no valid scenario: {}", error.diagnostics().front().message)}});
  }
}

namespace {

/// Whether it is a factor that no collective shows, written at the call of the sum before which somebody may multiply.
bool is_inferred_at_a_call(std::string_view step) {
  const std::size_t slash = step.find('/');
  return slash != std::string_view::npos && step.substr(0, slash).ends_with("_scale");
}

/// Where nobody counts tokens, a number that is right is no count of them, though it may be equal to one.
void leave_out_tokens(VerifyResult& result) {
  if (result.loss != CapturedLoss::local_mean && result.loss != CapturedLoss::sum) return;
  for (StepAtFault& one : result.blame) {
    const std::size_t where = one.why.find(" where "), right = one.why.find(" is right", where);
    if (right == std::string::npos || one.why.substr(where, right - where).find("tokens") == std::string::npos)
      continue;
    one.why.replace(where, right + std::string_view(" is right").size() - where, ", which is not right");
  }
  if (std::any_of(result.repair.begin(), result.repair.end(),
                  [](const Edit& edit) { return write_json(to_json(edit)).find("tokens") != std::string::npos; }))
    result.repair.clear();
}

}  // namespace

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
  for (const Blame& one : checked.blame) result.blame.push_back({one.step, one.why, one.formulas});
  // Where the collective is at fault as well, it is that call whichever way one looks at it.
  if (std::all_of(result.blame.begin(), result.blame.end(),
                  [](const StepAtFault& one) { return is_inferred_at_a_call(one.step); })) {
    for (StepAtFault& one : result.blame)
      one.why += "; or that line is right, and another one multiplies what came out: no collective shows which";
  }
  if (result.blame.empty())
    result.not_blamed =
        "no step is named: the recorded schedule predicts what was measured, and no single change of it was found that "
        "mends it.";
  if (!checked.repairs.empty()) result.repair = checked.repairs.front().edits;
  leave_out_tokens(result);
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
