// SPDX-License-Identifier: Apache-2.0
#include "src/report/rule_findings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>

#include "src/diagnosis/difference.h"
#include "src/diagnosis/fold_names.h"
#include "src/diagnosis/other_tests.h"
#include "src/diagnosis/stale.h"
#include "src/report/blame_text.h"
#include "src/report/elide.h"
#include "src/report/sections.h"
#include "src/report/style.h"
#include "src/report/text_report.h"

namespace lockstep {

namespace {

constexpr std::size_t most_groups = 4;

/// FNV-1a with 64 bits: the same on every machine and in every version.
std::string fingerprint_of(const std::string& text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return fmt::format("{:016x}", hash);
}

std::string without_digits(std::string text) {
  std::erase_if(text, [](char c) { return c >= '0' && c <= '9'; });
  return text;
}

RuleKind kind_of(const Difference& difference) {
  if (difference.leftover) return RuleKind::leftover;
  if (difference.foreign) return RuleKind::wrong_cut;
  if (difference.missing) return RuleKind::missing_reduction;
  if (difference.left_out || *difference.least != *difference.most) return RuleKind::wrong_weights;
  return RuleKind::wrong_factor;
}

/// The lines of a text, without the indentation that they share.
std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::size_t word = text.find_first_not_of(' ', begin);
    if (word < end) lines.push_back(text.substr(word, end - word));
    begin = end + 1;
  }
  return lines;
}

class Gatherer {
 public:
  explicit Gatherer(const CheckResult& result) : result_(result) {}

  std::vector<RuleFinding> gather() {
    if (!result_.disagreement.empty()) plain(RuleKind::not_checked, result_.disagreement, "engines disagree");
    switch (result_.verdict) {
      case Verdict::match:
        break;
      case Verdict::error:
        errors();
        break;
      case Verdict::mismatch:
        mismatch();
        break;
      default:
        outcome();
    }
    return std::move(findings_);
  }

  void unmet(const std::vector<std::string>& sentences) {
    for (const std::string& sentence : sentences) {
      RuleFinding finding;
      finding.kind = RuleKind::unmet_expectation;
      finding.message = fmt::format("The file's `expect` does not hold: {}.", sentence);
      finding.place = place_of_expect(result_);
      add(std::move(finding), sentence.substr(0, sentence.find(':')));
    }
  }

  std::vector<RuleFinding> take() { return std::move(findings_); }

 private:
  /// `what`: what tells this finding from others of its rule and file, without anything that drifts.
  void add(RuleFinding finding, const std::string& what) {
    const std::string& name = result_.scenario == nullptr ? result_.file : result_.scenario->name;
    finding.fingerprint = fingerprint_of(fmt::format("{}\n{}\n{}", finding.rule().id, name, what));
    const int count = ++seen_[finding.fingerprint];
    if (count > 1) finding.fingerprint += fmt::format(":{}", count);
    findings_.push_back(std::move(finding));
  }

  void plain(RuleKind kind, const std::string& message, const std::string& what) {
    RuleFinding finding;
    finding.kind = kind;
    finding.message = message;
    finding.place = place_of_step(result_, "");
    add(std::move(finding), what);
  }

  void errors() {
    for (const Diagnostic& error : result_.errors) {
      RuleFinding finding;
      finding.kind = result_.machine_failed ? RuleKind::not_checked : RuleKind::invalid_file;
      finding.message = error.message;
      finding.place = place_of_error(error, result_.file);
      add(std::move(finding), without_digits(error.message));
    }
  }

  /// Deadlock, invalid collective, race: what the walk over the ranks or the model itself ended with.
  void outcome() {
    RuleFinding finding;
    finding.kind = result_.verdict == Verdict::deadlock ? RuleKind::deadlock
                   : result_.verdict == Verdict::race   ? RuleKind::race
                                                        : RuleKind::invalid_collective;
    std::string step;
    if (result_.timeline != nullptr) {
      const Outcome& outcome = result_.timeline->outcome;
      if (!outcome.stuck.empty()) step = outcome.stuck.front().waits_in;
      if (!outcome.met.empty()) step = outcome.met.front().calls;
      if (!outcome.races.empty())
        step = outcome.races.front().step.empty() ? outcome.races.front().in_flight : outcome.races.front().step;
    }
    if (!result_.blame.empty()) step = result_.blame.front().step;
    finding.lines = lines_of(outcome_text(result_, {}));
    if (!finding.lines.empty()) finding.lines.erase(finding.lines.begin());  // the message says as much
    finding.message = std::string(finding.rule().summary);
    if (!step.empty()) finding.message += fmt::format(" First in step {}.", step);
    blame(finding);
    finding.place = place_of_step(result_, step);
    add(std::move(finding), step);
  }

  void mismatch() {
    if (wrong_in_model_alone(result_)) {
      plain(RuleKind::in_the_model,
            "The schedule is right, and the model's own communication gives other gradients than one device.", "");
      return;
    }
    parameters();
    norm();
    if (findings_.empty()) plain(RuleKind::wrong_values, "Ranks end up with other values than one device.", "");
  }

  void parameters() {
    const std::vector<ParameterFinding> all = collect_findings(result_, false);
    std::optional<Formulas> formulas;
    if (result_.symbolic) formulas.emplace(*result_.scenario->schedule, *result_.engine);
    for (const Section& section : fold_findings(result_, all, formulas ? &*formulas : nullptr)) {
      const bool has_values = std::any_of(section.finding->groups.begin(), section.finding->groups.end(),
                                          [](const RankGroup& group) { return !is_right(group); });
      if (has_values) values(section, formulas ? &*formulas : nullptr);
      if (!section.finding->unowned.empty()) unowned(section);
    }
  }

