// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "src/cli/options.h"
#include "src/cli/output.h"
#include "src/report/clean_text.h"

namespace lockstep::cli {

namespace {

struct InitArguments {
  std::string file = "scenario.jsonc";
  bool force = false;
};

constexpr std::string_view starter = R"JSON(// A scenario of lockstep: one training step, and what must come out of it.
//   lockstep check FILE      does every rank get the gradient that one device would compute?
//   lockstep prove FILE      and for every size of the axes below?
//   lockstep explain FILE    what every rank holds after every step
//   lockstep show FILE       the process groups, parameters and steps that this expands to
{
  "lockstep": 1,
  "name": "first-scenario",
  "title": "Two data-parallel ranks, a norm split by sequence parallelism over two tensor-parallel ranks",

  // The mesh. Axes that are not named have size 1; the world is their product.
  "layout": { "tp": 2, "dp": 2 },

  // Either a preset ({ "preset": "gpt2", ... }) or plain parameters.
  "model": {
    "parameters": [
      // Each tp rank holds its rows: Shard(0).
      { "name": "mlp.weight", "shape": [8, 4], "shard": { "tp": 0 } },
      // Held whole by every tp rank, but each sees its part of the sequence only: Partial.
      { "name": "norm.weight", "shape": [8], "partial": ["tp"], "tags": ["norm"] },
    ],
  },

  // Two micro-batches with uneven token counts, so that a wrong mean cannot hide.
  "batch": { "micro_batches": 2, "loss": "token_mean" },

  // What the ranks do, in order.
  "schedule": {
    "steps": [
      { "name": "zero", "op": "zero" },
      { "name": "accumulate", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] },
      // Try it: remove this step, and see what each tp rank is left with.
      { "name": "norm_all_reduce", "op": "all_reduce", "over": "tp", "params": ["tag:norm"] },
      { "name": "dp_all_reduce", "op": "all_reduce", "over": "dp" },
      // The token mean: divide once by the number of all tokens.
      { "name": "token_count_scale", "op": "scale", "by": "1 / sum(tokens, dp, cp, sp, micro_batch)" },
    ],
  },

  // What `lockstep test` compares with.
  "expect": { "verdict": "match" },
}
)JSON";

int run(const InitArguments& arguments) {
  const bool to_stdout = arguments.file == "-";
  if (!to_stdout && !arguments.force && std::filesystem::exists(arguments.file)) {
    usage_error(fmt::format("{} exists already; give another name, or --force to replace it", arguments.file));
  }
  Output output(to_stdout ? "" : arguments.file, report::ReadableText::Kind::as_is);
  output.write(starter);
  output.commit();
  if (!to_stdout)
    tell(fmt::format("wrote {}; now try: lockstep check {}\n", report::one_line_text(arguments.file),
                     argument_for(arguments.file)));
  return exit_right;
}

}  // namespace

Command init_command() {
  const auto arguments = std::make_shared<InitArguments>();
  Command command;
  command.name = "init";
  command.summary = "Write a commented starter scenario.";
  command.text =
      "Writes a small scenario with comments that passes `lockstep check`, to start from. It overwrites "
      "no file without --force.";
  command.examples = {
      {"lockstep init", "write scenario.jsonc"},
      {"lockstep init my-case.jsonc", "write it under another name"},
      {"lockstep init -", "print it"},
  };
  command.options = {
      {"[FILE]", "", "Where to write it; default scenario.jsonc, - for standard output.", {}, &arguments->file},
      {"--force", "", "Replace a file that exists already.", {}, &arguments->force},
  };
  command.run = [arguments] { return run(*arguments); };
  return command;
}

}  // namespace lockstep::cli
