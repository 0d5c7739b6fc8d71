// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/edit.h"
#include "lockstep/json.h"
#include "lockstep/mistake.h"
#include "lockstep/model.h"
#include "lockstep/rational.h"
#include "lockstep/schedule.h"

namespace lockstep {

/// What each rank's backward is the gradient of, and so which coefficient a contribution should come with. The names
/// are those of scenarios (docs/scenario-format.md). D: data-parallel ranks; t: tokens of a rank's micro-batch; T:
/// those of the optimizer step.
enum class CapturedLoss {
  local_mean,  ///< 1/D: divided for the micro-batches already
  sum,         ///< 1
  token_mean,  ///< t/T: each micro-batch's own mean
  token_sum    ///< 1/T
};
std::string_view name_of(CapturedLoss loss);
std::optional<CapturedLoss> loss_named(std::string_view name);  ///< "mean", the old name of local_mean, as well
/// All names, for messages and completion.
const std::vector<std::string>& captured_loss_names();

struct VerifyOptions {
  std::optional<CapturedLoss> loss;  ///< in the place of what the run says
  std::optional<int> step;           ///< this optimizer step alone
  Selectors parameters;              ///< these alone; selectors as in a scenario
  bool coefficients = false;         ///< keep those of right results as well
  bool blame = true;                 ///< where something is wrong, look for the step at fault and its repair
  /// Of results that are not right, about so many are kept in all: 1 GB. The first of each piece always.
  std::size_t most_coefficients = std::size_t{1} << 22;
  std::string reference;  ///< folder of a run on one device, with the same model and data; "": none
  int threads = 0;        ///< 0: one per core
};

/// With how much of it one rank's contribution of one micro-batch entered a result.
struct RecoveredCoefficient {
  int rank = 0;
  int step = 0;                              ///< as the run counts; an earlier one for gradients that nobody zeroed
  int micro_batch = 0;                       ///< from 0 in its step
  std::vector<int> alike;                    ///< other ranks that yielded the same; the lowest names it
  std::vector<std::pair<int, int>> members;  ///< rank and micro-batch of all that yielded the same
  double value = 0;                          ///< by least squares
  double error = 0;                          ///< its standard deviation
  std::optional<Rational> exact;             ///< the fraction that it is within noise, where one is certain
  std::optional<Rational> expected;          ///< none: not known
};

/// A line of a captured run.
struct RunPlace {
  int rank = -1;  ///< whose file it is in; -1: none
  int line = 0;   ///< from 1
};

/// What was found about one piece of a parameter in one optimizer step, on ranks whose optimizers got the same bits.
struct VerifiedPiece {
  enum class Verdict { right, wrong, undecided };
  int step = 0;
  int parameter = 0;  ///< index into VerifyResult::parameters
  int piece = 0;
  std::vector<int> ranks;  ///< ascending; empty: no optimizer gets it
  RunPlace place;          ///< what the first rank's optimizer gets; else what backward yields
  Verdict verdict = Verdict::undecided;
  std::string formula;       ///< docs/formulas.md; "" where none was recovered
  std::string expected;      ///< "" where it is not known
  std::string difference;    ///< how the two differ, in a few words; "" where nothing short can be said
  std::string why;           ///< what else is to be said: a sentence without a period; ""
  int finding = -1;          ///< index into VerifyResult::findings; -1: right
  double unexplained = 0;    ///< part of the result that is no sum of the contributions, from 0 on
  double noise = 0;          ///< how large it may be from rounding alone
  bool told_apart = false;   ///< no other coefficients of the contributions would do
  bool from_others = false;  ///< contributions cannot be told apart; the formula is one that other parameters have
  std::vector<RecoveredCoefficient> coefficients;  ///< by step, rank and micro-batch; see VerifyOptions
  std::size_t left_out = 0;                        ///< coefficients that are not in this list, for the run has too many
};
std::string_view name_of(VerifiedPiece::Verdict verdict);

/// A parameter of the captured model.
struct VerifiedParameter {
  std::string name;
  std::vector<std::string> aliases;
  std::vector<std::int64_t> shape;
  std::string dtype;
  bool frozen = false;
  bool sampled = false;             ///< VerifyResult::one_of
  std::vector<std::string> pieces;  ///< "[0, 768)", "[0, 8) × [0, 16)"; one of "" where nobody cuts it
};

/// One thing that is wrong, with everything that it is wrong in.
struct VerifyFinding {
  VerifiedPiece::Verdict verdict = VerifiedPiece::Verdict::wrong;
  Mistake kind = Mistake::undecided;
  std::string what;             ///< a sentence without a period
  std::vector<int> parameters;  ///< ascending
  std::vector<int> ranks;       ///< ascending
  std::vector<int> steps;       ///< ascending
  std::size_t pieces = 0;       ///< of all its parameters, in all its steps; 0: it is about the reference, or a norm
  std::size_t first = 0;        ///< index into VerifyResult::pieces
};

/// A collective of a process group that does not meet.
struct VerifiedCollective {
  std::string what;  ///< a sentence
  RunPlace place;    ///< of the call that is told first
};

/// A step of the schedule that was recorded, and what is wrong with it.
struct StepAtFault {
  std::string step;
  std::string why;                    ///< as Blame::why
  std::vector<std::string> formulas;  ///< as Blame::formulas
};

/// How one parameter compares with the gradient of a run on one device.
struct ReferencedParameter {
  int parameter = 0;  ///< index into VerifyResult::parameters
  /// Whether what the ranks contribute, with the coefficients that are expected, adds up to that gradient.
  VerifiedPiece::Verdict contributions = VerifiedPiece::Verdict::undecided;
  /// Whether what the optimizers get is that gradient.
  VerifiedPiece::Verdict result = VerifiedPiece::Verdict::undecided;
  double difference = 0;         ///< of the contributions' sum to it, relative to the larger of the two
  double roundings = 0;          ///< the same in units of the largest error of one rounding
  double result_roundings = 0;   ///< of what the optimizers get to it, the farthest
  std::string dtype;             ///< whose rounding that is: the coarsest recorded one
  std::optional<Rational> part;  ///< the contributions add up to so much of it; only where that explains the difference
  std::string formula;           ///< what the true gradient is, in the contributions; "" where none was found
  std::string what;              ///< what is wrong or not known, without a period; ""
};

/// The run on one device that a run was compared with.
struct VerifiedReference {
  std::string run;
  std::optional<CapturedLoss> loss;
  std::optional<int> step;                      ///< that was compared; none: the two have none in common
  int micro_batches = 0;                        ///< of the reference
  std::vector<ReferencedParameter> parameters;  ///< ascending

