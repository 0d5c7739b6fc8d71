// SPDX-License-Identifier: Apache-2.0
#include "src/report/rule_findings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>

#include "lockstep/numeric.h"
#include "src/base/counted.h"
#include "src/diagnosis/fold_names.h"
#include "src/diagnosis/other_tests.h"
#include "src/report/blame_text.h"
#include "src/report/elide.h"
#include "src/report/sections.h"
#include "src/report/style.h"
#include "src/report/text_report.h"
#include "src/report/value_rules.h"

namespace lockstep::report {

namespace {

constexpr std::size_t most_groups = 4;

/// FNV-1a with 64 bits: the same on every machine and in every version.
std::string fingerprint_of(const std::string& text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return fmt::format("{:016x}", hash);
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
  explicit Gatherer(const CheckResult& result)
      : result_(result),
        fingerprints_(result.scenario != nullptr && !result.scenario->name.empty() ? result.scenario->name
                                                                                   : result.file) {}

  std::vector<RuleFinding> gather() {
    if (!result_.disagreement.empty())
      plain(Mistake::not_checked, result_.disagreement, "engines disagree", place_of_step(result_, ""));
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
      finding.kind = Mistake::unmet_expectation;
      finding.message = fmt::format("The file's `expect` does not hold: {}.", sentence);
      finding.place = place_of_expect(result_);
      add(std::move(finding), sentence.substr(0, sentence.find(':')));
    }
  }

  std::vector<RuleFinding> take() { return std::move(findings_); }

 private:
  void add(RuleFinding finding, const std::string& what) {
    finding.fingerprint = fingerprints_.next(finding.rule(), what);
    findings_.push_back(std::move(finding));
  }

  void plain(Mistake kind, const std::string& message, const std::string& what, FileStretch place) {
    RuleFinding finding;
    finding.kind = kind;
    finding.message = message;
    finding.place = std::move(place);
    add(std::move(finding), what);
  }

  void errors() {
    for (const Diagnostic& error : result_.errors) {
      RuleFinding finding;
      finding.kind = result_.machine_failed ? Mistake::not_checked : Mistake::invalid_file;
      finding.message = error.message;
      finding.place = place_of_error(error, result_.file);
      add(std::move(finding), without_digits(error.message));
    }
  }

