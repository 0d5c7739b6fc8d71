// SPDX-License-Identifier: Apache-2.0
#include "src/cli/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "src/base/counted.h"
#include "src/cli/output.h"
#include "src/diagnosis/engines.h"

namespace lockstep::cli {

namespace {

/// Set and neither empty nor "0".
bool is_on(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0' && std::strcmp(value, "0") != 0;
}

/// "host (real numbers)", …: the engines that need devices or processes, or the others.
std::vector<std::string> described_engines(bool on_devices) {
  std::vector<std::string> list;
  for (const diagnosis::EngineRow& row : diagnosis::engine_table()) {
    if ((row.ask == nullptr) == on_devices) list.push_back(fmt::format("{} ({})", row.name, row.help));
  }
  return list;
}

std::string format_help(const std::vector<std::string>& kinds) {
  std::string help = "What to write: text for people, json for programs";
  for (const std::string& kind : kinds) {
    if (kind == "svg") help += ", svg for a picture";
  }
  return help + ".";
}

}  // namespace

OptionRow include_row() {
  static std::vector<std::string> folders;
  return {"--include",
          "FOLDER",
          "Let scenarios name framework and model files below FOLDER, and not only below their own folder or its "
          "repository; may be given several times.",
          {},
          &folders};
}

OptionRow set_row() {
  static std::vector<std::string> changes;
  return {
      "--set",
      "KEY=VALUE",
      "Read scenarios as if this stood in them: an axis or micro_batches, such as dp=4, an option of the "
      "framework, or a key of the file, with dots to one inside, such as batch.loss=sum; may be given several times. "
      "What the file expects is then left aside.",
      {},
      &changes};
}

OptionRow output_row(std::string* file) {
  return {"-o,--output",
          "FILE",
          "Write to FILE instead of standard output; it appears only when it is complete.",
          {},
          file};
}

std::vector<OptionRow> CommonOptions::output_rows(const std::vector<std::string>& kinds) {
  const bool every = kinds.size() == report_kinds().size();
  return {
      {"-f,--format", "KIND",
       every ? fmt::format("What to write: {} (docs/ci.md).", report_kinds_help()) : format_help(kinds), kinds,
       &format},
      output_row(&output),
      {"--color",
       "WHEN",
       "Colour the text: auto looks at NO_COLOR, CLICOLOR_FORCE and the terminal.",
       {"always", "never", "auto"},
       &color},
      {"-q,--quiet", "", "One line per file.", {}, &quiet},
      {"-v,--verbose", "", "No limits on ranks, tables, lists and formulas; times.", {}, &verbose},
  };
}

std::vector<OptionRow> CommonOptions::output_rows_without(const std::set<std::string>& flags,
                                                          const std::vector<std::string>& kinds) {
  std::vector<OptionRow> rows = output_rows(kinds);
  std::erase_if(rows, [&](const OptionRow& row) { return flags.contains(row.flags); });
  return rows;
}

OptionRow CommonOptions::report_row() {
  return {
      "--report", "KIND=FILE", "Write another report to FILE, in any format of --format; may be given several times.",
      {},         &reports,    report_kinds()};
}

std::vector<OptionRow> CommonOptions::report_rows() {
  return {
      report_row(),
      {"--all", "", "Report every parameter, rank and owned element, not only the wrong ones.", {}, &all},
      {"--timeline",
       "",
       "JSON: with the text of the scenario, the grid of all ranks, and what they hold after every step.",
       {},
       &timeline},
  };
}

std::vector<OptionRow> CommonOptions::gate_rows() {
  return {
      {"--exit-zero",
       "",
       "Exit status 0 in place of 1, for a step that only writes reports. All other statuses are as always.",
       {},
       &exit_zero},
      {"--summary",
       "",
       "Append the markdown report to the file that $GITHUB_STEP_SUMMARY names: GitHub shows it with the job.",
       {},
       &summary},
  };
}

std::vector<OptionRow> CommonOptions::engine_rows() {
  return {
      {"--engine",
       "NAMES",
       fmt::format(
           "Engines, separated by commas: {}. Default symbolic,host, and parametric alone where a layout is large. "
           "Naming host replays every element, whatever it costs; host or transformer alone compare values only, not "
           "norms or ownership. `check` and `test` also know {}.",
           fmt::join(described_engines(false), ", "), listed_words(described_engines(true))),
       {},
       &engines,
       diagnosis::engine_names(true)},
      {"--seed", "N", "Seed of the host engine's numbers and samples.", {}, &seed},
  };
}

std::vector<OptionRow> CommonOptions::job_rows() {
  return {
      {"-j,--jobs", "N", "Files to check at once; default one per core, at most 8.", {}, &jobs},
      {"--ranks",
       "N",
       "Processes that --engine mpi starts with mpirun, at most one for each rank of a layout; the ranks are shared "
       "out to them. Default one per core. Not needed where mpirun starts lockstep.",
       {},
       &ranks},
      {"--gpus",
       "N",
       "GPUs that --engine nccl takes, with a process of its own for each; the ranks of a layout are shared out to "
       "them. Default all of this machine. Not needed where mpirun starts lockstep, one process for each GPU.",
       {},
       &gpus},
      {"--elements",
       "N",
       "At most N elements of each buffer are in a GPU's memory at once, for --engine cuda and nccl. Default as many "
       "as fit. A buffer whose elements a collective moves to other places is there as a whole.",
       {},
       &elements},
  };
}

bool names_engine(const CommonOptions& options, std::string_view engine) {
  const std::string padded = "," + options.engines + ",";
  return padded.find(fmt::format(",{},", engine)) != std::string::npos;
}

CheckOptions check_options(const CommonOptions& options, bool with_devices) {
  const std::vector<std::string> known = diagnosis::engine_names(with_devices);
  CheckOptions check;
  check.seed = options.seed;
  check.jobs = static_cast<int>(number_of("--jobs", options.jobs, 1024));
  check.progress = progress_line(options);
  if (options.engines.empty()) return check;
  check.symbolic = check.host = check.parametric_where_large = false;
  for (const std::string& name : split_at(',', options.engines)) {
    if (std::find(known.begin(), known.end(), name) == known.end())
      usage_error(fmt::format("--engine takes {}, separated by commas; found \"{}\"{}", fmt::join(known, ", "), name,
                              did_you_mean(name, known)));
    // Where it asks for nothing, with_engines() sees to it.
    if (const diagnosis::EngineRow& row = diagnosis::engine_row(name); row.ask != nullptr) row.ask(check);
  }
  return check;
}

std::vector<std::string> split_at(char separator, std::string_view text) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    parts.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

bool use_color(const CommonOptions& options, int descriptor) {
  if (options.format != "text") return false;
  if (options.color == "always") return true;
  if (options.color == "never") return false;
  const char* no_color = std::getenv("NO_COLOR");
  if (no_color != nullptr && *no_color != '\0') return false;
  if (is_on("CLICOLOR_FORCE") || is_on("FORCE_COLOR")) return true;
  const char* terminal = std::getenv("TERM");
  if (terminal != nullptr && std::strcmp(terminal, "dumb") == 0) return false;
  return descriptor >= 0 && isatty(descriptor) == 1;
}

std::int64_t number_of(std::string_view option, const std::string& text, std::int64_t most, std::int64_t least) {
  if (text.empty()) return 0;
  std::int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || rest != end || value < least || value > most)
    usage_error(fmt::format("{} takes a whole number from {} to {}; found \"{}\"", option, least, most, text));
  return value;
}

