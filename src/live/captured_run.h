// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/hash.h"
#include "lockstep/live.h"
#include "lockstep/rational.h"
#include "src/base/at.h"

namespace lockstep::live {

/// The first line of a rank's file.
struct Header {
  int rank = 0, world = 0;
  std::string adapter;
  std::vector<std::pair<std::string, std::string>> versions;
  int sums = 0;
  std::uint64_t seed = 0;
  int one_of = 1;                 ///< of parameters that are sampled, one of so many elements was measured
  std::vector<std::string> axes;  ///< of the mesh
  std::vector<int> sizes;
  std::vector<int> mesh_ranks;  ///< row-major, the last axis fastest
  std::vector<std::string> data_axes;
  std::optional<CapturedLoss> loss;
  std::string loss_from;     ///< who says so where the script did not: a sentence without a period; ""
  bool collectives = false;  ///< they were recorded, each with the parameters whose gradients it carries
};

/// A parameter as one rank declares it.
struct DeclaredParameter {
  std::string name;
  std::vector<std::string> aliases;
  std::vector<std::int64_t> shape;
  std::string dtype;
  bool frozen = false;
  int chunk = 0;  ///< of its pipeline stage
  int group = 0;  ///< the optimizer's flat tensor that it is part of
  /// Axes of the mesh along which the run says how ranks hold it: in parts, whole, or with shares of its gradient.
  std::vector<std::string> placed;
  bool sampled = false;  ///< a part of its elements alone was measured
  /// Of what the rank holds of it as the capture begins; none: not known.
  std::optional<GradientHash> start;
  bool starts_constant = false;  ///< all its elements are one number then: the same on two ranks says nothing
  /// By piece: one [first, end) in row-major index, or one per dimension.
  std::vector<std::vector<Interval>> pieces;
};

/// A sketch in a rank's file of a step, and what its events say of it.
struct SketchedTensor {
  int rank = 0;
  int micro_batch = 0;  ///< of a contribution
  int parameter = 0;    ///< as the rank numbers them; in a CapturedRun the run's own number
  int piece = 0;
  int line = 0;           ///< of its event in the rank's file, from 1
  std::int64_t row = -1;  ///< -1: the optimizer gets no gradient
  GradientHash hash;
  Dtype dtype = Dtype::float32;
  std::uint64_t non_finite = 0;
  double loss_scale = 1;  ///< what the file has is the gradient times this
  /// By bit, the mesh's axes along which this is the rank's share of a sum (DTensor's Partial).
  std::uint32_t partial = 0;
  std::optional<GradientHash> clipped;  ///< of a result: what is left of it after clipping
  bool changed = false;                 ///< of a result: the optimizer steps with something else than clipping left
};

/// One optimizer step of a rank.
struct RankStep {
  bool complete = false;     ///< its "step" line is there
  bool skipped = false;      ///< the loss scaler found infinite gradients, and no optimizer stepped
  std::vector<int> zeroed;   ///< micro-batches before which gradients were set to zero, and no optimizer had stepped
  std::vector<int> waiting;  ///< parameters whose optimizers did not step in it; numbers as in SketchedTensor
  int micro_batches = 0;
  std::vector<std::optional<std::int64_t>> tokens;  ///< by micro-batch
  std::vector<SketchedTensor> contributions, results;
  /// The dtype with the fewest digits in which a collective carried gradients, and by parameter where it is known
  /// which.
  std::optional<Dtype> coarsest_call;
  std::map<int, Dtype> coarsest_of;
};

/// A collective that a rank called. Not sends and receives, which meet in pairs. Or, of its own group alone, a "scale":
/// what it multiplies gradients with between its backward passes and the optimizer's step.
struct CapturedCollective {
  int step = 0;             ///< -1: not known
  std::int64_t number = 0;  ///< in its group, from 1; 0: as they are counted here
  int line = 0;             ///< of its event in the rank's file, from 1
  std::string op;
  std::vector<int> group;     ///< ascending
  std::int64_t elements = 0;  ///< that the rank puts in
  std::string dtype, reduce;  ///< "" where there is none
  int root = -1;
  std::string call;  ///< "train.py:9 in main"; "" where it is not known
  /// Whose gradients it carries, in the order of their memory; numbers as in SketchedTensor.
  std::vector<int> parameters;
  int passes = 0;                  ///< micro-batches of the step whose backward pass had begun
  bool in_backward = false;        ///< within that of the last one
  bool after_results = false;      ///< after what the optimizer gets was looked at
  bool early = false;              ///< before the model was first called
  std::optional<Rational> factor;  ///< of a "scale"; none: it is no small fraction
};

/// What a rank's capture says that it does not know.
struct CaptureGap {
  std::optional<int> step;      ///< none: all
  bool of_all = true;           ///< what the optimizers get of no parameter is to be judged
  std::vector<int> parameters;  ///< else: of these; numbers as in SketchedTensor
  std::string why;              ///< a sentence without a period
  /// Of an extraction: it is known to be wrong. If `of_all`, `parameters` are those that the rank has.
  bool is_wrong = false;
  int line = 0;  ///< of that, of its event
};

/// What is wrong with what ranks do, whatever their optimizers get.
struct RunWrong {
  std::string why;
  std::set<int> ranks;
  int line = 0;  ///< of the first rank's event
};

/// Something of a run that is missing.
struct RunGap {
  std::string what;                             ///< a sentence
  int first = std::numeric_limits<int>::min();  ///< the optimizer steps that it concerns
  int last = std::numeric_limits<int>::max();

