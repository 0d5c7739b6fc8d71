// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "lockstep/json.h"
#include "src/cli/captured_loss.h"
#include "src/cli/files.h"
#include "src/cli/options.h"
#include "src/cli/output.h"
#include "src/cli/python_part.h"

namespace lockstep::cli {

namespace {

namespace fs = std::filesystem;

/// What both commands have.
struct RunsArguments {
  std::string output, format = "text", results, releases, python, jobs, limit;
  bool again = false, quiet = false;
};

struct MatrixArguments : RunsArguments {
  std::string file;
  std::vector<std::string> only;
  bool written = false;
};

struct BisectArguments : RunsArguments {
  std::string package, first, last, ranks, loss = "local_mean", mesh, data_axes, steps;
  std::vector<std::string> script;
};

/// Settings that both have. A release needs a folder of its own, wherever that is.
Json runs_settings(const std::string& command, const RunsArguments& arguments) {
  const std::string releases = arguments.releases.empty() ? cache_folder("releases") : arguments.releases;
  if (releases.empty()) usage_error("--releases is missing: the folder into which releases are installed");
  Json settings = Json::object();
  settings.set("command", Json::string(command));
  std::error_code error;
  settings.set("program", Json::string(fs::read_symlink("/proc/self/exe", error).string()));
  settings.set("format", Json::string(arguments.format));
  settings.set("results", Json::string(arguments.results));
  settings.set("releases", Json::string(releases));
  settings.set("python", Json::string(python_of(arguments.python)));
  settings.set("jobs", number_or("--jobs", arguments.jobs, 1, 4096));
  settings.set("limit", number_or("--limit", arguments.limit, 120, 86400));
  settings.set("again", Json::boolean(arguments.again));
  settings.set("quiet", Json::boolean(arguments.quiet));
  return settings;
}

int write_what_runs(const std::string& command, const RunsArguments& arguments, const Json& settings) {
  const auto kind = arguments.format == "json" ? report::ReadableText::Kind::json : report::ReadableText::Kind::text;
  Output output(arguments.output, kind);
  const PythonOutput done =
      run_python_part({command, "lockstep.matrix"}, python_of(arguments.python), write_json(settings));
  if (done.status != exit_right && done.status != exit_wrong) return done.status;
  output.write(done.text);
  output.commit();
  return done.status;
}

int run_matrix(MatrixArguments arguments) {
  if (arguments.results.empty()) arguments.results = fs::path(arguments.file).stem().string() + ".results";
  Json settings = runs_settings("matrix", arguments);
  settings.set("file", Json::string(arguments.file));
  settings.set("only", text_list(arguments.only));
  settings.set("written", Json::boolean(arguments.written));
  settings.set("shown", Json::string("lockstep matrix " + fs::path(arguments.file).filename().string()));
  keep_inputs(arguments.output, {arguments.file});
  return write_what_runs("matrix", arguments, settings);
}

int run_bisect(const BisectArguments& arguments) {
  if (arguments.ranks.empty())
    usage_error("--ranks is missing: how many ranks the script is to believe in, such as --ranks 4");
  if (arguments.script.empty())
    usage_error("the script is missing: lockstep bisect PACKAGE FIRST LAST --ranks 4 -- train.py ARGUMENTS");
  std::error_code error;
  if (!fs::is_regular_file(arguments.script.front(), error))
    usage_error(fmt::format("{}: there is no such script", arguments.script.front()));
  Json settings = runs_settings("bisect", arguments);
  settings.set("package", Json::string(arguments.package));
  settings.set("first", Json::string(arguments.first));
  settings.set("last", Json::string(arguments.last));
  settings.set("ranks", number_or("--ranks", arguments.ranks, 1, 1 << 20));
  settings.set("steps", number_or("--steps", arguments.steps, 1, 1000));
  settings.set("loss", Json::string(std::string(name_of(*given_loss(arguments.loss)))));
  settings.set("mesh", Json::string(arguments.mesh));
  settings.set("data_axes", Json::string(arguments.data_axes));
  settings.set("script", Json::string(arguments.script.front()));
  settings.set("arguments", text_list({arguments.script.begin() + 1, arguments.script.end()}));
  keep_inputs(arguments.output, {arguments.script.front()});
  return write_what_runs("bisect", arguments, settings);
}

std::vector<OptionRow> runs_rows(RunsArguments* arguments, std::vector<std::string> kinds, std::string results) {
  return {
      {"-f,--format", "KIND", "What to write.", std::move(kinds), &arguments->format},
      output_row(&arguments->output),
      {"--results", "FOLDER", std::move(results), {}, &arguments->results},
      {"--releases",
       "FOLDER",
       "Where each release is installed, in a folder of its own, and kept (default $XDG_CACHE_HOME/lockstep/releases, "
       "or ~/.cache/lockstep/releases).",
       {},
       &arguments->releases},
      {"--again", "", "Run what is there already as well.", {}, &arguments->again},
      {"--python",
       "PYTHON",
       "The Python that has torch and pip; else LOCKSTEP_PYTHON, or python3.",
       {},
       &arguments->python,
       {"*"}},
      {"--limit", "SECONDS", "End a rank that takes longer (default 120).", {}, &arguments->limit},
      {"-q,--quiet", "", "No progress.", {}, &arguments->quiet},
  };
}

}  // namespace

Command matrix_command() {
  const auto arguments = std::make_shared<MatrixArguments>();
  Command command;
  command.name = "matrix";
  command.summary = "Extract a script with many releases, options and layouts, and say in a table what each computes.";
  command.text =
      "The file names scripts, the releases of a package with which each is to run, its options, layouts and losses "
      "(docs/matrix.md). Each release is installed by pip into a folder of its own, without what it depends on, which "
      "is that of the Python. For each combination the script is extracted (`lockstep extract`) and checked "
      "(`lockstep check`). What is there already is not run again, so a run that was ended can go on. A release that "
      "cannot be installed, and a script that cannot run, are rows that say why. Exit status 0 if all are there and a "
      "match, 1 "
      "if not.";
  command.examples = {
      {"lockstep matrix releases.toml", "runs what is not there yet, and prints the table"},
      {"lockstep matrix releases.toml --only 'deepspeed 0.19.8' --jobs 2", "a part of it"},
      {"lockstep matrix releases.toml --written -f markdown -o releases.md", "a page of what is there"},
  };
  command.options =
      join({{{"FILE", "", "The file, in TOML.", {}, &arguments->file, {"*.toml"}}},
            runs_rows(arguments.get(), {"text", "markdown", "json"},
                      "Where results are kept, a file each (default the name of the file with .results)."),
            {{"-j,--jobs", "N", "So many combinations at once (default 1).", {}, &arguments->jobs},
             {"--only",
              "WORDS",
              "Only combinations whose line of progress has these words; may be given several times.",
              {},
              &arguments->only},
             {"--written",
              "",
              "Run nothing: what is there already; exit status 1 where something is missing.",
              {},
              &arguments->written}}});
  command.run = [arguments] { return run_matrix(*arguments); };
  return command;
}

Command bisect_command() {
  const auto arguments = std::make_shared<BisectArguments>();
  Command command;
  command.name = "bisect";
  command.summary = "Find two neighbouring releases of a package between which a script's gradients become other ones.";
  command.text =
      "Lists the releases of the package that pip knows, from FIRST to LAST, and searches by halving for two "
      "neighbours of "
      "which the older one says of the script what FIRST does and the newer one something else: another verdict, "
      "another "
      "formula for any parameter, or another reason (docs/matrix.md#bisect). Says what differs: formulas, and the "
      "calls "
      "that carry gradients. Releases that cannot run are stepped over. Where both "
      "ends say the same, that is said, and nothing between is run. Exit status 0 if both ends are the same, 1 if "
      "not, or where nobody knows, 2 where an end cannot run.";
  command.examples = {
      {"lockstep bisect deepspeed 0.12.0 0.19.8 --ranks 2 -- train.py", "the script, as torchrun would get it"},
  };
  command.options =
      join({{{"PACKAGE", "", "The package, as pip calls it.", {}, &arguments->package},
             {"FIRST", "", "The older release.", {}, &arguments->first},
             {"LAST", "", "The newer one.", {}, &arguments->last},
             {"--ranks", "N", "How many ranks the script is to believe in.", {}, &arguments->ranks},
             loss_row(&arguments->loss, " (default local_mean)"),
             {"--mesh", "SIZES", "The mesh of all ranks, as of `lockstep extract`.", {}, &arguments->mesh},
             {"--data-axes", "AXES", "As of `lockstep extract`.", {}, &arguments->data_axes},
             {"--steps", "N", "Look at so many optimizer steps (default 1).", {}, &arguments->steps}},
            runs_rows(arguments.get(), {"text", "json"}, "Where results are kept, a file each (default nowhere)."),
            {{"-j,--jobs", "N", "So many ranks at once (default 1).", {}, &arguments->jobs}}});
  command.rest = &arguments->script;
  command.rest_name = "SCRIPT [ARGUMENTS...]";
  command.run = [arguments] { return run_bisect(*arguments); };
  return command;
}

}  // namespace lockstep::cli
