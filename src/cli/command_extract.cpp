// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <system_error>

#include "lockstep/json.h"
#include "src/cli/captured_loss.h"
#include "src/cli/files.h"
#include "src/cli/options.h"
#include "src/cli/output.h"
#include "src/cli/python_part.h"

namespace lockstep::cli {

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t most_ranks = 1 << 20;

struct ExtractArguments {
  std::string ranks, output, steps, loss, data_axes, mesh, placements, python, jobs, limit, ranks_of_machine, cache;
  bool every = false, module = false, quiet = false, without_cache = false;
  std::vector<std::string> script;
};

Json whole(std::int64_t value) { return Json::number(std::to_string(value)); }

/// "dp=64,tp=8" as an object; the last axis varies fastest.
Json mesh_of(const std::string& text) {
  Json mesh = Json::object();
  for (const std::string& one : split_at(',', text)) {
    const std::size_t equal = one.find('=');
    if (equal == 0 || equal == std::string::npos || equal + 1 == one.size() ||
        mesh.find(one.substr(0, equal)) != nullptr)
      usage_error(fmt::format("--mesh {}: expected sizes by axis, each axis once, such as dp=64,tp=8; found \"{}\"",
                              text, one));
    mesh.set(one.substr(0, equal), whole(number_of("--mesh", one.substr(equal + 1), most_ranks)));
  }
  return mesh;
}

std::vector<std::string> axes_of(const std::string& text) {
  std::vector<std::string> axes = split_at(',', text);
  if (std::find(axes.begin(), axes.end(), "") != axes.end())
    usage_error(fmt::format("--data-axes {}: expected names of axes, such as dp,cp; found \"\"", text));
  return axes;
}

std::string settings_of(const ExtractArguments& arguments) {
  Json settings = Json::object();
  settings.set("world", number_or("--ranks", arguments.ranks, 0, most_ranks));
  settings.set("local_world", number_or("--ranks-of-machine", arguments.ranks_of_machine, 8, most_ranks));
  settings.set("script", Json::string(arguments.script.front()));
  settings.set("module", Json::boolean(arguments.module));
  settings.set("arguments", text_list({arguments.script.begin() + 1, arguments.script.end()}));
  settings.set("steps", number_or("--steps", arguments.steps, 1, 1000));
  if (!arguments.loss.empty()) settings.set("loss", Json::string(std::string(name_of(*given_loss(arguments.loss)))));
  if (!arguments.mesh.empty()) settings.set("mesh", mesh_of(arguments.mesh));
  if (!arguments.data_axes.empty()) settings.set("data_axes", text_list(axes_of(arguments.data_axes)));
  if (!arguments.placements.empty()) settings.set("placements", Json::string(arguments.placements));
  if (!arguments.jobs.empty()) settings.set("jobs", number_or("--jobs", arguments.jobs, 1, 4096));
  settings.set("limit", number_or("--limit", arguments.limit, 300, 86400));
  settings.set("every", Json::boolean(arguments.every));
  settings.set("quiet", Json::boolean(arguments.quiet));
  const std::string cache = arguments.cache.empty() ? cache_folder("extract") : arguments.cache;
  if (!arguments.without_cache && !cache.empty()) settings.set("cache", Json::string(cache));
  return write_json(settings);
}

int run(const ExtractArguments& arguments) {
  if (arguments.ranks.empty())
    usage_error("--ranks is missing: how many ranks the script is to believe in, such as --ranks 1024");
  if (arguments.script.empty())
    usage_error("the script is missing: lockstep extract --ranks 1024 -o step.json -- train.py ARGUMENTS");
  if (arguments.without_cache && !arguments.cache.empty())
    usage_error("--no-cache and --cache exclude each other: give one of them");
  std::error_code error;
  if (!arguments.module && !fs::is_regular_file(arguments.script.front(), error))
    usage_error(fmt::format("{}: there is no such script", arguments.script.front()));
  const std::string settings = settings_of(arguments);
  // Before the work: what cannot be written should be said now.
  if (!arguments.module) keep_inputs(arguments.output, {arguments.script.front()});
  Output output(arguments.output, report::ReadableText::Kind::json);
  const PythonOutput extracted =
      run_python_part({"extract", "lockstep.extracting"}, python_of(arguments.python), settings);
  if (extracted.status != 0) return extracted.status;
  output.write(extracted.text);
  output.commit();
  return exit_right;
}

}  // namespace

