// SPDX-License-Identifier: Apache-2.0
#include "src/report/html_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <tuple>

#include "src/base/at.h"
#include "src/diagnosis/fold_names.h"
#include "src/report/clean_text.h"
#include "src/report/elide.h"
#include "src/report/html.h"
#include "src/report/run_words.h"

namespace lockstep::report {

namespace {

using PieceVerdict = VerifiedPiece::Verdict;

constexpr std::size_t most_rows = 200, most_names = 12, most_columns = 64;

std::string text_of(std::string_view text) { return html_text(one_line_text(text)); }
std::string code(std::string_view text) { return "<code>" + text_of(text) + "</code>"; }

class RunArticle {
 public:
  explicit RunArticle(const VerifyResult& result) : result_(result), words_(result) {}

  std::string write() { return "<article>\n" + head() + mistakes() + formulas() + ranks() + "</article>\n"; }

 private:
  std::string head() const {
    const std::string_view verdict = verdict_word(result_.verdict());
    const char* sign = verdict == "match" ? "✓" : verdict == "mismatch" ? "✗" : "?";
    std::string text = fmt::format(
        "<header><p><span class=\"verdict {0}\">{1} {0}</span></p>\n<h2>{2}</h2>\n<p class=\"meta\">{3}<br>{4}</p>\n",
        verdict, sign, text_of(result_.run), text_of(words_.layout()), text_of(words_.counts()));
    for (const std::string& line : {words_.not_checked(), words_.reference()}) {
      if (!line.empty()) text += "<p class=\"meta\">" + text_of(line) + "</p>\n";
    }
    for (const std::string& gap : result_.gaps)
      text += "<p class=\"meta unmet\">not complete: " + text_of(gap) + "</p>\n";
    for (const std::string& note : result_.notes) text += "<p class=\"meta\">note: " + text_of(note) + "</p>\n";
    return text + "</header>\n";
  }

  std::string mistakes() const {
    if (result_.findings.empty() && result_.collectives.empty()) return "";
    std::string text = "<section class=\"blame\"><h3>What is wrong</h3>\n<ul>\n";
    for (const VerifiedCollective& one : result_.collectives) text += "<li>" + text_of(one.what) + "</li>\n";
    std::size_t shown = 0;
    for (const VerifyFinding& finding : result_.findings) {
      if (shown++ == most_rows) {
        text += fmt::format("<li>… {} more</li>\n", result_.findings.size() - most_rows);
        break;
      }
      text += fmt::format("<li>{}{}<br><small>{}</small></li>\n",
                          finding.verdict == PieceVerdict::undecided ? "undecided: " : "", text_of(finding.what),
                          text_of(words_.where(finding, most_names)));
    }
    for (const StepAtFault& one : result_.blame)
      text += fmt::format("<li>at fault: {}, which {}</li>\n", code(one.step), text_of(one.why));
    return text + "</ul>\n</section>\n";
  }

  std::string formulas() const {
    const std::vector<RunRow> rows = words_.rows(words_.pieces(false));
    if (rows.empty()) return "";
    std::string text =
        "<section><h3>Got and expected</h3>\n<div class=\"scroll\"><table class=\"findings\"><thead><tr><th "
        "scope=\"col\">Parameter</th><th scope=\"col\">On</th><th scope=\"col\">Got</th><th scope=\"col\">One device "
        "has</th></tr></thead><tbody>\n";
    for (std::size_t index = 0; index < rows.size() && index < most_rows; ++index) {
      const VerifiedPiece& piece = *rows[index].first;
      std::string got = piece.formula.empty() ? "no formula" : code(elided(piece.formula, widest_in_page));
      for (const std::string& more : {piece.difference, piece.why}) {
        if (!more.empty()) got += "<br><small>" + text_of(more) + "</small>";
      }
      text += fmt::format("<tr><th scope=\"row\">{}</th><td>{}</td><td class=\"got\">{}</td><td>{}</td></tr>\n",
                          code(rows[index].name), text_of(words_.ranks(piece)), got,
                          piece.expected.empty() ? "not known" : code(elided(piece.expected, widest_in_page)));
    }
    text += "</tbody></table></div>\n";
    if (rows.size() > most_rows) text += fmt::format("<p>{} more are left out.</p>\n", rows.size() - most_rows);
    return text + "</section>\n";
  }

