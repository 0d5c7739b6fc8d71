// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/check.h"
#include "lockstep/job.h"

namespace lockstep::diagnosis {

/// All that the rest of the program knows of an engine.
struct EngineRow {
  /// When a check runs it; engines of one stage in the order of the table.
  enum class Stage {
    by_classes,        ///< first, without a timeline: it replays no rank, and its answer may be all that is needed
    in_every_process,  ///< together with the other processes of a job
    within_budget,     ///< in process 0 alone, as all that follows; a check that chooses its engines limits its cost
    at_last
  };

  std::string_view name;  ///< for `--engine` and every report
  std::string_view help;  ///< what it computes, in brackets behind the name
  Stage stage = Stage::at_last;
  bool by_default = false;  ///< runs where nobody has named engines
  /// What the program was built with: false where a module is missing.
  bool (*is_built)() = [] { return true; };
  /// Makes `--engine` with its name ask for it; null where processes or GPUs must be there first (with_engines()).
  void (*ask)(CheckOptions& options) = nullptr;
  bool (*is_asked)(const CheckOptions& options) = nullptr;
  /// Writes what it finds on the timeline of `result` into `found`, or there why it was left out; what is wrong with
  /// the scenario into `result`. Returns why it has nothing to say here, half a sentence; "" where it has.
  /// `threads` as HostOptions::threads.
  std::string (*run)(CheckResult& result, EngineResult& found, const CheckOptions& options, int threads) = nullptr;
  /// What it and an engine above it in the table say differently, both of which ran; "" where they agree, or where the
  /// two cannot be compared. Null: the engines below it do.
  std::string (*compare)(const CheckResult& result, const EngineResult& above, const EngineResult& own,
                         const CheckOptions& options) = nullptr;
  std::string_view processes_option;  ///< with which a job of as many processes is started: "--ranks"
};

/// In the order in which reports name them.
const std::vector<EngineRow>& engine_table();
/// The row of an engine's name, which is one of the table's.
const EngineRow& engine_row(std::string_view name);
/// What `--engine` takes, those that need processes or GPUs last; `with_devices` false: without them.
std::vector<std::string> engine_names(bool with_devices);

/// The job that the scenario is checked in; null where this process is alone.
Job* job_of(const CheckOptions& options);
/// Whether any engine but `but` is asked for that replays ranks.
bool replays_ranks(const CheckOptions& options, std::string_view but = "");

/// Runs one engine and keeps what it finds in `result`, with the time that it took. Returns what EngineRow::run does.
std::string run_engine(const EngineRow& row, CheckResult& result, const CheckOptions& options, int threads = 0);
/// The same of all of a stage that are asked for, up to the first that finds an error in the scenario.
void run_engines(EngineRow::Stage stage, CheckResult& result, const CheckOptions& options, int threads = 0);
/// The engine that decides by classes of ranks. Returns why it has no verdict; "" where it has one.
std::string run_by_classes(CheckResult& result, const CheckOptions& options);
/// Puts an engine's finding in its place of `result`.
void keep(CheckResult& result, EngineResult found);
/// Says why an engine does not run although it was asked for.
void leave_out(CheckResult& result, std::string_view engine, std::string why);
/// Takes out what engines have found; what was left out stays said.
void forget_engines(CheckResult& result);

}  // namespace lockstep::diagnosis
