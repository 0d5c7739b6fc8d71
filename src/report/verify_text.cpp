// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "lockstep/report.h"
#include "src/base/at.h"
#include "src/base/shell_quoted.h"
#include "src/report/blame_text.h"
#include "src/report/clean_text.h"
#include "src/report/elide.h"
#include "src/report/run_words.h"
#include "src/report/style.h"

namespace lockstep {

namespace {

using PieceVerdict = VerifiedPiece::Verdict;

constexpr std::size_t most_names_in_text = 6, most_findings = 12, most_formulas = 12;

class TextVerify {
 public:
  TextVerify(const VerifyResult& result, bool verbose, bool color, const Write& write)
      : result_(result), words_(result), verbose_(verbose), style_(color), write_(write) {}

  void head() const {
    const PieceVerdict verdict = result_.verdict();
    const std::string word(report::verdict_word(verdict));
    std::string line = verdict == PieceVerdict::right   ? style_.good(word)
                       : verdict == PieceVerdict::wrong ? style_.bad(word)
                                                        : style_.bold(word);
    line += "  " + clean(result_.run);
    if (!result_.gaps.empty()) line += "  not complete";
    write_(line + "\n");
  }

  void run() const {
    head();
    write_("  " + words_.layout() + "\n");
    write_("  " + words_.counts() + "\n");
    for (const std::string& line : {words_.not_checked(), words_.reference()}) {
      if (!line.empty()) write_("  " + line + "\n");
    }
    for (const std::string& gap : result_.gaps) write_("  not complete: " + clean(gap) + "\n");
    for (const std::string& note : result_.notes) write_("  " + clean(note) + "\n");
    for (const VerifiedCollective& one : result_.collectives) write_(style_.bad("✗") + " " + clean(one.what) + "\n");
    findings();
    if (result_.reference) differences(*result_.reference);
    formulas();
    blame();
  }

 private:
  static std::string clean(const std::string& text) { return report::one_line_text(text); }

  /// How far contributions are from the reference's gradient.
  void differences(const VerifiedReference& reference) const {
    std::size_t shown = 0, all = reference.parameters.size();
    if (!verbose_) all -= reference.count(PieceVerdict::right);
    for (const ReferencedParameter& one : reference.parameters) {
      if (one.contributions == PieceVerdict::right && !verbose_) continue;
      if (!verbose_ && shown++ == most_formulas) {
        write_(fmt::format("\nand {} more (-v shows all)\n", all - most_formulas));
        break;
      }
      write_(fmt::format("\n{} {}  contributions\n", mark(one.contributions),
                         clean(result_.parameters[at(one.parameter)].name)));
      if (one.difference > 0)
        write_(fmt::format("    {:.2g} % from the gradient on one device: {:.2g} roundings of {}\n",
                           100 * one.difference, one.roundings, one.dtype));
      if (!one.formula.empty())
        write_(fmt::format("    that gradient is {}\n",
                           report::shortened(one.formula, verbose_ ? report::unlimited_width : report::widest_line)));
    }
  }

  std::string mark(PieceVerdict verdict) const {
    return verdict == PieceVerdict::right   ? style_.good("✓")
           : verdict == PieceVerdict::wrong ? style_.bad("✗")
                                            : style_.bold("?");
  }

  void findings() const {
    std::size_t shown = 0;
    if (!result_.findings.empty()) write_("\n");
    for (const VerifyFinding& finding : result_.findings) {
      if (!verbose_ && shown++ == most_findings) {
        write_(fmt::format("  and {} more (-v shows all)\n", result_.findings.size() - most_findings));
        break;
      }
      write_(fmt::format("{} {}\n    {}\n", mark(finding.verdict), clean(finding.what),
                         words_.where(finding, verbose_ ? report::unlimited_width : most_names_in_text)));
    }
  }

  void formulas() const {
    // One formula for each distinct one of a finding; pieces that share it are counted.
    const std::vector<report::RunRow> rows = words_.rows(words_.pieces(verbose_));
    std::size_t shown = 0;
    for (const report::RunRow& row : rows) {
      if (!verbose_ && shown++ == most_formulas) {
        write_(fmt::format("\nand {} more (-v shows all)\n", rows.size() - most_formulas));
        break;
      }
      write_piece(*row.first, row.name);
    }
  }

  void blame() const {
    if (!result_.not_blamed.empty()) write_("\n  " + clean(result_.not_blamed) + "\n");
    if (result_.blame.empty()) return;
    write_("\n");
    for (const StepAtFault& one : result_.blame)
      write_(report::at_fault_text({clean(one.step), clean(one.why), one.formulas}, verbose_, style_));
    for (const std::string& line : report::right_with(result_.repair)) write_(fmt::format("    {}\n", clean(line)));
    write_(fmt::format("    `lockstep record {} -o scenario.json` writes the schedule for check, repair and prove\n",
                       shell_quoted(result_.run)));
  }

  void write_piece(const VerifiedPiece& piece, const std::string& name) const {
    const std::size_t widest = verbose_ ? report::unlimited_width : report::widest_line;
    write_(fmt::format("\n{} {}  {}\n", mark(piece.verdict), name,
                       words_.ranks(piece, verbose_ ? piece.ranks.size() : 8)));
    if (!piece.formula.empty())
      write_(fmt::format("    got       {}{}\n", paint(piece.verdict, report::shortened(piece.formula, widest)),
                         piece.difference.empty() ? "" : "   (" + piece.difference + ")"));
    if (!piece.expected.empty() && piece.verdict != PieceVerdict::right)
      write_(fmt::format("    expected  {}\n", report::shortened(piece.expected, widest)));
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
      const std::string alike = one.alike.empty() ? "" : fmt::format(" (the same on {})", report::rank_list(one.alike));
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
  report::RunWords words_;
  bool verbose_;
  report::Style style_;
  const Write& write_;
};

}  // namespace

void verify_text(const VerifyResult& result, bool quiet, bool verbose, bool color, const Write& write) {
  const TextVerify report(result, verbose, color, write);
  quiet ? report.head() : report.run();
}

}  // namespace lockstep