  /// What was found about the parameters of one folded name on each rank.
  struct Row {
    std::string name;
    std::size_t parameters = 0;
    std::vector<std::uint8_t>
        marks;  // by place in the run's ranks: as PieceVerdict + 1; 0: its optimizer gets none of it
    int worst = 0;
  };

  /// Wrong counts more than undecided, and that more than right.
  static std::uint8_t mark_of(PieceVerdict verdict) {
    return verdict == PieceVerdict::right ? 1 : verdict == PieceVerdict::undecided ? 2 : 3;
  }

  std::vector<Row> rows() const {
    std::vector<Row> single(result_.parameters.size());  // of each parameter
    for (const VerifiedPiece& piece : result_.pieces) {
      Row& row = single[at(piece.parameter)];
      row.marks.resize(result_.ranks.size());
      const std::uint8_t mark = mark_of(piece.verdict);
      row.worst = std::max<int>(row.worst, mark);
      for (const int rank : piece.ranks) {
        const auto place = std::lower_bound(result_.ranks.begin(), result_.ranks.end(), rank) - result_.ranks.begin();
        std::uint8_t& cell = row.marks[at(place)];
        cell = std::max(cell, mark);
      }
    }
    std::map<std::tuple<std::string, std::vector<std::uint8_t>, int>, std::size_t> places;
    std::vector<Row> rows;
    for (const int parameter : words_.compared()) {
      const std::size_t index = at(parameter);
      const std::string name = diagnosis::folded_name(result_.parameters[index].name);
      const auto [found, is_new] = places.try_emplace({name, single[index].marks, single[index].worst}, rows.size());
      if (is_new) {
        rows.push_back(std::move(single[index]));
        rows.back().name = result_.parameters[index].name;
      }
      Row& row = rows[found->second];
      if (++row.parameters > 1) row.name = name;
    }
    std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.worst > b.worst; });
    return rows;
  }

  std::string ranks() const {
    const std::vector<Row> list = rows();
    if (list.empty()) return "";
    const bool each = result_.ranks.size() <= most_columns;
    std::string text =
        "<section class=\"ranks\"><h3>Parameters and ranks</h3>\n<p>✓ right, ✗ wrong, ? undecided, · this rank's "
        "optimizer gets none of it. Parameters whose names differ by a number stand in one "
        "row where all is the same.</p>\n<div "
        "class=\"scroll\"><table class=\"grid\"><thead><tr><th></th>";
    if (each) {
      for (const int rank : result_.ranks) text += fmt::format("<th scope=\"col\">rank {}</th>", rank);
    } else {
      text += "<th scope=\"col\">ranks</th><th scope=\"col\">of these not right</th>";
    }
    text += "</tr></thead><tbody>\n";
    for (std::size_t index = 0; index < list.size() && index < most_rows; ++index) {
      const Row& row = list[index];
      text += fmt::format("<tr><th scope=\"row\">{}{}</th>", code(row.name),
                          row.parameters > 1 ? fmt::format(" ({})", row.parameters) : "");
      text += (each ? cells(row) : sums(row)) + "</tr>\n";
    }
    text += "</tbody></table></div>\n";
    if (list.size() > most_rows) text += fmt::format("<p>{} more are left out.</p>\n", list.size() - most_rows);
    return text + "</section>\n";
  }

  static std::string cells(const Row& row) {
    constexpr std::string_view signs[] = {"·", "✓", "?", "✗"}, classes[] = {"plain", "good", "bad", "bad"};
    std::string text;
    for (const std::uint8_t mark : row.marks) {
      const auto index = std::size_t{mark};
      text += fmt::format("<td class=\"{}\">{}</td>", classes[index], signs[index]);
    }
    return text;
  }

  /// Of more ranks than fit side by side: how many get it, and how many of these wrongly.
  static std::string sums(const Row& row) {
    const auto have = std::count_if(row.marks.begin(), row.marks.end(), [](std::uint8_t mark) { return mark > 0; });
    const auto bad = std::count_if(row.marks.begin(), row.marks.end(), [](std::uint8_t mark) { return mark > 1; });
    return fmt::format("<td class=\"plain\">{}</td><td class=\"{}\">{}</td>", have, bad > 0 ? "bad" : "good",
                       bad > 0 ? fmt::format("✗ {}", bad) : "0");
  }

  const VerifyResult& result_;
  RunWords words_;
};

}  // namespace

std::string html_run(const VerifyResult& result) { return RunArticle(result).write(); }

}  // namespace lockstep::report
