// SPDX-License-Identifier: Apache-2.0
#include "src/importers/files.h"

#include <fmt/format.h>

#include "src/importers/draft.h"

namespace lockstep {

bool has_one_file(const ImportRequest& request, const std::string& title, Diagnostics& diagnostics) {
  if (request.files.size() == 1) return true;
  diagnostics.add(
      {}, request.files.empty()
              ? fmt::format("expected a configuration of {}, found no file; give one: lockstep import {} FILE", title,
                            request.format)
              : fmt::format("expected one configuration of {}, found {} files; give one of them", title,
                            request.files.size()));
  return false;
}

bool is_configuration(const Json& root, const std::shared_ptr<const Source>& source, Diagnostics& diagnostics) {
  if (!diagnostics.empty()) return false;
  const bool blank = source->text.find_first_not_of(" \t\r\n") == std::string::npos;
  if (root.is_object() && !root.members().empty()) return true;
  if (blank) {
    diagnostics.add({}, fmt::format("{} is empty; expected a configuration", source->name));
  } else if (root.is_object() || root.is_null()) {
    diagnostics.add({}, fmt::format("{} has no keys; expected a configuration", source->name));
  } else {
    diagnostics.add(root.place(), "expected keys and values at the top of the file, found " + kind_of(root));
  }
  return false;
}

}  // namespace lockstep
