// SPDX-License-Identifier: Apache-2.0
#include "src/live/verify.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "src/base/at.h"
#include "src/base/counted.h"
#include "src/live/cell_formulas.h"
#include "src/live/chosen_parameters.h"
#include "src/live/collective_order.h"
#include "src/live/extraction_norms.h"
#include "src/live/extraction_text.h"
#include "src/live/extraction_verdicts.h"
#include "src/live/findings.h"
#include "src/live/known_faults.h"
#include "src/live/left_behind.h"
#include "src/live/mixed_parts.h"
#include "src/live/precision.h"
#include "src/live/record.h"
#include "src/live/run_gaps.h"
#include "src/live/same_data.h"
#include "src/live/start_weights.h"
#include "src/live/words.h"
#include "src/numeric/parallel.h"

namespace lockstep {

namespace {

using live::PieceFinding;
using Verdict = VerifiedPiece::Verdict;

/// Leaves out the coefficients of results of one piece from where they are more than `most`, but of the first.
void shed_coefficients(std::vector<PieceFinding>& of_cell, std::size_t most) {
  std::size_t kept = 0;
  for (PieceFinding& finding : of_cell) {
    if (finding.piece.verdict == Verdict::right) continue;
    const std::size_t own = finding.piece.coefficients.size();
    if (kept == 0 || kept + own <= most) {
      kept += own;
      continue;
    }
    finding.piece.left_out = own;
    std::vector<RecoveredCoefficient>().swap(finding.piece.coefficients);
  }
}

class Verifier {
 public:
  /// `extraction`: what the run belongs to, if it is no capture.
  Verifier(const live::CapturedRun& run, const VerifyOptions& options, const live::Extraction* extraction = nullptr)
      : options_(options), run_(run), extraction_(extraction), files_(run_), formulas_(run_) {
    loss_ = options.loss ? options.loss : run_.header.loss;
    if (extraction != nullptr) extraction_verdicts_.emplace(*extraction, formulas_, expected_, options);
    if (!options.reference.empty()) reference_.emplace(options.reference, run_, options.threads);
  }

  VerifyResult run() {
    describe();
    chosen_ = live::chosen_parameters(run_, options_.parameters);
    choose_steps();
    for (const int step : run_.steps) index(step);
    for (const int step : chosen_steps_) {
      if (step != chosen_steps_.front()) files_.close_before(previous(step));
      verify_step(step);
    }
    compare_without_loss();
    if (extraction_ == nullptr) live::doubt_zeros(findings_);
    if (extraction_ == nullptr) mixed_ = live::tell_mixed_parts(run_, findings_);
    if (reference_) {
      live::compare_to_reference({run_, files_, formulas_, options_, chosen_, chosen_steps_, cells_, expected_},
                                 *reference_, findings_, result_);
    }
    finish();
    if (extraction_ == nullptr && options_.blame && (result_.count(Verdict::wrong) > 0 || !result_.collectives.empty()))
      blame();
    if (!options_.coefficients) {
      for (VerifiedPiece& piece : result_.pieces) {
        if (piece.verdict == Verdict::right) std::vector<RecoveredCoefficient>().swap(piece.coefficients);
      }
    }
    return std::move(result_);
  }

