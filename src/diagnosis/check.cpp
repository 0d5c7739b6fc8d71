// SPDX-License-Identifier: Apache-2.0
#include "lockstep/check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <new>
#include <utility>

#include "lockstep/mpi.h"
#include "lockstep/scenario.h"
#include "src/base/at.h"
#include "src/base/budget.h"
#include "src/base/counted.h"
#include "src/diagnosis/agreement.h"
#include "src/diagnosis/any_sizes.h"
#include "src/diagnosis/at_the_layout.h"
#include "src/diagnosis/blame.h"
#include "src/diagnosis/divergence.h"
#include "src/diagnosis/engine_details.h"
#include "src/diagnosis/engines.h"
#include "src/diagnosis/lost_ties.h"
#include "src/diagnosis/machine_share.h"
#include "src/diagnosis/mpi_processes.h"
#include "src/diagnosis/other_tests.h"
#include "src/diagnosis/outcome_verdict.h"
#include "src/diagnosis/own_sizes.h"
#include "src/diagnosis/stopwatch.h"
#include "src/diagnosis/uneven_factors.h"
#include "src/expression/parsed_once.h"
#include "src/scenario/changed_keys.h"
#include "src/scenario/edit_mistakes.h"
#include "src/scenario/named_file.h"

namespace lockstep {

namespace {

/// Whether a file that could not be read as a scenario expects that.
bool expects_error(const std::string& file) {
  if (!scenario::changes_of_every_scenario().empty()) return false;  // that is said of the file as it is
  std::string why;
  const std::optional<std::string> text = scenario::read_text_file(file, why);
  if (!text) return false;
  Diagnostics diagnostics;
  const Json document = parse_json(std::make_shared<const Source>(Source{file, *text}), diagnostics);
  const Json* expect = diagnostics.empty() ? document.find("expect") : nullptr;
  const Json* verdict = expect == nullptr ? nullptr : expect->find("verdict");
  return verdict != nullptr && verdict->is_string() && verdict->text() == "error";
}

/// Stages without parameters are nearly always a forgotten "stage".
std::vector<std::string> notes_of(const Schedule& schedule) {
  std::vector<char> holds(static_cast<std::size_t>(schedule.mesh.size(Axis::pp)));
  for (const Parameter& parameter : schedule.model.parameters()) {
    if (!parameter.stage) {
      std::fill(holds.begin(), holds.end(), 1);
    } else if (at(*parameter.stage) < holds.size()) {
      holds[at(*parameter.stage)] = 1;
    }
  }
  std::vector<std::size_t> empty;
  for (std::size_t stage = 0; stage < holds.size(); ++stage) {
    if (!holds[stage]) empty.push_back(stage);
  }
  if (empty.empty()) return {};
  return {fmt::format("No parameter is on pipeline stage{} {}; \"stage\" is 0 where a parameter does not say it.",
                      empty.size() == 1 ? "" : "s", fmt::join(empty, ", "))};
}

/// A fault in the model itself is seen by the transformer engine alone; its right twin has an empty list of edits.
bool speaks_of_model_edits(const Scenario& scenario) {
  const Json* model = scenario.document.find("model");
  return scenario.preset && model != nullptr && model->find("edits") != nullptr;
}

/// What was reached first in time: a completed optimizer step with something wrong, else how the
/// walk ended.
void combine(CheckResult& result) {
  const Timeline& timeline = *result.timeline;
  result.verdict = diagnosis::verdict_of(timeline.outcome.kind);
  result.step = timeline.outcome.kind == Outcome::Kind::complete ? result.scenario->schedule->batch.steps() - 1
                                                                 : timeline.outcome.optimizer_step;
  for (const EngineResult& engine : result.engines) {
    if (!engine.before_schedule) continue;
    result.verdict = engine.verdict;
    result.step = 0;
    return;
  }
  if (timeline.step_ends.empty()) return;
  for (const EngineResult& engine : result.engines) {
    if (engine.verdict != Verdict::mismatch) continue;
    result.step = result.verdict == Verdict::mismatch ? std::min(result.step, engine.step) : engine.step;
    result.verdict = Verdict::mismatch;
  }
}

/// Everything that comes before the replay; what is wrong with the scenario or too much for this machine stands in the
/// result.
void begin(CheckResult& result, CheckOptions& options, const diagnosis::Workload& workload) {
  if (!diagnosis::fits(result, workload, options)) return;
  const int world = result.scenario->schedule->mesh.world();
  if (options.mpi != nullptr && options.mpi_ranks_for_all && options.mpi->processes() > world) {
    result.errors = {diagnosis::at_the_layout(
        *result.scenario, fmt::format("the layout has {}, fewer than the {} processes of --ranks; give at most {}",
                                      counted(world, "rank"), options.mpi->processes(), world))};
    return;
  }
  result.timeline = std::make_shared<const Timeline>(walk(*result.scenario->schedule));
}

/// Whether the parametric engine takes the place of the others here.
bool decides_by_classes(const CheckResult& result, const CheckOptions& options) {
  return diagnosis::is_by_default(options) && diagnosis::is_large(*result.scenario->schedule);
}

bool wants_blame(const CheckResult& result, const CheckOptions& options) {
  if (!options.blame || result.verdict == Verdict::match || !result.disagreement.empty()) return false;
  const std::optional<Expect>& expect = result.scenario->expect;
  return !options.blame_where_expected || (expect && expect->blame);
}

/// What is searched for beside the verdict, within a budget: nothing that happens in it changes what is known.
void within_budget(CheckResult& result, const std::string& what, const std::function<void()>& search) {
  try {
    const Budget budget(Budget::search, Budget::memory_of_a_proof);
    search();
  } catch (const OverBudget& over) {
    result.notes.push_back(fmt::format("{} was cut off: {}.", what, over.what()));
  } catch (const InputError& error) {
    // In a scenario that the search has made: the user's file has no such mistake.
    result.notes.push_back(fmt::format("{} was cut off: of a scenario that it made it says \"{}\".", what,
                                       error.diagnostics().front().message));
  }
}

void try_blame(CheckResult& result, const CheckOptions& options) {
  within_budget(result, "The search for the step at fault",
                [&] { diagnosis::search_blame(result, options.blame_where_expected); });
  within_budget(result, "The search for lost ties", [&] {
    if (std::string note = diagnosis::lost_ties(result); !note.empty()) result.notes.push_back(std::move(note));
  });
}

/// Where that costs less than a second the ranks of a large layout are replayed as well, and both must agree. Whether
/// they were.
bool replay_beside(CheckResult& result, const EngineResult& by_classes) {
  const Schedule& schedule = *result.scenario->schedule;
  if (!diagnosis::is_replayed_beside(schedule)) return false;
  Verdict replayed = Verdict::match;
  try {
    replayed = diagnosis::replayed_verdict(schedule);
  } catch (const InputError&) {
    return false;  // a mistake that ranks meet; the parametric engine has said what it thinks of it
  } catch (const OverBudget&) {
    return false;
  }
  if (replayed != by_classes.verdict)
    result.disagreement =
        fmt::format("{} says {}, symbolic {}", by_classes.name, name_of(by_classes.verdict), name_of(replayed));
  return true;
}

/// The parametric engine's finding is all that there is.
void show_parametric(CheckResult& result, EngineResult& found, const CheckOptions& options) {
  const diagnosis::Stopwatch stopwatch;
  result.verdict = found.verdict;
  result.step = found.step;
  if (result.verdict == Verdict::mismatch) {
    auto& detail = *diagnosis::detail_of<diagnosis::ParametricDetail>(found);
    detail.sample = detail.engine->sample();
    result.notes.push_back("Ranks that are wrong in the same way are shown once, and so are parameters.");
  }
  found.seconds += stopwatch.seconds();
  if (wants_blame(result, options)) try_blame(result, options);
}

/// What the parametric engine found; null where it has no verdict.
EngineResult* decided_by_classes(CheckResult& result) {
  for (EngineResult& engine : result.engines) {
    if (diagnosis::detail_of<diagnosis::ParametricDetail>(engine) != nullptr) return &engine;
  }
  return nullptr;
}

void replay_and_compare(CheckResult& result, CheckOptions options) {
  using Stage = diagnosis::EngineRow::Stage;
  options.transformer = options.transformer || speaks_of_model_edits(*result.scenario);
  std::string undecided;
  if (decides_by_classes(result, options)) {
    undecided = diagnosis::run_by_classes(result, options);
    if (undecided.empty()) {
      const bool replayed = replay_beside(result, *decided_by_classes(result));
      if (options.host)
        diagnosis::leave_out(result, "host",
                             fmt::format("the layout is large, so that the verdict is the parametric engine's; {} "
                                         "(--engine symbolic,host does, where that fits)",
                                         replayed ? "symbolic replayed every rank too, and nothing replayed numbers"
                                                  : "nothing was replayed rank by rank"));
      return show_parametric(result, *decided_by_classes(result), options);
    }
  } else if (options.parametric) {
    undecided = diagnosis::run_by_classes(result, options);
    const bool alone = !diagnosis::replays_ranks(options);
    if (alone && !undecided.empty()) result.errors = {diagnosis::at_the_layout(*result.scenario, undecided)};
    if (alone) return undecided.empty() ? show_parametric(result, *decided_by_classes(result), options) : void();
    if (!undecided.empty()) result.notes.push_back("The parametric engine has no verdict: " + undecided + ".");
  }
  std::optional<diagnosis::MachineShare> share;
  try {
    std::optional<Budget> budget;
    if (diagnosis::is_by_default(options)) budget.emplace(Budget::search);
    diagnosis::begin_together(result, diagnosis::job_of(options), [&] {
      const diagnosis::Workload workload = diagnosis::estimate_workload(*result.scenario->schedule);
      share.emplace(workload, options);
      begin(result, options, workload);
    });
    if (!result.errors.empty() && !undecided.empty()) result.errors.back().message += "; " + undecided;
    if (!result.errors.empty()) return;
    diagnosis::run_engines(Stage::in_every_process, result, options);
    if (Job* job = diagnosis::job_of(options); job != nullptr && job->process() != 0) return;
    diagnosis::run_engines(Stage::within_budget, result, options);
  } catch (const OverBudget& over) {
    // What is too much to be replayed may still be decided by classes of ranks, if that was not tried before.
    if (!diagnosis::is_by_default(options) || !undecided.empty()) throw;
    diagnosis::forget_engines(result);
    result.timeline.reset();
    if (!diagnosis::run_by_classes(result, options).empty()) throw;
    result.notes.push_back(
        fmt::format("No rank was replayed: {}. The verdict is the parametric engine's.", over.what()));
    return show_parametric(result, *decided_by_classes(result), options);
  }
  diagnosis::run_engines(Stage::at_last, result, options, share->threads());
  if (!result.errors.empty()) return;
  combine(result);
  result.disagreement = diagnosis::find_disagreement(result, options);
  const bool in_model_alone = diagnosis::wrong_in_model_alone(result);
  const std::string uneven = result.timeline == nullptr ? ""
                                                        : diagnosis::uneven_factors_of_a_sequence(
                                                              *result.scenario->schedule, *result.timeline);
  if (!uneven.empty() && in_model_alone) {
    result.disagreement.clear();  // of such factors the transformer engine alone can see what comes
    result.notes.push_back(uneven);
  } else if (!uneven.empty() && transformer_of(result) == nullptr && result.verdict == Verdict::match) {
    result.notes.push_back(uneven);
  } else if (in_model_alone && result.disagreement.empty() && result.scenario->preset->edits.empty()) {
    result.notes.push_back(
        "The schedule is right for the placements that the scenario claims, and the model's gradients lie otherwise; "
        "`lockstep placements` compares the two.");
  }
  // First divergences are read off the symbolic engine's finding for the step that is reported.
  const SymbolicResult* symbolic = symbolic_of(result);
  if (options.divergences && symbolic != nullptr && symbolic->step == result.step)
    within_budget(result, "The search for the steps that spoil the gradients",
                  [&] { result.divergences = diagnosis::find_divergences(result); });
  result.blame = diagnosis::blame_of(result.divergences);
  if (wants_blame(result, options)) try_blame(result, options);
}

}  // namespace

CheckOptions CheckOptions::verdict_alone() {
  CheckOptions options;
  options.host = options.blame = options.divergences = false;
  return options;
}

CheckResult check_scenario(std::shared_ptr<const Scenario> scenario, const CheckOptions& options) {
  CheckResult result;
  result.file = scenario->file;
  result.scenario = std::move(scenario);
  if (result.scenario->schedule == nullptr) {
    std::shared_ptr<const Scenario> shown;
    try {
      shown = diagnosis::shown_for_any(*result.scenario, result);
    } catch (const InputError& error) {
      result.errors = error.diagnostics();
    } catch (const OverBudget& over) {
      result.errors = {diagnosis::at_the_layout(*result.scenario, over.what())};
    }
    if (!shown) {
      diagnosis::begin_together(result, diagnosis::job_of(options), [] {});
      return result;
    }
    result.written = std::exchange(result.scenario, shown);
  }
  for (std::string& note : notes_of(*result.scenario->schedule)) result.notes.push_back(std::move(note));
  try {
    replay_and_compare(result, options);
  } catch (const InputError& error) {
    result.errors = error.diagnostics();
    diagnosis::forget_engines(result);
  } catch (const OverBudget& over) {
    const char* advice = diagnosis::is_by_default(options) ? diagnosis::replays_all_the_same : "";
    result.errors = {diagnosis::at_the_layout(*result.scenario, fmt::format("{}{}", over.what(), advice))};
    diagnosis::forget_engines(result);
  } catch (const std::bad_alloc&) {
    CheckResult nothing;
    nothing.file = result.file;
    nothing.scenario = result.scenario;
    nothing.written = result.written;
    result = std::move(nothing);  // gives its memory back
    result.machine_failed = true;
    result.errors = {diagnosis::at_the_layout(
        *result.scenario,
        "out of memory: check this scenario alone on a larger machine, or with a smaller dp or "
        "fewer micro-batches, which nearly always show the same fault")};
  }
  return result;
}

namespace {

/// What ranks meet while they run, where the file is read without a mistake.
std::vector<Diagnostic> mistakes_of_ranks(const Scenario& file, const WhatIf& fewer) {
  try {
    const Scenario scenario = read_scenario(file.document, file.file, fewer);
    if (scenario.schedule != nullptr) walk(*scenario.schedule);
  } catch (const InputError& error) {
    return error.diagnostics();
  }
  return {};
}

CheckResult check_named(const std::string& file, const CheckOptions& options) {
  CheckResult result;
  result.file = file;
  std::shared_ptr<Scenario> scenario;
  try {
    scenario = std::make_shared<Scenario>(read_scenario_file(file));
  } catch (const InputError& error) {
    diagnosis::begin_together(result, diagnosis::job_of(options), [&] { result.errors = error.diagnostics(); });
    result.error_expected = expects_error(file);
    return result;
  }
  scenario->file = file;
  result = check_scenario(scenario, options);
  if (!scenario->changes.empty())
    result.notes.insert(result.notes.begin(),
                        fmt::format("The file is read with --set {}.", fmt::join(scenario->changes, " --set ")));
  if (result.verdict == Verdict::error && !result.machine_failed && scenario->schedule != nullptr)
    result.errors = scenario::at_their_edits(result.errors, scenario->document,
                                             [&](const WhatIf& fewer) { return mistakes_of_ranks(*scenario, fewer); });
  return result;
}

/// What nobody foresaw in one file must not cost the answers for the others.
CheckResult failed(const std::string& file, const std::string& why) {
  CheckResult result;
  result.file = file;
  result.machine_failed = true;
  result.errors = {Diagnostic{Place{std::make_shared<const Source>(Source{file, ""}), 0, 0, ""}, why}};
  return result;
}

}  // namespace

CheckResult check_file(const std::string& file, const CheckOptions& options) {
  const expression::ParsedOnce parsed_once;
  // The processes of a job must end together.
  if (diagnosis::job_of(options) != nullptr) return check_named(file, options);
  try {
    // For what is done beside replays and searches, and for the memory of all of it.
    std::optional<Budget> budget;
    if (diagnosis::is_by_default(options)) budget.emplace(Budget::file);
    return check_named(file, options);
  } catch (const OverBudget& over) {
    CheckResult result = failed(file, over.what());
    result.machine_failed = false;
    return result;
  } catch (const std::bad_alloc&) {
    return failed(file, "out of memory");
  } catch (const InternalError& error) {
    return failed(file, fmt::format("a bug of lockstep: {}", error.what()));
  } catch (const ExpressionError& error) {
    return failed(file, fmt::format("a bug of lockstep: {}", error.what()));
  }
}

}  // namespace lockstep