  /// Deadlock, invalid collective, race: what the walk over the ranks or the model itself ended with.
  void outcome() {
    RuleFinding finding;
    finding.kind = result_.verdict == Verdict::deadlock ? Mistake::deadlock
                   : result_.verdict == Verdict::race   ? Mistake::race
                                                        : Mistake::invalid_collective;
    std::string step;
    if (result_.timeline != nullptr) {
      const Outcome& outcome = result_.timeline->outcome;
      if (!outcome.stuck.empty()) step = outcome.stuck.front().waits_in;
      if (!outcome.member_calls.empty()) step = outcome.member_calls.front().calls;
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
    if (diagnosis::wrong_in_model_alone(result_)) {
      plain(Mistake::in_the_model,
            "The schedule is right, and the model's own communication gives other gradients than one device.", "",
            place_of_model(result_));
      return;
    }
    parameters();
    norm();
    if (findings_.empty())
      plain(Mistake::wrong_values, "Ranks end up with other values than one device.", "", place_of_step(result_, ""));
  }

  /// Sections that are wrong by one rule and one step: one finding.
  struct Merged {
    Mistake kind;
    std::string step, pattern;
    std::vector<const Section*> sections;
  };

  void parameters() {
    const std::vector<ParameterFinding> all = collect_findings(result_, false);
    std::optional<diagnosis::Formulas> formulas;
    if (exact_of(result_) != nullptr) formulas.emplace(*result_.scenario->schedule, *forms_of(result_));
    const std::vector<Section> sections = fold_findings(result_, all, formulas ? &*formulas : nullptr);
    std::vector<Merged> list;
    const auto merge = [&](Mistake kind, const std::string& step, const Section& section) {
      // Without a step nothing says that two parameters have one cause.
      const std::string pattern = step.empty() ? first_name(section) : "";
      const auto found = std::find_if(list.begin(), list.end(), [&](const Merged& one) {
        return one.kind == kind && one.step == step && one.pattern == pattern;
      });
      if (found == list.end()) {
        list.push_back({kind, step, pattern, {&section}});
      } else {
        found->sections.push_back(&section);
      }
    };
    for (const Section& section : sections) {
      const ParameterFinding& finding = *section.finding;
      const std::string step = step_of(section);
      const bool has_values =
          !finding.not_shown.empty() || std::any_of(finding.groups.begin(), finding.groups.end(),
                                                    [](const RankGroup& group) { return is_wrong(group); });
      if (has_values) merge(rule_of_values(result_, section, step), step, section);
      if (!finding.unowned.empty()) merge(Mistake::no_owner, step, section);
    }
    for (const Merged& merged : list) {
      RuleFinding finding;
      finding.kind = merged.kind;
      if (merged.kind == Mistake::no_owner) {
        unowned(merged, finding);
      } else {
        values(merged, formulas ? &*formulas : nullptr, finding);
      }
      blame(finding);
      finding.place = place_of_step(result_, merged.step);
      add(std::move(finding), merged.pattern + "\n" + merged.step);
    }
  }

  static bool is_wrong(const RankGroup& group) {
    return group.symbolic != nullptr ? first_wrong_piece(group) != nullptr
                                     : group.host != nullptr && !group.host->right;
  }

  /// The step at fault: of several the one after which this section is wrong.
  std::string step_of(const Section& section) const {
    std::string step = section.divergence == nullptr ? "" : section.divergence->point.step;
    if (result_.blame.empty()) return step;
    for (const Blame& blame : result_.blame) {
      if (blame.step == step) return step;
    }
    return result_.blame.front().step;
  }

  /// "decoder.layers.*.weight" of a section; what does not change with the number of layers.
  static std::string first_name(const Section& section) {
    const std::string& name = section.names.front();
    return diagnosis::folded_name(std::string_view(name).substr(0, name.rfind(" (")));
  }

  /// "The gradient of weight is", "The gradients of layers.*.weight and 3 more parameters are".
  std::string subject(const Merged& merged) const {
    std::size_t parameters = 0;
    for (const Section* section : merged.sections) parameters += section->parameters;
    const Section& first = *merged.sections.front();
    if (parameters == 1) return fmt::format("The gradient of {} is", first.names.front());
    const std::string name = first_name(first);
    if (first.parameters == parameters && first.names.size() == 1)
      return fmt::format("The gradients of {} ({} parameters) are", name, parameters);
    if (parameters == 2) {
      const std::string& last = first.names.size() == 2 ? first.names.back() : merged.sections.back()->names.front();
      return fmt::format("The gradients of {} and {} are", first.names.front(), last);
    }
    return fmt::format("The gradients of {} and {} are", name, counted_more(parameters, first));
  }

  static std::string counted_more(std::size_t parameters, const Section& first) {
    const std::size_t more = parameters - (first.names.size() == 1 ? first.parameters : 1);
    return counted(more, "more parameter");
  }

  void values(const Merged& merged, diagnosis::Formulas* formulas, RuleFinding& finding) {
    std::vector<int> ranks;
    std::string words;
    std::size_t shown = 0, groups = 0;
    for (const Section* section : merged.sections) {
      const std::string& not_shown = section->finding->not_shown;
      if (!not_shown.empty())
        finding.lines.push_back(fmt::format("{}: no rank is shown: {}", first_name(*section), not_shown));
      for (const RankGroup& group : section->finding->groups) {
        if (!is_wrong(group)) continue;
        ranks.insert(ranks.end(), group.ranks.begin(), group.ranks.end());
        const PieceResult* piece = first_wrong_piece(group);
        if (piece == nullptr || formulas == nullptr || ++groups > most_groups) continue;
        const int rank = group.ranks.front();
        if (shown++ == 0) words = difference_text(result_, group, *piece);
        finding.lines.push_back(fmt::format(
            "{}{}, elements {}: got {}, expected {}", merged.sections.size() > 1 ? first_name(*section) + ", " : "",
            rank_list(group.ranks), interval_text(piece->elements),
            elided(formulas->formula(piece->form, rank, group.buffer, result_.step), widest_side),
            elided(formulas->formula(piece->reference, rank, group.buffer, result_.step), widest_side)));
      }
    }
    if (groups > most_groups)
      finding.lines.push_back(fmt::format("and {} more", counted(groups - most_groups, "group") + " of ranks"));
    std::sort(ranks.begin(), ranks.end());
    ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
    // The words are about one rank of one parameter.
    const bool of_all = groups == 1 && merged.sections.size() == 1;
    finding.message = fmt::format("{} wrong{}{}{}.", subject(merged), ranks.empty() ? "" : " on " + rank_list(ranks),
                                  sample_of(result_) != nullptr && !ranks.empty() ? " and others like them" : "",
                                  words.empty() || !of_all ? "" : ": " + words);
  }

  void unowned(const Merged& merged, RuleFinding& finding) const {
    finding.message = fmt::format(
        "{} owned by nobody in part: {} no optimizer.", subject(merged),
        merged.sections.size() == 1 && merged.sections.front()->parameters == 1 ? "it reaches" : "they reach");
    std::size_t shown = 0;
    for (const Section* section : merged.sections) {
      if (shown++ == most_groups) break;
      std::vector<std::string> elements;
      for (const Interval& interval : section->finding->unowned) {
        if (elements.size() == most_groups) {
          elements.push_back("…");
          break;
        }
        elements.push_back(interval_text(interval));
      }
      finding.lines.push_back(
          fmt::format("{}: nobody owns elements {}", first_name(*section), fmt::join(elements, ", ")));
    }
    if (merged.sections.size() > most_groups)
      finding.lines.push_back(
          fmt::format("and parts of {}", counted(merged.sections.size() - most_groups, "more pattern")));
  }

  void norm() {
    const std::vector<std::string> lines = lines_of(norm_text(result_, {}));
    if (lines.empty()) return;
    RuleFinding finding;
    finding.kind = Mistake::norm_count;
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
    // What was proved of all sizes; the numbers are those of one.
    for (const std::string& note : result_.notes) {
      if (result_.written != nullptr && note.starts_with("With any ")) finding.lines.push_back(note);
    }
    for (const Blame& blame : result_.blame)
      finding.lines.push_back(fmt::format("at fault: {}, which {}", blame.step, blame.why));
    if (result_.repairs.empty()) return;
    for (std::string& line : right_with(result_)) finding.lines.push_back(std::move(line));
  }

  const CheckResult& result_;
  std::vector<RuleFinding> findings_;
  Fingerprints fingerprints_;
};

}  // namespace

std::string rule_url(const Rule& rule, std::string_view docs_url) {
  return docs_url.empty() ? "" : fmt::format("{}/rules/{}.md", docs_url, rule.id);
}

std::string without_digits(std::string text) {
  std::erase_if(text, [](char c) { return c >= '0' && c <= '9'; });
  return text;
}

std::string Fingerprints::next(const Rule& rule, const std::string& what) {
  std::string text = fingerprint_of(fmt::format("{}\n{}\n{}", rule.id, name_, what));
  const int count = ++seen_[text];
  return count == 1 ? text : fmt::format("{}:{}", text, count);
}

FileFindings findings_of(const CheckResult& result, bool expectations) {
  FileFindings file;
  file.file = result.file;
  file.verdict = name_of(result.verdict);
  file.match = result.verdict == Verdict::match;
  file.failed = !result.disagreement.empty() || result.machine_failed;
  file.expected_mistake = is_expected_mistake(result);
  file.left_out = expectations && has_no_expectation(result);
  if (!result.blame.empty()) file.step = result.blame.front().step;
  file.findings = rule_findings(result, expectations);
  return file;
}

bool has_no_expectation(const CheckResult& result) {
  const bool expects = result.error_expected || (result.scenario != nullptr && result.scenario->expect);
  return !expects && result.verdict != Verdict::error && result.disagreement.empty();
}

bool is_expected_mistake(const CheckResult& result) {
  if (result.verdict == Verdict::match || !result.disagreement.empty() || result.machine_failed) return false;
  if (result.error_expected) return true;
  return result.scenario != nullptr && result.scenario->expect && unmet_expectations(result).empty();
}

std::vector<RuleFinding> rule_findings(const CheckResult& result, bool expectations) {
  Gatherer gatherer(result);
  if (!expectations || !result.disagreement.empty()) return gatherer.gather();
  if (is_expected_mistake(result) || has_no_expectation(result)) return {};
  if (result.verdict == Verdict::error) return gatherer.gather();
  gatherer.unmet(unmet_expectations(result));
  return gatherer.take();
}

}  // namespace lockstep::report