 private:
  void describe() {
    const live::Header& header = run_.header;
    result_.run = run_.folder;
    result_.world = header.world;
    for (std::size_t i = 0; i < header.axes.size(); ++i) result_.axes.emplace_back(header.axes[i], header.sizes[i]);
    for (const live::RankRecord& rank : run_.ranks) {
      result_.ranks.push_back(rank.header.rank);
      result_.files.push_back(rank.file);
    }
    result_.adapter = header.adapter;
    result_.versions = header.versions;
    result_.loss = loss_;
    result_.sums = header.sums;
    const auto sampled = static_cast<std::size_t>(std::count_if(run_.parameters.begin(), run_.parameters.end(),
                                                                [](const auto& one) { return one.declared.sampled; }));
    if (sampled > 0) result_.one_of = header.one_of;
    result_.notes = run_.notes;
    if (extraction_ != nullptr) {
      result_.played = live::played_ranks(*extraction_);
      if (std::string note = live::not_played_words(*extraction_); !note.empty())
        result_.notes.push_back(std::move(note));
      for (const std::string& sentence : extraction_->sentences)
        result_.notes.push_back(fmt::format("the file says: {}", sentence));
    }
    if (options_.loss && header.loss && *options_.loss != *header.loss)
      result_.notes.push_back(fmt::format("the run says that its loss is {}, and is compared with {}.",
                                          name_of(*header.loss), name_of(*options_.loss)));
    if (!options_.loss && header.loss && !header.loss_from.empty())
      result_.notes.push_back(
          fmt::format("the loss is taken for {}: {}. loss= of the capture, or --loss, says what else it is.",
                      name_of(*header.loss), header.loss_from));
    if (!loss_)
      result_.notes.push_back(
          "what each rank differentiates is not known, so contributions are compared with each other: one coefficient "
          "for all is right. --loss says more.");
    if (!formulas_.knows_axes())
      result_.notes.push_back(
          fmt::format("the mesh's axes {} are not lockstep's: in formulas and words, all ranks count as one axis, dp.",
                      fmt::join(header.axes, ", ")));
    for (const live::RunParameter& parameter : run_.parameters) {
      const live::DeclaredParameter& declared = parameter.declared;
      VerifiedParameter verified{
          declared.name, declared.aliases, declared.shape, declared.dtype, declared.frozen, declared.sampled, {}};
      for (const std::vector<Interval>& piece : declared.pieces)
        verified.pieces.push_back(declared.pieces.size() == 1 ? "" : live::piece_words(piece));
      result_.parameters.push_back(std::move(verified));
    }
  }

  void choose_steps() {
    chosen_steps_ = run_.steps;
    if (options_.step) {
      if (std::find(run_.steps.begin(), run_.steps.end(), *options_.step) == run_.steps.end())
        throw InputError({Diagnostic{
            {},
            fmt::format("{}: optimizer step {} was {}; {}", run_.folder, *options_.step,
                        std::binary_search(run_.skipped.begin(), run_.skipped.end(), *options_.step)
                            ? "skipped by loss scalers"
                            : "not captured",
                        run_.steps.empty() ? "the run has none" : "the run has " + live::numbers_words(run_.steps))}});
      chosen_steps_ = {*options_.step};
    }
    result_.steps = chosen_steps_;
    for (const live::RunGap& gap : run_.gaps) {
      if (!options_.step || gap.concerns(chosen_steps_)) result_.gaps.push_back(gap.what);
    }
    for (std::string& sentence : live::gap_sentences(run_, chosen_steps_, chosen_))
      result_.gaps.push_back(std::move(sentence));
    // A capture may be of some steps of many; an extraction looks at as many as it was asked for.
    if (std::string waits = live::waiting_sentence(run_, chosen_steps_, chosen_);
        extraction_ != nullptr && !waits.empty())
      result_.gaps.push_back(std::move(waits));
  }

  int previous(int step) const {
    const auto found = std::lower_bound(run_.steps.begin(), run_.steps.end(), step);
    return found == run_.steps.begin() ? step : *(found - 1);
  }

  /// Sorts the tensors of a step by parameter and piece.
  void index(int step) {
    live::Cells& cells = cells_[step];
    expected_.try_emplace(step, run_, loss_, step);
    Dtype coarsest = Dtype::float64;
    std::map<int, Dtype> coarsest_of;
    for (const live::RankRecord& rank : run_.ranks) {
      const auto found = rank.steps.find(step);
      if (found == rank.steps.end()) continue;
      const live::RankStep& content = found->second;
      result_.micro_batches = std::max(result_.micro_batches, content.micro_batches);
      coarsest = live::coarser(coarsest, content.coarsest_call.value_or(coarsest));
      for (const auto& [parameter, dtype] : content.coarsest_of) {
        Dtype& own = coarsest_of.try_emplace(parameter, dtype).first->second;
        own = live::coarser(own, dtype);
      }
      for (const live::SketchedTensor& tensor : content.contributions)
        cell(cells, step, tensor).contributions.push_back(&tensor);
      for (const live::SketchedTensor& tensor : content.results) cell(cells, step, tensor).results.push_back(&tensor);
    }
    for (auto& [key, cell] : cells) {
      cell.coarsest = coarsest;
      if (const auto own = coarsest_of.find(cell.parameter); own != coarsest_of.end()) cell.own_coarsest = own->second;
    }
  }

  static live::Cell& cell(live::Cells& cells, int step, const live::SketchedTensor& tensor) {
    live::Cell& cell = cells[{tensor.parameter, tensor.piece}];
    cell.step = step;
    cell.parameter = tensor.parameter;
    cell.piece = tensor.piece;
    return cell;
  }

