// SPDX-License-Identifier: Apache-2.0
#include "lockstep/check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <new>

#include "lockstep/prove.h"
#include "src/diagnosis/agreement.h"
#include "src/diagnosis/at_the_layout.h"
#include "src/diagnosis/blame.h"
#include "src/diagnosis/mpi_processes.h"
#include "src/diagnosis/other_tests.h"
#include "src/diagnosis/turning_point.h"
#include "src/diagnosis/workload.h"
#include "src/scenario/named_file.h"

namespace lockstep {

namespace {

class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// Axes of size "any" for which there is no proof, as mistakes at their places.
std::vector<Diagnostic> not_decided(const Scenario& scenario, const Proof& proof) {
  Diagnostics diagnostics;
  const Json* layout = scenario.document.find("layout");
  const Proof::Limit limit = proof.limits.empty() ? Proof::Limit{"", "", proof.statement} : proof.limits.front();
  for (const Axis axis : scenario.layout.any) {
    const Json* size = layout == nullptr ? nullptr : layout->find(name_of(axis));
    const Place place =
        size == nullptr ? Place{nullptr, 0, 0, fmt::format("/layout/{}", name_of(axis))} : size->place();
    diagnostics.add(place, fmt::format("the size \"any\" of the axis {} is not decided{}: {}{}; give a number",
                                       name_of(axis), limit.sizes.empty() ? "" : " for " + limit.sizes,
                                       limit.step.empty() ? "" : "step \"" + limit.step + "\": ", limit.why));
  }
  return diagnostics.sorted();
}

/// A scenario of given sizes in place of one with axes of size "any": the smallest that is wrong, else a small one,
/// with a note that says what was proved. Null where that is not decided.
std::shared_ptr<const Scenario> shown_for_any(const Scenario& scenario, CheckResult& result) {
  const Prover prover(scenario);
  const Proof& proof = prover.proof();
  if (proof.verdict == Proof::Verdict::undecided) {
    result.errors = not_decided(scenario, proof);
    return nullptr;
  }
  Sizes sizes;
  for (const Axis axis : proof.axes) sizes.axes[axis] = 2;
  if (proof.counterexample) sizes = proof.counterexample->sizes;
  std::shared_ptr<const Scenario> concrete = prover.scenario_at(sizes);
  if (!concrete) concrete = prover.scenario_at({});
  auto shown = std::make_shared<Scenario>(*concrete);
  shown->file = scenario.file;
  shown->name = scenario.name;
  shown->expect = scenario.expect;
  std::vector<std::string> names;
  for (const Axis axis : scenario.layout.any) names.emplace_back(name_of(axis));
  result.notes.push_back(
      fmt::format("With any {} it is {}. Shown is {}.", fmt::join(names, " and "), proof.statement,
                  proof.counterexample ? "the smallest layout that is wrong" : "a small layout that stands for all"));
  return shown;
}

/// Whether a file that could not be read as a scenario expects that.
bool expects_error(const std::string& file) {
  std::string why;
  const std::optional<std::string> text = read_text_file(file, why);
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
  for (int rank = 0; rank < schedule.mesh.world(); ++rank) {
    if (schedule.model.local(rank).buffers.empty()) continue;
    holds[static_cast<std::size_t>(schedule.mesh.coordinate(rank, Axis::pp))] = 1;
  }
  std::vector<std::size_t> empty;
  for (std::size_t stage = 0; stage < holds.size(); ++stage) {
    if (!holds[stage]) empty.push_back(stage);
  }
  if (empty.empty()) return {};
  return {fmt::format("No parameter is on pipeline stage{} {}; \"stage\" is 0 where a parameter does not say it.",
                      empty.size() == 1 ? "" : "s", fmt::join(empty, ", "))};
}

Verdict verdict_of(Outcome::Kind kind) {
  switch (kind) {
    case Outcome::Kind::deadlock:
      return Verdict::deadlock;
    case Outcome::Kind::invalid_collective:
      return Verdict::invalid_collective;
    case Outcome::Kind::race:
      return Verdict::race;
    case Outcome::Kind::complete:
      break;
  }
  return Verdict::match;
}

void run_symbolic(CheckResult& result) {
  const Stopwatch stopwatch;
  result.engine = std::make_shared<SymbolicEngine>(*result.scenario->schedule, *result.timeline);
  result.symbolic = result.engine->run();
  result.symbolic_seconds = stopwatch.seconds();
}

void run_host_engine(CheckResult& result, const CheckOptions& options, int threads) {
  const Stopwatch stopwatch;
  HostOptions host;
  host.force_all = options.host_forced;
  host.seed = options.seed;
  host.progress = options.progress;
  host.threads = threads;
  result.host = run_host(*result.scenario->schedule, *result.timeline, host);
  result.host_seconds = stopwatch.seconds();
}

void run_mpi_engine(CheckResult& result, const CheckOptions& options) {
  const Stopwatch stopwatch;
  HostOptions host;
  host.force_all = options.host_forced;
  host.seed = options.seed;
  HostResult found = run_mpi(*result.scenario->schedule, *result.timeline, host, *options.mpi);
  result.mpi_processes = options.mpi->processes();
  if (options.mpi->process() != 0) return;
  result.mpi = std::move(found);
  result.mpi_seconds = stopwatch.seconds();
}

/// The job that the scenario is checked in; null where this process is alone.
Job* job_of(const CheckOptions& options) {
  if (options.mpi != nullptr) return options.mpi;
  return options.nccl != nullptr ? &options.nccl->job() : nullptr;
}

std::string race_note(const RaceReplays& race, const std::string& device) {
  if (race.replays == 0) return fmt::format("The race was not replayed on {}: {}.", device, race.why);
  const std::string what = "another gradient than the schedule with its waits";
  if (race.different == 0) {
    return fmt::format("On {} none of {} replays gave {}: the race was not observed, which proves nothing.", device,
                       race.replays, what);
  }
  return fmt::format("On {} {} of {} replays gave {}: the race was observed.", device, race.different, race.replays,
                     what);
}

/// Notes on numbers are those of one engine; what this one alone has to say must not be lost.
void add_notes(CheckResult& result, const HostResult& engine) {
  const std::vector<std::string>& shown = numbers_of(result)->notes;
  for (const std::string& note : engine.notes) {
    if (std::find(shown.begin(), shown.end(), note) == shown.end()) result.notes.push_back(note);
  }
}

void run_cuda_engine(CheckResult& result, const CheckOptions& options) {
  const Stopwatch stopwatch;
  HostOptions host;
  host.force_all = options.host_forced;
  host.seed = options.seed;
  host.progress = options.progress;
  host.block_elements = options.cuda_elements;
  try {
    result.cuda = run_cuda(*result.scenario->schedule, *result.timeline, host, *options.cuda);
  } catch (const CudaTooSmall& failure) {
    result.cuda_left_out = fmt::format("the cuda engine was left out: {}", failure.what());
    if (options.symbolic || options.host || options.transformer || job_of(options) != nullptr) return;
    result.errors = {at_the_layout(*result.scenario, failure.what())};
    result.machine_failed = true;
    return;
  }
  result.cuda_device = options.cuda->name();
  if (result.timeline->outcome.kind == Outcome::Kind::race) {
    try {
      result.cuda_race = replay_race(*result.scenario->schedule, host, *options.cuda);
    } catch (const CudaTooSmall& failure) {
      result.cuda_race = RaceReplays{0, 0, failure.what()};
    }
    result.notes.push_back(race_note(*result.cuda_race, result.cuda_device));
  }
  result.cuda_seconds = stopwatch.seconds();
  add_notes(result, *result.cuda);
}

void run_nccl_engine(CheckResult& result, const CheckOptions& options) {
  const Stopwatch stopwatch;
  HostOptions host;
  host.force_all = options.host_forced;
  host.seed = options.seed;
  host.block_elements = options.cuda_elements;
  HostResult found = run_nccl(*result.scenario->schedule, *result.timeline, host, *options.nccl);
  result.nccl_processes = options.nccl->job().processes();
  if (options.nccl->job().process() != 0) return;
  result.nccl = std::move(found);
  result.nccl_seconds = stopwatch.seconds();
  add_notes(result, *result.nccl);
}

void run_transformer_engine(CheckResult& result, const CheckOptions& options) {
  const Stopwatch stopwatch;
  TransformerOptions transformer;
  transformer.seed = options.seed;
  result.transformer = run_transformer(*result.scenario, *result.timeline, transformer);
  result.transformer_seconds = stopwatch.seconds();
}

/// Calls of steps on buffers up to which the host engine takes minutes.
constexpr double most_host_calls = 1e8;

/// Whether the check can be done; else `result` says why not. Takes the host engine away where it alone is too much.
bool fits(CheckResult& result, const Workload& workload, CheckOptions& options) {
  std::string why = too_large(workload);
  if (why.empty() && options.host && options.symbolic && !options.host_forced) {
    const std::string both = too_large_here(workload, workload.bytes + workload.host_bytes);
    if (!both.empty()) {
      result.host_left_out = "the host engine was left out: with it, " + both;
    } else if (workload.calls > most_host_calls) {
      result.host_left_out = fmt::format(
          "the host engine was left out: {}, which would take it more than ten minutes; "
          "--engine symbolic,host runs it all the same",
          workload.describe());
    }
    options.host = result.host_left_out.empty();
  }
  if (why.empty()) {
    double bytes = workload.bytes + (options.host ? workload.host_bytes : 0);
    if (Job* job = job_of(options); job != nullptr)
      bytes = std::max(bytes, (workload.bytes + workload.host_bytes) * job->processes_here());
    why = too_large_here(workload, bytes);
    result.machine_failed = !why.empty();
  }
  if (!why.empty()) result.errors = {at_the_layout(*result.scenario, why)};
  return why.empty();
}

/// A part of a machine that several checks use at once: one thread of it, or all where the check is large.
class MachineShare {
 public:
  MachineShare(const Workload& workload, CheckOptions& options) {
    if (options.side_by_side == nullptr) return;
    // Larger ones could fill the memory together, and have work for all cores by themselves.
    constexpr double small_bytes = 1.28e8, small_elements = 1e7;
    if (workload.bytes + workload.host_bytes > small_bytes || workload.elements > small_elements) {
      alone_ = std::unique_lock(*options.side_by_side);
      return;
    }
    beside_ = std::shared_lock(*options.side_by_side);
    options.progress = {};
    threads_ = 1;
  }
  /// For HostOptions.
  int threads() const { return threads_; }

