// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "src/live/collective_order.h"
#include "src/live/judge.h"
#include "src/live/precision.h"
#include "src/live/record.h"
#include "src/live/reference.h"
#include "src/live/words.h"
#include "src/numeric/parallel.h"

namespace lockstep {

namespace {

using live::Judged;
using Verdict = VerifiedPiece::Verdict;

std::size_t at(int index) { return static_cast<std::size_t>(index); }

std::string piece_words(const live::DeclaredParameter& parameter, const std::vector<Interval>& piece) {
  if (parameter.pieces.size() == 1) return "";
  std::string text;
  for (const Interval& interval : piece)
    text += fmt::format("{}[{}, {})", text.empty() ? "" : " × ", interval.begin, interval.end);
  return text;
}

class Verifier {
 public:
  Verifier(const std::string& folder, const VerifyOptions& options)
      : options_(options), run_(live::read_run(folder, options.threads)), files_(run_), formulas_(run_) {
    loss_ = options.loss ? options.loss : run_.header.loss;
    if (!options.reference.empty()) reference_.emplace(options.reference, run_, options.threads);
  }

  VerifyResult run() {
    describe();
    choose_parameters();
    choose_steps();
    for (const int step : run_.steps) index(step);
    for (const int step : chosen_steps_) {
      if (step != chosen_steps_.front()) files_.close_before(previous(step));
      verify_step(step);
    }
    compare_without_loss();
    if (reference_) compare_to_reference();
    finish();
    if (options_.blame && (result_.count(Verdict::wrong) > 0 || !result_.collectives.empty())) blame();
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
    result_.gaps = run_.gaps;
    result_.notes = run_.notes;
    if (options_.loss && header.loss && *options_.loss != *header.loss)
      result_.notes.push_back(fmt::format("the run says that its loss is {}, and is compared with {}.",
                                          name_of(*header.loss), name_of(*options_.loss)));
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
      VerifiedParameter one{declared.name, declared.aliases, declared.shape, declared.dtype, declared.frozen, {}};
      for (const std::vector<Interval>& piece : declared.pieces) one.pieces.push_back(piece_words(declared, piece));
      result_.parameters.push_back(std::move(one));
    }
  }

  void choose_parameters() {
    chosen_.assign(run_.parameters.size(), 1);
    if (options_.parameters.items().empty()) return;
    std::vector<std::string> names;
    bool any = false;
    for (std::size_t i = 0; i < run_.parameters.size(); ++i) {
      const live::DeclaredParameter& declared = run_.parameters[i].declared;
      Parameter parameter;
      parameter.shape = declared.shape;
      std::vector<std::string> own = declared.aliases;
      own.push_back(declared.name);
      bool chosen = false;
      for (const std::string& name : own) {
        parameter.name = name;
        chosen = chosen || options_.parameters.chooses(parameter, parameter.numel());
        names.push_back(name);
      }
      chosen_[i] = chosen ? 1 : 0;
      any = any || chosen;
    }
    if (any) return;
    const auto& items = options_.parameters.items();
    throw InputError(
        {Diagnostic{{},
                    fmt::format("{}: no parameter fits --parameter {}{}", run_.folder, fmt::join(items, " "),
                                items.size() == 1 ? did_you_mean(items.front(), names) : "")}});
  }

  void choose_steps() {
    chosen_steps_ = run_.steps;
    if (options_.step) {
      if (std::find(run_.steps.begin(), run_.steps.end(), *options_.step) == run_.steps.end())
        throw InputError({Diagnostic{
            {},
            fmt::format("{}: optimizer step {} was not captured; {}", run_.folder, *options_.step,
                        run_.steps.empty()
                            ? std::string("none was")
                            : fmt::format("the run has {} to {}", run_.steps.front(), run_.steps.back()))}});
      chosen_steps_ = {*options_.step};
    }
    result_.steps = chosen_steps_;
  }

  int previous(int step) const {
    const auto found = std::lower_bound(run_.steps.begin(), run_.steps.end(), step);
    return found == run_.steps.begin() ? step : *(found - 1);
  }