  std::shared_ptr<const live::Columns> before(const live::Cell& cell, int back) {
    const auto place = std::lower_bound(run_.steps.begin(), run_.steps.end(), cell.step) - run_.steps.begin();
    if (back > place) return nullptr;
    const int step = run_.steps[at(place - back)];
    const auto& cells = cells_.at(step);
    const auto found = cells.find({cell.parameter, cell.piece});
    if (found == cells.end()) return std::make_shared<live::Columns>();
    return std::make_shared<live::Columns>(
        live::gather_columns(run_, files_, expected_.at(step), step, found->second.contributions));
  }

  void verify_step(int step) {
    if (extraction_verdicts_) {
      for (std::vector<PieceFinding> all = extraction_verdicts_->findings(step, chosen_); PieceFinding & finding : all)
        findings_.push_back(std::move(finding));
      live::NormFindings norms = extraction_verdicts_->norms(step);
      for (VerifyFinding& finding : norms.wrong) result_.findings.push_back(std::move(finding));
      for (std::string& note : norms.notes) norm_notes_.insert(std::move(note));
      for (std::string& gap : norms.gaps) result_.gaps.push_back(std::move(gap));
      tell_unknown(step);
      return;
    }
    std::vector<const live::Cell*> cells;
    for (const auto& [key, cell] : cells_.at(step)) {
      if (chosen_[at(cell.parameter)] != 0) cells.push_back(&cell);
    }
    live::RunContext context{run_, files_, formulas_, expected_.at(step),
                             [this](const live::Cell& cell, int back) { return before(cell, back); }};
    std::vector<std::vector<PieceFinding>> of_cells(cells.size());
    const auto all = [&] {
      numeric::parallel_for(cells.size(), options_.threads, [&](std::size_t i) {
        const bool open = std::any_of(of_cells[i].begin(), of_cells[i].end(),
                                      [](const PieceFinding& finding) { return finding.open; });
        if (context.patterns != nullptr && !open) return;
        of_cells[i] = live::verify_cell(context, *cells[i]);
        shed_coefficients(of_cells[i], options_.most_coefficients / (cells.size() * chosen_steps_.size()));
      });
    };
    all();
    // Where contributions cannot be told apart, formulas of other parameters say more than a formula of its own.
    std::map<live::Pattern, int> counts;
    for (const std::vector<PieceFinding>& of_cell : of_cells) {
      for (const PieceFinding& finding : of_cell) {
        if (const auto pattern = live::pattern_of(finding)) ++counts[*pattern];
      }
    }
    if (!counts.empty()) {
      std::vector<std::pair<int, const live::Pattern*>> sorted;
      sorted.reserve(counts.size());
      for (const auto& [pattern, count] : counts) sorted.emplace_back(-count, &pattern);
      std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
      std::vector<live::Pattern> patterns;
      constexpr std::size_t most_patterns = 16;
      for (const auto& [count, pattern] : sorted) {
        if (patterns.size() < most_patterns) patterns.push_back(*pattern);
      }
      context.patterns = &patterns;
      all();
    }
    doubt_hidden(of_cells);
    const live::SameData same_data(run_, files_, expected_.at(step), step, cells_.at(step));
    for (std::size_t i = 0; i < cells.size(); ++i) {
      std::vector<PieceFinding>& of_cell = of_cells[i];
      if (of_cell.size() > 1) told_apart_bits(of_cell);
      live::doubt_different_weights(run_, of_cell);
      same_data.doubt(*cells[i], of_cell);
      for (PieceFinding& finding : of_cell) {
        findings_.push_back(std::move(finding));
      }
    }
    tell_unknown(step);
  }

  /// Where rounding hides whether a rank's contributions arrived, in each result that has some: nobody can say that
  /// they did. Where some of its results show it, what it yields for the others is small, as few tokens of an expert
  /// are.
  void doubt_hidden(std::vector<std::vector<PieceFinding>>& of_cells) const {
    std::set<int> shown;
    for (const std::vector<PieceFinding>& of_cell : of_cells) {
      for (const PieceFinding& finding : of_cell)
        std::set_difference(finding.came.begin(), finding.came.end(), finding.hidden.begin(), finding.hidden.end(),
                            std::inserter(shown, shown.end()));
    }
    for (std::vector<PieceFinding>& of_cell : of_cells) {
      for (PieceFinding& finding : of_cell) {
        std::vector<int> nowhere;
        std::set_difference(finding.hidden.begin(), finding.hidden.end(), shown.begin(), shown.end(),
                            std::back_inserter(nowhere));
        if (!nowhere.empty())
          set_undecided(finding, fmt::format("what {} {} is so small beside the others' gradients that rounding hides "
                                             "whether it arrived",
                                             live::rank_words(nowhere), nowhere.size() == 1 ? "yields" : "yield"));
      }
    }
  }