  std::size_t count(VerifiedPiece::Verdict contributions) const;
};

/// What `lockstep verify` found about a run.
struct VerifyResult {
  std::string run;
  int world = 0;
  std::vector<std::pair<std::string, int>> axes;  ///< of the mesh, slowest first
  std::vector<int> ranks;                         ///< that the run holds
  std::vector<std::string> files;                 ///< of these ranks
  std::string adapter;
  std::vector<std::pair<std::string, std::string>> versions;
  std::optional<CapturedLoss> loss;
  int sums = 0;
  int one_of = 1;  ///< of large parameters, one of so many elements was looked at
  /// Of an extraction (docs/extract.md): the ranks that were run to find out what all do; nothing: the run was
  /// captured.
  std::optional<std::vector<int>> played;
  std::vector<int> steps;
  int micro_batches = 0;  ///< most of a rank in a step
  std::vector<VerifiedParameter> parameters;
  std::vector<VerifiedPiece> pieces;            ///< by step, parameter, piece and first rank
  std::vector<VerifyFinding> findings;          ///< the widest first; wrong ones before undecided ones
  std::vector<VerifiedCollective> collectives;  ///< the first of each process group that does not meet
  /// What of the run is missing, so that it cannot be right as a whole; sentences.
  std::vector<std::string> gaps;
  std::vector<std::string> notes;  ///< what a reader should know, whatever the verdict is; sentences
  /// The collectives at fault and their repair, as check_scenario says them of what record_run writes; only where that
  /// predicts everything that was measured, and all parameters were looked at.
  std::vector<StepAtFault> blame;
  std::vector<Edit> repair;  ///< edits of that scenario after which everything matches; the first repair that was found
  std::string not_blamed;    ///< something is wrong, and why no step is named: a sentence; ""
  std::optional<VerifiedReference> reference;

  std::size_t count(VerifiedPiece::Verdict verdict) const;
  /// wrong where a piece is, where collectives do not meet or where contributions do not add up to the reference's
  /// gradient; else undecided where a piece is, where something is missing or where nothing was compared.
  VerifiedPiece::Verdict verdict() const;
};

/// Reads the folder of a captured run (docs/capture.md) and says of every result with which coefficients the
/// contributions entered it. Throws InputError where a file cannot be read or is not valid, or where nothing fits the
/// options; a run that is not complete is no error (VerifyResult::gaps).
/// Complexity: for each piece sums * min(contributions, sums)^2, and for each distinct result of it
/// sums * contributions; memory for the events of the run, and for every wrong result its coefficients.
VerifyResult verify_run(const std::string& folder, const VerifyOptions& options = {});

/// Whether a text is an extraction: an object with the key "lockstep_extract".
bool is_extraction(std::string_view text);

/// Reads an extraction, composes its programs and says the same of every result as verify_run() does: its coefficients
/// are exact. Throws InputError where it is not valid, or where nothing fits the options; OverBudget where the thread
/// has a budget and that does not suffice. Complexity: linear in the events of all ranks, and for each distinct sum in
/// its terms.
VerifyResult verify_extraction(const std::shared_ptr<const Source>& source, const VerifyOptions& options = {});

struct RecordOptions {
  std::optional<CapturedLoss> loss;  ///< in the place of what the run says
  std::optional<int> step;           ///< this optimizer step alone
  int threads = 0;                   ///< 0: one per core
};

/// A captured run as a scenario: its layout, its parameters and the collectives that carried their gradients.
struct RecordedRun {
  Json scenario;  ///< valid; made by the program: its values have no places
  /// Results whose formula the scenario predicts otherwise than it was measured; sentences. Empty: prediction and
  /// measurement meet in every result, on every rank.
  std::vector<std::string> unmet;
  /// What was left out, and what ranks do by themselves that only the coefficients show; sentences.
  std::vector<std::string> notes;
  std::size_t results = 0;  ///< distinct ones that were compared
};

/// Writes down what a captured run (docs/capture.md) did to its gradients, and holds what the symbolic engine predicts
/// of it against the formulas that verify_run recovers. Throws InputError where the run is not complete, where it says
/// too little, or where no scenario can say what it did: docs/record.md.
RecordedRun record_run(const std::string& folder, const RecordOptions& options = {});

}  // namespace lockstep
