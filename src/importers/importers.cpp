// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "lockstep/importer.h"
#include "src/importers/formats.h"
#include "src/importers/redact.h"
#include "src/importers/request.h"

namespace lockstep {

namespace {

using Importer = Imported (*)(const ImportRequest&, Diagnostics&);

struct Entry {
  ImportFormat format;
  Importer run;
};

const std::vector<Entry>& entries() {
  static const std::vector<Entry> all = {
      {{"megatron",
        "Megatron-LM",
        "the arguments that it prints at start, a model_config.yaml, a --yaml-cfg file or a launch script; or its "
        "arguments after --",
        {},
        true},
       importers::import_megatron},
      {{"deepspeed",
        "DeepSpeed",
        "its JSON, as Hjson; --world-size, --tp, --pp, --sp and --ep say what it does not hold",
        {"tp", "pp", "sp", "ep"},
        false},
       importers::import_deepspeed},
      {{"gpt-neox", "GPT-NeoX", "its YAML, several files merged", {}, true}, importers::import_gpt_neox},
      {{"torchtitan",
        "torchtitan",
        "the JSON that debug.save_config_file writes, or TOML of older versions",
        {},
        false},
       importers::import_torchtitan},
      {{"nanotron", "nanotron", "its YAML", {}, true}, importers::import_nanotron},
      {{"accelerate",
        "accelerate",
        "its YAML, and behind it the DeepSpeed configuration that it names",
        {"tp", "cp", "sp"},
        false},
       importers::import_accelerate},
  };
  return all;
}

}  // namespace

const std::vector<ImportFormat>& import_formats() {
  static const std::vector<ImportFormat> formats = [] {
    std::vector<ImportFormat> result;
    for (const Entry& entry : entries()) result.push_back(entry.format);
    return result;
  }();
  return formats;
}

const std::vector<ImportSyntax>& import_syntaxes() {
#ifdef LOCKSTEP_YAML
  constexpr bool yaml = true;
#else
  constexpr bool yaml = false;
#endif
#ifdef LOCKSTEP_TOML
  constexpr bool toml = true;
#else
  constexpr bool toml = false;
#endif
  static const std::vector<ImportSyntax> syntaxes = {{"YAML", "yaml-cpp", yaml}, {"TOML", "toml++", toml}};
  return syntaxes;
}

Imported import_configuration(const ImportRequest& request) {
  const auto found = std::find_if(entries().begin(), entries().end(),
                                  [&](const Entry& entry) { return entry.format.name == request.format; });
  if (found == entries().end()) throw InternalError("an unknown format " + request.format);
  Diagnostics diagnostics;
  importers::check_request(request, found->format, diagnostics);
  if (!diagnostics.empty()) throw InputError(diagnostics.sorted());
  Imported imported = found->run(request, diagnostics);
  if (!diagnostics.empty()) throw InputError(importers::redacted(diagnostics.sorted()));
  return imported;
}

}  // namespace lockstep
