// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>

#include "lockstep/importer.h"
#include "src/cli/options.h"
#include "src/cli/output.h"
#include "src/diagnosis/engines.h"
#include "src/numeric/loops.h"
#include "src/report/json_writer.h"

namespace lockstep::cli {

namespace {

std::string compiler() {
#if defined(__clang__)
  return fmt::format("clang {}.{}.{}", __clang_major__, __clang_minor__, __clang_patchlevel__);
#else
  return fmt::format("g++ {}.{}.{}", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
#endif
}

std::string_view build_kind() {
#if defined(LOCKSTEP_SANITIZED)
  return "sanitizers";
#elif defined(NDEBUG)
  return "release";
#else
  return "debug";
#endif
}

/// "avx512 (used), avx2, sse4, portable".
std::string targets() {
  std::string list;
  for (const numeric::Loops& loops : numeric::available_loops()) {
    const bool used = loops.target == numeric::loops().target;
    list += fmt::format("{}{}{}", list.empty() ? "" : ", ", loops.target, used ? " (used)" : "");
  }
  return numeric::highway_is_built() ? list : list + ", no others (Highway was not found)";
}

std::string text() {
  std::vector<std::string_view> built, missing;
  for (const diagnosis::EngineRow& engine : diagnosis::engine_table())
    (engine.is_built() ? built : missing).push_back(engine.name);
  std::string imports = "JSON";
  for (const ImportSyntax& syntax : import_syntaxes()) {
    imports +=
        syntax.built ? ", " + syntax.name : fmt::format(", no {} ({} was not found)", syntax.name, syntax.library);
  }
  const std::string without = missing.empty() ? "" : fmt::format("not built yet: {}\n", fmt::join(missing, ", "));
  return fmt::format("lockstep {}\ncompiler: {} ({})\nengines: {}\n{}imports: {}\ntargets: {}\n", LOCKSTEP_VERSION,
                     compiler(), build_kind(), fmt::join(built, ", "), without, imports, targets());
}

void json(const Write& write) {
  report::JsonWriter writer(write);
  writer.begin_object();
  writer.key("lockstep").number(1);
  writer.key("version").string(LOCKSTEP_VERSION);
  writer.key("compiler").string(compiler());
  writer.key("build").string(build_kind());
  writer.key("engines").begin_object(true);
  for (const diagnosis::EngineRow& engine : diagnosis::engine_table()) {
    writer.key(engine.name).boolean(engine.is_built());
  }
  writer.end_object();
  writer.key("imports").begin_object(true);
  writer.key("JSON").boolean(true);
  for (const ImportSyntax& syntax : import_syntaxes()) {
    writer.key(syntax.name).boolean(syntax.built);
  }
  writer.end_object();
  writer.key("targets").begin_array(true);
  for (const numeric::Loops& loops : numeric::available_loops()) writer.string(loops.target);
  writer.end_array();
  writer.key("target").string(numeric::loops().target);
  writer.end_object();
  writer.finish();
}

}  // namespace

Command version_command() {
  const auto format = std::make_shared<std::string>("text");
  Command command;
  command.name = "version";
  command.summary = "Print the version and the engines that were built in.";
  command.text =
      "Prints the version, the compiler, which engines and configuration syntaxes this program was built with, and for "
      "which instruction sets of this machine it has loops over elements. It uses the fastest; the environment "
      "variable "
      "LOCKSTEP_TARGET names another. All of them compute the same bits.";
  command.examples = {
      {"lockstep version", "for a bug report"},
      {"lockstep version -f json", "for programs"},
  };
  command.options = {{"-f,--format", "KIND", "What to write.", {"text", "json"}, format.get()}};
  command.uses_loops = true;
  command.run = [format] {
    Output output("");
    if (*format == "json")
      json(output.writer());
    else
      output.write(text());
    output.commit();
    return static_cast<int>(exit_right);
  };
  return command;
}

}  // namespace lockstep::cli
