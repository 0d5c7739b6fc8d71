// SPDX-License-Identifier: Apache-2.0
#include "src/report/html_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "src/base/counted.h"
#include "src/report/html.h"
#include "src/report/html_article.h"
#include "src/report/html_run.h"
#include "src/report/json_report.h"
#include "src/report/page_articles.h"

namespace lockstep::report {

namespace {

/// What a page may take up in all. Some services show no larger file.
constexpr std::size_t most_bytes = 985'000;

std::string summary(const std::vector<Json>& reports) {
  std::map<std::string, std::size_t> counts;
  std::size_t unmet = 0;
  for (const Json& report : reports) {
    ++counts[text_at(report, "verdict")];
    unmet += page_priority(report) == 0 ? 1 : 0;
  }
  std::string text = counted(reports.size(), "scenario");
  for (const auto& [verdict, count] : counts) text += fmt::format(" · {} {}", count, verdict);
  if (unmet > 0) text += fmt::format(" · {} not as expected", unmet);
  return html_text(text);
}

/// How much of the scenarios can be read without scripts, and whether the rest is packed.
std::string left_out(const PageArticles& shown) {
  const std::size_t all = shown.details.size();
  const auto below = [&](Detail detail) {
    return std::count_if(shown.details.begin(), shown.details.end(), [&](Detail one) { return one < detail; });
  };
  if (below(Detail::whole) == 0) return "";
  std::string text = fmt::format(
      "<p class=\"left-out\" id=\"left-out\">To keep this page under 1 MB, {} of {} scenarios are packed, and a script "
      "unpacks them. Without it {} stand in the list alone, {} are shown without their ranks and {} without their text "
      "or "
      "steps; those that are wrong come first.",
      shown.packed, all, below(Detail::findings), below(Detail::ranks) - below(Detail::findings),
      below(Detail::whole) - below(Detail::ranks));
  if (shown.packed < all) text += fmt::format(" There is no room for more than that of {}.", all - shown.packed);
  return text + " <code>lockstep report</code> with fewer files shows all.</p>\n";
}

std::string list(const std::vector<Json>& reports, const PageArticles& shown) {
  if (reports.size() < 2) return "";
  std::string text =
      "<section id=\"list\"><h2>Scenarios</h2>\n<div id=\"filters\"></div>\n<table class=\"list\"><thead><tr><th "
      "scope=\"col\">Verdict</th><th scope=\"col\">Scenario</th><th scope=\"col\">Goes wrong in</th><th "
      "scope=\"col\">As expected</th></tr></thead><tbody>\n";
  for (std::size_t index = 0; index < reports.size(); ++index)
    text += html_row(reports[index], shown.details[index] != Detail::row);
  return text + "</tbody></table>\n" + left_out(shown) + "</section>\n";
}

/// The template with each `@NAME@` replaced once; texts that are put in are not searched.
std::string filled(const std::string& page, const std::map<std::string, std::string>& texts) {
  std::string out;
  for (std::size_t at = 0; at < page.size();) {
    const std::size_t open = page.find('@', at);
    const std::size_t close = open == std::string::npos ? open : page.find('@', open + 1);
    if (close == std::string::npos) return out + page.substr(at);
    const auto text = texts.find(page.substr(open + 1, close - open - 1));
    out += page.substr(at, (text == texts.end() ? open + 1 : open) - at);
    if (text != texts.end()) out += text->second;
    at = text == texts.end() ? open + 1 : close + 1;
  }
  return out;
}

constexpr std::string_view navigation = "<nav id=\"navigation\" aria-label=\"Scenarios\"></nav>";

/// The scripts as one, in the order in which they use each other.
std::string script(const std::map<std::string, std::string>& files) {
  std::string text =
      "<script>\n"
      "// Reads the JSON that is embedded beside each scenario, and nothing else. Without this script the page has the "
      "same\n"
      "// findings as tables, of many scenarios the wrong ones: the rest is packed, and unpacked here.\n"
      "\"use strict\";\n"
      "(() => {\n";
  for (const char* name : {"base.js", "formula.js", "stage.js", "rank_grid.js", "navigation.js"})
    text += files.at(name);
  return text + "})();\n</script>\n";
}

}  // namespace

void HtmlReporter::add(const CheckResult& result) {
  std::string text;
  JsonWriter json([&](std::string_view part) { text += part; });
  write_json_result(result, false, json, true);
  json.finish();
  reports_.push_back(std::move(text));
}

void HtmlReporter::add(const VerifyResult& result) { runs_ += html_run(result); }

void HtmlReporter::finish() { runs_.empty() ? write_scenarios() : write_runs(); }

void HtmlReporter::write_runs() const {
  const auto& files = embedded_page();
  const std::map<std::string, std::string> texts = {{"style", files.at("page.css")},
                                                    {"script", ""},
                                                    {"summary", "A captured run"},
                                                    {"list", ""},
                                                    {"articles", runs_},
                                                    {"navigation", ""},
                                                    {"packed", ""}};
  write_(filled(files.at("page.html"), texts));
}

void HtmlReporter::write_scenarios() const {
  std::vector<Json> reports;
  for (const std::string& text : reports_) {
    Diagnostics diagnostics;
    reports.push_back(parse_json(std::make_shared<const Source>(Source{"report", text}), diagnostics));
    if (!diagnostics.empty())
      throw InternalError("a JSON report cannot be read: " + diagnostics.sorted().front().message);
  }
  const auto& files = embedded_page();
  PageArticles articles;
  articles.details.assign(reports.size(), Detail::findings);
  std::map<std::string, std::string> texts = {
      {"style", files.at("page.css")},        {"script", script(files)}, {"summary", summary(reports)},
      {"list", list(reports, articles)},      {"articles", ""},          {"packed", ""},
      {"navigation", std::string(navigation)}};
  const std::size_t frame = filled(files.at("page.html"), texts).size();
  articles = page_articles(reports, most_bytes - std::min(most_bytes, frame));
  texts["list"] = list(reports, articles);
  texts["articles"] = articles.text;
  texts["packed"] = articles.data;
  write_(filled(files.at("page.html"), texts));
}

}  // namespace lockstep::report