 private:
  std::unique_lock<std::shared_mutex> alone_;
  std::shared_lock<std::shared_mutex> beside_;
  int threads_ = 0;
};

/// A fault in the model itself is seen by the transformer engine alone; its right twin has an empty list of edits.
bool speaks_of_model_edits(const Scenario& scenario) {
  const Json* model = scenario.document.find("model");
  return scenario.preset && model != nullptr && model->find("edits") != nullptr;
}

Verdict verdict_of_model(const TransformerResult& result) {
  return result.failure->deadlock ? Verdict::deadlock : Verdict::invalid_collective;
}

/// What was reached first in time: a completed optimizer step with something wrong, else how the
/// walk ended.
void combine(CheckResult& result) {
  const Timeline& timeline = *result.timeline;
  result.verdict = verdict_of(timeline.outcome.kind);
  result.step = timeline.outcome.kind == Outcome::Kind::complete ? result.scenario->schedule->batch.steps() - 1
                                                                 : timeline.outcome.optimizer_step;
  // The model's own communication comes before any step of the schedule.
  if (result.transformer && result.transformer->failure) {
    result.verdict = verdict_of_model(*result.transformer);
    result.step = 0;
    return;
  }
  if (timeline.step_ends.empty()) return;
  const bool symbolic_wrong = result.symbolic && !result.symbolic->match;
  if (symbolic_wrong) result.step = result.symbolic->step;
  bool any = symbolic_wrong;
  if (!any && result.parametric && result.parametric->verdict == ParametricResult::Verdict::mismatch) {
    result.step = result.parametric->step;
    any = true;
  }
  for (const std::optional<HostResult>* numbers : {&result.host, &result.mpi, &result.cuda, &result.nccl}) {
    if (!*numbers || (*numbers)->match) continue;
    result.step = any ? std::min(result.step, (*numbers)->step) : (*numbers)->step;
    any = true;
  }
  if (result.transformer && !result.transformer->match) {
    result.step = any ? std::min(result.step, result.transformer->step) : result.transformer->step;
    any = true;
  }
  if (any) result.verdict = Verdict::mismatch;
}

/// Everything that comes before the replay; what is wrong with the scenario or too much for this machine stands in the
/// result.
void begin(CheckResult& result, CheckOptions& options, const Workload& workload) {
  if (!fits(result, workload, options)) return;
  const int world = result.scenario->schedule->mesh.world();
  if (options.mpi != nullptr && options.mpi_ranks_for_all && options.mpi->processes() > world) {
    result.errors = {
        at_the_layout(*result.scenario,
                      fmt::format("the layout has {} rank{}, fewer than the {} processes of --ranks; give at most {}",
                                  world, world == 1 ? "" : "s", options.mpi->processes(), world))};
    return;
  }
  result.timeline = std::make_shared<const Timeline>(walk(*result.scenario->schedule));
}

/// Whether the parametric engine takes the place of the others here.
bool decided_by_classes(const CheckResult& result, const CheckOptions& options) {
  if (!options.parametric_where_large || !options.symbolic || options.host_forced || options.transformer ||
      options.cuda != nullptr || job_of(options) != nullptr)
    return false;
  return is_large(*result.scenario->schedule);
}

std::string undecided_text(const ParametricResult& result) {
  return fmt::format("the parametric engine, to which the number of ranks does not matter, does not follow it: {}{}",
                     result.undecided_step.empty() ? "" : fmt::format("step \"{}\": ", result.undecided_step),
                     result.why);
}

/// Keeps what it finds, if it decides; else says why it does not.
std::string run_parametric_engine(CheckResult& result) {
  const Stopwatch stopwatch;
  result.parametric_engine = std::make_shared<ParametricEngine>(*result.scenario->schedule);
  const ParametricResult& found = result.parametric_engine->result();
  if (found.verdict == ParametricResult::Verdict::undecided) {
    std::string why = undecided_text(found);
    result.parametric_engine.reset();
    return why;
  }
  result.parametric = found;
  result.parametric_seconds = stopwatch.seconds();
  return "";
}

bool wants_blame(const CheckResult& result, const CheckOptions& options) {
  if (!options.blame || result.verdict == Verdict::match || !result.disagreement.empty()) return false;
  const std::optional<Expect>& expect = result.scenario->expect;
  return !options.blame_where_expected || (expect && expect->blame);
}

/// The parametric engine's finding is all that there is.
void show_parametric(CheckResult& result, const CheckOptions& options) {
  const Stopwatch stopwatch;
  result.verdict = verdict_of(*result.parametric);
  result.step = result.parametric->step;
  if (result.verdict == Verdict::mismatch) {
    result.sample = result.parametric_engine->sample();
    result.notes.push_back(
        "Of the ranks that are wrong in like manner one is shown, and of parameters that are wrong alike one.");
  }
  result.parametric_seconds += stopwatch.seconds();
  if (wants_blame(result, options)) search_blame(result);
}

void replay_and_compare(CheckResult& result, CheckOptions options) {
  options.transformer = options.transformer || speaks_of_model_edits(*result.scenario);
  std::string undecided;
  if (decided_by_classes(result, options)) {
    undecided = run_parametric_engine(result);
    if (result.parametric) {
      if (options.host)
        result.host_left_out =
            "the layout is large, so that the verdict is the parametric engine's, and nothing was replayed rank by "
            "rank "
            "(--engine symbolic,host does, where that fits)";
      return show_parametric(result, options);
    }
  } else if (options.parametric) {
    undecided = run_parametric_engine(result);
    const bool alone = !options.symbolic && !options.host && !options.transformer && options.cuda == nullptr &&
                       job_of(options) == nullptr;
    if (alone && !undecided.empty()) result.errors = {at_the_layout(*result.scenario, undecided)};
    if (alone) return result.parametric ? show_parametric(result, options) : void();
    if (!undecided.empty()) result.notes.push_back("The parametric engine has no verdict: " + undecided + ".");
  }
  std::optional<MachineShare> share;
  begin_together(result, job_of(options), [&] {
    const Workload workload = estimate_workload(*result.scenario->schedule);
    share.emplace(workload, options);
    begin(result, options, workload);
  });
  if (!result.errors.empty() && !undecided.empty()) result.errors.back().message += "; " + undecided;
  if (!result.errors.empty()) return;
  if (options.mpi != nullptr) run_mpi_engine(result, options);
  if (options.nccl != nullptr) run_nccl_engine(result, options);
  if (Job* job = job_of(options); job != nullptr && job->process() != 0) return;
  if (options.symbolic) run_symbolic(result);
  if (options.host) run_host_engine(result, options, share->threads());
  if (options.cuda != nullptr) run_cuda_engine(result, options);
  if (!result.errors.empty()) return;
  if (options.transformer) run_transformer_engine(result, options);
  combine(result);
  result.disagreement = find_disagreement(result, options);
  if (wrong_in_model_alone(result) && result.disagreement.empty() && result.scenario->preset->edits.empty()) {
    result.notes.push_back(
        "The schedule is right for the placements that the scenario claims, and the model's gradients lie otherwise; "
        "`lockstep placements` compares the two.");
  }
  // Turning points are read off the symbolic engine's finding for the step that is reported.
  if (options.turns && result.symbolic && result.symbolic->step == result.step) result.turns = find_turns(result);
  result.blame = blame_of(result.turns);
  if (wants_blame(result, options)) search_blame(result);
}

}  // namespace

std::string_view name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::match:
      return "match";
    case Verdict::mismatch:
      return "mismatch";
    case Verdict::deadlock:
      return "deadlock";
    case Verdict::invalid_collective:
      return "invalid_collective";
    case Verdict::race:
      return "race";
    case Verdict::error:
      break;
  }
  return "error";
}

