// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>

#include "src/base/counted.h"
#include "src/report/elide.h"
#include "src/report/html.h"
#include "src/report/html_article.h"

namespace lockstep::report {

namespace {

/// How many rows, pieces in a row, and sentences are listed.
struct Most {
  std::size_t rows = 12, pieces = 8, sentences = 24;
};

std::string code_element(const std::string& text) { return "<code>" + html_text(text) + "</code>"; }

std::string list_of(const std::vector<Json>& numbers) {
  std::vector<std::string> words;
  for (const Json& number : numbers) {
    if (words.size() == 8) {
      words.push_back(fmt::format("… ({} in all)", numbers.size()));
      break;
    }
    words.push_back(number.text());
  }
  return fmt::format("{}", fmt::join(words, ", "));
}

std::string ranks_text(const Json& entry) {
  const Json* one = entry.find("rank");
  return one != nullptr ? "rank " + one->text() : "ranks " + list_of(items_at(entry, "ranks"));
}

std::string interval_text(const Json& interval) {
  return fmt::format("[{}, {})", interval.items()[0].text(), interval.items()[1].text());
}

std::string formula(const std::string& text) { return code_element(elided(text, widest_in_page)); }

/// The cells of one parameter: a row for each piece. The first row lacks its first cell, the names.
std::vector<std::string> rows_of(const Json& parameter) {
  std::vector<std::string> rows;
  const Json* reference = parameter.find("reference");
  const std::string expected = reference == nullptr ? "" : text_at(*reference, "formula");
  for (const Json& rank : items_at(parameter, "ranks")) {
    if (text_at(rank, "verdict") != "mismatch") continue;
    for (const Json& piece : items_at(rank, "pieces")) {
      if (text_at(piece, "verdict") != "mismatch") continue;
      const std::string ratio = text_at(piece, "ratio");
      rows.push_back(fmt::format(
          "<td>{}<br><small>elements {}</small></td><td class=\"got\">{}{}</td><td>{}</td>", ranks_text(rank),
          interval_text(*piece.find("elements")), formula(text_at(piece, "formula")),
          ratio.empty() ? "" : fmt::format("<br><small>{} times what is right</small>", ratio), formula(expected)));
    }
    for (const Json& unowned : items_at(rank, "unowned")) {
      rows.push_back(
          fmt::format("<td>{}<br><small>elements {}</small></td><td class=\"got\">nobody hands it to an "
                      "optimizer</td><td>{}</td>",
                      ranks_text(rank), interval_text(unowned), formula(expected)));
    }
  }
  if (rows.empty() && !items_at(parameter, "unowned").empty())
    rows.push_back("<td>–</td><td class=\"got\">nobody hands it to an optimizer</td><td>" + formula(expected) +
                   "</td>");
  return rows;
}

std::string names_cell(const std::vector<std::string>& names) {
  std::string text = code_element(names.front());
  if (names.size() == 2) text += "<br>" + code_element(names[1]);
  if (names.size() > 2) {
    text += fmt::format("<details><summary>and {} more</summary>", names.size() - 1);
    for (std::size_t index = 1; index < names.size() && index < 40; ++index)
      text += code_element(names[index]) + "<br>";
    if (names.size() > 40) text += fmt::format("… {} more", names.size() - 40);
    text += "</details>";
  }
  return text;
}

std::string parameters_table(const Json& report, const Most& most) {
  // Parameters that are wrong alike stand in one row.
  std::vector<std::pair<std::vector<std::string>, std::vector<std::string>>> alike;
  std::map<std::string, std::size_t> index;
  for (const Json& parameter : items_at(report, "parameters")) {
    if (text_at(parameter, "verdict") != "mismatch") continue;
    std::vector<std::string> rows = rows_of(parameter);
    if (rows.empty()) continue;
    const auto [place, fresh] = index.emplace(fmt::format("{}", fmt::join(rows, "|")), alike.size());
    if (fresh) alike.emplace_back(std::vector<std::string>(), std::move(rows));
    alike[place->second].first.push_back(text_at(parameter, "name"));
  }
  if (alike.empty()) return "";
  std::string text =
      "<section><h3>Got and expected</h3>\n<div class=\"scroll\"><table class=\"findings\"><thead><tr><th "
      "scope=\"col\">Parameter</th><th scope=\"col\">On</th><th scope=\"col\">Got</th><th scope=\"col\">One device "
      "has</th></tr></thead><tbody>\n";
  for (std::size_t row = 0; row < alike.size() && row < most.rows; ++row) {
    const auto& [names, pieces] = alike[row];
    const std::size_t shown = std::min(pieces.size(), most.pieces), more = pieces.size() - shown;
    text += fmt::format("<tr><th scope=\"row\" rowspan=\"{}\">{}</th>", shown + (more > 0), names_cell(names));
    for (std::size_t piece = 0; piece < shown; ++piece) text += (piece > 0 ? "<tr>" : "") + pieces[piece] + "</tr>\n";
    if (more > 0) text += fmt::format("<tr><td colspan=\"3\">… {}</td></tr>\n", counted(more, "more piece"));
  }
  text += "</tbody></table></div>\n";
  if (alike.size() > most.rows)
    text += fmt::format("<p>{} more that are wrong in other ways are left out.</p>\n", alike.size() - most.rows);
  return text + "</section>\n";
}

std::string sentences(const std::string& title, const std::vector<std::string>& list, const Most& most) {
  if (list.empty()) return "";
  std::string text = "<section><h3>" + title + "</h3>\n<ul>\n";
  for (std::size_t index = 0; index < list.size() && index < most.sentences; ++index)
    text += "<li>" + list[index] + "</li>\n";
  text += "</ul>\n";
  if (list.size() > most.sentences) text += fmt::format("<p>… {} more</p>\n", list.size() - most.sentences);
  return text + "</section>\n";
}

std::vector<std::string> stuck_sentences(const Json& report) {
  std::vector<std::string> list;
  for (const Json& stuck : items_at(report, "stuck")) {
    const std::string rank = "rank " + text_at(stuck, "rank");
    if (stuck.find("waits_in") != nullptr) {
      list.push_back(fmt::format("{} waits in {} for rank {}", rank, code_element(text_at(stuck, "waits_in")),
                                 list_of(items_at(stuck, "for"))));
    } else if (stuck.find("calls") != nullptr) {
      list.push_back(fmt::format("{} calls {} with rank {} and brings {}", rank, code_element(text_at(stuck, "calls")),
                                 list_of(items_at(stuck, "with")), html_text(text_at(stuck, "brings"))));
    } else {
      const std::string& step = text_at(stuck, "step");
      list.push_back(fmt::format("{}: {} touches {} while {} is in flight", rank,
                                 step.empty() ? "the end of its list" : code_element(step),
                                 html_text(text_at(stuck, "touches")), code_element(text_at(stuck, "in_flight"))));
    }
  }
  return list;
}

}  // namespace

std::string html_findings(const Json& report, bool brief) {
  const Most most = brief ? Most{2, 1, 3} : Most{};
  std::vector<std::string> norms, errors;
  for (const Json& norm : items_at(report, "norm")) {
    norms.push_back(fmt::format("{} on rank {}: counted {}, expected {}", code_element(text_at(norm, "parameter")),
                                text_at(norm, "rank"), html_text(text_at(norm, "counted")),
                                html_text(text_at(norm, "expected"))));
  }
  for (const Json& error : items_at(report, "errors")) {
    errors.push_back(fmt::format("line {}, column {}: {}", text_at(error, "line"), text_at(error, "column"),
                                 html_text(text_at(error, "message"))));
  }
  return parameters_table(report, most) + sentences("Who is stuck", stuck_sentences(report), most) +
         sentences("The gradient norm", norms, most) + sentences("Mistakes in the file", errors, most);
}

}  // namespace lockstep::report