  /// Sorts the tensors of a step by parameter and piece.
  void index(int step) {
    std::map<std::pair<int, int>, live::Cell>& cells = cells_[step];
    expected_.try_emplace(step, run_, loss_, step);
    Dtype coarsest = Dtype::float64;
    for (const live::RankRecord& rank : run_.ranks) {
      const auto found = rank.steps.find(step);
      if (found == rank.steps.end()) continue;
      const live::RankStep& content = found->second;
      result_.micro_batches = std::max(result_.micro_batches, content.micro_batches);
      if (content.coarsest_reduction &&
          live::unit_roundoff(*content.coarsest_reduction) > live::unit_roundoff(coarsest))
        coarsest = *content.coarsest_reduction;
      for (const live::SketchedTensor& one : content.contributions)
        cell(cells, step, one).contributions.push_back(&one);
      for (const live::SketchedTensor& one : content.results) cell(cells, step, one).results.push_back(&one);
    }
    for (auto& [key, cell] : cells) cell.coarsest = coarsest;
  }

  static live::Cell& cell(std::map<std::pair<int, int>, live::Cell>& cells, int step,
                          const live::SketchedTensor& tensor) {
    live::Cell& cell = cells[{tensor.parameter, tensor.piece}];
    cell.step = step;
    cell.parameter = tensor.parameter;
    cell.piece = tensor.piece;
    return cell;
  }

  std::shared_ptr<const live::Columns> before(const live::Cell& cell, int back) {
    const auto place = std::lower_bound(run_.steps.begin(), run_.steps.end(), cell.step) - run_.steps.begin();
    if (back > place) return nullptr;
    const int step = run_.steps[static_cast<std::size_t>(place - back)];
    const auto& cells = cells_.at(step);
    const auto found = cells.find({cell.parameter, cell.piece});
    if (found == cells.end()) return nullptr;
    return std::make_shared<live::Columns>(
        live::gather_columns(run_, files_, expected_.at(step), step, found->second.contributions));
  }

