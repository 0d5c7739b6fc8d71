// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <tuple>

#include "src/base/at.h"
#include "src/base/counted.h"
#include "src/report/html.h"
#include "src/report/html_article.h"

namespace lockstep::report {

namespace {

constexpr std::size_t most_cells = 256, most_step_cells = 1024;

std::string head(const std::vector<Json>& columns, const std::string& corner) {
  std::string text = "<thead><tr><th scope=\"col\">" + html_text(corner) + "</th>";
  for (const Json& column : columns) text += "<th scope=\"col\">" + html_text(column.text()) + "</th>";
  return text + "</tr></thead>";
}

/// "3", "4-7": runs of ranks, as they are read.
std::string runs_text(const std::vector<Json>& runs) {
  std::vector<std::string> words;
  for (const Json& run : runs) {
    const long long first = number_of(run.items()[0]), end = number_of(run.items()[1]);
    words.push_back(end - first == 1 ? fmt::format("{}", first) : fmt::format("{}-{}", first, end - 1));
    if (words.size() == 6 && runs.size() > 6) {
      words.push_back("…");
      break;
    }
  }
  return fmt::format("{}", fmt::join(words, ", "));
}

/// What cells hold after the steps so far, by buffer, rank and range: formula and marks.
using HeldCells = std::map<std::tuple<std::string, long long, std::size_t>, std::pair<std::string, std::string>>;

std::string cell_of(const Json& timeline, const HeldCells& held, const std::string& buffer, long long rank) {
  const std::vector<Json>& ranges = items_at(timeline, "ranges");
  std::string text, classes;
  for (std::size_t range = 0; range < ranges.size(); ++range) {
    const auto found = held.find({buffer, rank, range});
    if (found == held.end()) continue;
    const auto& [formula, marks] = found->second;
    if (!text.empty()) text += "<br>";
    if (ranges.size() > 1)
      text += fmt::format("<small>[{}, {})</small> ", ranges[range].items()[0].text(), ranges[range].items()[1].text());
    text += html_text(formula);
    for (const char* mark : {"~", "*", "✗"}) {
      if (marks.find(mark) != std::string::npos) text += fmt::format(" {}", mark);
    }
    if (marks.find("✗") != std::string::npos) {
      classes = "bad";
    } else if (marks.find('~') != std::string::npos && classes.empty()) {
      classes = "stale";
    }
  }
  if (text.empty()) return "<td>·</td>";
  return classes.empty() ? "<td>" + text + "</td>" : fmt::format("<td class=\"{}\">{}</td>", classes, text);
}

bool has_several_micro_batches(const Json& timeline) {
  for (const Json& step : items_at(timeline, "steps")) {
    const std::string& micro_batch = text_at(step, "micro_batch");
    if (!micro_batch.empty() && micro_batch != "0") return true;
  }
  return false;
}

std::string step_title(const Json& step, bool several) {
  std::string title = "after " + html_text(text_at(step, "step"));
  if (several && !text_at(step, "micro_batch").empty()) title += ", micro-batch " + text_at(step, "micro_batch");
  if (text_at(step, "buffer") != "grad") title += fmt::format(" (buffer {})", html_text(text_at(step, "buffer")));
  return title;
}

std::string step_tables(const Json& timeline, const HeldCells& held, const Json& step, bool several) {
  std::string text;
  for (const Json& block : items_at(timeline, "blocks")) {
    text += fmt::format("<table class=\"held\"><caption>{}</caption>{}<tbody>\n", step_title(step, several),
                        head(items_at(timeline, "columns"), text_at(block, "title")));
    const std::vector<Json>& rows = items_at(timeline, "rows");
    for (std::size_t row = 0; row < rows.size(); ++row) {
      text += "<tr><th scope=\"row\">" + html_text(rows[row].text()) + "</th>";
      for (const Json& rank : items_at(block, "ranks")[row].items())
        text += cell_of(timeline, held, text_at(step, "buffer"), number_of(rank));
      text += "</tr>\n";
    }
    text += "</tbody></table>\n";
  }
  return text;
}

std::string timeline_tables(const Json& timeline) {
  const std::vector<Json>& ranks = items_at(timeline, "ranks");
  const std::vector<Json>& formulas = items_at(timeline, "formulas");
  const std::size_t cells = ranks.size() * items_at(timeline, "ranges").size();
  HeldCells held;
  std::string text = "<p><code>" + html_text(text_at(timeline, "parameter")) + "</code></p>\n";
  const bool several = has_several_micro_batches(timeline);
  std::size_t written = 0, left_out = 0;
  for (const Json& step : items_at(timeline, "steps")) {
    for (const Json& change : items_at(step, "cells")) {
      const std::vector<Json>& parts = change.items();
      held[{text_at(step, "buffer"), number_of(ranks[at(number_of(parts[0]))]),
            static_cast<std::size_t>(number_of(parts[1]))}] = {formulas[at(number_of(parts[2]))].text(),
                                                               parts[3].text()};
    }
    if (!step.find("changed")->as_boolean()) {
      text += "<p>" + step_title(step, several) + ": unchanged</p>\n";
    } else if (written + cells > most_step_cells) {
      ++left_out;
    } else {
      written += cells;
      text += step_tables(timeline, held, step, several);
    }
  }
  if (left_out > 0)
    text +=
        fmt::format("<p>{} left out here.</p>\n", counted(left_out, "more step") + (left_out == 1 ? " is" : " are"));
  return text;
}

long long amount(const std::vector<Json>& runs) {
  long long ranks = 0;
  for (const Json& run : runs) ranks += number_of(run.items()[1]) - number_of(run.items()[0]);
  return ranks;
}

/// Of a grid that is too large for a table: how many ranks of each row are wrong.
std::string table_of_rows(const std::vector<Json>& rows, std::size_t columns, const std::vector<Json>& cells) {
  std::string text =
      "<div class=\"scroll\"><table class=\"grid\"><thead><tr><th></th><th scope=\"col\">ranks</th><th "
      "scope=\"col\">of these wrong</th></tr></thead><tbody>\n";
  for (std::size_t row = 0; row < rows.size(); ++row) {
    long long ranks = 0, wrong = 0;
    for (std::size_t column = 0; column < columns; ++column) {
      const Json& cell = cells[row * columns + column];
      ranks += amount(items_at(cell, "ranks"));
      wrong += amount(items_at(cell, "wrong"));
    }
    text += fmt::format("<tr><th scope=\"row\">{}</th><td>{}</td><td class=\"{}\">{}</td></tr>\n",
                        html_text(rows[row].text()), ranks, wrong > 0 ? "bad" : "good",
                        wrong > 0 ? fmt::format("✗ {}", wrong) : "0");
  }
  return text + "</tbody></table></div>\n";
}

}  // namespace

std::string html_ranks(const Json& report) {
  const Json* grid = report.find("grid");
  if (grid == nullptr || !grid->is_object()) return "";
  const std::vector<Json>& cells = items_at(*grid, "cells");
  const std::vector<Json>& rows = items_at(*grid, "rows");
  const std::vector<Json>& columns = items_at(*grid, "columns");
  const std::string& folded = text_at(*grid, "folded");
  const bool sampled = grid->find("sampled")->as_boolean();
  std::string text = "<section class=\"ranks\"><h3>Ranks</h3>\n<p>";
  text +=
      sampled
          ? "✗ marks a cell with one of the ranks that stand for all that are at fault; of the others nothing is said."
          : "✗ marks a cell with a rank that is at fault or hands a wrong gradient to its optimizer.";
  if (!folded.empty()) text += " Each cell stands for " + html_text(folded) + ".";
  text += "</p>\n";
  if (cells.size() > most_cells) return text + table_of_rows(rows, columns.size(), cells) + "</section>\n";
  text += "<div class=\"scroll\"><table class=\"grid\">" + head(columns, "") + "<tbody>\n";
  for (std::size_t row = 0; row < rows.size(); ++row) {
    text += "<tr><th scope=\"row\">" + html_text(rows[row].text()) + "</th>";
    for (std::size_t column = 0; column < columns.size(); ++column) {
      const Json& cell = cells[row * columns.size() + column];
      const bool wrong = !items_at(cell, "wrong").empty();
      text += fmt::format("<td class=\"{}\">{} {}</td>",
                          wrong     ? "bad"
                          : sampled ? "plain"
                                    : "good",
                          wrong     ? "✗"
                          : sampled ? "·"
                                    : "✓",
                          runs_text(items_at(cell, "ranks")));
    }
    text += "</tr>\n";
  }
  return text + "</tbody></table></div>\n</section>\n";
}

std::string html_steps(const Json& report) {
  const std::vector<Json>& timelines = items_at(report, "timelines");
  if (timelines.empty()) return "";
  const std::string& at = text_at(report, "timelines_at");
  return "<section class=\"tables\"><details><summary>Every step as a table</summary>\n" +
         (at.empty() ? ""
                     : "<p>The ranks of a large layout are not replayed one by one. This is the same file at " +
                           html_text(at) + ", with the same outcome.</p>\n") +
         "<p>* handed to the optimizer of this cell's rank, ✗ wrong, ~ stale: another rank owns it</p>\n" +
         timeline_tables(timelines.front()) + "</details></section>\n";
}

}  // namespace lockstep::report
