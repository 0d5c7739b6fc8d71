// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/check.h"
#include "lockstep/json.h"
#include "lockstep/report.h"
#include "src/cli/command.h"

namespace lockstep::cli {

/// Options that mean the same in every command that has them.
struct CommonOptions {
  std::string format = "text";
  std::string output;                ///< "": standard output
  std::vector<std::string> reports;  ///< KIND=FILE
  std::string color = "auto";
  bool quiet = false;
  bool verbose = false;
  std::string engines;   ///< "": as check_options() chooses
  std::string ranks;     ///< processes of the mpi engine; "": not said
  std::string gpus;      ///< processes of the nccl engine; "": not said
  std::string elements;  ///< of a block of the cuda engine; "": not said
  std::string jobs;      ///< files at once; "": one per core
  bool all = false;
  bool timeline = false;
  std::uint64_t seed = 0;
  bool exit_zero = false;
  bool summary = false;

  /// Whether something but the text on standard output is written.
  bool has_reports() const { return !reports.empty() || summary; }

  /// -f, -o, --color, -q, -v; with the kinds of -f.
  std::vector<OptionRow> output_rows(const std::vector<std::string>& kinds = {"text", "json"});
  /// The same without those for which the command has no use.
  std::vector<OptionRow> output_rows_without(const std::set<std::string>& flags,
                                             const std::vector<std::string>& kinds = {"text", "json"});
  OptionRow report_row();                ///< --report
  std::vector<OptionRow> report_rows();  ///< --report, --all, --timeline
  std::vector<OptionRow> gate_rows();    ///< --exit-zero, --summary
  std::vector<OptionRow> engine_rows();  ///< --engine, --seed
  std::vector<OptionRow> job_rows();     ///< -j, --ranks, --gpus, --elements
};

/// Whether --engine names this engine; among others or alone.
bool names_engine(const CommonOptions& options, std::string_view engine);
/// With --jobs. Throws InputError for an unknown engine. mpi, cuda and nccl are known where `with_devices`; they run
/// once CheckOptions::mpi, cuda and nccl are set (with_engines).
CheckOptions check_options(const CommonOptions& options, bool with_devices = false);

/// Whether text that goes to `descriptor` (-1: a file) is coloured: --color, NO_COLOR,
/// CLICOLOR_FORCE and FORCE_COLOR, then whether it is a terminal.
bool use_color(const CommonOptions& options, int descriptor);

/// --include, of every command that reads scenarios. run_program() sees to what it was given.
OptionRow include_row();

/// --set, of commands that read scenarios as they are written. run_program() sees to what it was given.
OptionRow set_row();

/// -o, --output.
OptionRow output_row(std::string* file);

/// An option's text as a number from `least` to `most`; 0 where it was not given. Throws InputError for anything else.
std::int64_t number_of(std::string_view option, const std::string& text, std::int64_t most, std::int64_t least = 1);

/// The same as JSON, `otherwise` where it was not given.
Json number_or(std::string_view option, const std::string& text, std::int64_t otherwise, std::int64_t most);

/// Texts as JSON.
Json text_list(const std::vector<std::string>& texts);

/// What stands between separators: "dp,tp" as "dp" and "tp", "" as one that is empty.
std::vector<std::string> split_at(char separator, std::string_view text);

/// A user's mistake that belongs to no place in a file.
[[noreturn]] void usage_error(std::string message);

/// Rows one after the other.
std::vector<OptionRow> join(std::vector<std::vector<OptionRow>> parts);

/// A line of progress on standard error, on a terminal only; nothing with -q.
std::function<void(std::int64_t, std::int64_t)> progress_line(const CommonOptions& options);

}  // namespace lockstep::cli
