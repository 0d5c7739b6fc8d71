// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <string>
#include <vector>

#include "lockstep/cuda.h"
#include "lockstep/mpi.h"
#include "lockstep/nccl.h"
#include "lockstep/numeric.h"
#include "lockstep/parametric.h"
#include "lockstep/scenario.h"
#include "lockstep/symbolic.h"
#include "lockstep/transformer.h"

namespace lockstep {

enum class Verdict { match, mismatch, deadlock, invalid_collective, race, error };
std::string_view name_of(Verdict verdict);

struct CheckOptions {
  bool symbolic = true;
  bool host = true;
  bool host_forced = false;  ///< --engine host: all elements, whatever it costs; in the mpi engine too
  /// The job whose processes replay the scenario together, besides the engines above; null: the mpi engine does not
  /// run. All processes check the same files in the same order, and process 0 gets what the mpi engine finds; the
  /// others run no engine of their own. MpiFailure and InternalError are thrown on: then the job must be aborted.
  MpiJob* mpi = nullptr;
  bool mpi_ranks_for_all = false;  ///< a layout with fewer ranks than the job has processes is an error
  /// The GPU on which the scenario is replayed, besides the engines above; null: the cuda engine does not run. In a job
  /// process 0 alone has one. Files are then checked one after the other. What does not fit
  /// into its memory is left to the other engines; other CudaFailures are thrown on.
  CudaDevice* cuda = nullptr;
  std::int64_t cuda_elements = 0;  ///< HostOptions::block_elements of the cuda and nccl engines
  /// The GPUs of a job on which its processes replay the scenario together; null: the nccl engine does not run. What is
  /// said of `mpi` holds for its job, which is the same where both are there. NcclFailure is thrown on.
  NcclJob* nccl = nullptr;
  bool turns = true;  ///< find turning points; costs a replay
  bool blame = true;  ///< search for the step at fault: hundreds of edits of a small layout are replayed
  bool blame_where_expected = false;  ///< `blame` for files alone whose `expect` names it
  bool transformer = false;           ///< runs in any case where the scenario edits the model
  /// The parametric engine runs as well, whatever the size of the layout.
  bool parametric = false;
  /// It takes the place of the symbolic and the host engine where a layout is large (docs/proof.md), unless an engine
  /// with ranks of its own runs, or the host is forced.
  bool parametric_where_large = true;
  std::uint64_t seed = 0;
  int jobs = 0;  ///< files that check_files() checks at once; 0: one per core, at most 8
  std::function<void(std::int64_t done, std::int64_t all)> progress;
  /// Where several checks run at once, the same for all of them: small ones share it, each with one
  /// thread and without progress, and a large one waits until it has the machine to itself.
  std::shared_mutex* side_by_side = nullptr;
};

/// A step at fault and why. Where a step is missing, the name that the framework or the repair gives it.
struct Blame {
  std::string step;
  std::string why;
};

/// Edits of a schedule after which everything matches.
struct Repair {
  std::vector<Json> edits;            ///< in the scenario's words, to stand behind those of the file
  std::vector<std::string> steps;     ///< by edit: the step that it changes, removes or adds
  int sizes = 0;                      ///< layouts around the file's at which it was tried
  int right_sizes = 0;                ///< and at which it is right
  std::string wrong_at;               ///< the first of them at which it is not: "dp 3, micro-batches 2"; "": none
  bool other_owners = false;          ///< other ranks own other elements than before
  double added_bytes = 0;             ///< that the rank that sends most sends more than before, with ring algorithms
  std::vector<std::string> verified;  ///< engines that found it right at the file's own layout
  std::string host_left_out;          ///< why the host engine is not among them: a full sentence; "" where it is
  /// For which sizes it is known to be right.
  enum class Reach {
    every_size,     ///< proved for all sizes that the scenario allows
    axes_in_play,   ///< proved for all sizes of the axes that the file has above 1
    layouts_tried,  ///< the parametric engine does not decide; right at all layouts at which it was tried
    some_sizes      ///< wrong at some other size
  };
  Reach reach = Reach::layouts_tried;
  std::string proof;  ///< what the parametric engine says, without a period; "" where it was not asked
};
std::string_view name_of(Repair::Reach reach);

/// The step after which a parameter first went wrong for good on a rank, with the formulas before
/// and after it.
struct TurningPoint {
  std::string step;           ///< "" where no step spoils it: something is missing
  std::size_t event = 0;      ///< index into Timeline::events; only where `step` is set
  std::string before, after;  ///< formulas
  std::string why;
  /// From this step on the content is no multiple of a part of the right gradient any more. Where
  /// it is false, the content is one multiple of the right gradient and `step` changed it last.
  bool broken = false;
};

/// The turning point of one wrong buffer, which stands for all wrong pieces of these forms.
struct Turn {
  int rank = 0;
  int buffer = 0;
  int form = 0, reference = 0;  ///< of its first wrong piece
  TurningPoint point;
};

/// Everything that checking one scenario found; what every report is written from.
struct CheckResult {
  std::string file;
  std::shared_ptr<const Scenario> scenario;  ///< null where the file is not valid
  /// The scenario as its file has it, where an axis has the size "any" and `scenario` has a number; else null.
  std::shared_ptr<const Scenario> written;
  std::vector<Diagnostic> errors;  ///< verdict `error` only
  std::shared_ptr<const Timeline> timeline;
  std::shared_ptr<SymbolicEngine> engine;  ///< owner of the forms in `symbolic`; null if it did not run
  std::optional<SymbolicResult> symbolic;
  std::shared_ptr<ParametricEngine> parametric_engine;  ///< owner of the forms in `sample`; null if it did not run
  std::optional<ParametricResult> parametric;           ///< decided, in one way or another
  /// Where the symbolic engine did not run and the verdict is `mismatch`: what is wrong, on ranks that stand for all.
  std::optional<ParametricSample> sample;
  std::optional<HostResult> host;
  std::optional<HostResult> mpi;
  int mpi_processes = 0;
  std::optional<HostResult> cuda;
  std::string cuda_device;               ///< its name
  std::optional<RaceReplays> cuda_race;  ///< where the verdict is `race`
  std::optional<HostResult> nccl;
  int nccl_processes = 0;
  Verdict verdict = Verdict::error;
  int step = 0;
  std::vector<Blame> blame;            ///< the steps at fault, in the order of the edits that repair them
  std::vector<Repair> repairs;         ///< the one that `blame` rests on, or none
  std::vector<std::string> unnoticed;  ///< who would not have noticed; full sentences
  std::vector<Turn> turns;             ///< one per distinct way in which a buffer is wrong; at most 64
  double parametric_seconds = 0, symbolic_seconds = 0, host_seconds = 0, mpi_seconds = 0, cuda_seconds = 0,
         nccl_seconds = 0;