  void verify_step(int step) {
    std::vector<const live::Cell*> cells;
    for (const auto& [key, cell] : cells_.at(step)) {
      if (chosen_[at(cell.parameter)] != 0) cells.push_back(&cell);
    }
    live::Ground ground{run_, files_, formulas_, expected_.at(step),
                        [this](const live::Cell& cell, int back) { return before(cell, back); }};
    std::vector<std::vector<Judged>> judged(cells.size());
    const auto all = [&] {
      numeric::parallel_for(cells.size(), options_.threads, [&](std::size_t i) {
        const bool open = std::any_of(judged[i].begin(), judged[i].end(), [](const Judged& one) { return one.open; });
        if (ground.patterns == nullptr || open) judged[i] = live::judge(ground, *cells[i]);
      });
    };
    all();
    // Where contributions cannot be told apart, formulas of other parameters say more than a formula of its own.
    std::map<live::Pattern, int> counts;
    for (const std::vector<Judged>& of_cell : judged) {
      for (const Judged& one : of_cell) {
        if (const auto pattern = live::pattern_of(one)) ++counts[*pattern];
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
      ground.patterns = &patterns;
      all();
    }
    for (std::vector<Judged>& of_cell : judged) {
      if (of_cell.size() > 1) told_apart_bits(of_cell);
      for (Judged& one : of_cell) {
        judged_.push_back(std::move(one));
      }
    }
    const std::string& unknown = expected_.at(step).unknown();
    if (loss_ && !unknown.empty()) result_.gaps.push_back(unknown + ": what is expected cannot be said.");
  }

  /// Ranks that hold one piece and whose optimizers get other bits.
  void told_apart_bits(const std::vector<Judged>& of_cell) {
    const bool all_right = std::all_of(of_cell.begin(), of_cell.end(),
                                       [](const Judged& one) { return one.piece.verdict == Verdict::right; });
    if (all_right) rounded_differently_.insert(of_cell.front().piece.parameter);
  }

  /// Loss not known: what most pieces have is what the others should have.
  void compare_without_loss() {
    std::map<Rational, std::size_t> counts;
    for (const Judged& one : judged_) {
      if (one.uniform) ++counts[*one.uniform];
    }
    if (counts.empty()) return;
    const auto most = std::max_element(counts.begin(), counts.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    result_.notes.push_back(fmt::format("contributions come with {} in {} of {}.", most->first.to_string(),
                                        most->second, live::counted(judged_.size(), "result")));
    for (Judged& one : judged_) {
      if (!one.uniform || *one.uniform == most->first) continue;
      one.piece.verdict = Verdict::wrong;
      one.summary = fmt::format("every contribution came with {}, and in most parameters with {}",
                                one.uniform->to_string(), most->first.to_string());
    }
  }

  /// The first optimizer step that both have: after it, weights differ by rounding at least.
  void compare_to_reference() {
    const live::CapturedRun& reference = reference_->run();
    VerifiedReference& compared = result_.reference.emplace();
    compared.run = reference.folder;
    compared.loss = reference.header.loss;
    result_.gaps.insert(result_.gaps.end(), reference_->unmatched().begin(), reference_->unmatched().end());
    for (const int step : chosen_steps_) {
      if (!compared.step && reference.complete_step(step)) compared.step = step;
    }
    if (!compared.step) {
      result_.gaps.push_back(
          "the reference has no complete optimizer step that is looked at: nothing was compared with it.");
      return;
    }
    const int step = *compared.step;
    if (*compared.step != run_.steps.front())
      result_.notes.push_back(fmt::format(
          "optimizer step {} is compared with the reference: it must have begun with the same weights.", step));
    VerifyOptions own;
    own.step = step;
    own.threads = options_.threads;
    const VerifyResult itself = verify_run(reference.folder, own);
    compared.micro_batches = itself.micro_batches;
    if (itself.verdict() != Verdict::right)
      result_.gaps.push_back(
          fmt::format("the reference is not right itself: `lockstep verify {}` says more.", reference.folder));
    const std::optional<std::int64_t> tokens = expected_.at(step).total(),
                                      others = live::Expected(reference, reference.header.loss, step).total();
    if (tokens && others && *tokens != *others) {
      result_.gaps.push_back(
          fmt::format("in optimizer step {} the run counts {} tokens and the reference {}, so their data differ: "
                      "nothing was compared.",
                      step, *tokens, *others));
      return;
    }
    const auto of_piece = [&](int parameter, int piece) -> const live::Cell* {
      const auto found = cells_.at(step).find({parameter, piece});
      return found == cells_.at(step).end() ? nullptr : &found->second;
    };
    live::ComparedStep ground{run_, files_, formulas_, expected_.at(step), step, Dtype::float64, {}, {}, {}};
    ground.contributions = [&](int parameter, int piece) {
      const live::Cell* cell = of_piece(parameter, piece);
      return cell == nullptr ? std::vector<const live::SketchedTensor*>() : cell->contributions;
    };
    ground.results = [&](int parameter, int piece) {
      const live::Cell* cell = of_piece(parameter, piece);
      return cell == nullptr ? std::vector<const live::SketchedTensor*>() : cell->results;
    };
    for (std::size_t i = 0; i < run_.parameters.size(); ++i) {
      const int parameter = static_cast<int>(i);
      if (chosen_[i] != 0 && !run_.parameters[i].declared.frozen && reference_->counterpart(parameter) >= 0)
        ground.parameters.push_back(parameter);
    }
    if (!cells_.at(step).empty()) ground.coarsest = cells_.at(step).begin()->second.coarsest;
    compared.parameters = live::compare_with_reference(ground, *reference_, options_.threads);
    tell_apart(compared);
  }

  /// Whether it is the local backward or the synchronization that is wrong.
  void tell_apart(const VerifiedReference& compared) {
    std::map<int, const ReferencedParameter*> of_parameter;
    std::set<std::optional<Rational>> parts;
    for (const ReferencedParameter& one : compared.parameters) {
      of_parameter[one.parameter] = &one;
      parts.insert(one.part);
    }
    if (parts.size() == 1 && *parts.begin() && compared.parameters.size() > 1)
      result_.notes.push_back(
          "all contributions differ from the true gradient by one factor: see whether the losses of both runs are what "
          "they are said to be (--loss).");
    for (Judged& judged : judged_) {
      const auto found = of_parameter.find(judged.piece.parameter);
      if (found == of_parameter.end() || judged.piece.step != *compared.step) continue;
      const ReferencedParameter& one = *found->second;
      const bool right = judged.piece.verdict == Verdict::right, wrong = judged.piece.verdict == Verdict::wrong;
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
      if (*said != '\0') judged.piece.why += fmt::format("{}{}", judged.piece.why.empty() ? "" : "; ", said);
    }
  }

  void finish() {
    if (!rounded_differently_.empty())
      result_.notes.push_back(
          fmt::format("ranks hold other bits of {}, each right within rounding: replicas drift apart.",
                      rounded_differently_.size() == 1 ? result_.parameters[at(*rounded_differently_.begin())].name
                                                       : live::counted(rounded_differently_.size(), "parameter")));
    live::CollectiveOrder order = live::compare_collectives(run_);
    result_.collectives = std::move(order.wrong);
    result_.notes.insert(result_.notes.end(), order.suspicious.begin(), order.suspicious.end());
    for (const auto& [step, rank] : files_.missing())
      result_.gaps.push_back(fmt::format("rank-{:05}.step-{:05}.safetensors is missing.", rank, step));
    std::map<std::pair<Verdict, std::string>, std::size_t> places;
    for (Judged& one : judged_) {
      const std::size_t index = result_.pieces.size();
      if (one.piece.verdict != Verdict::right) {
        const auto [found, is_new] = places.try_emplace({one.piece.verdict, one.summary}, result_.findings.size());
        if (is_new) {
          result_.findings.emplace_back();
          result_.findings.back().verdict = one.piece.verdict;
          result_.findings.back().what = one.summary;
          result_.findings.back().first = index;
        }
        VerifyFinding& finding = result_.findings[found->second];
        one.piece.finding = static_cast<int>(found->second);
        ++finding.pieces;
        finding.parameters.push_back(one.piece.parameter);
        finding.steps.push_back(one.piece.step);
        finding.ranks.insert(finding.ranks.end(), one.piece.ranks.begin(), one.piece.ranks.end());
      }
      result_.pieces.push_back(std::move(one.piece));
    }
    for (VerifyFinding& finding : result_.findings) {
      for (std::vector<int>* list : {&finding.parameters, &finding.ranks, &finding.steps}) {
        std::sort(list->begin(), list->end());
        list->erase(std::unique(list->begin(), list->end()), list->end());
      }
    }
    if (result_.reference) find_in_reference(*result_.reference);
    sort_findings();
  }

  void sort_findings() {
    const std::vector<VerifyFinding>& found = result_.findings;
    std::vector<std::size_t> order(found.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      if (found[a].verdict != found[b].verdict) return found[a].verdict == Verdict::wrong;
      if ((found[a].pieces == 0) != (found[b].pieces == 0)) return found[a].pieces == 0;  // what comes before all else
      return found[a].pieces > found[b].pieces;
    });
    std::vector<VerifyFinding> sorted;
    std::vector<int> place(found.size());
    for (const std::size_t index : order) {
      place[index] = static_cast<int>(sorted.size());
      sorted.push_back(std::move(result_.findings[index]));
    }
    result_.findings = std::move(sorted);
    for (VerifiedPiece& piece : result_.pieces) {
      if (piece.finding >= 0) piece.finding = place[at(piece.finding)];
    }
  }

  /// The step at fault: what the run did as a scenario, diagnosed as every scenario is.
  void blame() {
    // Without collectives there is no schedule, and of some parameters alone it would be another one.
    if (!run_.header.collectives || !options_.parameters.items().empty()) return;
    std::shared_ptr<const Scenario> scenario;
    try {
      const RecordedRun recorded = live::record(run_, result_, &scenario);
      if (!recorded.unmet.empty()) {
        result_.not_blamed = "no step is named: " + recorded.unmet.front();
        return;
      }
    } catch (const InputError& error) {
      result_.not_blamed = "no step is named: " + error.diagnostics().front().message;
      return;
    }
    live::blame(std::move(scenario), result_);
  }

  /// Findings about what the ranks contribute.
  void find_in_reference(const VerifiedReference& reference) {
    std::map<std::pair<Verdict, std::string>, std::size_t> places;
    for (const ReferencedParameter& one : reference.parameters) {
      if (one.contributions == Verdict::right) continue;
      const auto [found, is_new] = places.try_emplace({one.contributions, one.what}, result_.findings.size());
      if (is_new) result_.findings.push_back({one.contributions, one.what, {}, {}, {*reference.step}, 0, 0});
      result_.findings[found->second].parameters.push_back(one.parameter);
    }
  }

  const VerifyOptions& options_;
  live::CapturedRun run_;
  live::SketchFiles files_;
  live::RunFormulas formulas_;
  std::optional<live::ReferenceRun> reference_;
  std::optional<CapturedLoss> loss_;
  std::vector<char> chosen_;  // by parameter
  std::vector<int> chosen_steps_;
  std::map<int, std::map<std::pair<int, int>, live::Cell>> cells_;  // by step; parameter and piece
  std::map<int, live::Expected> expected_;
  std::vector<Judged> judged_;
  std::set<int> rounded_differently_;
  VerifyResult result_;
};

}  // namespace

VerifyResult verify_run(const std::string& folder, const VerifyOptions& options) {
  return Verifier(folder, options).run();
}

}  // namespace lockstep
