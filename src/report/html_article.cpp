// SPDX-License-Identifier: Apache-2.0
#include "src/report/html_article.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "src/report/blame_text.h"
#include "src/report/clean_text.h"
#include "src/report/html.h"

namespace lockstep::report {

namespace {

bool is_word(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
           c == '.';
  });
}

bool is_number(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

/// "OWNER/REPOSITORY#N" as a link to the place where it can be read.
std::string source_link(const std::string& source) {
  std::string address;
  const std::size_t slash = source.find('/'), hash = source.find('#');
  if (source.starts_with("https://")) {
    address = source;
  } else if (slash < hash && hash != std::string::npos && is_word(source.substr(0, slash)) &&
             is_word(source.substr(slash + 1, hash - slash - 1)) && is_number(source.substr(hash + 1))) {
    address = fmt::format("https://github.com/{}/issues/{}", source.substr(0, hash), source.substr(hash + 1));
  }
  if (address.empty()) return html_text(source);
  return fmt::format("<a href=\"{}\">{}</a>", html_text(address), html_text(source));
}

std::string title_of(const Json& report) {
  for (const char* key : {"title", "scenario", "file"}) {
    if (!text_at(report, key).empty()) return html_text(text_at(report, key));
  }
  return "a scenario";
}

std::string engines_text(const Json& report) {
  std::vector<std::string> words;
  for (const Json::Member& engine : report.find("engines")->members()) {
    const std::string& verdict = engine.value.is_object() ? text_at(engine.value, "verdict") : engine.value.text();
    const std::string& sample = text_at(engine.value, "elements");
    words.push_back(fmt::format(
        "{} {}{}", engine.key, verdict,
        sample.empty() ? "" : fmt::format(" (sampled, {} of {} elements)", sample, text_at(engine.value, "of"))));
  }
  return html_text(fmt::format("{}", fmt::join(words, ", ")));
}

const Json* expected_of(const Json& report) {
  const Json* expected = report.find("expected");
  return expected != nullptr && expected->is_boolean() ? expected : nullptr;
}

std::string head(const Json& report) {
  std::string text = fmt::format("<header><p>{}</p>\n<h2 tabindex=\"-1\">{}</h2>\n<p class=\"meta\"><code>{}</code>",
                                 html_verdict(report), title_of(report), html_text(text_at(report, "file")));
  if (!text_at(report, "source").empty()) text += " · " + source_link(text_at(report, "source"));
  text += "</p>\n";
  if (!text_at(report, "summary").empty()) {
    text +=
        fmt::format("<p class=\"meta\">{}<br>{}</p>\n", html_text(text_at(report, "summary")), engines_text(report));
  }
  if (const Json* expected = expected_of(report)) {
    text += expected->as_boolean() ? "<p class=\"meta\">✓ comes out as the file expects</p>\n"
                                   : "<p class=\"meta unmet\">✗ does not come out as the file expects</p>\n";
    if (!items_at(report, "unmet").empty()) {
      text += "<ul class=\"unmet\">";
      for (const Json& sentence : items_at(report, "unmet")) text += "<li>" + html_text(sentence.text()) + "</li>";
      text += "</ul>\n";
    }
  }
  for (const Json& note : items_at(report, "notes"))
    text += "<p class=\"meta\">note: " + html_text(note.text()) + "</p>\n";
  if (!text_at(report, "disagreement").empty())
    text += "<p class=\"unmet\">engines disagree: " + html_text(text_at(report, "disagreement")) + "</p>\n";
  return text + "</header>\n";
}

/// What edits make it right, and how sure that is.
std::string repair_item(const Json& repair) {
  std::string text = "<li>Right with";
  for (const Json& edit : items_at(repair, "edits")) text += " <code>" + html_text(one_line(edit)) + "</code>";
  std::vector<std::string> words;
  for (const Json& engine : items_at(repair, "verified")) words.push_back(engine.text());
  const Json* sizes = repair.find("sizes");
  if (!words.empty())
    text += fmt::format("<br><small>verified by {}", html_text(fmt::format("{}", fmt::join(words, ", "))));
  if (!words.empty() && sizes != nullptr)
    text +=
        fmt::format("; right at {} of {} sizes that were tried", text_at(*sizes, "right"), text_at(*sizes, "tried"));
  return text + (words.empty() ? "</li>\n" : "</small></li>\n");
}

std::string blame(const Json& report) {
  const Json* diagnosis = report.find("diagnosis");
  if (diagnosis == nullptr || (items_at(*diagnosis, "blame").empty() && items_at(*diagnosis, "repairs").empty()))
    return "";
  std::string text = "<section class=\"blame\"><h3>The step at fault</h3>\n<ul>\n";
  for (const Json& step : items_at(*diagnosis, "blame")) {
    text +=
        fmt::format("<li><code>{}</code> {}</li>\n", html_text(text_at(step, "step")), html_text(text_at(step, "why")));
  }
  for (const Json& repair : items_at(*diagnosis, "repairs")) text += repair_item(repair);
  text += "</ul>\n";
  if (const std::vector<Json>& unnoticed = items_at(*diagnosis, "unnoticed"); !unnoticed.empty()) {
    text += "<p>";
    for (const Json& sentence : unnoticed)
      text += (&sentence == &unnoticed.front() ? "" : " ") + html_text(sentence.text());
    text += "</p>\n";
  }
  return text + "</section>\n";
}

/// The text of the scenario, the lines to look at first marked.
std::string scenario_section(const Json& report) {
  const std::string& text = text_at(report, "text");
  if (text.empty()) return "";
  std::string out =
      "<section class=\"text\"><details open><summary>The scenario</summary>\n<pre tabindex=\"0\" "
      "aria-label=\"Text of the scenario\">\n";
  long long line = 1;
  for (std::size_t begin = 0; begin < text.size(); ++line) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string written = html_text(std::string_view(text).substr(begin, end - begin));
    std::string what;
    bool marked = false;
    for (const Json& mark : items_at(report, "marks")) {
      if (line < number_of(*mark.find("line")) || line > number_of(*mark.find("last_line"))) continue;
      marked = true;
      if (line == number_of(*mark.find("line"))) what = text_at(mark, "what");
    }
    if (marked) {
      out += "<mark>" + written + "</mark>";
      if (!what.empty()) out += fmt::format("<b> ← line {}: {}</b>", line, html_text(what));
    } else {
      out += written;
    }
    out += "\n";
    begin = end + 1;
  }
  return out + "</pre></details></section>\n";
}

