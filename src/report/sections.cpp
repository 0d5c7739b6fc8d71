// SPDX-License-Identifier: Apache-2.0
#include "src/report/sections.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>

#include "src/base/at.h"
#include "src/diagnosis/fold_names.h"

namespace lockstep::report {

namespace {

// Enough to tell parameters apart; in a world of thousands the rest says the same.
constexpr std::size_t most_compared = 16;

class Folder {
 public:
  Folder(const CheckResult& result, diagnosis::Formulas* formulas) : result_(result), formulas_(formulas) {}

  std::vector<Section> fold(const std::vector<ParameterFinding>& findings) {
    // First layer by layer, wherever the layers are; then patterns that came out alike.
    std::vector<Section> by_pattern;
    std::map<std::pair<std::string, std::string>, std::size_t> pattern_index;
    std::map<int, const ParameterFinding*> by_parameter;
    for (const ParameterFinding& finding : findings) by_parameter.emplace(finding.parameter, &finding);
    for (const ParameterFinding& finding : findings) {
      const auto other = by_parameter.find(finding.like);
      const ParameterFinding& shown = other == by_parameter.end() ? finding : *other->second;
      const auto key = std::make_pair(diagnosis::folded_name(name(finding)), manner(shown));
      const auto [place, fresh] = pattern_index.emplace(key, by_pattern.size());
      if (fresh) by_pattern.push_back({&shown, {}, 0, divergence_of(shown)});
      Section& pattern = by_pattern[place->second];
      if (pattern.names.empty()) pattern.names.push_back(name(finding));
      ++pattern.parameters;
    }
    std::vector<Section> sections;
    std::map<std::string, std::size_t> index;
    for (const Section& pattern : by_pattern) {
      const auto [place, fresh] = index.emplace(content(*pattern.finding), sections.size());
      if (fresh) sections.push_back({pattern.finding, {}, 0, pattern.divergence});
      Section& section = sections[place->second];
      section.parameters += pattern.parameters;
      const std::string& own = pattern.names.front();
      section.names.push_back(
          pattern.parameters == 1 ? own : fmt::format("{} ({})", diagnosis::folded_name(own), pattern.parameters));
    }
    return sections;
  }

 private:
  const std::string& name(const ParameterFinding& finding) const {
    return result_.scenario->schedule->model.parameters()[at(finding.parameter)].name;
  }

  /// In which way a parameter is wrong, less the ranks: layers of other stages fold as well.
  std::string manner(const ParameterFinding& finding) const {
    std::string words = finding.wrong ? "wrong" : "right";
    if (!finding.unowned.empty()) words += " unowned";
    for (const RankGroup& group : finding.groups) {
      const PieceResult* piece = first_wrong_piece(group);
      if (piece == nullptr) continue;
      return words + fmt::format("|{}|{}", piece->ratio ? piece->ratio->to_string() : "",
                                 difference_text(result_, group, *piece));
    }
    return words;
  }

  /// Which ranks hold which formulas; elements and hashes differ from parameter to parameter.
  std::string content(const ParameterFinding& finding) {
    const Parameter& parameter = result_.scenario->schedule->model.parameters()[at(finding.parameter)];
    std::string text = fmt::format("{}|{}|{}", finding.wrong, parameter.tied, manner(finding));
    // Without a value that is wrong, or without formulas, there is nothing to compare.
    if (formulas_ == nullptr || finding.groups.empty() || !finding.unowned.empty()) return text + "|" + name(finding);
    for (std::size_t index = 0; index < finding.groups.size() && index < most_compared; ++index) {
      const RankGroup& group = finding.groups[index];
      text += fmt::format("|{}", fmt::join(group.ranks, ","));
      for (const PieceResult& piece : group.symbolic->pieces) {
        if (piece.right && finding.wrong) continue;
        text += "|" + formulas_->formula(piece.form, group.ranks.front(), group.buffer, result_.step) + "|" +
                formulas_->formula(piece.reference, group.ranks.front(), group.buffer, result_.step);
      }
    }
    return text;
  }

  const BufferDivergence* divergence_of(const ParameterFinding& finding) const {
    for (const RankGroup& group : finding.groups) {
      if (group.symbolic == nullptr) continue;
      for (const PieceResult& piece : group.symbolic->pieces) {
        if (piece.right) continue;
        for (const BufferDivergence& divergence : result_.divergences) {
          if (divergence.form == piece.form && divergence.reference == piece.reference) return &divergence;
        }
      }
    }
    return nullptr;
  }

  const CheckResult& result_;
  diagnosis::Formulas* formulas_;
};

}  // namespace

std::vector<Section> fold_findings(const CheckResult& result, const std::vector<ParameterFinding>& findings,
                                   diagnosis::Formulas* formulas) {
  return Folder(result, formulas).fold(findings);
}

const PieceResult* first_wrong_piece(const RankGroup& group) {
  if (group.symbolic == nullptr) return nullptr;
  for (const PieceResult& piece : group.symbolic->pieces) {
    if (!piece.right) return &piece;
  }
  return nullptr;
}

std::string difference_text(const CheckResult& result, const RankGroup& group, const PieceResult& piece) {
  const int rank = group.ranks.front();
  return describe_difference(*result.scenario->schedule, forms_of(result)->terms(piece.form, rank, group.buffer),
                             forms_of(result)->terms(piece.reference, rank, group.buffer));
}

}  // namespace lockstep::report
