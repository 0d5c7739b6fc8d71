// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/diagnostic.h"
#include "lockstep/repair.h"
#include "lockstep/verdict.h"

namespace lockstep {

namespace diagnosis {
struct SharedMachine;
}

// What engines take and find is in their own headers; this one reads none of them.
class CudaDevice;
class FormReader;
class MpiJob;
class NcclJob;
class ParametricEngine;
class Rational;
struct HostResult;
struct ParametricResult;
struct ParametricSample;
struct RaceReplays;
struct Scenario;
struct SymbolicResult;
struct Timeline;
struct TransformerResult;
namespace transformer {
class KnownReferences;
}

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
  bool divergences = true;  ///< find first divergences; costs a replay
  bool blame = true;        ///< search for the step at fault: hundreds of edits of a small layout are replayed
  /// `blame` for files alone whose `expect` names it, and nothing that only a report would tell of its repair.
  bool blame_where_expected = false;
  bool hashes = true;        ///< of what the host engine replays, for reports; engines beside it are compared by theirs
  bool transformer = false;  ///< runs in any case where the scenario edits the model
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
  diagnosis::SharedMachine* side_by_side = nullptr;
  /// TransformerOptions::references. check_files() has its own.
  transformer::KnownReferences* references = nullptr;

  /// The verdict alone, by formulas: neither numbers, nor divergences, nor blame.
  static CheckOptions verdict_alone();
};

/// The step after which a parameter first went wrong for good on a rank, with the formulas before
/// and after it.
struct Divergence {
  std::string step;           ///< "" where no single step makes it wrong: something is missing
  std::size_t event = 0;      ///< index into Timeline::events; only where `step` is set
  std::string before, after;  ///< formulas
  std::string why;
  /// From this step on the content is no multiple of a part of the right gradient any more. Where
  /// it is false, the content is one multiple of the right gradient and `step` changed it last.
  bool broken = false;
};

/// The first divergence of one wrong buffer, which stands for all wrong pieces of these forms.
struct BufferDivergence {
  int rank = 0;
  int buffer = 0;
  int form = 0, reference = 0;   ///< of its first wrong piece
  bool right_unclipped = false;  ///< that piece is right but for clipping factors
  Divergence point;
};

/// What one engine alone has to tell; symbolic_of() and its like read it.
struct EngineDetail {
  virtual ~EngineDetail() = default;
};

/// What an engine found, as far as all engines have it in common, or why it did not run although it was asked for.
struct EngineResult {
  std::string_view name;  ///< "symbolic", "host", …: as `--engine` takes it
  std::string left_out;   ///< half a sentence; "" where the engine ran
  Verdict verdict = Verdict::error;
  int step = 0;                  ///< the first wrong optimizer step, else the last completed one
  bool before_schedule = false;  ///< the model itself goes wrong, before any step of the schedule
  double seconds = 0;
  int processes = 0;   ///< of the job in which it ran; 0: this process alone
  std::string device;  ///< "GPU 0 (NVIDIA H100 80GB HBM3)"; in a job what each process has, "a GPU"; "" for processors
  std::shared_ptr<const HostResult> numbers;  ///< null where the engine does not compute with numbers
  std::shared_ptr<EngineDetail> detail;       ///< null where there is nothing more

  bool ran() const { return left_out.empty(); }
};

/// Everything that checking one scenario found; what every report is written from.
struct CheckResult {
  std::string file;
  std::shared_ptr<const Scenario> scenario;  ///< null where the file is not valid
  /// The scenario as its file has it, where an axis has the size "any" and `scenario` has a number; else null.
  std::shared_ptr<const Scenario> written;
  std::vector<Diagnostic> errors;  ///< verdict `error` only
  std::shared_ptr<const Timeline> timeline;
  std::vector<EngineResult> engines;  ///< that ran or were left out, in the order of the table of engines
  Verdict verdict = Verdict::error;
  int step = 0;
  std::vector<Blame> blame;                   ///< the steps at fault, in the order of the edits that repair them
  std::vector<Repair> repairs;                ///< the one that `blame` rests on, or none
  std::vector<std::string> unnoticed;         ///< who would not have noticed; full sentences
  std::vector<BufferDivergence> divergences;  ///< one per distinct way in which a buffer is wrong; at most 64
  /// Engines disagree: a bug of lockstep (exit status 3). Says how to replay it.
  std::string disagreement;
  /// Verdict `error`, and the file's `expect` says so: a test of what a framework's rules refuse.
  bool error_expected = false;
  /// What a reader should know of the scenario, whatever the verdict is. Full sentences.
  std::vector<std::string> notes;
  /// Verdict `error` because of this machine, not because of the file: its memory does not suffice (exit status 3).
  bool machine_failed = false;
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

/// What an engine found, or why it was left out; null where nobody asked for it.
const EngineResult* engine_of(const CheckResult& result, std::string_view name);

/// What single engines found; null where they did not run. As long as `result` has it.
const SymbolicResult* symbolic_of(const CheckResult& result);
const ParametricResult* parametric_of(const CheckResult& result);  ///< decided, in one way or another
ParametricEngine* parametric_engine_of(const CheckResult& result);
/// Where the symbolic engine did not run and the verdict is `mismatch`: what is wrong, on ranks that stand for all.
const ParametricSample* sample_of(const CheckResult& result);
const TransformerResult* transformer_of(const CheckResult& result);
/// Where the verdict is `race` and the engine replayed that.
const RaceReplays* race_of(const EngineResult& engine);

/// The numbers that reports show: those of the first engine that has any; null where none ran. Where several ran and
/// differ, that is a disagreement.
const HostResult* numbers_of(const CheckResult& result);
/// The numbers of one engine.
const HostResult* numbers_of(const CheckResult& result, std::string_view engine);

/// What is wrong by formulas: the symbolic engine's finding on all ranks, else the parametric engine's on some; null
/// where there is neither.
const SymbolicResult* exact_of(const CheckResult& result);
/// Reads the forms of exact_of(); null where that is null.
FormReader* forms_of(const CheckResult& result);

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

/// The first divergence of the first wrong piece of a buffer (index into the rank's LocalModel).
/// Nothing where the buffer is right or the symbolic engine did not run. Replays the schedule.
std::optional<Divergence> first_divergence(const CheckResult& result, int rank, int buffer);

}  // namespace lockstep
