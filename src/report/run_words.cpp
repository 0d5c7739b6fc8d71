// SPDX-License-Identifier: Apache-2.0
#include "src/report/run_words.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <tuple>

#include "src/base/at.h"
#include "src/base/counted.h"
#include "src/diagnosis/fold_names.h"
#include "src/report/clean_text.h"
#include "src/report/style.h"

namespace lockstep::report {

namespace {

using PieceVerdict = VerifiedPiece::Verdict;

}  // namespace

RunWords::RunWords(const VerifyResult& result) : result_(result) {
  for (const VerifiedPiece& piece : result.pieces) compared_.push_back(piece.parameter);
  std::sort(compared_.begin(), compared_.end());
  compared_.erase(std::unique(compared_.begin(), compared_.end()), compared_.end());
}

std::string RunWords::layout() const {
  std::string text;
  for (const auto& [axis, size] : result_.axes) text += fmt::format("{}{} {}", text.empty() ? "" : " × ", axis, size);
  text += fmt::format("{}{}", text.empty() ? "" : " = ", counted(result_.world, "rank"));
  text += fmt::format(", {}, {}", counted(result_.steps.size(), "optimizer step"),
                      counted(result_.micro_batches, "micro-batch"));
  text += result_.loss ? fmt::format(", loss {}", name_of(*result_.loss)) : ", loss not known";
  if (!result_.adapter.empty()) text += ", " + result_.adapter;
  for (const auto& [name, version] : result_.versions) {
    if (name != "lockstep") text += fmt::format(", {} {}", name, version);
  }
  return one_line_text(text);
}

std::string RunWords::counts() const {
  const std::size_t right = result_.count(PieceVerdict::right), wrong = result_.count(PieceVerdict::wrong),
                    undecided = result_.count(PieceVerdict::undecided);
  const auto sampled = std::count_if(compared_.begin(), compared_.end(),
                                     [&](int parameter) { return result_.parameters[at(parameter)].sampled; });
  std::string text = fmt::format(
      "{}, {} compared{}: {} right", counted(compared_.size(), "parameter"),
      counted(result_.pieces.size(), "distinct result"),
      sampled > 0 ? fmt::format(", {} of the parameters in one of {} elements", sampled, result_.one_of) : "", right);
  if (wrong > 0) text += fmt::format(", {} wrong", wrong);
  if (undecided > 0) text += fmt::format(", {} undecided", undecided);
  return text;
}

std::string RunWords::not_checked() const {
  if (result_.reference || result_.verdict() == PieceVerdict::wrong || result_.count(PieceVerdict::right) == 0)
    return "";
  if (result_.played) return "each rank's own loss and backward were not checked";
  return "each rank's own loss and backward were not checked: --reference checks them";
}

std::string RunWords::reference() const {
  if (!result_.reference || result_.reference->parameters.empty()) return "";
  const VerifiedReference& reference = *result_.reference;
  const std::size_t right = reference.count(PieceVerdict::right);
  const auto all = static_cast<std::int64_t>(reference.parameters.size());
  const ReferencedParameter* worst = nullptr;
  for (const ReferencedParameter& one : reference.parameters) {
    if (one.contributions == PieceVerdict::right && (worst == nullptr || one.roundings > worst->roundings))
      worst = &one;
  }
  std::string text = fmt::format(
      "reference {}, optimizer step {}: the contributions to {} add up to its gradient", reference.run, *reference.step,
      right == reference.parameters.size() ? counted(all, "parameter")
                                           : fmt::format("{} of {}", right, counted(all, "parameter")));
  if (worst != nullptr && worst->roundings == 0) {
    text += " exactly";
  } else if (worst != nullptr) {
    text += fmt::format(" within {:.2g} roundings of {}", worst->roundings, worst->dtype);
  }
  return one_line_text(text);
}

std::string RunWords::where(const VerifyFinding& finding, std::size_t most_names) const {
  std::map<std::string, std::pair<int, int>> names;  // how many parameters, and the first of them
  for (const int parameter : finding.parameters) {
    auto& [count, first] = names.try_emplace(diagnosis::folded_name(name(parameter)), 0, parameter).first->second;
    ++count;
  }
  std::string text;
  if (finding.parameters.size() == compared_.size()) {
    text = compared_.size() == 1 ? one_line_text(name(finding.parameters.front()))
                                 : fmt::format("all {} parameters", compared_.size());
  } else if (names.size() > most_names) {
    text = fmt::format("{} of {} parameters", finding.parameters.size(), compared_.size());
  } else {
    for (const auto& [folded, place] : names) {
      const auto& [count, first] = place;
      text += text.empty() ? "" : ", ";
      // One alone keeps its number.
      text += count > 1 ? fmt::format("{} ({})", one_line_text(folded), count) : one_line_text(name(first));
    }
  }
  if (finding.ranks.size() == result_.ranks.size()) {
    text += ", on every rank";
  } else if (!finding.ranks.empty()) {
    text += ", on " + rank_list(finding.ranks);
  }
  if (result_.steps.size() > 1) {
    text += finding.steps.size() == result_.steps.size()
                ? ", in every optimizer step"
                : fmt::format(", in optimizer step{} {}", finding.steps.size() == 1 ? "" : "s",
                              fmt::join(finding.steps, ", "));
  }
  return text;
}

std::vector<RunRow> RunWords::rows(const std::vector<const VerifiedPiece*>& pieces) const {
  std::map<std::tuple<PieceVerdict, std::string, std::string, std::string, std::vector<int>, std::string, int>,
           std::size_t>
      places;
  std::vector<RunRow> rows;
  std::vector<std::size_t> counts;
  const auto part = [&](const VerifiedPiece& piece) {
    const VerifiedParameter& parameter = result_.parameters[at(piece.parameter)];
    const std::string& text = parameter.pieces[at(piece.piece)];
    return text.empty() ? "" : " " + text;
  };
  for (const VerifiedPiece* piece : pieces) {
    const std::string folded = diagnosis::folded_name(name(piece->parameter)) + part(*piece);
    const auto [found, is_new] = places.try_emplace(
        {piece->verdict, folded, piece->formula, piece->expected, piece->ranks, piece->why, piece->step}, rows.size());
    if (is_new) {
      rows.push_back({piece, ""});
      counts.push_back(0);
    }
    ++counts[found->second];
  }
  for (std::size_t index = 0; index < rows.size(); ++index) {
    const std::string& whole = name(rows[index].first->parameter);
    rows[index].name = one_line_text(
        (counts[index] > 1 ? fmt::format("{} ({})", diagnosis::folded_name(whole), counts[index]) : whole) +
        part(*rows[index].first));
  }
  return rows;
}

std::vector<const VerifiedPiece*> RunWords::pieces(bool right) const {
  std::vector<const VerifiedPiece*> list;
  for (const PieceVerdict verdict : {PieceVerdict::wrong, PieceVerdict::undecided, PieceVerdict::right}) {
    if (verdict == PieceVerdict::right && !right) continue;
    for (const VerifiedPiece& piece : result_.pieces) {
      if (piece.verdict == verdict) list.push_back(&piece);
    }
  }
  return list;
}

std::string RunWords::ranks(const VerifiedPiece& piece, std::size_t most) const {
  return fmt::format("{}{}", piece.ranks.empty() ? "no rank's optimizer" : rank_list(piece.ranks, most),
                     result_.steps.size() > 1 ? fmt::format(", optimizer step {}", piece.step) : "");
}

}  // namespace lockstep::report