  /// Engines disagree: a bug of lockstep (exit status 3). Says how to replay it.
  std::string disagreement;
  /// Why the host engine did not run although it was asked for; "" where it did.
  std::string host_left_out;
  /// The same of the cuda engine, where others ran.
  std::string cuda_left_out;
  /// Verdict `error`, and the file's `expect` says so: a test of what a framework's rules refuse.
  bool error_expected = false;
  /// What a reader should know of the scenario, whatever the verdict is. Full sentences.
  std::vector<std::string> notes;
  /// Verdict `error` because of this machine, not because of the file: its memory does not suffice (exit status 3).
  bool machine_failed = false;

  std::optional<TransformerResult> transformer;
  double transformer_seconds = 0;
};

/// Reads, replays and compares one file. Never throws for a user's mistake: that is the verdict
/// `error`.
CheckResult check_file(const std::string& file, const CheckOptions& options = {});
/// check_file of several files, on all cores, handed to `take` in the order of `files`, from the
/// calling thread. What `take` throws ends the rest and is thrown here.
void check_files(const std::vector<std::string>& files, const CheckOptions& options,
                 const std::function<void(const CheckResult&)>& take);
/// The same as check_file for a scenario that was read already. Never prints.
CheckResult check_scenario(std::shared_ptr<const Scenario> scenario, const CheckOptions& options = {});

/// The numbers that reports show: the host engine's, else the mpi engine's, the cuda engine's or the nccl engine's;
/// null where none ran. Where several ran and differ, that is a disagreement.
const HostResult* numbers_of(const CheckResult& result);

/// What is wrong by formulas: the symbolic engine's finding on all ranks, else the parametric engine's on some; null
/// where there is neither.
const SymbolicResult* exact_of(const CheckResult& result);
/// Reads the forms of exact_of(); null where that is null.
FormReader* forms_of(const CheckResult& result);
/// The verdict of the parametric engine, which is decided.
Verdict verdict_of(const ParametricResult& result);

/// The verdict of one engine that ran and says `match` of the values of `result`.
Verdict engine_verdict(const CheckResult& result, bool match);

/// What of `expect` does not hold, one sentence each, with expected and found; empty: all holds.
std::vector<std::string> unmet_expectations(const CheckResult& result);

/// got/expected, where it is one number for every wrong element; 1 where all is right. Nothing for
/// verdicts without values, and where the symbolic engine did not run.
std::optional<Rational> overall_ratio(const CheckResult& result);

/// Ranks and parameters that are wrong: in value, in norm, or unowned (scenario-format.md,
/// "expect").
struct WrongSet {
  std::vector<int> ranks;       ///< ascending
  std::vector<int> parameters;  ///< indices into Model::parameters(), ascending: by name
};
WrongSet wrong_set(const CheckResult& result);

/// The turning point of the first wrong piece of a buffer (index into the rank's LocalModel).
/// Nothing where the buffer is right or the symbolic engine did not run. Replays the schedule.
std::optional<TurningPoint> turning_point(const CheckResult& result, int rank, int buffer);

}  // namespace lockstep