Command extract_command() {
  const auto arguments = std::make_shared<ExtractArguments>();
  Command command;
  command.name = "extract";
  command.summary = "Run a training script as one rank of many, and write what it does to its gradients.";
  command.text =
      "Runs the script as torchrun would, on this machine's CPU, one process for a rank, and plays all other ranks: "
      "every collective ends at once. What the script's optimizer reads is a linear function of what its own backward "
      "passes yield and of what other ranks bring to its collectives; this function is found out exactly, and written "
      "(docs/extract.md). `lockstep check` puts the ranks together and says whether each gets the gradient of one "
      "device. Nothing of the script is edited; it runs as you, with your rights, and is stopped after --steps "
      "optimizer steps. Of up to 64 ranks all are played; of more some are, chosen by their coordinates in the mesh, "
      "and the "
      "others are taken to go on in the same way, which is compared with some of them. "
      "Exit status 0, or 2 where the script ends in an error, waits without end, or does what is not known.";
  command.examples = {
      {"lockstep extract --ranks 1024 --loss local_mean -o step.json -- train.py --layers 2",
       "then: lockstep check step.json"},
      {"lockstep extract --ranks 16 --mesh dp=4,tp=4 -o step.json -- train.py",
       "where the script has no mesh with names"},
      {"lockstep extract --ranks 64 --placements run -o step.json -- train.py --tp 8",
       "run: captured on two ranks along tp"},
      {"lockstep extract --ranks 8 -m -o step.json -- package.train", "a module, as python -m"},
  };
  command.options = {
      {"--ranks", "N", "How many ranks the script is to believe in.", {}, &arguments->ranks},
      {"-o,--output", "FILE", "Write the extraction to this file instead of standard output.", {}, &arguments->output},
      {"--steps", "N", "Look at so many optimizer steps, and stop the script then (default 1).", {}, &arguments->steps},
      loss_row(&arguments->loss),
      {"--mesh",
       "SIZES",
       "The mesh of all ranks, where the script has none with names: dp=64,tp=8; the last axis varies fastest.",
       {},
       &arguments->mesh},
      {"--data-axes",
       "AXES",
       "The axes along which ranks see different tokens, where their names do not tell: dp,cp.",
       {},
       &arguments->data_axes},
      {"--placements",
       "RUN",
       "A captured run of the script on a few ranks (docs/capture.md): whether ranks along an axis such as tp yield "
       "one gradient of a parameter or shares of one, where what the played ranks yield does not tell.",
       {},
       &arguments->placements},
      {"--all-ranks", "", "Play every rank.", {}, &arguments->every},
      {"--ranks-of-machine", "N", "LOCAL_WORLD_SIZE of the script (default 8).", {}, &arguments->ranks_of_machine},
      {"-m,--module", "", "The script is a module, as of python -m.", {}, &arguments->module},
      {"--python",
       "PYTHON",
       "The Python that runs it; else LOCKSTEP_PYTHON, or python3.",
       {},
       &arguments->python,
       {"*"}},
      {"-j,--jobs", "N", "So many ranks at once (default: as many as there are cores).", {}, &arguments->jobs},
      {"--limit", "SECONDS", "End a rank that takes longer (default 300).", {}, &arguments->limit},
      {"--cache",
       "FOLDER",
       "Where results of ranks are kept, to be taken where nothing has changed on which they depend (default "
       "$XDG_CACHE_HOME/lockstep/extract, or ~/.cache/lockstep/extract).",
       {},
       &arguments->cache},
      {"--no-cache", "", "Play every rank that is to be played, and keep none.", {}, &arguments->without_cache},
      {"-q,--quiet", "", "No progress.", {}, &arguments->quiet},
  };
  command.rest = &arguments->script;
  command.rest_name = "SCRIPT [ARGUMENTS...]";
  command.run = [arguments] { return run(*arguments); };
  return command;
}

}  // namespace lockstep::cli
