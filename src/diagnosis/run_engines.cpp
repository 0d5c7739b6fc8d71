// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/run_engines.h"

#include <fmt/format.h>

#include <algorithm>

#include "src/base/budget.h"
#include "src/diagnosis/at_the_layout.h"
#include "src/diagnosis/stopwatch.h"

namespace lockstep {

namespace {

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

/// What all engines that compute with numbers are told.
HostOptions host_options(const CheckOptions& options) {
  HostOptions host;
  host.force_all = options.host_forced;
  host.seed = options.seed;
  return host;
}

std::string undecided_text(const ParametricResult& result) {
  return fmt::format("the parametric engine, to which the number of ranks does not matter, does not follow it: {}{}",
                     result.undecided_step.empty() ? "" : fmt::format("step \"{}\": ", result.undecided_step),
                     result.why);
}

}  // namespace

Job* job_of(const CheckOptions& options) {
  if (options.mpi != nullptr) return options.mpi;
  return options.nccl != nullptr ? &options.nccl->job() : nullptr;
}

void run_symbolic(CheckResult& result) {
  const Stopwatch stopwatch;
  result.engine = std::make_shared<SymbolicEngine>(*result.scenario->schedule, *result.timeline);
  result.symbolic = result.engine->run();
  result.symbolic_seconds = stopwatch.seconds();
}

void run_host_engine(CheckResult& result, const CheckOptions& options, int threads) {
  const Stopwatch stopwatch;
  HostOptions host = host_options(options);
  host.progress = options.progress;
  host.threads = threads;
  result.host = run_host(*result.scenario->schedule, *result.timeline, host);
  result.host_seconds = stopwatch.seconds();
}

void run_mpi_engine(CheckResult& result, const CheckOptions& options) {
  const Stopwatch stopwatch;
  HostResult found = run_mpi(*result.scenario->schedule, *result.timeline, host_options(options), *options.mpi);
  result.mpi_processes = options.mpi->processes();
  if (options.mpi->process() != 0) return;
  result.mpi = std::move(found);
  result.mpi_seconds = stopwatch.seconds();
}

void run_cuda_engine(CheckResult& result, const CheckOptions& options) {
  const Stopwatch stopwatch;
  HostOptions host = host_options(options);
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
  HostOptions host = host_options(options);
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

std::string run_parametric_engine(CheckResult& result) {
  const Stopwatch stopwatch;
  const Budget budget(Budget::search);
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

}  // namespace lockstep