  static bool is_right(const RankGroup& group) {
    return group.symbolic != nullptr ? first_wrong_piece(group) == nullptr
                                     : group.host == nullptr || group.host->right;
  }

  std::string subject(const Section& section) const {
    const std::vector<Parameter>& parameters = result_.scenario->schedule->model.parameters();
    const std::string& name = parameters[static_cast<std::size_t>(section.finding->parameter)].name;
    return section.parameters == 1 ? name : fmt::format("{} and {} more", name, section.parameters - 1);
  }

  /// Names with their numbers folded: what does not change with the number of layers.
  std::string pattern(const Section& section) const {
    const std::vector<Parameter>& parameters = result_.scenario->schedule->model.parameters();
    return folded_name(parameters[static_cast<std::size_t>(section.finding->parameter)].name);
  }

  void values(const Section& section, Formulas* formulas) {
    RuleFinding finding;
    finding.kind = RuleKind::wrong_values;
    std::vector<int> ranks;
    std::string words;
    std::size_t shown = 0;
    for (const RankGroup& group : section.finding->groups) {
      if (is_right(group)) continue;
      ranks.insert(ranks.end(), group.ranks.begin(), group.ranks.end());
      const PieceResult* piece = first_wrong_piece(group);
      if (piece == nullptr || formulas == nullptr) continue;
      const int rank = group.ranks.front();
      if (shown == 0) {
        finding.kind = kind_of(difference_of(result_, rank, group.buffer, *piece));
        words = difference_text(result_, group, *piece);
      }
      if (shown++ == most_groups) finding.lines.push_back("and other ranks");
      if (shown > most_groups) continue;
      finding.lines.push_back(fmt::format(
          "{}, elements {}: got {}, expected {}", rank_list(group.ranks), interval_text(piece->elements),
          elided(formulas->formula(piece->form, rank, group.buffer, result_.step), widest_side),
          elided(formulas->formula(piece->reference, rank, group.buffer, result_.step), widest_side)));
    }
    std::sort(ranks.begin(), ranks.end());
    ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
    if (section.turn != nullptr && !stale_slices(result_, *section.turn).empty()) finding.kind = RuleKind::stale_slices;
    finding.message = fmt::format("The gradient of {} is wrong on {}{}.", subject(section), rank_list(ranks),
                                  words.empty() ? "" : ": " + words);
    finish(std::move(finding), section);
  }

  void unowned(const Section& section) {
    RuleFinding finding;
    finding.kind = RuleKind::no_owner;
    std::vector<std::string> elements;
    for (const Interval& interval : section.finding->unowned) {
      if (elements.size() == most_groups) {
        elements.push_back("…");
        break;
      }
      elements.push_back(interval_text(interval));
    }
    finding.message =
        fmt::format("Nobody owns elements {} of {}.", fmt::join(elements, ", "), subject(section));
    finish(std::move(finding), section);
  }

  void finish(RuleFinding finding, const Section& section) {
    std::string step = section.turn == nullptr ? "" : section.turn->point.step;
    if (!result_.blame.empty()) step = result_.blame.front().step;
    blame(finding);
    finding.place = place_of_step(result_, step);
    add(std::move(finding), pattern(section) + "\n" + step);
  }

  void norm() {
    const std::vector<std::string> lines = lines_of(norm_text(result_, {}));
    if (lines.empty()) return;
    RuleFinding finding;
    finding.kind = RuleKind::norm_count;
    finding.lines.assign(lines.begin() + 1, lines.end());  // below "gradient norm"
    finding.message = finding.lines.size() == 1 ? fmt::format("Gradient norm: {}.", finding.lines.front())
                                                : std::string(finding.rule().summary);
    if (finding.lines.size() == 1) finding.lines.clear();
    blame(finding);
    const std::string step = result_.blame.empty() ? "" : result_.blame.front().step;
    finding.place = place_of_step(result_, step);
    add(std::move(finding), step);
  }

  void blame(RuleFinding& finding) const {
    for (const Blame& blame : result_.blame) finding.lines.push_back(fmt::format("at fault: {}, which {}", blame.step, blame.why));
    if (result_.repairs.empty()) return;
    for (const Json& edit : result_.repairs.front().edits) finding.lines.push_back("right with " + one_line(edit));
  }

  const CheckResult& result_;
  std::vector<RuleFinding> findings_;
  std::map<std::string, int> seen_;
};

bool has_expectation(const CheckResult& result) {
  return result.error_expected || (result.scenario != nullptr && result.scenario->expect);
}

}  // namespace

bool is_expected_mistake(const CheckResult& result) {
  if (result.verdict == Verdict::match || !result.disagreement.empty() || result.machine_failed) return false;
  return result.error_expected || (has_expectation(result) && unmet_expectations(result).empty());
}

std::vector<RuleFinding> rule_findings(const CheckResult& result, bool expectations) {
  Gatherer gatherer(result);
  if (!expectations || !result.disagreement.empty() || !has_expectation(result)) return gatherer.gather();
  if (is_expected_mistake(result)) return {};
  if (result.verdict == Verdict::error) return gatherer.gather();
  gatherer.unmet(unmet_expectations(result));
  return gatherer.take();
}

}  // namespace lockstep
