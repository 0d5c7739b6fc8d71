// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/schedule.h"
#include "lockstep/symbolic.h"

namespace lockstep {

/// What the parametric engine finds for a schedule at its own sizes. It knows nothing of single ranks: parameters that
/// behave alike go through the steps once, for all ranks together, so that the cost does not grow with the layout.
struct ParametricResult {
  enum class Verdict { match, mismatch, race, undecided };
  Verdict verdict = Verdict::undecided;
  int step = 0;                ///< mismatch, race: the optimizer step
  std::string undecided_step;  ///< the step that it cannot follow; "" where it is the scenario as a whole
  std::string why;             ///< undecided: half a sentence, "it divides by a sum"
  std::vector<int> wrong;      ///< mismatch: logical parameters that stand for those that are wrong
  int classes = 0;             ///< of parameters that behave alike
  std::size_t operations = 0;  ///< steps that classes went through, one class at a time
  std::size_t nodes = 0;       ///< of the functions that they made, all classes together
};

/// Decides a schedule at its own sizes. Throws InputError as walk() does where a geometry cannot cut.
/// Complexity: classes of parameters × steps, whatever the number of ranks is; reading the schedule is not counted.
ParametricResult run_parametric(const Schedule& schedule);

/// What is wrong with a schedule, on some ranks that stand for all: one of each kind of rank and element.
struct ParametricSample {
  /// Buffers of these ranks alone, by rank and buffer; what it says of replicas and of whole norms is empty.
  SymbolicResult found;
  /// Parameters that are wrong just like another one, whose ranks are shown: indices into Model::parameters().
  std::map<int, int> like;
  /// Parameters that are wrong, of which no rank can be shown: half a sentence each.
  std::map<int, std::string> not_shown;
};

/// Every rank at the end of an optimizer step.
struct ParametricRanks {
  std::vector<bool> wrong;          ///< it owns a wrong element, has one that nobody owns, or counts a norm wrongly
  std::vector<std::int64_t> owned;  ///< elements that it hands to its optimizer
};

/// run_parametric, kept to ask what single ranks have. The schedule must outlive it.
class ParametricEngine : public FormReader {
 public:
  /// Throws InputError as run_parametric() does.
  explicit ParametricEngine(const Schedule& schedule);
  ~ParametricEngine() override;

  const ParametricResult& result() const;
  /// Where the verdict is `mismatch`: at the step of the result. Complexity: kinds of ranks and elements ×
  /// contributions to a parameter, for each class that is wrong.
  ParametricSample sample();
  /// What a rank hands to its optimizer at the end of an optimizer step. Throws InputError where the engine was
  /// undecided, or cannot see it.
  BufferResult buffer(int rank, int buffer, int optimizer_step);
  /// At the step of the result. Throws InputError where the verdict is neither `match` nor `mismatch`, or it cannot see
  /// it. Complexity: parameters × stretches of elements with one owner × ranks that own one.
  ParametricRanks ranks();
  /// `form` and `reference` of what sample() and buffer() returned.
  std::vector<Term> terms(int form, int rank, int buffer) const override;
  int reference(int logical, int piece, int optimizer_step) override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
