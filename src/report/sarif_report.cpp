// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "src/base/counted.h"
#include "src/report/clean_text.h"
#include "src/report/finding_reporters.h"
#include "src/report/rule_findings.h"

namespace lockstep::report {

namespace {

constexpr std::size_t most_results = 25000;
constexpr std::size_t most_lines_of_message = 24;

void write_message(JsonWriter& json, std::string_view text) {
  json.begin_object(true);
  json.key("text").string(text);
  json.end_object();
}

/// A path as a URI reference.
std::string uri_of(std::string_view path) { return (path.starts_with('/') ? "file://" : "") + url_text(path); }

/// What GitHub shows beside a finding.
std::string rule_help(const Rule& rule, std::string_view docs_url) {
  std::string text = fmt::format("{}\n\n{}\n\n**What mends it.** {}", rule.summary, rule.explanation, rule.repair);
  if (const std::string url = rule_url(rule, docs_url); !url.empty())
    text += fmt::format("\n\n[{} with a scenario]({})", rule.id, url);
  return text;
}

void write_location(JsonWriter& json, const FileStretch& place) {
  json.begin_object();
  json.key("physicalLocation").begin_object();
  json.key("artifactLocation").begin_object(true);
  json.key("uri").string(uri_of(std::filesystem::path(place.file).lexically_normal().generic_string()));
  json.end_object();
  json.key("region").begin_object(true);
  json.key("startLine").number(place.line);
  json.key("startColumn").number(place.column);
  json.key("endLine").number(place.line);
  json.key("endColumn").number(std::max(place.end_column, place.column + 1));
  json.end_object();
  json.end_object();
  json.end_object();
}

void write_result(JsonWriter& json, const RuleFinding& finding) {
  json.begin_object();
  json.key("ruleId").string(finding.rule().id);
  json.key("ruleIndex").number(static_cast<int>(finding.kind));
  json.key("level").string("error");
  std::string text = finding.message;
  for (std::size_t line = 0; line < std::min(finding.lines.size(), most_lines_of_message); ++line)
    text += "\n" + finding.lines[line];
  if (finding.lines.size() > most_lines_of_message)
    text += fmt::format("\nand {}", counted(finding.lines.size() - most_lines_of_message, "more line"));
  json.key("message");
  write_message(json, clean_text(text));
  json.key("locations").begin_array();
  write_location(json, finding.place);
  json.end_array();
  json.key("partialFingerprints").begin_object(true);
  json.key("primaryLocationLineHash");
  const bool numbered = finding.fingerprint.find(':') != std::string::npos;
  json.string(numbered ? finding.fingerprint : finding.fingerprint + ":1");
  json.end_object();
  json.end_object();
}

}  // namespace

SarifReporter::SarifReporter(const ReportOptions& options, Write write)
    : FindingReporter(options), json_(std::move(write)) {
  json_.begin_object();
  json_.key("$schema").string("https://json.schemastore.org/sarif-2.1.0.json");
  json_.key("version").string("2.1.0");
  json_.key("runs").begin_array();
  json_.begin_object();
  json_.key("tool").begin_object();
  json_.key("driver").begin_object();
  json_.key("name").string("lockstep");
  json_.key("semanticVersion").string(LOCKSTEP_VERSION);
  json_.key("rules");
  write_rules();
  json_.end_object();
  json_.end_object();
  json_.key("automationDetails").begin_object(true);
  json_.key("id").string("lockstep/");
  json_.end_object();
  json_.key("columnKind").string("unicodeCodePoints");
  json_.key("results").begin_array();
}

void SarifReporter::write_rules() {
  json_.begin_array();
  for (const Rule& rule : rules()) {
    if (rule.id.empty()) continue;
    json_.begin_object();
    json_.key("id").string(rule.id);
    json_.key("name").string(rule.name);
    json_.key("shortDescription");
    write_message(json_, rule.summary);
    json_.key("fullDescription");
    write_message(json_, rule.explanation);
    json_.key("help").begin_object();
    json_.key("text").string(rule.repair);
    json_.key("markdown").string(rule_help(rule, options().docs_url));
    json_.end_object();
    if (const std::string url = rule_url(rule, options().docs_url); !url.empty()) {
      json_.key("helpUri").string(url);
    }
    json_.key("defaultConfiguration").begin_object(true);
    json_.key("level").string("error");
    json_.end_object();
    json_.key("properties").begin_object(true);
    json_.key("precision").string("very-high");
    json_.end_object();
    json_.end_object();
  }
  json_.end_array();
}

void SarifReporter::report(const FileFindings& file) {
  counts_.add(file);
  successful_ = successful_ && !file.failed;
  for (const RuleFinding& finding : file.findings) {
    if (written_ == most_results) {
      ++left_out_;
      continue;
    }
    ++written_;
    write_result(json_, finding);
  }
}

void SarifReporter::finish() {
  json_.end_array();
  json_.key("invocations").begin_array();
  json_.begin_object();
  json_.key("executionSuccessful").boolean(successful_);
  json_.key("toolExecutionNotifications").begin_array();
  const auto notify = [&](std::string_view level, const std::string& text) {
    json_.begin_object();
    json_.key("level").string(level);
    json_.key("message");
    write_message(json_, text);
    json_.end_object();
  };
  notify("note", counts_.sentence());
  if (left_out_ > 0)
    notify("warning", fmt::format("{} left out: a run takes {}.",
                                  counted(left_out_, "finding") + (left_out_ == 1 ? " is" : " are"), most_results));
  json_.end_array();
  json_.end_object();
  json_.end_array();
  json_.end_object();
  json_.end_array();
  json_.end_object();
  json_.finish();
}

}  // namespace lockstep::report
