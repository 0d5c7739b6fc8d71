// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "lockstep/report.h"
#include "src/diagnosis/fold_names.h"
#include "src/report/clean_text.h"
#include "src/report/elide.h"
#include "src/report/run_verdict.h"
#include "src/report/style.h"
#include "src/report/text_report.h"

namespace lockstep {

namespace {

using PieceVerdict = VerifiedPiece::Verdict;

constexpr std::size_t most_names = 6, most_findings = 12, most_formulas = 12;

std::size_t at(int index) { return static_cast<std::size_t>(index); }

class TextVerify {
 public:
  TextVerify(const VerifyResult& result, bool verbose, bool color, const Write& write)
      : result_(result), verbose_(verbose), style_(color), write_(write) {}

  void head() const {
    const PieceVerdict verdict = result_.verdict();
    const std::string word(verdict_word(verdict));
    std::string line = verdict == PieceVerdict::right   ? style_.good(word)
                       : verdict == PieceVerdict::wrong ? style_.bad(word)
                                                        : style_.bold(word);
    line += "  " + clean(result_.run);
    if (!result_.gaps.empty()) line += "  not complete";
    write_(line + "\n");
  }

  void run() const {
    head();
    write_("  " + layout() + "\n");
    write_("  " + counts() + "\n");
    for (const std::string& gap : result_.gaps) write_("  not complete: " + clean(gap) + "\n");
    for (const std::string& note : result_.notes) write_("  " + clean(note) + "\n");
    for (const std::string& one : result_.collectives) write_(style_.bad("✗") + " " + clean(one) + "\n");
    findings();
    formulas();
  }

 private:
  static std::string clean(const std::string& text) { return one_line_text(text); }

  std::string layout() const {
    std::string text;
    for (const auto& [axis, size] : result_.axes) text += fmt::format("{}{} {}", text.empty() ? "" : " × ", axis, size);
    text += fmt::format("{}{}", text.empty() ? "" : " = ", counted(result_.world, "rank"));
    text += fmt::format(", {}, {}", counted(static_cast<std::int64_t>(result_.steps.size()), "optimizer step"),
                        counted(result_.micro_batches, "micro-batch"));
    text += result_.loss ? fmt::format(", loss {}", name_of(*result_.loss)) : ", loss not known";
    if (!result_.adapter.empty()) text += ", " + result_.adapter;
    for (const auto& [name, version] : result_.versions) {
      if (name != "lockstep") text += fmt::format(", {} {}", name, version);
    }
    return clean(text);
  }

  std::string counts() const {
    const std::size_t right = result_.count(PieceVerdict::right), wrong = result_.count(PieceVerdict::wrong),
                      undecided = result_.count(PieceVerdict::undecided);
    std::set<int> parameters;
    for (const VerifiedPiece& piece : result_.pieces) parameters.insert(piece.parameter);
    std::string text =
        fmt::format("{}, {} compared: {} right", counted(static_cast<std::int64_t>(parameters.size()), "parameter"),
                    counted(static_cast<std::int64_t>(result_.pieces.size()), "result"), right);
    if (wrong > 0) text += fmt::format(", {} wrong", wrong);
    if (undecided > 0) text += fmt::format(", {} undecided", undecided);
    return text;
  }