  bool concerns(const std::vector<int>& steps) const {
    return std::any_of(steps.begin(), steps.end(), [&](int step) { return first <= step && step <= last; });
  }
};

/// What one rank's file says.
struct RankRecord {
  std::string file;
  Header header;
  std::vector<DeclaredParameter> parameters;
  std::map<std::int64_t, int> parameter_of_id;
  std::vector<int> run_parameters;  ///< the numbers that its parameters have in a CapturedRun
  std::map<int, RankStep> steps;
  std::vector<CapturedCollective> collectives;  ///< in the order of its calls
  std::vector<CaptureGap> gaps;
  std::vector<std::string> notes;
  std::optional<CapturedLoss> seen_loss;  ///< what its losses were seen to be, where the header says none
  std::string seen_loss_from;             ///< as Header::loss_from
  bool cut_off = false;                   ///< the last line is not complete
  bool ended = false;                     ///< the last event is there
};

/// Reads one rank's file. Throws InputError with everything that is wrong with it, with its place. A last line without
/// an end is no error; nor is a file without a first line, whose header then has a world of 0: the rank died early.
RankRecord read_rank(const std::string& file);

/// The same tensor on every rank that holds it.
struct RunParameter {
  DeclaredParameter declared;  ///< as the lowest rank has it, with the names that any rank has for it
  std::int64_t numel(int piece) const;
};

/// A captured run, read whole but for its sketches.
struct CapturedRun {
  std::string folder;
  Header header;                  ///< of the lowest rank; what all ranks must agree on is checked
  std::vector<RankRecord> ranks;  ///< ascending; in their tensors `parameter` is an index into `parameters`
  std::vector<RunParameter> parameters;
  std::vector<int> steps;    ///< of any rank, ascending
  std::vector<int> skipped;  ///< steps that the loss scalers of all ranks skipped, ascending; not in `steps`
  std::vector<RunGap> gaps;
  std::vector<std::string> notes;
  std::vector<int> missing_ranks;
  std::map<std::pair<int, int>, std::string> unknowns;  ///< by step and parameter, -1 for all
  std::map<std::pair<int, int>, RunWrong> wrongs;       ///< by step and parameter
  /// By step and parameter: why nobody knows whether optimizers step with results that are right.
  std::map<std::pair<int, int>, std::string> doubts;
  std::set<std::pair<int, int>> waiting;  ///< step and parameter
  /// Axis and parameter: ranks along it begin with different weights of one piece, or all with the same.
  std::set<std::pair<std::size_t, int>> apart, alike;
  /// Parameters that several pipeline stages have under one name, with the same weights, and that no collective adds
  /// up.
  std::set<int> perhaps_tied;
  std::map<int, std::string> divided;  ///< steps that loss scalers skipped on some ranks alone, and what is wrong

  /// About how many elements of a piece were measured.
  double measured(int parameter, int piece) const;
  bool complete_step(int step) const;
  /// Why what the optimizers get of a parameter in a step is not to be judged; null: it is.
  const std::string* unknown(int step, int parameter) const;
  /// What is wrong with a parameter in a step on some of its ranks; null: nothing is known to be.
  const RunWrong* wrong(int step, int parameter) const;
  /// Whether the optimizers of a parameter did not step in a step, so that nobody gets its gradient.
  bool waits(int step, int parameter) const { return waiting.contains({step, parameter}); }
  /// The coordinates on the data axes of a rank, as one number.
  int data_coordinate(int rank) const { return data_coordinates[at(rank)]; }
  /// The coordinates on some axes (by bit), or on all others, as one number.
  int coordinates(int rank, std::uint32_t axes) const;
  int other_coordinates(int rank, std::uint32_t axes) const { return coordinates(rank, ~axes); }

  std::vector<int> place_of_rank;     // in the mesh
  std::set<std::string> placed_axes;  // of any parameter
  std::uint32_t data_axes = 0;        // by bit
  std::vector<int> data_coordinates;
  int data_ranks = 1;
};

/// More axes than a mesh may have.
inline constexpr std::size_t most_axes = 32;

/// Fills in what follows from the header: places of ranks, and which axes are data axes.
void lay_out(CapturedRun& run);

/// Reads all ranks' files of a folder. Throws InputError where one is not valid, where they do not belong together, or
/// where there is none.
CapturedRun read_run(const std::string& folder, int threads);

}  // namespace lockstep::live
