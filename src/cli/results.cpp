// SPDX-License-Identifier: Apache-2.0
#include "src/cli/results.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <new>

#include "src/base/budget.h"
#include "src/cli/files.h"
#include "src/cli/output.h"
#include "src/report/clean_text.h"

namespace lockstep::cli {

namespace {

/// Where GitHub wants a job's summary.
std::string summary_path() {
  const char* path = std::getenv("GITHUB_STEP_SUMMARY");
  if (path == nullptr || *path == '\0')
    usage_error("--summary appends to the file that $GITHUB_STEP_SUMMARY names, and it names none");
  return path;
}

void append(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::app | std::ios::binary);
  file << text << std::flush;
  if (!file) throw WriteFailure(fmt::format("cannot append to {}", path));
}

}  // namespace

int status_of(const CheckResult& result) {
  if (!result.disagreement.empty() || result.machine_failed) return exit_failure;
  if (result.verdict == Verdict::error) return exit_usage;
  return result.verdict == Verdict::match ? exit_right : exit_wrong;
}

int nothing_found(const std::vector<std::string>& paths) {
  std::string text =
      fmt::format("lockstep: nothing was checked: there is no scenario, in a *.json or *.jsonc file, in {}\n",
                  report::one_line_text(fmt::format("{}", fmt::join(paths, ", "))));
  for (const std::string& path : paths) {
    std::error_code error;
    if (std::filesystem::exists(std::filesystem::path(path) / "rank-00000.jsonl", error))
      text += fmt::format("lockstep: {0} is a captured run: `lockstep verify {0}` judges it\n",
                          report::one_line_text(path));
  }
  tell(text);
  return exit_nothing;
}

int gate_status(const CommonOptions& options, int status) {
  return options.exit_zero && status == exit_wrong ? exit_right : status;
}

NoAnswer no_answer(const std::string& file, std::string_view too_large_for) {
  const std::string head = fmt::format("lockstep: {}: ", report::one_line_text(file));
  const auto bug = [&](const std::exception& error) {
    return NoAnswer{fmt::format("{}a bug of lockstep: {}\n", head, report::one_line_text(error.what())), exit_failure};
  };
  try {
    throw;
  } catch (const InputError& error) {
    std::string message;
    for (const Diagnostic& diagnostic : error.diagnostics()) message += render(diagnostic);
    return {message, exit_usage};
  } catch (const OverBudget& over) {
    return {fmt::format("{}too large for {}: {}\n", head, too_large_for, report::one_line_text(over.what())),
            exit_usage};
  } catch (const std::bad_alloc&) {
    return {head + "out of memory\n", exit_failure};
  } catch (const InternalError& error) {
    return bug(error);
  } catch (const ExpressionError& error) {
    return bug(error);
  } catch (const std::exception& error) {
    return {fmt::format("{}{}\n", head, report::one_line_text(error.what())), exit_failure};
  }
}

ReportSet::ReportSet(const CommonOptions& options, bool several, Purpose purpose) {
  ReportOptions report;
  report.expectations = purpose.expectations;
  report.docs_url = LOCKSTEP_DOCS_URL;
  report.all = options.all;
  report.quiet = options.quiet;
  report.verbose = options.verbose;
  report.several = several;
  report.timeline = options.timeline;
  if (options.summary) {
    paths_.push_back(summary_path());
    summary_ = make_reporter("markdown", report, [this](std::string_view text) { summary_text_ += text; });
  }
  if (purpose.main) {
    open(options.format, options.output, report);
    report.color = use_color(options, entries_.front().output->terminal());
    // The colour depends on where the report goes, which is known only now.
    entries_.front().reporter = make_reporter(options.format, report, entries_.front().output->writer());
  } else {
    paths_.push_back(options.output);
  }
  for (const std::string& text : options.reports) {
    const std::size_t equals = text.find('=');
    const std::string kind = text.substr(0, equals);
    if (equals == std::string::npos || equals + 1 == text.size()) {
      usage_error(fmt::format("--report takes KIND=FILE, such as json=report.json; found \"{}\"", text));
    }
    report.color = kind == "text" && options.color == "always";
    report.quiet = false;
    open(kind, text.substr(equals + 1), report);
  }
}

void ReportSet::open(const std::string& kind, const std::string& path, const ReportOptions& options) {
  Entry entry;
  paths_.push_back(path);
  keep_apart(paths_);
  entry.output = std::make_unique<Output>(path, report::kind_of_format(kind));
  entry.reporter = make_reporter(kind, options, entry.output->writer());
  if (entry.reporter == nullptr) {
    usage_error(fmt::format("--report knows {}; found \"{}\"{}", fmt::join(report_kinds(), ", "), kind,
                            did_you_mean(kind, report_kinds())));
  }
  entries_.push_back(std::move(entry));
}

template <class Result>
void ReportSet::hand_on(const Result& result, const std::vector<std::string>& files) {
  // Nothing is written before all is complete, so that the scenario is still what it was.
  for (const std::string& path : paths_) keep_inputs(path, files);
  if (summary_) summary_->add(result);
  for (Entry& entry : entries_) {
    entry.reporter->add(result);
    entry.output->flush();
  }
}

void ReportSet::add(const VerifyResult& result) {
  std::vector<std::string> folders = {result.run};
  if (result.reference) folders.push_back(result.reference->run);
  hand_on(result, folders);
}

void ReportSet::add(const CheckResult& result) {
  hand_on(result, {result.file});
  // Someone who reads a report file sees at once that there is nothing to trust in it.
  if (!result.disagreement.empty())
    tell(fmt::format("lockstep: {}: {}\n", report::one_line_text(result.file), result.disagreement));
}

void ReportSet::keep_what_was_read() const {
  for (const std::string& path : paths_) cli::keep_what_was_read(path);
}

void ReportSet::finish() {
  keep_what_was_read();  // all or nothing
  // One that fails does not take the others along.
  std::exception_ptr failure;
  const auto attempt = [&](const auto& write) {
    try {
      write();
    } catch (...) {
      if (!failure) failure = std::current_exception();
    }
  };
  for (Entry& entry : entries_) {
    attempt([&] {
      entry.reporter->finish();
      entry.output->commit();
    });
  }
  if (summary_) {
    attempt([&] {
      summary_->finish();
      append(summary_path(), report::readable_text(summary_text_));
    });
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace lockstep::cli
