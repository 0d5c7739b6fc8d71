// SPDX-License-Identifier: Apache-2.0
#include "src/importers/request.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "src/importers/key_table.h"
#include "src/importers/scenario_builder.h"

namespace lockstep::importers {

namespace {

/// The keys with which configurations of a format say a size of the layout.
std::vector<std::string> keys_of(const ImportFormat& format, const std::string& size) {
  const KeyTable table(format.name);
  std::vector<std::string> keys;
  for (const std::string& key : table.known()) {
    const ConfigurationKey* row = table.row(key);
    if (row != nullptr && row->pointer() == "/layout/" + size) keys.push_back(key);
  }
  return keys;
}

void check_size(const ImportFormat& format, const std::string& size, const std::string& what, std::int64_t value,
                Diagnostics& diagnostics) {
  if (value == 0) return;
  if (value < 0 || value > largest_import_size) {
    diagnostics.add({},
                    fmt::format("--{}: expected a size between 1 and {}, found {}", size, largest_import_size, value));
  } else if (std::find(format.sizes.begin(), format.sizes.end(), size) == format.sizes.end()) {
    const std::vector<std::string> keys = keys_of(format, size);
    diagnostics.add(
        {}, keys.empty() ? fmt::format("--{}: a configuration of {} has no {}-parallel size here; leave --{} out", size,
                                       format.title, what, size)
                         : fmt::format("--{}: a configuration of {} says its {}-parallel size itself, as {}; change it "
                                       "there, and leave --{} out",
                                       size, format.title, what, fmt::join(keys, " or "), size));
  }
}

}  // namespace

void check_request(const ImportRequest& request, const ImportFormat& format, Diagnostics& diagnostics) {
  for (const auto& [option, value] :
       {std::pair("--world-size", request.world), std::pair("--micro-batches", request.micro_batches)}) {
    if (value < 0 || value > largest_import_size) {
      diagnostics.add(
          {}, fmt::format("{}: expected a number between 1 and {}, found {}", option, largest_import_size, value));
    }
  }
  for (const auto& [size, what, value] :
       {std::tuple("tp", "tensor", request.tp), std::tuple("pp", "pipeline", request.pp),
        std::tuple("cp", "context", request.cp), std::tuple("sp", "Ulysses sequence", request.sp),
        std::tuple("ep", "expert", request.ep)}) {
    check_size(format, size, what, value, diagnostics);
  }
  if (!request.model.empty() && format.says_model && format.name != "megatron") {
    diagnostics.add({}, fmt::format("--model: a configuration of {} says what its model is; leave --model out, and "
                                    "replace single sizes with --size KEY=VALUE",
                                    format.title));
  }
  const bool launches = format.name == "megatron";
  if (!request.variables.empty() && !launches) {
    diagnostics.add({}, fmt::format("--set: a configuration of {} has no variables, only launch scripts of Megatron-LM "
                                    "have; leave --set out",
                                    format.title));
  }
  if (!request.arguments.empty() && !launches) {
    diagnostics.add({}, fmt::format("the arguments after --: only `lockstep import megatron` reads a framework's own "
                                    "arguments; give the file with the configuration of {} in their place",
                                    format.title));
  }
}

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

}  // namespace lockstep::importers
