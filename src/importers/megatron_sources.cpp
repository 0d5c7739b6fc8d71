// SPDX-License-Identifier: Apache-2.0
#include "src/importers/megatron_sources.h"

#include <algorithm>
#include <cctype>

#include "src/importers/launch_script.h"
#include "src/importers/megatron_flags.h"
#include "src/importers/megatron_log.h"
#include "src/importers/syntax.h"

namespace lockstep {

namespace {

bool is_megatron_flag(const std::string& word) { return megatron_flags().contains(word); }

bool is_yaml(const std::string& name) { return name.ends_with(".yaml") || name.ends_with(".yml"); }

/// tests/functional_tests of Megatron-LM: MODEL_ARGS maps flags to values.
MegatronSource from_model_config(const Json& arguments) {
  MegatronSource result{{}, "a model_config.yaml of Megatron-LM", 0, true};
  for (const Json::Member& member : arguments.members()) {
    add_megatron_flag(member.key, member.key_place, member.value, result.settings);
  }
  return result;
}

/// --yaml-cfg: the names of resolved arguments, some in sections.
MegatronSource from_yaml_cfg(const Json& root) {
  MegatronSource result{{}, "a --yaml-cfg file of Megatron-LM", 0, false};
  const auto add = [&](const Json::Member& member) {
    result.settings.set({member.key, member.key, member.key_place, member.value, megatron_origin(member.key), ""});
  };
  for (const Json::Member& member : root.members()) {
    const bool section = (member.key == "language_model" || member.key == "model_parallel") && member.value.is_object();
    if (!section) {
      add(member);
      continue;
    }
    for (const Json::Member& inner : member.value.members()) add(inner);
  }
  return result;
}

MegatronSource from_yaml(const std::shared_ptr<const Source>& source, Diagnostics& diagnostics) {
  const Json root = read_yaml(source, diagnostics);
  if (!diagnostics.empty()) return {};
  if (!root.is_object()) {
    diagnostics.add(root.place(), "expected a map at the top of the file");
    return {};
  }
  const Json* arguments = root.find("MODEL_ARGS");
  if (arguments == nullptr) return from_yaml_cfg(root);
  if (!arguments->is_object()) {
    diagnostics.add(arguments->place(), "expected MODEL_ARGS to map flags to values");
    return {};
  }
  return from_model_config(*arguments);
}

}  // namespace

MegatronSource read_megatron_source(const ImportRequest& request, Diagnostics& diagnostics) {
  if (request.files.empty()) {
    if (request.arguments.empty()) diagnostics.add({}, "expected a file, or the arguments of Megatron-LM behind --");
    return {read_megatron_arguments(words_of_arguments(request.arguments), request.ignore_unknown, diagnostics),
            "arguments of Megatron-LM", 0, true};
  }
  if (request.files.size() > 1 || !request.arguments.empty()) {
    diagnostics.add({}, "expected one file or arguments behind --, found more");
    return {};
  }
  const std::shared_ptr<const Source>& source = request.files.front();
  if (has_megatron_arguments_block(source->text)) {
    return {read_megatron_log(source, diagnostics), "the arguments that Megatron-LM printed", 0, false};
  }
  if (is_yaml(source->name)) return from_yaml(source, diagnostics);
  Launch launch = read_launch_script(source, request.variables, is_megatron_flag, diagnostics);
  return {read_megatron_arguments(launch.arguments, request.ignore_unknown, diagnostics),
          "a launch script of Megatron-LM", launch.world, true};
}

}  // namespace lockstep
