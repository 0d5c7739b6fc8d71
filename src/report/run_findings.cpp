// SPDX-License-Identifier: Apache-2.0
#include "src/report/run_findings.h"

#include <fmt/format.h>

#include <algorithm>

#include "src/base/at.h"
#include "src/diagnosis/fold_names.h"
#include "src/report/elide.h"
#include "src/report/run_words.h"
#include "src/report/style.h"

namespace lockstep::report {

namespace {

using PieceVerdict = VerifiedPiece::Verdict;
using Pieces = std::vector<const VerifiedPiece*>;

constexpr std::size_t most_names_of_finding = 6, most_lines_of_finding = 23;

std::string sentence(std::string text) {
  if (!text.empty() && text.back() != '.') text += '.';
  return text;
}

class RunGatherer {
 public:
  explicit RunGatherer(const VerifyResult& result) : result_(result), words_(result), fingerprints_("captured run") {}

  std::vector<RuleFinding> all() {
    std::vector<RuleFinding> findings = collectives();
    std::vector<Pieces> pieces(result_.findings.size());
    for (const VerifiedPiece& piece : result_.pieces) {
      if (piece.finding >= 0) pieces[at(piece.finding)].push_back(&piece);
    }
    for (std::size_t index = 0; index < pieces.size(); ++index) {
      const VerifyFinding& finding = result_.findings[index];
      const std::string where = words_.where(finding, most_names_of_finding);
      findings.push_back(pieces[index].empty() ? of_reference(finding, where)
                                               : of_pieces(finding, pieces[index], where));
    }
    for (RuleFinding& gap : gaps()) findings.push_back(std::move(gap));
    return findings;
  }

  std::vector<RunCase> cases() {
    std::map<int, std::map<int, Pieces>> wrong;  // by parameter, by finding
    std::map<int, std::vector<RuleFinding>> of_parameter;
    for (const VerifyFinding& finding : result_.findings) {
      if (finding.pieces > 0) continue;
      for (const int parameter : finding.parameters) of_parameter[parameter].push_back(of_reference(finding, ""));
    }
    for (const VerifiedPiece& piece : result_.pieces) {
      if (piece.finding >= 0) wrong[piece.parameter][piece.finding].push_back(&piece);
    }
    std::vector<RunCase> list;
    for (const int parameter : words_.compared()) of_parameter.try_emplace(parameter);
    for (auto& [parameter, findings] : of_parameter) {
      RunCase one{result_.parameters[at(parameter)].name, std::move(findings)};
      for (const auto& [finding, pieces] : wrong[parameter])
        one.findings.push_back(of_pieces(result_.findings[at(finding)], pieces, ""));
      list.push_back(std::move(one));
    }
    list.push_back({"collectives meet", collectives()});
    list.push_back({"the run is complete", gaps()});
    return list;
  }

 private:
  FileStretch stretch(const RunPlace& place) const {
    const auto found = std::lower_bound(result_.ranks.begin(), result_.ranks.end(), place.rank);
    const bool known = found != result_.ranks.end() && *found == place.rank;
    const std::size_t index = known ? static_cast<std::size_t>(found - result_.ranks.begin()) : 0;
    return {index < result_.files.size() ? result_.files[index] : result_.run, std::max(1, place.line), 1, 1};
  }

  RuleFinding plain(Mistake kind, const std::string& message, const RunPlace& place) {
    RuleFinding finding;
    finding.kind = kind;
    finding.message = sentence(message);
    finding.place = stretch(place);
    finding.fingerprint = fingerprints_.next(finding.rule(), without_digits(message));
    return finding;
  }

  std::vector<RuleFinding> collectives() {
    std::vector<RuleFinding> list;
    list.reserve(result_.collectives.size());
    for (const VerifiedCollective& one : result_.collectives)
      list.push_back(plain(Mistake::invalid_collective, one.what, one.place));
    return list;
  }

  std::vector<RuleFinding> gaps() {
    std::vector<RuleFinding> list;
    list.reserve(result_.gaps.size() + 1);
    for (const std::string& gap : result_.gaps) list.push_back(plain(Mistake::undecided, gap, {}));
    if (result_.pieces.empty() && result_.gaps.empty())
      list.push_back(plain(Mistake::undecided, "nothing was compared: no optimizer got a gradient", {}));
    return list;
  }

  /// What is wrong with the ranks' own gradients: where is as in of_pieces().
  RuleFinding of_reference(const VerifyFinding& found, const std::string& where) {
    return plain(found.kind, where.empty() ? found.what : fmt::format("{}: {}", found.what, where), {});
  }

  /// `where` "": what is wrong of one parameter, whose name stands above.
  RuleFinding of_pieces(const VerifyFinding& found, const Pieces& pieces, const std::string& where) {
    const VerifiedPiece& first = *pieces.front();
    RuleFinding finding;
    finding.kind = found.kind;
    finding.message = sentence(where.empty() ? found.what : fmt::format("{}: {}", found.what, where));
    finding.place = stretch(first.place);
    const std::vector<RunRow> rows = words_.rows(pieces);
    for (const RunRow& row : rows) {
      if (finding.lines.size() == most_lines_of_finding) {
        finding.lines.push_back(fmt::format("and {} more", rows.size() - most_lines_of_finding));
        break;
      }
      finding.lines.push_back(line(row));
    }
    const std::string& name = result_.parameters[at(first.parameter)].name;
    finding.fingerprint =
        fingerprints_.next(finding.rule(), diagnosis::folded_name(name) + "\n" + without_digits(found.what));
    return finding;
  }

  std::string line(const RunRow& row) const {
    const VerifiedPiece& piece = *row.first;
    std::string text = fmt::format("{}, {}: ", row.name, words_.ranks(piece));
    text += piece.formula.empty() ? "no formula" : "got " + elided(piece.formula, widest_side);
    if (!piece.expected.empty()) text += ", expected " + elided(piece.expected, widest_side);
    return piece.why.empty() ? text : fmt::format("{} ({})", text, piece.why);
  }

  const VerifyResult& result_;
  RunWords words_;
  Fingerprints fingerprints_;
};

}  // namespace

FileFindings findings_of(const VerifyResult& result) {
  FileFindings file;
  file.file = result.run;
  file.is_run = true;
  file.verdict = verdict_word(result.verdict());
  file.match = result.verdict() == PieceVerdict::right;
  if (!result.blame.empty()) file.step = result.blame.front().step;
  file.findings = RunGatherer(result).all();
  return file;
}

std::vector<RunCase> run_cases(const VerifyResult& result) { return RunGatherer(result).cases(); }

}  // namespace lockstep::report
