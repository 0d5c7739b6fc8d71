// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "src/base/at.h"
#include "src/cli/engine_jobs.h"
#include "src/cli/files.h"
#include "src/cli/options.h"
#include "src/cli/output.h"
#include "src/cli/results.h"
#include "src/report/clean_text.h"
#include "src/report/style.h"

namespace lockstep::cli {

namespace {

struct TestArguments : CommonOptions {
  std::vector<std::string> paths;
};

/// What `test` says of one file.
struct Outcome {
  std::string_view word;  // ok, FAIL, skip
  int status = exit_right;
  std::vector<std::string> details;  // lines
};

/// One sentence on what came out; all of it is a check's to say.
std::string first_wrong(const CheckResult& result) {
  const BufferDivergence& divergence = result.divergences.front();
  const Model& model = result.scenario->schedule->model;
  const LocalBuffer& buffer = model.local(divergence.rank).buffers[at(divergence.buffer)];
  const std::string& name = model.parameters()[at(buffer.parameters.front())].name;
  return fmt::format("{} is wrong on rank {}: {}{}", name, divergence.rank,
                     divergence.point.step.empty() ? "" : fmt::format("step {} ", divergence.point.step),
                     divergence.point.why);
}

Outcome outcome_of(const CheckResult& result) {
  if (!result.disagreement.empty()) return {"FAIL", exit_failure, {result.disagreement}};
  const bool expects = result.scenario != nullptr && result.scenario->expect;
  const bool expects_error =
      result.error_expected || (expects && result.scenario->expect->verdict == "error" && !result.machine_failed);
  if (result.verdict == Verdict::error && !expects_error) {
    Outcome outcome{"FAIL", result.machine_failed ? exit_failure : exit_usage, {}};
    for (const Diagnostic& error : result.errors) outcome.details.push_back(render(error));
    return outcome;
  }
  if (!expects && !expects_error) return {"skip", exit_right, {"the file has no `expect`"}};
  std::vector<std::string> unmet = unmet_expectations(result);
  if (unmet.empty()) return {"ok", exit_right, {}};
  if (!result.divergences.empty()) unmet.push_back(first_wrong(result));
  unmet.push_back(fmt::format("`lockstep check {}` shows it whole", argument_for(result.file)));
  return {"FAIL", exit_wrong, std::move(unmet)};
}

/// Each line of `text` behind six spaces.
std::string indented(const std::string& text) {
  std::string result;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    result += "      " + text.substr(begin, end - begin) + "\n";
    begin = end + 1;
  }
  return result;
}

struct Counts {
  int passed = 0, failed = 0, skipped = 0;

  void add(const Outcome& outcome) { ++(outcome.word == "ok" ? passed : outcome.word == "skip" ? skipped : failed); }
  std::string text() const {
    return fmt::format("{} passed, {} failed{}\n", passed, failed,
                       skipped > 0 ? fmt::format(", {} skipped", skipped) : "");
  }
};

class TextSummary {
 public:
  TextSummary(const TestArguments& arguments)
      : arguments_(arguments), output_(arguments.output), style_(use_color(arguments, output_.terminal())) {}

  void add(const CheckResult& result, const Outcome& outcome) {
    if (arguments_.quiet && outcome.word != "FAIL") return;
    const std::string name = result.scenario == nullptr ? "" : result.scenario->name + "  ";
    const std::string word = report::padded(outcome.word, 4);
    const std::string colored = outcome.word == "ok"     ? style_.good(word)
                                : outcome.word == "FAIL" ? style_.bad(word)
                                                         : style_.faint(word);
    output_.write(fmt::format("{}  {}{}{}\n", colored, name, report::one_line_text(result.file),
                              outcome.word == "skip" ? ": " + outcome.details.front() : ""));
    if (outcome.word == "FAIL") {
      for (const std::string& detail : outcome.details) output_.write(indented(detail));
    }
    output_.flush();
  }

  void finish(const Counts& counts) {
    output_.write(counts.text());
    output_.commit();
  }

 private:
  const TestArguments& arguments_;
  Output output_;
  report::Style style_;
};

int test(const TestArguments& arguments, CheckOptions check, const std::vector<std::string>& files) {
  const bool text = arguments.format == "text";
  check.blame_where_expected = text && !arguments.has_reports();
  check.hashes = !check.blame_where_expected;
  std::optional<TextSummary> summary;
  if (text) summary.emplace(arguments);
  ReportSet reports(arguments, files.size() > 1, {!text, true});
  Counts counts;
  int status = exit_right;
  bool judged = false;
  check_files(files, check, [&](const CheckResult& result) {
    const Outcome outcome = outcome_of(result);
    judged = judged || outcome.word != "skip";
    status = std::max(status, outcome.status);
    counts.add(outcome);
    if (summary) summary->add(result, outcome);
    reports.add(result);
  });
  reports.keep_what_was_read();
  if (summary) summary->finish(counts);
  reports.finish();
  // Who watches a gate whose report goes to a file sees how it went all the same.
  if (!arguments.output.empty() && !arguments.quiet) tell(counts.text());
  return judged ? gate_status(arguments, status) : exit_nothing;
}

int run(TestArguments& arguments) {
  return with_engines(
      arguments, arguments.paths,
      [&](const CheckOptions& check, const std::vector<std::string>& files) { return test(arguments, check, files); });
}

}  // namespace

Command test_command() {
  const auto arguments = std::make_shared<TestArguments>();
  Command command;
  command.name = "test";
  command.summary = "Check that scenarios come out as their `expect` says.";
  command.text =
      "Replays each scenario and compares what comes out with the file's `expect`: one line per file, every difference "
      "in full, and "
      "a summary. A file without `expect` is skipped and counted. Exit status 1 if an expectation fails, 2 if a file "
      "is not valid, "
      "4 if no file with an `expect` was found.";
  command.examples = {
      {"lockstep test scenarios/", "every scenario of a folder and the folders in it"},
      {"lockstep test -q buggy.json fixed.json", "two files; only what fails and the summary"},
      {"lockstep test scenarios/ --report json=report.json", "text to read, and a report beside it"},
      {"lockstep test -f github --summary scenarios/", "a GitHub job: annotations, and a summary of the job"},
  };
  command.options = join({{{"FILES", "", std::string(files_help), {}, &arguments->paths}},
                          arguments->output_rows(report_kinds()),
                          arguments->report_rows(),
                          arguments->gate_rows(),
                          arguments->engine_rows(),
                          arguments->job_rows()});
  command.options.push_back(include_row());
  command.uses_loops = true;
  command.run = [arguments] { return run(*arguments); };
  return command;
}

}  // namespace lockstep::cli
