// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/report.h"
#include "src/cli/options.h"
#include "src/cli/output.h"

namespace lockstep::cli {

/// The exit status that `check` gives a result: its verdict alone.
int status_of(const CheckResult& result);

/// The status that the program ends with: --exit-zero turns 1 into 0, and nothing else.
int gate_status(const CommonOptions& options, int status);

/// Says on standard error that the paths hold no scenario; exit status 4.
int nothing_found(const std::vector<std::string>& paths);

/// What is said of a file of which a command has no answer, and the exit status that it gets.
struct NoAnswer {
  std::string message;
  int status = 0;
};
/// In a catch block: why there is none. Throws on what is no mistake in the file, no budget, no want of memory and no
/// bug.
NoAnswer no_answer(const std::string& file, std::string_view too_large_for);

/// The report asked for with --format and --output, and those of --report.
class ReportSet {
 public:
  struct Purpose {
    bool main = true;           ///< without it only those of --report
    bool expectations = false;  ///< ReportOptions::expectations
  };
  /// Throws InputError for an unknown kind or a file that cannot be written. `several`: an array of
  /// results.
  ReportSet(const CommonOptions& options, bool several, Purpose purpose);
  ReportSet(const CommonOptions& options, bool several) : ReportSet(options, several, Purpose{}) {}
  void add(const CheckResult& result);
  /// Of a captured run. Throws InputError where a report would replace one of its files.
  void add(const VerifyResult& result);
  /// Throws InputError where one of the reports would replace what this process has read, such as a framework file.
  void keep_what_was_read() const;
  void finish();

 private:
  template <class Result>
  void hand_on(const Result& result, const std::vector<std::string>& files);
  void open(const std::string& kind, const std::string& path, const ReportOptions& options);

  struct Entry {
    std::unique_ptr<Output> output;
    std::unique_ptr<Reporter> reporter;
  };
  std::vector<Entry> entries_;
  std::vector<std::string> paths_;  // where they go
  std::unique_ptr<Reporter> summary_;
  std::string summary_text_;
};

}  // namespace lockstep::cli