Verdict engine_verdict(const CheckResult& result, bool match) {
  if (result.timeline == nullptr) return Verdict::error;
  if (!match && !result.timeline->step_ends.empty()) return Verdict::mismatch;
  return verdict_of(result.timeline->outcome.kind);
}

Verdict verdict_of(const ParametricResult& result) {
  switch (result.verdict) {
    case ParametricResult::Verdict::mismatch:
      return Verdict::mismatch;
    case ParametricResult::Verdict::race:
      return Verdict::race;
    case ParametricResult::Verdict::match:
    case ParametricResult::Verdict::undecided:
      break;
  }
  return result.verdict == ParametricResult::Verdict::match ? Verdict::match : Verdict::error;
}

const SymbolicResult* exact_of(const CheckResult& result) {
  if (result.symbolic) return &*result.symbolic;
  return result.sample ? &result.sample->found : nullptr;
}

FormReader* forms_of(const CheckResult& result) {
  if (result.symbolic) return result.engine.get();
  return result.sample ? result.parametric_engine.get() : nullptr;
}

const HostResult* numbers_of(const CheckResult& result) {
  if (result.host) return &*result.host;
  if (result.mpi) return &*result.mpi;
  if (result.cuda) return &*result.cuda;
  return result.nccl ? &*result.nccl : nullptr;
}