  void tell_unknown(int step) {
    const std::string& unknown = expected_.at(step).unknown();
    if (loss_ && !unknown.empty()) result_.gaps.push_back(unknown + ": what is expected cannot be said.");
  }

  /// Ranks that hold one piece and whose optimizers get other bits.
  void told_apart_bits(const std::vector<PieceFinding>& of_cell) {
    const bool all_right = std::all_of(of_cell.begin(), of_cell.end(), [](const PieceFinding& finding) {
      return finding.piece.verdict == Verdict::right;
    });
    if (all_right) rounded_differently_.insert(of_cell.front().piece.parameter);
  }

  /// Loss not known: what most parameters have is what the others should have.
  void compare_without_loss() {
    const auto counts = [](const PieceFinding& finding) {
      return finding.uniform && finding.piece.verdict == Verdict::right;
    };
    struct Found {
      std::size_t parameters = 0;  ///< that have it on every rank
      std::size_t results = 0;
      auto operator<=>(const Found&) const = default;
    };
    std::map<Rational, Found> found;
    std::map<int, std::set<Rational>> parameters;
    for (const PieceFinding& finding : findings_) {
      if (!counts(finding)) continue;
      ++found[*finding.uniform].results;
      parameters[finding.piece.parameter].insert(*finding.uniform);
    }
    if (found.empty()) return;
    for (const auto& [parameter, values] : parameters) {
      if (values.size() == 1) ++found[*values.begin()].parameters;
    }
    const auto most =
        std::max_element(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    result_.notes.push_back(fmt::format("contributions come with {} in {} of {}.", most->first.to_string(),
                                        most->second.results, counted(findings_.size(), "result")));
    if (found.size() == 1) return;
    const bool is_majority = 2 * most->second.parameters > parameters.size();
    for (PieceFinding& finding : findings_) {
      if (!counts(finding) || (is_majority && *finding.uniform == most->first)) continue;
      finding.piece.verdict = is_majority ? Verdict::wrong : Verdict::undecided;
      finding.summary = is_majority ? fmt::format("every contribution came with {}, and in most parameters with {}",
                                                  finding.uniform->to_string(), most->first.to_string())
                                    : fmt::format(
                                          "every contribution came with {}, and with other numbers elsewhere: only the "
                                          "loss says which is right",
                                          finding.uniform->to_string());
    }
  }

  void finish() {
    if (!rounded_differently_.empty())
      result_.notes.push_back(
          fmt::format("ranks hold other bits of {}, each right within rounding: replicas drift apart.",
                      rounded_differently_.size() == 1 ? result_.parameters[at(*rounded_differently_.begin())].name
                                                       : counted(rounded_differently_.size(), "parameter")));
    result_.notes.insert(result_.notes.end(), norm_notes_.begin(), norm_notes_.end());
    live::CollectiveOrder order =
        extraction_verdicts_ ? extraction_verdicts_->collectives() : live::compare_collectives(run_);
    result_.collectives = std::move(order.wrong);
    result_.notes.insert(result_.notes.end(), order.suspicious.begin(), order.suspicious.end());
    for (const auto& [step, rank] : files_.missing())
      result_.gaps.push_back(fmt::format("rank-{:05}.step-{:05}.safetensors is missing.", rank, step));
    std::size_t left_out = 0;
    for (const PieceFinding& finding : findings_) left_out += finding.piece.left_out > 0 ? 1 : 0;
    if (left_out > 0 && !extraction_verdicts_)
      result_.notes.push_back(fmt::format(
          "the coefficients of {} are left out, for more than {} are not kept; --step and --parameter look at fewer.",
          counted(left_out, "result"), options_.most_coefficients));
    if (extraction_verdicts_) {
      for (std::size_t i = 0; i < result_.parameters.size(); ++i)
        result_.parameters[i].pieces = extraction_verdicts_->pieces()[i];
    }
    live::find_mistakes(std::move(findings_), result_);
  }

  /// The step at fault: what the run did as a scenario, diagnosed as every scenario is.
  void blame() {
    // Without collectives there is no schedule, and of some parameters alone it would be another one.
    if (!run_.header.collectives || !options_.parameters.items().empty()) return;
    blame_recorded();
    if (result_.blame.empty() && chosen_steps_.size() > 1) blame_first_step();
    if (result_.blame.empty()) blame_these(live::known_faults(run_, result_));
    // What adds up different elements is known to do so, whatever else a schedule would say of it.
    if (result_.blame.empty() || mixed_.all) blame_these(mixed_.steps);
  }

  void blame_these(std::vector<StepAtFault> steps) {
    if (steps.empty()) return;
    result_.blame = std::move(steps);
    result_.repair.clear();
    result_.not_blamed.clear();
  }

  /// Optimizer steps may differ, so that no one schedule says what all of them did: then the first that is wrong.
  void blame_first_step() {
    std::optional<int> first;
    for (const VerifiedPiece& piece : result_.pieces) {
      if (piece.verdict == Verdict::wrong && (!first || piece.step < *first)) first = piece.step;
    }
    if (!first) return;
    VerifyOptions options = options_;
    options.step = first;
    options.reference.clear();
    options.coefficients = true;
    VerifyResult alone = Verifier(run_, options).run();
    if (alone.blame.empty()) return;
    for (StepAtFault& one : alone.blame) one.why += fmt::format("; in optimizer step {}, looked at by itself", *first);
    result_.blame = std::move(alone.blame);
    result_.repair = std::move(alone.repair);
    result_.not_blamed.clear();
  }

  void blame_recorded() {
    std::shared_ptr<const Scenario> scenario;
    try {
      bool scaled_unseen = false;
      const RecordedRun recorded = live::record(run_, result_, &scenario, &scaled_unseen);
      if (!recorded.unmet.empty()) {
        result_.not_blamed = "no step is named: " + recorded.unmet.front();
        return;
      }
      if (scaled_unseen) {
        result_.not_blamed =
            "no step is named: gradients are multiplied with other numbers than the capture has seen, by lines that it "
            "has not.";
        return;
      }
    } catch (const InputError& error) {
      result_.not_blamed = "no step is named: " + error.diagnostics().front().message;
      return;
    }
    live::blame(std::move(scenario), result_);
  }

  const VerifyOptions& options_;
  const live::CapturedRun& run_;
  const live::Extraction* extraction_;
  live::SketchFiles files_;
  live::RunFormulas formulas_;
  std::optional<live::ExtractionVerdicts> extraction_verdicts_;
  std::optional<live::ReferenceRun> reference_;
  std::optional<CapturedLoss> loss_;
  live::MixedFaults mixed_;
  std::vector<char> chosen_;  // by parameter
  std::vector<int> chosen_steps_;
  live::CellsOfSteps cells_;
  std::map<int, live::Expected> expected_;
  std::vector<PieceFinding> findings_;
  std::set<int> rounded_differently_;
  std::set<std::string> norm_notes_;  // of all steps
  VerifyResult result_;
};

}  // namespace

namespace live {

VerifyResult verify(const CapturedRun& run, const VerifyOptions& options) { return Verifier(run, options).run(); }

VerifyResult verify(const Extraction& extraction, const VerifyOptions& options) {
  return Verifier(extraction.run, options, &extraction).run();
}

}  // namespace live

VerifyResult verify_run(const std::string& folder, const VerifyOptions& options) {
  const live::CapturedRun run = live::read_run(folder, options.threads);
  VerifyResult result = live::verify(run, options);
  for (std::string& sentence : live::ranks_left_behind(run, result.steps)) result.gaps.push_back(std::move(sentence));
  return result;
}

bool is_extraction(std::string_view text) { return live::is_extraction_text(text); }

VerifyResult verify_extraction(const std::shared_ptr<const Source>& source, const VerifyOptions& options) {
  live::Extraction extraction = live::read_extraction(source);
  live::find_clipped_by_some(extraction);
  VerifyResult result = live::verify(extraction, options);
  for (std::string& sentence : live::ranks_left_behind(extraction, result.steps))
    result.gaps.push_back(std::move(sentence));
  return result;
}

}  // namespace lockstep
