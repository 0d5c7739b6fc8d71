// SPDX-License-Identifier: Apache-2.0
#include "src/report/text_parameters.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <set>

#include "lockstep/numeric.h"
#include "src/base/at.h"
#include "src/base/counted.h"
#include "src/report/elide.h"
#include "src/report/section_grids.h"
#include "src/report/sections.h"
#include "src/report/style.h"

namespace lockstep::report {

namespace {

constexpr std::size_t most_groups_of_section = 4, most_pieces = 4, most_names_of_section = 6;

/// What `backward` multiplies a contribution with, as written in the schedule.
void collect_factors(const std::vector<Step>& steps, std::set<std::string>& factors) {
  for (const Step& step : steps) {
    if (operation(step.op).adds == Operation::Adds::gradient) factors.insert(step.by ? step.by->to_string() : "1");
    collect_factors(step.steps, factors);
  }
}

class ParametersText {
 public:
  ParametersText(const CheckResult& result, const ReportOptions& options, const Style& style, const Write& write)
      : result_(result),
        schedule_(*result.scenario->schedule),
        model_(schedule_.model),
        options_(options),
        style_(style),
        write_(write) {
    if (exact_of(result) != nullptr) formulas_.emplace(schedule_, *forms_of(result));
  }

  void write() {
    std::vector<ParameterFinding> findings = collect_findings(result_, options_.all);
    // Wrong in the norm alone: the norm's own lines say so.
    std::erase_if(findings, [](const ParameterFinding& finding) {
      return finding.wrong && finding.groups.empty() && finding.unowned.empty() && finding.like < 0 &&
             finding.not_shown.empty();
    });
    const std::vector<Section> sections = fold_findings(result_, findings, formulas_ ? &*formulas_ : nullptr);
    const std::map<std::size_t, std::string> grids = draw_section_grids(result_, sections, options_, style_);
    for (std::size_t index = 0; index < sections.size(); ++index) {
      write_("\n");
      section(sections[index]);
      const auto grid = grids.find(index);
      if (grid != grids.end()) write_(grid->second);
    }
    if (formulas_told_) write_(factors());
  }

 private:
  void section(const Section& section) {
    const ParameterFinding& finding = *section.finding;
    head(section);
    const std::size_t most = options_.verbose ? finding.groups.size() : most_groups_of_section;
    for (std::size_t index = 0; index < finding.groups.size() && index < most; ++index) group(finding.groups[index]);
    if (finding.groups.size() > most) {
      write_(fmt::format("    and {} of ranks (-v shows all)\n", counted(finding.groups.size() - most, "more group")));
    }
    if (!finding.not_shown.empty()) write_(fmt::format("    no rank is shown: {}\n", finding.not_shown));
    if (!finding.unowned.empty()) unowned(finding);
    if (section.divergence != nullptr) write_(divergence_text(section.divergence->point) + "\n");
    const std::size_t logical = at(model_.logical_of(finding.parameter));
    const bool value_wrong = std::any_of(finding.groups.begin(), finding.groups.end(),
                                         [](const RankGroup& group) { return first_wrong_piece(group) != nullptr; });
    if (value_wrong && logical < exact_of(result_)->replicas_agree.size() &&
        exact_of(result_)->replicas_agree[logical]) {
      write_(exact_of(result_)->replicated[logical]
                 ? "    all owners of an element hold the same value: no comparison of replicas could see it\n"
                 : "    each element has one owner: there is no replica to compare with\n");
    }
  }

  void head(const Section& section) {
    const Parameter& parameter = model_.parameters()[at(section.finding->parameter)];
    const std::string mark = section.finding->wrong ? style_.bad("✗") : style_.good("✓");
    const std::string copy = parameter.copy.empty() ? "" : fmt::format(", copy: {}", parameter.copy);
    const std::string tied = parameter.tied.empty() ? "" : fmt::format(" (tied: {}{})", parameter.tied, copy);
    if (section.parameters == 1) {
      const std::string& name = section.names.front();
      const std::string shown =
          name == parameter.name ? "" : fmt::format(", wrong as {} is, which is shown", parameter.name);
      return write_(fmt::format("{} {}{}{}\n", mark, style_.bold(name), tied, shown));
    }
    if (section.names.size() == 1) {
      write_(fmt::format("{} {} parameters){}, shown: {}\n", mark, style_.bold(without_bracket(section.names.front())),
                         tied, parameter.name));
      return;
    }
    std::vector<std::string> names = section.names;
    if (names.size() > most_names_of_section && !options_.verbose) {
      names.resize(most_names_of_section);
      names.push_back(fmt::format("and {} more", section.names.size() - most_names_of_section));
    }
    write_(fmt::format("{} {} parameters alike{}, shown: {}\n", mark, section.parameters, tied,
                       style_.bold(parameter.name)));
    for (const std::string& name : names) write_("    " + name + "\n");
  }

  /// "layers.*.weight (12)" without its closing bracket.
  static std::string without_bracket(const std::string& name) { return name.substr(0, name.size() - 1); }