  /// "24 of 26 parameters", or their names where they are few; layers folded.
  std::string where(const VerifyFinding& finding) const {
    std::map<std::string, int> names;
    for (const int parameter : finding.parameters) ++names[folded_name(result_.parameters[at(parameter)].name)];
    std::set<int> compared;
    for (const VerifiedPiece& piece : result_.pieces) compared.insert(piece.parameter);
    std::string text;
    if (finding.parameters.size() == compared.size()) {
      text = compared.size() == 1 ? clean(result_.parameters[at(finding.parameters.front())].name)
                                  : fmt::format("all {} parameters", compared.size());
    } else if (names.size() > most_names && !verbose_) {
      text = fmt::format("{} of {} parameters", finding.parameters.size(), compared.size());
    } else {
      for (const auto& [name, count] : names) {
        text += text.empty() ? "" : ", ";
        if (count > 1) {
          text += fmt::format("{} ({})", clean(name), count);
          continue;
        }
        for (const int parameter : finding.parameters) {  // one alone keeps its number
          const std::string& whole = result_.parameters[at(parameter)].name;
          if (folded_name(whole) == name) text += clean(whole);
        }
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

  void findings() const {
    std::size_t shown = 0;
    if (!result_.findings.empty()) write_("\n");
    for (const VerifyFinding& finding : result_.findings) {
      if (!verbose_ && shown++ == most_findings) {
        write_(fmt::format("  and {} more (-v shows all)\n", result_.findings.size() - most_findings));
        break;
      }
      const std::string mark = finding.verdict == PieceVerdict::wrong ? style_.bad("✗") : style_.bold("?");
      write_(fmt::format("{} {}\n    {}\n", mark, clean(finding.what), where(finding)));
    }
  }

  void formulas() const {
    // One formula for each distinct one of a finding; pieces that share it are counted.
    std::map<std::tuple<int, std::string, std::string, std::string, std::vector<int>, std::string, int>, std::size_t>
        places;
    struct Row {
      const VerifiedPiece* first;
      std::size_t parameters = 0;
      std::string name;
    };
    std::vector<Row> rows;
    for (const VerifiedPiece& piece : result_.pieces) {
      if (piece.verdict == PieceVerdict::right && !verbose_) continue;
      const std::string name = folded_name(result_.parameters[at(piece.parameter)].name);
      const auto [found, is_new] =
          places.try_emplace({static_cast<int>(piece.verdict), name + piece_of(piece), piece.formula, piece.expected,
                              piece.ranks, piece.why, piece.step},
                             rows.size());
      if (is_new) rows.push_back({&piece, 0, name});
      ++rows[found->second].parameters;
    }
    std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
      const auto order = [](PieceVerdict verdict) {
        return verdict == PieceVerdict::wrong ? 0 : verdict == PieceVerdict::undecided ? 1 : 2;
      };
      return order(a.first->verdict) < order(b.first->verdict);
    });
    std::size_t shown = 0;
    for (const Row& row : rows) {
      if (!verbose_ && shown++ == most_formulas) {
        write_(fmt::format("\nand {} more (-v shows all)\n", rows.size() - most_formulas));
        break;
      }
      one(*row.first, row.parameters, row.name);
    }
  }

  std::string piece_of(const VerifiedPiece& piece) const {
    return result_.parameters[at(piece.parameter)].pieces[at(piece.piece)];
  }

  void one(const VerifiedPiece& piece, std::size_t parameters, const std::string& folded) const {
    const std::size_t widest = verbose_ ? unlimited_width : widest_line;
    std::string name =
        parameters > 1 ? fmt::format("{} ({})", folded, parameters) : result_.parameters[at(piece.parameter)].name;
    if (!piece_of(piece).empty()) name += " " + piece_of(piece);
    const std::string mark = piece.verdict == PieceVerdict::right   ? style_.good("✓")
                             : piece.verdict == PieceVerdict::wrong ? style_.bad("✗")
                                                                    : style_.bold("?");
    write_(fmt::format(
        "\n{} {}  {}{}\n", mark, clean(name),
        piece.ranks.empty() ? "no rank's optimizer" : rank_list(piece.ranks, verbose_ ? piece.ranks.size() : 8),
        result_.steps.size() > 1 ? fmt::format(", optimizer step {}", piece.step) : ""));
    if (!piece.formula.empty())
      write_(fmt::format("    got       {}{}\n", paint(piece.verdict, elided(piece.formula, widest)),
                         piece.difference.empty() ? "" : "   (" + piece.difference + ")"));
    if (!piece.expected.empty() && piece.verdict != PieceVerdict::right)
      write_(fmt::format("    expected  {}\n", elided(piece.expected, widest)));
    if (!piece.why.empty()) write_(fmt::format("    {}\n", clean(piece.why)));
    if (piece.verdict != PieceVerdict::right || verbose_) coefficients(piece);
  }

  std::string paint(PieceVerdict verdict, const std::string& text) const {
    return verdict == PieceVerdict::right   ? style_.good(text)
           : verdict == PieceVerdict::wrong ? style_.bad(text)
                                            : text;
  }

  /// Where a coefficient is no fraction for certain, or everything was asked for: "0.3331 ± 0.0004: 1/3 within noise".
  void coefficients(const VerifiedPiece& piece) const {
    const bool open = std::any_of(piece.coefficients.begin(), piece.coefficients.end(),
                                  [](const RecoveredCoefficient& one) { return !one.exact; });
    if (!open && !verbose_) return;
    constexpr std::size_t most = 8;
    std::size_t shown = 0;
    for (const RecoveredCoefficient& one : piece.coefficients) {
      if (!verbose_ && shown++ == most) {
        write_(fmt::format("      and {} more (-v shows all)\n", piece.coefficients.size() - most));
        break;
      }
      const std::string step = one.step == piece.step ? "" : fmt::format(" of optimizer step {}", one.step);
      const std::string alike = one.alike.empty() ? "" : fmt::format(" (the same on {})", rank_list(one.alike));
      write_(fmt::format("      rank {} micro-batch {}{}{}: {}{}\n", one.rank, one.micro_batch, step, alike,
                         number(one.value, one.error),
                         one.exact ? fmt::format(": {} within noise", one.exact->to_string()) : ": no small fraction"));
    }
    if (verbose_ && piece.noise > 0)
      write_(fmt::format("      unexplained {:.2g}, rounding leaves at most {:.2g}\n", piece.unexplained, piece.noise));
  }

  static std::string number(double value, double error) {
    return error > 0 ? fmt::format("{:.6g} ± {:.1g}", value, error) : fmt::format("{:.6g}", value);
  }

  const VerifyResult& result_;
  bool verbose_;
  Style style_;
  const Write& write_;
};

}  // namespace

void verify_text(const VerifyResult& result, bool quiet, bool verbose, bool color, const Write& write) {
  const TextVerify report(result, verbose, color, write);
  quiet ? report.head() : report.run();
}

}  // namespace lockstep
