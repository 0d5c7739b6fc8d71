// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "lockstep/importer.h"
#include "src/importers/formats.h"
#include "src/importers/redact.h"

namespace lockstep {

namespace {

using Importer = Imported (*)(const ImportRequest&, Diagnostics&);

struct Entry {
  ImportFormat format;
  Importer run;
};

const std::vector<Entry>& entries() {
  static const std::vector<Entry> all = {
      {{"megatron", "Megatron-LM",
        "the arguments that it prints at start, a model_config.yaml, a --yaml-cfg file or a launch script; or its "
        "arguments behind --"},
       import_megatron},
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

Imported import_configuration(const ImportRequest& request) {
  const auto found = std::find_if(entries().begin(), entries().end(),
                                  [&](const Entry& entry) { return entry.format.name == request.format; });
  if (found == entries().end()) throw InternalError("an unknown format " + request.format);
  Diagnostics diagnostics;
  Imported imported = found->run(request, diagnostics);
  if (!diagnostics.empty()) throw InputError(redacted(diagnostics.sorted()));
  return imported;
}

}  // namespace lockstep