  void group(const RankGroup& group) {
    std::string head = "    " + rank_list(group.ranks);
    const std::string at = coordinates_text(schedule_.mesh, group.ranks.front());
    if (group.ranks.size() == 1 && !at.empty()) head += fmt::format(" ({})", at);
    std::size_t shown = 0;
    if (group.symbolic != nullptr) {
      for (const PieceResult& piece : group.symbolic->pieces) {
        if (piece.right && !options_.all) continue;
        if (shown == most_pieces && !options_.verbose) {
          write_("      and more pieces (-v shows all)\n");
          break;
        }
        write_(fmt::format("{}elements {}\n", shown++ == 0 ? head + ", " : "      ", interval_text(piece.elements)));
        values(group, piece);
      }
    }
    const bool hashes = group.host != nullptr && group.host->replayed && !numbers_of(result_)->sampled &&
                        (!group.host->right || options_.all);
    if (shown == 0) write_(head + (hashes ? "" : words_on_group(group)) + "\n");
    if (hashes) {
      write_(fmt::format("      hash      {}\n", group.host->hash.to_string()));
      if (!group.host->right) write_(fmt::format("      expected  {}\n", group.host->expected_hash.to_string()));
    }
  }

  /// What to say of ranks of which neither a formula nor a hash is shown.
  std::string words_on_group(const RankGroup& group) const {
    const bool one = group.ranks.size() == 1;
    if (group.symbolic == nullptr) return one ? " holds wrong values" : " hold wrong values";
    if (group.symbolic->owned.empty()) return one ? " owns nothing" : " own nothing";
    return fmt::format(" own{} elements {}, and {} right there", one ? "s" : "", elements_text(group.symbolic->owned),
                       one ? "is" : "are");
  }

  void values(const RankGroup& group, const PieceResult& piece) {
    const int rank = group.ranks.front();
    formulas_told_ = true;
    const std::string got = short_form(formulas_->formula(piece.form, rank, group.buffer, result_.step), widest_line);
    if (piece.right) return write_(fmt::format("      got       {}\n", style_.good(got)));
    const std::string words = difference_text(result_, group, piece);
    const bool fits = options_.verbose || text_width(got) + text_width(words) + 5 <= widest_line;
    const std::string gap(fits ? "   " : "\n                ");
    write_(fmt::format("      got       {}{}\n", style_.bad(got), words.empty() ? "" : gap + "(" + words + ")"));
    write_(fmt::format("      expected  {}\n",
                       short_form(formulas_->formula(piece.reference, rank, group.buffer, result_.step), widest_line)));
  }

  std::string short_form(const std::string& formula, std::size_t most) const {
    return options_.verbose ? formula : shortened(formula, most);
  }

  /// What "g3" stands for, where `backward` adds something else than the gradient of the summed loss.
  std::string factors() const {
    std::set<std::string> factors;
    collect_factors(schedule_.steps, factors);
    if (factors.empty() || (factors.size() == 1 && *factors.begin() == "1")) return "";
    const int rank = std::min(3, schedule_.mesh.world() - 1);
    const std::string sentence = fmt::format(
        "  g{0} is what backward added on rank {0}: {1} times the gradient of the summed loss of its tokens", rank,
        fmt::join(factors, " or "));
    return fmt::format("\n{}\n", options_.verbose ? sentence : wrapped(sentence, 4));
  }

  void unowned(const ParameterFinding& finding) {
    std::vector<int> ranks;
    for (const RankGroup& group : finding.groups) {
      if (!group.unowned.empty()) ranks.insert(ranks.end(), group.ranks.begin(), group.ranks.end());
    }
    std::sort(ranks.begin(), ranks.end());
    write_(fmt::format("    nobody owns elements {} on {}: they reach no optimizer\n", elements_text(finding.unowned),
                       rank_list(ranks)));
  }

  std::string elements_text(const Intervals& intervals) const {
    std::vector<std::string> elements;
    for (const Interval& interval : intervals) {
      if (elements.size() == most_pieces && !options_.verbose) {
        elements.push_back("…");
        break;
      }
      elements.push_back(interval_text(interval));
    }
    return fmt::format("{}", fmt::join(elements, ", "));
  }

  /// With the lines' indent; where it is too wide, with the change on a line of its own.
  std::string divergence_text(const Divergence& point) const {
    if (point.step.empty()) return "    no single step makes it wrong: " + point.why;
    const std::string what = fmt::format("    {} step {}{}, which {}:", point.broken ? "wrong from" : "last changed by",
                                         style_.bold(point.step), point.broken ? " on" : "", point.why);
    std::string line = fmt::format("{} {} becomes {}", what, point.before, point.after);
    if (options_.verbose || wrapped(line, 0) == line) return line;
    constexpr std::size_t room = page_width - std::string_view("      becomes ").size();
    if (text_width(point.before) + text_width(point.after) <= room)
      return fmt::format("{}\n      {} becomes {}", wrapped(what, 6), point.before, point.after);
    return fmt::format("{}\n      {}\n      becomes {}", wrapped(what, 6), shortened(point.before, widest_line),
                       shortened(point.after, widest_line));
  }

  const CheckResult& result_;
  const Schedule& schedule_;
  const Model& model_;
  const ReportOptions& options_;
  const Style& style_;
  const Write& write_;
  std::optional<diagnosis::Formulas> formulas_;
  bool formulas_told_ = false;
};

}  // namespace

void write_text_parameters(const CheckResult& result, const ReportOptions& options, const Style& style,
                           const Write& write) {
  ParametersText(result, options, style, write).write();
}

}  // namespace lockstep::report
