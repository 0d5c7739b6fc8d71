// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <map>
#include <memory>
#include <thread>

#include "src/cli/files.h"
#include "src/cli/options.h"
#include "src/cli/output.h"
#include "src/cli/results.h"
#include "src/cli/watched_files.h"
#include "src/report/blame_text.h"
#include "src/report/style.h"

namespace lockstep::cli {

namespace {

using namespace std::chrono_literals;

/// Files are looked at this often: what every system and every file system can do, over a network too.
constexpr auto between_looks = 150ms;
/// What an editor or a tool is still writing is not checked before it has rested for so long.
constexpr auto rest = 40ms;
/// For so long a file may be gone while an editor puts another in its place.
constexpr auto patience_for_states = 1500ms;

struct WatchArguments : CommonOptions {
  std::vector<std::string> paths;
};

extern "C" void on_end(int) {
  // "^C" stands in the line of the cursor.
  if (isatty(STDOUT_FILENO) == 1) {
    const ssize_t ignored = write(STDOUT_FILENO, "\n", 1);
    static_cast<void>(ignored);
  }
  _exit(exit_right);
}

class Watch {
 public:
  explicit Watch(const WatchArguments& arguments)
      : arguments_(arguments), files_(arguments.paths), check_(check_options(arguments)), output_("") {
    check_.progress = {};
    color_ = use_color(arguments, output_.terminal());
    terminal_ = isatty(STDOUT_FILENO) == 1;
  }

  [[noreturn]] void run() {
    while (true) {
      files_.look();
      settle();
      if (update()) show();
      std::this_thread::sleep_for(between_looks);
    }
  }

 private:
  struct Checked {
    std::vector<FileState> states;
    std::string text;
  };

  std::map<std::string, std::vector<FileState>> all_states() const {
    std::map<std::string, std::vector<FileState>> states;
    for (const std::string& file : files_.files()) states[file] = files_.states(file);
    return states;
  }

  bool has_changed() const {
    if (files_.files().size() != checked_.size()) return true;
    for (const std::string& file : files_.files()) {
      const auto found = checked_.find(file);
      if (found == checked_.end() || found->second.states != files_.states(file)) return true;
    }
    return false;
  }

  /// Waits until what is being written is written, and what is gone for a moment is back.
  void settle() {
    const auto begin = std::chrono::steady_clock::now();
    while (has_changed()) {
      const auto states = all_states();
      std::this_thread::sleep_for(rest);
      files_.look();
      const bool missing = files_.files().size() < checked_.size();
      const auto waited = std::chrono::steady_clock::now() - begin;
      if ((states == all_states() && !missing) || waited > patience_for_states) return;
    }
  }

  /// Checks what is new or changed; whether there was something.
  bool update() {
    if (!has_changed()) return false;
    std::map<std::string, Checked> now;
    std::vector<std::string> changed;
    for (const std::string& file : files_.files()) {
      const auto found = checked_.find(file);
      if (found != checked_.end() && found->second.states == files_.states(file))
        now[file] = std::move(found->second);
      else
        changed.push_back(file);
    }
    check_files(changed, check_, [&](const CheckResult& result) {
      now[result.file] = {files_.states(result.file), text_of(result)};
    });
    checked_ = std::move(now);
    return true;
  }

  std::string text_of(const CheckResult& result) const {
    std::string text;
    ReportOptions options;
    options.quiet = !arguments_.verbose;
    options.verbose = arguments_.verbose;
    options.color = color_;
    const std::unique_ptr<Reporter> reporter =
        make_reporter("text", options, [&](std::string_view part) { text += part; });
    reporter->add(result);
    reporter->finish();
    if (!arguments_.verbose) text += report::blame_text(result, false, report::Style(color_));
    return text;
  }

  void show() {
    // A pipe gets one part behind the other.
    if (terminal_) output_.control("\x1b[H\x1b[2J\x1b[3J");
    for (const std::string& file : files_.files()) output_.write(checked_.at(file).text);
    if (files_.files().empty()) output_.write("there is no scenario now; waiting for one\n");
    if (terminal_)
      output_.write(report::Style(color_).faint("\nwatching; Ctrl-C ends it\n"));
    else
      output_.write("\n");
    output_.flush();
  }

  const WatchArguments& arguments_;
  WatchedFiles files_;
  CheckOptions check_;
  Output output_;
  bool color_ = false, terminal_ = false;
  std::map<std::string, Checked> checked_;
};

int run(const WatchArguments& arguments) {
  const std::vector<std::string> files = scenario_files(arguments.paths);
  if (files.empty()) return nothing_found(arguments.paths);
  if (std::find(files.begin(), files.end(), standard_input_name) != files.end())
    usage_error("watch reads a file again when it is saved, and standard input can be read once; name a file");
  std::signal(SIGINT, on_end);
  for (const std::string& file : files) {
    std::error_code error;
    if (std::filesystem::is_other(file, error))
      usage_error(
          fmt::format("watch reads a file again when it is saved, and {} is a pipe or a device, which can be "
                      "read once; save it as a file, or give it to `lockstep check`",
                      file));
  }
  Watch(arguments).run();
}

}  // namespace

Command watch_command() {
  const auto arguments = std::make_shared<WatchArguments>();
  Command command;
  command.name = "watch";
  command.summary = "Check scenarios again whenever they are saved.";
  command.text =
      "For writing a scenario with an editor beside it: checks the files, prints the verdict of each in one line with "
      "the "
      "step at fault, or the mistake with its place, and does so again whenever one of them, or a framework or model "
      "file "
      "that it names, is saved. Files that come into a folder or fit a glob are taken up. On a terminal the screen is "
      "cleared each time. Ctrl-C ends it, with exit status 0.";
  command.examples = {
      {"lockstep watch step.jsonc", "one file, in a terminal beside the editor"},
      {"lockstep watch 'cases/*.json'", "all files of a glob, and new ones"},
      {"lockstep watch -v --engine symbolic step.jsonc", "the whole report, of formulas alone"},
  };
  std::vector<OptionRow> options = {{"FILES", "", std::string(files_help), {}, &arguments->paths}};
  for (OptionRow& row : arguments->output_rows()) {
    if (row.flags == "-v,--verbose") row.help = "The whole report of each file.";
    if (row.flags == "-v,--verbose" || row.flags == "--color") options.push_back(std::move(row));
  }
  command.options = join({std::move(options), arguments->engine_rows()});
  command.options.push_back(set_row());
  command.options.push_back(include_row());
  command.uses_loops = true;
  command.run = [arguments] { return run(*arguments); };
  return command;
}

}  // namespace lockstep::cli