CheckResult check_scenario(std::shared_ptr<const Scenario> scenario, const CheckOptions& options) {
  CheckResult result;
  result.file = scenario->file;
  result.scenario = std::move(scenario);
  if (result.scenario->schedule == nullptr) {
    std::shared_ptr<const Scenario> shown;
    try {
      shown = shown_for_any(*result.scenario, result);
    } catch (const InputError& error) {
      result.errors = error.diagnostics();
    }
    if (!shown) {
      begin_together(result, job_of(options), [] {});
      return result;
    }
    result.scenario = shown;
  }
  for (std::string& note : notes_of(*result.scenario->schedule)) result.notes.push_back(std::move(note));
  try {
    replay_and_compare(result, options);
  } catch (const InputError& error) {
    result.errors = error.diagnostics();
    result.symbolic.reset();
    result.parametric.reset();
    result.sample.reset();
    result.host.reset();
    result.mpi.reset();
    result.cuda.reset();
    result.nccl.reset();
    result.cuda_race.reset();
    result.transformer.reset();
  } catch (const std::bad_alloc&) {
    CheckResult nothing;
    nothing.file = result.file;
    nothing.scenario = result.scenario;
    result = std::move(nothing);  // gives its memory back
    result.machine_failed = true;
    result.errors = {
        at_the_layout(*result.scenario,
                      "out of memory: check this scenario alone on a larger machine, or with a smaller dp or "
                      "fewer micro-batches, which nearly always show the same fault")};
  }
  return result;
}

CheckResult check_file(const std::string& file, const CheckOptions& options) {
  CheckResult result;
  result.file = file;
  std::shared_ptr<Scenario> scenario;
  try {
    scenario = std::make_shared<Scenario>(read_scenario_file(file));
  } catch (const InputError& error) {
    begin_together(result, job_of(options), [&] { result.errors = error.diagnostics(); });
    result.error_expected = expects_error(file);
    return result;
  }
  scenario->file = file;
  return check_scenario(scenario, options);
}

}  // namespace lockstep