std::string script_element(const Json& object) {
  return "<script type=\"application/json\">" + script_json(object) + "</script>\n";
}

std::string grid_data(const Json& report) {
  Json object = Json::object();
  if (const Json* grid = report.find("grid")) object.set("grid", *grid);
  return script_element(object);
}

/// The rest of what the script reads: nothing that stands in the page already.
std::string timeline_data(const Json& report) {
  Json object = Json::object();
  for (const char* key : {"file", "scenario", "verdict", "timelines_at", "timelines"}) {
    if (const Json* value = report.find(key)) object.set(key, *value);
  }
  if (const Json* diagnosis = report.find("diagnosis")) {
    if (const Json* steps = diagnosis->find("blame")) object.set("blame", *steps);
  }
  return script_element(object);
}

}  // namespace

std::string html_verdict(const Json& report) {
  const std::string& verdict = text_at(report, "verdict");
  const std::string words = verdict == "invalid_collective" ? "invalid collective" : verdict;
  return fmt::format("<span class=\"verdict {}\">{} {}</span>", verdict, verdict == "match" ? "✓" : "✗", words);
}

std::string html_row(const Json& report, bool linked) {
  const std::string& file = text_at(report, "file");
  const Json* expected = expected_of(report);
  const std::string expectation = expected == nullptr ? "none" : expected->as_boolean() ? "met" : "unmet";
  std::string steps;
  if (const Json* diagnosis = report.find("diagnosis")) {
    for (const Json& step : items_at(*diagnosis, "blame"))
      steps += (steps.empty() ? "" : ", ") + html_text(text_at(step, "step"));
  }
  const std::string title =
      linked ? fmt::format("<a href=\"#file={}\">{}</a>", url_text(file), title_of(report)) : title_of(report);
  return fmt::format(
      "<tr data-verdict=\"{}\" "
      "data-expected=\"{}\"><td>{}</td><td>{}<br><small>{}</small></td><td>{}</td><td>{}</td></tr>\n",
      html_text(text_at(report, "verdict")), expectation, html_verdict(report), title, html_text(file), steps,
      expectation == "met"     ? "✓"
      : expectation == "unmet" ? "✗ not as expected"
                               : "–");
}

std::vector<std::string> html_article(const Json& report, Detail detail, bool data) {
  if (detail == Detail::row) return {};
  std::string first = fmt::format("<article id=\"file={}\" data-file=\"{}\">\n{}{}", url_text(text_at(report, "file")),
                                  html_text(text_at(report, "file")), head(report), blame(report));
  if (data) first += "<section class=\"stage\" hidden></section>\n";
  std::vector<std::string> parts = {first + html_findings(report, detail < Detail::whole)};
  parts.push_back(detail >= Detail::ranks ? html_ranks(report) : "");
  parts.push_back(detail >= Detail::whole ? html_steps(report) : "");
  parts.push_back(detail >= Detail::text ? scenario_section(report) : "");
  parts.push_back(data ? grid_data(report) : "");
  parts.push_back(data ? timeline_data(report) : "");
  if (detail < Detail::whole) {
    parts.back() += fmt::format("<p class=\"left-out\">Without scripts, left out here: {}</p>\n",
                                detail < Detail::ranks  ? "ranks, steps and the text of the scenario."
                                : detail < Detail::text ? "steps and the text of the scenario."
                                                        : "steps.");
  }
  parts.back() += "</article>\n";
  return parts;
}

}  // namespace lockstep::report
