// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/gradient_state.h"
#include "lockstep/timeline.h"

namespace lockstep {

/// A wrong count in the gradient norm of a rank.
struct NormResult {
  int parameter = 0;  ///< index into Model::parameters()
  int rank = 0;
  std::string counted;   ///< a number, or "mean_of_norms"
  std::string expected;  ///< "1"
  /// How many of its `of` logical elements are counted so; 0 where that is not known (shards by classes of ranks).
  std::int64_t elements = 0;
  std::int64_t of = 0;
};

/// Elements of a buffer for which nobody in the rank's family answers.
struct UnownedResult {
  int rank = 0;
  int buffer = 0;
  Intervals elements;
};

/// What a norm counts.
struct NormCounts {
  /// The elements of a piece of a logical parameter up to where the next run begins.
  struct Run {
    int logical = 0;
    int piece = 0;
    std::int64_t begin = 0;
    std::vector<std::vector<Term>> counted;
  };
  std::vector<Run> summed;
  std::vector<std::vector<std::vector<Run>>> means;  ///< of norms of which ranks took the mean: by member
};

/// What the symbolic engine found for one optimizer step.
struct SymbolicResult {
  bool match = false;
  int step = 0;                       ///< the first wrong optimizer step, else the last completed one
  std::vector<BufferResult> buffers;  ///< every buffer of every rank, by rank and buffer
  std::vector<UnownedResult> unowned;
  std::vector<NormResult> norm;
  /// Where every rank counts every element of the model equally often, but not once, and all elements are right: how
  /// often. The norm is its square root times the right one.
  std::optional<int> norm_squared_factor;
  std::vector<bool> replicas_agree;  ///< by logical parameter
  /// By logical parameter: some wrong element has several owners. Where none has, `replicas_agree` is true, and there
  /// was no replica to compare with.
  std::vector<bool> replicated;
  /// By rank: equal numbers count the same elements equally often. Empty where nothing is counted.
  std::vector<int> norm_of;
};

namespace symbolic {
struct SymbolicMemory;
}

/// Replays a timeline over exact linear forms. Keep it as long as its form numbers are in use.
class SymbolicEngine : public FormReader {
 public:
  SymbolicEngine(const Schedule& schedule, const Timeline& timeline);
  /// The same with a memory (src/symbolic/memory.h) that earlier engines have used, and that must outlive this one: it
  /// was made for a schedule with this mesh, model and batch, the very objects. What an earlier one found stays right.
  SymbolicEngine(const Schedule& schedule, const Timeline& timeline, symbolic::SymbolicMemory& memory);
  ~SymbolicEngine() override;

  /// Replays everything that the timeline completed. Where it completed no optimizer step (a
  /// deadlock in the first), `buffers` is empty and `match` false.
  /// `after_event`, if given, is called with the index of each event after it happened, while
  /// content() shows the buffers of that moment.
  SymbolicResult run(const std::function<void(std::size_t)>& after_event = {});

  struct Content {
    Interval elements;
    int form = 0;
  };
  /// What a rank's buffer holds now: covers [0, numel), neighbours with equal forms merged.
  /// `name` is the buffer ("grad", …).
  std::vector<Content> content(int rank, int buffer, const std::string& name) const;
  /// What the rank hands to its optimizer of a buffer, in an optimizer step that the last run() completed: of the
  /// elements that it owns, ascending.
  std::vector<Content> handed_over(int rank, int buffer, int optimizer_step) const;

  std::vector<Term> terms(int form, int rank, int buffer) const override;
  int reference(int logical, int piece, int optimizer_step) override;
  /// What the norm counts that decides a factor of a term of this engine.
  NormCounts counts_of(const ClipFactor& factor) const;
  /// What `backward` multiplied this contribution with (the last one, where several did); 1 where
  /// none ran.
  Rational by(const Term& term) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Every contribution to a piece of a logical parameter in an optimizer step, in the order of
/// terms(): the support of the reference. Coefficients are the loss weights on one device, 0
/// included where the loss leaves a contribution out.
std::vector<Term> reference_terms(const Schedule& schedule, int logical, int piece, int optimizer_step);

/// A clipping factor as formulas name it: "clip" for that of the right norm of `optimizer_step`, "clip.1" for that of
/// another step, "clip3" or "clip3.1" for that of another norm of rank 3.
std::string name_of(const ClipFactor& factor, std::optional<int> optimizer_step);

/// A formula as people write it: "g3 + (g0+g1)/2", "sum(g, dp, micro_batch)/16"
/// (docs/formulas.md). `support` are the reference_terms of the buffer's piece: "g3" stands for
/// all of rank 3's terms in it.
std::string print_formula(const Schedule& schedule, int rank, int buffer, const std::vector<Term>& terms,
                          const std::vector<Term>& support);
/// Reads what print_formula writes, and everything that is equal to it as algebra. Sorted as
/// terms(), without zeros. Throws ExpressionError.
std::vector<Term> parse_formula(const Schedule& schedule, int rank, int buffer, const std::string& text,
                                const std::vector<Term>& support);
/// "2 × the right gradient", "the share of tp 1 is missing": a few words on how `terms` differ
/// from the reference, or "" where there is nothing short to say.
std::string describe_difference(const Schedule& schedule, const std::vector<Term>& got,
                                const std::vector<Term>& expected);

}  // namespace lockstep