Json number_or(std::string_view option, const std::string& text, std::int64_t otherwise, std::int64_t most) {
  const std::int64_t given = number_of(option, text, most);
  return Json::number(std::to_string(given == 0 ? otherwise : given));
}

Json text_list(const std::vector<std::string>& texts) {
  std::vector<Json> items;
  items.reserve(texts.size());
  for (const std::string& text : texts) items.push_back(Json::string(text));
  return Json::array(std::move(items));
}

void usage_error(std::string message) { throw InputError({Diagnostic{{}, std::move(message)}}); }

std::vector<OptionRow> join(std::vector<std::vector<OptionRow>> parts) {
  std::vector<OptionRow> rows;
  for (std::vector<OptionRow>& part : parts) rows.insert(rows.end(), part.begin(), part.end());
  return rows;
}

std::function<void(std::int64_t, std::int64_t)> progress_line(const CommonOptions& options) {
  if (options.quiet || isatty(STDERR_FILENO) != 1) return {};
  auto shown = std::make_shared<std::int64_t>(-1);
  return [shown](std::int64_t done, std::int64_t all) {
    const std::int64_t percent = all > 0 ? 100 * done / all : 100;
    if (percent == *shown) return;
    *shown = percent;
    // The line is wiped at the end, so that it never mixes with the report.
    if (percent >= 100)
      show_progress("\r\x1b[K");
    else
      show_progress(fmt::format("\rreplaying on the host: {} %", percent));
  };
}

}  // namespace lockstep::cli
