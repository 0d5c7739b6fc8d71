// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <map>
#include <set>

#include "src/base/counted.h"
#include "src/live/verify.h"

namespace lockstep::live {

namespace {

using Verdict = VerifiedPiece::Verdict;

/// Whether it is the local backward or the synchronization that is wrong.
void tell_apart(const VerifiedReference& compared, std::vector<PieceFinding>& all, VerifyResult& result) {
  std::map<int, const ReferencedParameter*> of_parameter;
  std::set<std::optional<Rational>> parts;
  for (const ReferencedParameter& one : compared.parameters) {
    of_parameter[one.parameter] = &one;
    parts.insert(one.part);
  }
  if (parts.size() == 1 && *parts.begin() && compared.parameters.size() > 1)
    result.notes.push_back(
        "all contributions differ from the true gradient by one factor: see whether the losses of both runs are what "
        "they are said to be (--loss).");
  for (PieceFinding& finding : all) {
    const auto found = of_parameter.find(finding.piece.parameter);
    if (found == of_parameter.end() || finding.piece.step != *compared.step) continue;
    const ReferencedParameter& one = *found->second;
    const bool right = finding.piece.verdict == Verdict::right, wrong = finding.piece.verdict == Verdict::wrong;
    const char* said = "";
    if (one.contributions == Verdict::right && wrong)
      said = one.result == Verdict::right
                 ? "the contributions add up to the true gradient, and within rounding the optimizers get it"
                 : "the contributions add up to the true gradient: the synchronization is wrong";
    if (one.contributions == Verdict::wrong)
      said = one.result == Verdict::right
                 ? "the optimizers get the true gradient all the same: two mistakes cancel, or "
                   "the loss is another"
             : right  ? "the synchronization is right, the contributions are not"
             : !wrong ? "the contributions are not right"
                      : "neither the contributions nor the synchronization are right";
    if (*said != '\0') finding.piece.why += fmt::format("{}{}", finding.piece.why.empty() ? "" : "; ", said);
  }
}

}  // namespace

void compare_to_reference(const VerifiedRun& run, ReferenceRun& against, std::vector<PieceFinding>& findings,
                          VerifyResult& result) {
  const CapturedRun& reference = against.run();
  VerifiedReference& compared = result.reference.emplace();
  compared.run = reference.folder;
  compared.loss = reference.header.loss;
  result.gaps.insert(result.gaps.end(), against.unmatched().begin(), against.unmatched().end());
  for (const int step : run.steps) {
    const bool has = std::binary_search(reference.steps.begin(), reference.steps.end(), step);
    if (!compared.step && has && reference.complete_step(step)) compared.step = step;
  }
  if (!compared.step) {
    result.gaps.push_back(
        "the reference has no complete optimizer step that is looked at: nothing was compared with it.");
    return;
  }
  const int step = *compared.step;
  if (*compared.step != run.run.steps.front())
    result.notes.push_back(fmt::format(
        "optimizer step {} is compared with the reference: it must have begun with the same weights.", step));
  VerifyOptions own;
  own.step = step;
  own.threads = run.options.threads;
  own.blame = false;
  const VerifyResult itself = verify(reference, own);
  compared.micro_batches = itself.micro_batches;
  if (itself.verdict() != Verdict::right)
    result.gaps.push_back(
        fmt::format("the reference is not right itself: `lockstep verify {}` says more.", reference.folder));
  const std::optional<std::int64_t> tokens = run.expected.at(step).total(),
                                    others = Expected(reference, reference.header.loss, step).total();
  if (tokens && others && *tokens != *others) {
    result.gaps.push_back(
        fmt::format("in optimizer step {} the run counts {} and the reference {}, so their data differ: "
                    "nothing was compared.",
                    step, counted(*tokens, "token"), *others));
    return;
  }
  const auto of_piece = [&](int parameter, int piece) -> const Cell* {
    const auto found = run.cells.at(step).find({parameter, piece});
    return found == run.cells.at(step).end() ? nullptr : &found->second;
  };
  ComparedStep measured{run.run, run.files, run.formulas, run.expected.at(step), step, Dtype::float64, {}, {}, {}};
  measured.contributions = [&](int parameter, int piece) {
    const Cell* cell = of_piece(parameter, piece);
    return cell == nullptr ? std::vector<const SketchedTensor*>() : cell->contributions;
  };
  measured.results = [&](int parameter, int piece) {
    const Cell* cell = of_piece(parameter, piece);
    return cell == nullptr ? std::vector<const SketchedTensor*>() : cell->results;
  };
  for (std::size_t i = 0; i < run.run.parameters.size(); ++i) {
    const int parameter = static_cast<int>(i);
    if (run.chosen[i] != 0 && !run.run.parameters[i].declared.frozen && against.counterpart(parameter) >= 0)
      measured.parameters.push_back(parameter);
  }
  if (!run.cells.at(step).empty()) measured.coarsest = run.cells.at(step).begin()->second.coarsest;
  compared.parameters = compare_with_reference(measured, against, run.options.threads);
  tell_apart(compared, findings, result);
}

}  // namespace lockstep::live
