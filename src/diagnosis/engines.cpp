// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/engines.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/mpi.h"
#include "lockstep/nccl.h"
#include "src/base/budget.h"
#include "src/diagnosis/agreement.h"
#include "src/diagnosis/at_the_layout.h"
#include "src/diagnosis/engine_details.h"
#include "src/diagnosis/outcome_verdict.h"
#include "src/diagnosis/stopwatch.h"

namespace lockstep::diagnosis {

namespace {

Verdict verdict_of(const ParametricResult& result) {
  switch (result.verdict) {
    case ParametricResult::Verdict::mismatch:
      return Verdict::mismatch;
    case ParametricResult::Verdict::race:
      return Verdict::race;
    case ParametricResult::Verdict::match:
      return Verdict::match;
    case ParametricResult::Verdict::undecided:
      break;
  }
  return Verdict::error;
}

/// `found` says which values are right, and the walk how it ended.
template <class Found>
void conclude(const CheckResult& result, const Found& found, EngineResult& engine) {
  engine.step = found.step;
  engine.verdict = !found.match && !result.timeline->step_ends.empty()
                       ? Verdict::mismatch
                       : diagnosis::verdict_of(result.timeline->outcome.kind);
}

void conclude(const CheckResult& result, HostResult numbers, EngineResult& engine) {
  conclude<HostResult>(result, numbers, engine);
  engine.numbers = std::make_shared<const HostResult>(std::move(numbers));
}

/// What all engines that compute with numbers are told.
HostOptions host_options(const CheckOptions& options) {
  HostOptions host;
  host.force_all = options.host_forced;
  host.seed = options.seed;
  return host;
}

std::string run_symbolic(CheckResult& result, EngineResult& found, const CheckOptions&, int) {
  const auto detail = std::make_shared<SymbolicDetail>();
  detail->engine = std::make_unique<SymbolicEngine>(*result.scenario->schedule, *result.timeline);
  detail->found = detail->engine->run();
  conclude(result, detail->found, found);
  found.detail = detail;
  return "";
}

std::string run_parametric(CheckResult& result, EngineResult& found, const CheckOptions&, int) {
  const Budget budget(Budget::search);
  const auto detail = std::make_shared<ParametricDetail>();
  detail->engine = std::make_unique<ParametricEngine>(*result.scenario->schedule);
  detail->found = detail->engine->result();
  const ParametricResult& own = detail->found;
  if (own.verdict == ParametricResult::Verdict::undecided)
    return fmt::format("the parametric engine, to which the number of ranks does not matter, does not follow it: {}{}",
                       own.undecided_step.empty() ? "" : fmt::format("step \"{}\": ", own.undecided_step), own.why);
  found.verdict = verdict_of(own);
  found.step = own.step;
  found.detail = detail;
  return "";
}

std::string run_host(CheckResult& result, EngineResult& found, const CheckOptions& options, int threads) {
  HostOptions host = host_options(options);
  host.progress = options.progress;
  host.threads = threads;
  host.hashes = options.hashes || options.mpi != nullptr || options.cuda != nullptr || options.nccl != nullptr;
  conclude(result, run_host(*result.scenario->schedule, *result.timeline, host), found);
  return "";
}

constexpr const char* told_to_process_0 = "process 0 is told what all processes find";

std::string run_mpi(CheckResult& result, EngineResult& found, const CheckOptions& options, int) {
  HostResult numbers = run_mpi(*result.scenario->schedule, *result.timeline, host_options(options), *options.mpi);
  if (options.mpi->process() != 0) return told_to_process_0;
  found.processes = options.mpi->processes();
  conclude(result, std::move(numbers), found);
  return "";
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

std::string run_cuda(CheckResult& result, EngineResult& found, const CheckOptions& options, int) {
  HostOptions host = host_options(options);
  host.progress = options.progress;
  host.block_elements = options.cuda_elements;
  try {
    conclude(result, run_cuda(*result.scenario->schedule, *result.timeline, host, *options.cuda), found);
  } catch (const CudaTooSmall& failure) {
    found.left_out = fmt::format("the cuda engine was left out: {}", failure.what());
    if (replays_ranks(options, found.name)) return "";
    result.errors = {at_the_layout(*result.scenario, failure.what())};
    result.machine_failed = true;
    return "";
  }
  found.device = options.cuda->name();
  if (result.timeline->outcome.kind != Outcome::Kind::race) return "";
  const auto detail = std::make_shared<CudaDetail>();
  try {
    detail->race = replay_race(*result.scenario->schedule, host, *options.cuda);
  } catch (const CudaTooSmall& failure) {
    detail->race = RaceReplays{0, 0, failure.what()};
  }
  result.notes.push_back(race_note(detail->race, found.device));
  found.detail = detail;
  return "";
}

std::string run_nccl(CheckResult& result, EngineResult& found, const CheckOptions& options, int) {
  HostOptions host = host_options(options);
  host.block_elements = options.cuda_elements;
  HostResult numbers = run_nccl(*result.scenario->schedule, *result.timeline, host, *options.nccl);
  if (options.nccl->job().process() != 0) return told_to_process_0;
  found.processes = options.nccl->job().processes();
  found.device = "a GPU";
  conclude(result, std::move(numbers), found);
  return "";
}

std::string run_transformer(CheckResult& result, EngineResult& found, const CheckOptions& options, int) {
  TransformerOptions transformer;
  transformer.seed = options.seed;
  transformer.references = options.references;
  const auto detail = std::make_shared<TransformerDetail>();
  detail->found = run_transformer(*result.scenario, *result.timeline, transformer);
  conclude(result, detail->found, found);
  if (const std::optional<TransformerFailure>& failure = detail->found.failure) {
    found.before_schedule = true;
    found.verdict = failure->deadlock ? Verdict::deadlock : Verdict::invalid_collective;
  }
  found.detail = detail;
  return "";
}

/// Notes on numbers are those of one engine; what this one alone has to say must not be lost.
void add_notes(CheckResult& result, const HostResult& numbers) {
  const std::vector<std::string>& shown = numbers_of(result)->notes;
  if (&shown == &numbers.notes) return;
  for (const std::string& note : numbers.notes) {
    if (std::find(shown.begin(), shown.end(), note) == shown.end()) result.notes.push_back(note);
  }
}

}  // namespace

const std::vector<EngineRow>& engine_table() {
  using Stage = EngineRow::Stage;
  static const std::vector<EngineRow> table = made_once([] {
    return std::vector<EngineRow>{
        {.name = "symbolic",
         .help = "exact formulas on every rank",
         .stage = Stage::within_budget,
         .by_default = true,
         .ask = [](CheckOptions& options) { options.symbolic = true; },
         .is_asked = [](const CheckOptions& options) { return options.symbolic; },
         .run = run_symbolic},
        {.name = "parametric",
         .help = "exact formulas, all ranks together, at a cost that does not grow with the layout",
         .stage = Stage::by_classes,
         .ask = [](CheckOptions& options) { options.parametric = true; },
         .is_asked = [](const CheckOptions& options) { return options.parametric; },
         .run = run_parametric,
         .compare = compare_by_classes},
        {.name = "host",
         .help = "real numbers",
         .by_default = true,
         .ask = [](CheckOptions& options) { options.host = options.host_forced = true; },
         .is_asked = [](const CheckOptions& options) { return options.host; },
         .run = run_host,
         .compare = compare_numbers},
        {.name = "mpi",
         .help = "real numbers in several processes",
         .stage = Stage::in_every_process,
         .is_built = mpi_is_built,
         .is_asked = [](const CheckOptions& options) { return options.mpi != nullptr; },
         .run = run_mpi,
         .compare = compare_numbers,
         .processes_option = "--ranks"},
        {.name = "cuda",
         .help = "on a GPU",
         .is_built = cuda_is_built,
         .is_asked = [](const CheckOptions& options) { return options.cuda != nullptr; },
         .run = run_cuda,
         .compare = compare_numbers},
        {.name = "nccl",
         .help = "on several GPUs",
         .stage = Stage::in_every_process,
         .is_built = nccl_is_built,
         .is_asked = [](const CheckOptions& options) { return options.nccl != nullptr; },
         .run = run_nccl,
         .compare = compare_numbers,
         .processes_option = "--gpus"},
        {.name = "transformer",
         .help = "a real model of the preset's kind runs forward and backward, sharded; for small sizes",
         .ask = [](CheckOptions& options) { options.transformer = true; },
         .is_asked = [](const CheckOptions& options) { return options.transformer; },
         .run = run_transformer,
         .compare = compare_with_transformer},
    };
  });
  return table;
}

const EngineRow& engine_row(std::string_view name) {
  for (const EngineRow& row : engine_table()) {
    if (row.name == name) return row;
  }
  throw InternalError(fmt::format("no engine is named {}", name));
}

std::vector<std::string> engine_names(bool with_devices) {
  std::vector<std::string> names;
  for (const bool devices : {false, true}) {
    for (const EngineRow& row : engine_table()) {
      if ((row.ask == nullptr) == devices && (with_devices || !devices)) names.emplace_back(row.name);
    }
  }
  return names;
}

Job* job_of(const CheckOptions& options) {
  if (options.mpi != nullptr) return options.mpi;
  return options.nccl != nullptr ? &options.nccl->job() : nullptr;
}

bool replays_ranks(const CheckOptions& options, std::string_view but) {
  const std::vector<EngineRow>& table = engine_table();
  return std::any_of(table.begin(), table.end(), [&](const EngineRow& row) {
    return row.stage != EngineRow::Stage::by_classes && row.name != but && row.is_asked(options);
  });
}

std::string run_engine(const EngineRow& row, CheckResult& result, const CheckOptions& options, int threads) {
  const Stopwatch stopwatch;
  EngineResult found;
  found.name = row.name;
  std::string nothing = row.run(result, found, options, threads);
  if (!nothing.empty()) return nothing;
  found.seconds = stopwatch.seconds();
  const std::shared_ptr<const HostResult> numbers = found.numbers;
  keep(result, std::move(found));
  if (numbers) add_notes(result, *numbers);
  return "";
}

void run_engines(EngineRow::Stage stage, CheckResult& result, const CheckOptions& options, int threads) {
  for (const EngineRow& row : engine_table()) {
    if (row.stage != stage || !row.is_asked(options)) continue;
    run_engine(row, result, options, threads);
    if (!result.errors.empty()) return;
  }
}

std::string run_by_classes(CheckResult& result, const CheckOptions& options) {
  const std::vector<EngineRow>& table = engine_table();
  return run_engine(*std::find_if(table.begin(), table.end(),
                                  [](const EngineRow& row) { return row.stage == EngineRow::Stage::by_classes; }),
                    result, options);
}

void keep(CheckResult& result, EngineResult found) {
  // Rows lie in the order of the table.
  const EngineRow* row = &engine_row(found.name);
  const auto place = std::find_if(result.engines.begin(), result.engines.end(),
                                  [&](const EngineResult& other) { return &engine_row(other.name) >= row; });
  if (place != result.engines.end() && place->name == found.name)
    *place = std::move(found);
  else
    result.engines.insert(place, std::move(found));
}

void leave_out(CheckResult& result, std::string_view engine, std::string why) {
  EngineResult row;
  row.name = engine;
  row.left_out = std::move(why);
  keep(result, std::move(row));
}

void forget_engines(CheckResult& result) {
  std::erase_if(result.engines, [](const EngineResult& engine) { return engine.ran(); });
}

}  // namespace lockstep::diagnosis
