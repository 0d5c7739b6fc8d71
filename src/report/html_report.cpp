// SPDX-License-Identifier: Apache-2.0
#include "src/report/html_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "src/report/html.h"
#include "src/report/html_article.h"
#include "src/report/json_report.h"

namespace lockstep {

namespace {

/// What a page may take up in all. Some services show no larger file.
constexpr std::size_t most_bytes = 985'000;

/// Who opens a page looks first for what did not come out as expected, then for what is wrong.
int priority(const Json& report) {
  const Json* expected = report.find("expected");
  if (expected != nullptr && expected->is_boolean() && !expected->as_boolean()) return 0;
  return text_at(report, "verdict") == "match" ? 2 : 1;
}

std::string summary(const std::vector<Json>& reports) {
  std::map<std::string, std::size_t> counts;
  std::size_t unmet = 0;
  for (const Json& report : reports) {
    ++counts[text_at(report, "verdict")];
    unmet += priority(report) == 0 ? 1 : 0;
  }
  std::string text = fmt::format("{} {}", reports.size(), reports.size() == 1 ? "scenario" : "scenarios");
  for (const auto& [verdict, count] : counts) text += fmt::format(" · {} {}", count, verdict);
  if (unmet > 0) text += fmt::format(" · {} not as expected", unmet);
  return html_text(text);
}

std::string list(const std::vector<Json>& reports, const std::vector<Detail>& details) {
  if (reports.size() < 2) return "";
  std::string text =
      "<section id=\"list\"><h2>Scenarios</h2>\n<div id=\"filters\"></div>\n<table class=\"list\"><thead><tr><th "
      "scope=\"col\">Verdict</th><th scope=\"col\">Scenario</th><th scope=\"col\">Goes wrong in</th><th "
      "scope=\"col\">As expected</th></tr></thead><tbody>\n";
  for (std::size_t index = 0; index < reports.size(); ++index)
    text += html_row(reports[index], details[index] != Detail::row);
  text += "</tbody></table>\n";
  const auto below = [&](Detail detail) {
    return std::count_if(details.begin(), details.end(), [&](Detail one) { return one < detail; });
  };
  if (below(Detail::text) > 0) {
    text += fmt::format(
        "<p class=\"left-out\" id=\"left-out\">To keep this page under 1 MB, {} of {} scenarios stand in the list "
        "alone, "
        "{} are shown without their ranks and steps, and {} without their text. Those that are wrong come first. "
        "<code>lockstep report</code> with fewer files shows all.</p>\n",
        below(Detail::findings), reports.size(), below(Detail::ranks) - below(Detail::findings),
        below(Detail::text) - below(Detail::ranks));
  }
  return text + "</section>\n";
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

/// The articles in as much detail as the space allows. What is wrong goes first, and of that what did not come out as
/// expected; what is right may stand in the list alone.
class Articles {
 public:
  Articles(const std::vector<Json>& reports, std::size_t space)
      : reports_(reports), space_(space), details_(reports.size(), Detail::row), texts_(reports.size()) {
    for (int wrong = 1; wrong >= 0; --wrong) {
      for (const Detail detail : {Detail::findings, Detail::ranks, Detail::text}) raise(wrong == 1, detail);
    }
    raise(true, Detail::whole);
    raise(false, Detail::whole);
  }

  /// By report.
  const std::vector<Detail>& details() const { return details_; }
  std::string text() const { return fmt::format("{}", fmt::join(texts_, "")); }

 private:
  void raise(bool wrong, Detail detail) {
    std::vector<std::size_t> order(reports_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return priority(reports_[a]) < priority(reports_[b]); });
    for (const std::size_t index : order) {
      // Nothing is skipped: a timeline without its findings would be worth little.
      if (static_cast<int>(details_[index]) != static_cast<int>(detail) - 1) continue;
      if ((priority(reports_[index]) < 2) != wrong) continue;
      std::string text = html_article(reports_[index], detail);
      // A single scenario is shown whole, however large it is: nothing else would be left to look at.
      if (reports_.size() > 1 && used_ - texts_[index].size() + text.size() > space_) continue;
      used_ = used_ - texts_[index].size() + text.size();
      texts_[index] = std::move(text);
      details_[index] = detail;
    }
  }

  const std::vector<Json>& reports_;
  std::size_t space_ = 0, used_ = 0;
  std::vector<Detail> details_;
  std::vector<std::string> texts_;
};

}  // namespace

void HtmlReporter::add(const CheckResult& result) {
  std::string text;
  JsonWriter json([&](std::string_view part) { text += part; });
  write_json_result(result, false, json, true);
  json.finish();
  reports_.push_back(std::move(text));
}

void HtmlReporter::finish() {
  std::vector<Json> reports;
  for (const std::string& text : reports_) {
    Diagnostics diagnostics;
    reports.push_back(parse_json(std::make_shared<const Source>(Source{"report", text}), diagnostics));
    if (!diagnostics.empty())
      throw InternalError("a JSON report cannot be read: " + diagnostics.sorted().front().message);
  }
  const auto& files = embedded_page();
  std::map<std::string, std::string> texts = {
      {"style", files.at("page.css")},
      {"script", files.at("page.js")},
      {"summary", summary(reports)},
      {"list", list(reports, std::vector<Detail>(reports.size(), Detail::findings))},
      {"articles", ""}};
  const std::size_t frame = filled(files.at("page.html"), texts).size();
  const Articles articles(reports, most_bytes - std::min(most_bytes, frame));
  texts["list"] = list(reports, articles.details());
  texts["articles"] = articles.text();
  write_(filled(files.at("page.html"), texts));
}

}  // namespace lockstep
