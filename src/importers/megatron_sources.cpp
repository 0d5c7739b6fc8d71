// SPDX-License-Identifier: Apache-2.0
#include "src/importers/megatron_sources.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "src/importers/deepspeed.h"
#include "src/importers/key_table.h"
#include "src/importers/launch_script.h"
#include "src/importers/megatron_deepspeed.h"
#include "src/importers/megatron_flags.h"
#include "src/importers/megatron_log.h"
#include "src/importers/request.h"
#include "src/importers/syntax.h"

namespace lockstep::importers {

namespace {

bool is_megatron_flag(const std::string& word) { return megatron_flags().contains(word); }

bool is_yaml(const std::string& name) { return name.ends_with(".yaml") || name.ends_with(".yml"); }

/// tests/functional_tests of Megatron-LM: MODEL_ARGS maps flags to values.
MegatronSource from_model_config(const Json& arguments, Diagnostics& diagnostics) {
  MegatronSource result{{}, "a model_config.yaml of Megatron-LM", 0, true};
  for (const Json::Member& member : arguments.members()) {
    add_megatron_flag(member.key, member.key_place, member.value, result.settings, diagnostics);
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
  // Where a value does not matter, neither does which of two counts; Megatron-LM's own tests have such keys.
  const KeyTable table("megatron");
  const auto ignored = [&](const std::string& flag) {
    const auto found = megatron_flags().find(flag);
    return found != megatron_flags().end() && table.row(found->second.key) == nullptr &&
           !table.ignored(found->second.key, found->second.origin).empty();
  };
  const Json root = read_yaml(source, diagnostics, ignored);
  if (!is_configuration(root, source, diagnostics)) return {};
  const Json* arguments = root.find("MODEL_ARGS");
  if (arguments == nullptr) return from_yaml_cfg(root);
  if (!arguments->is_object()) {
    diagnostics.add(arguments->place(), "expected MODEL_ARGS to map flags to values");
    return {};
  }
  return from_model_config(*arguments, diagnostics);
}

/// The keys of DeepSpeed's configuration beside Megatron's arguments, where they hand over to it.
void add_deepspeed(const ImportRequest& request, Settings& settings, Diagnostics& diagnostics) {
  if (!hands_over_to_deepspeed(settings)) {
    has_one_file(request, "Megatron-LM", diagnostics);
    return;
  }
  const Settings more = read_deepspeed(request.files.back(), diagnostics);
  for (const Setting& setting : more.all()) {
    if (settings.find(setting.key) == nullptr) settings.set(setting);
  }
}

}  // namespace

MegatronSource read_megatron_source(const ImportRequest& request, Diagnostics& diagnostics) {
  const auto no_variables = [&](const std::string& what) {
    if (!request.variables.empty())
      diagnostics.add({}, fmt::format("--set: {} have no variables, only a launch script has; leave --set out", what));
  };
  if (request.files.empty()) {
    if (request.arguments.empty()) {
      diagnostics.add({},
                      "expected a configuration of Megatron-LM, found no file; give one, or its arguments after --");
    }
    no_variables("arguments");
    return {read_megatron_arguments(words_of_arguments(request.arguments), request.ignore_unknown, diagnostics),
            "arguments of Megatron-LM", 0, true};
  }
  if (!request.arguments.empty()) {
    MegatronSource both{
        read_megatron_arguments(words_of_arguments(request.arguments), request.ignore_unknown, diagnostics),
        "arguments of Megatron-LM", 0, true};
    no_variables("arguments");
    if (hands_over_to_deepspeed(both.settings) && request.files.size() == 1) {
      add_deepspeed(request, both.settings, diagnostics);
    } else {
      diagnostics.add({},
                      "expected a file or the arguments after --, found both; give one of them. Only arguments with "
                      "--deepspeed have a file beside them, DeepSpeed's configuration");
    }
    return both;
  }
  const std::shared_ptr<const Source>& source = request.files.front();
  // A second one is DeepSpeed's, of a launch script that hands the gradients to it.
  const bool may_have_two =
      request.files.size() == 2 && !has_megatron_arguments_block(source->text) && !is_yaml(source->name);
  if (!may_have_two && !has_one_file(request, "Megatron-LM", diagnostics)) return {};
  if (has_megatron_arguments_block(source->text)) {
    no_variables("the arguments in a log");
    MegatronSource log{{}, "the arguments that Megatron-LM printed", 0, false, {}, true};
    log.settings = read_megatron_log(source, log.notes, diagnostics);
    return log;
  }
  if (is_yaml(source->name)) {
    no_variables("the keys of a YAML file");
    return from_yaml(source, diagnostics);
  }
  Launch launch = read_launch_script(source, request.variables, is_megatron_flag, diagnostics);
  if (!diagnostics.empty()) return {};
  std::string other_model;
  // Megatron-LM's programs for models that are no GPT take the same arguments.
  for (const std::string_view other :
       {"bert", "t5", "mamba", "hybrid", "vlm", "ict", "retro", "vision_classify", "vision_dino", "vision_inpaint"}) {
    if (launch.program != fmt::format("pretrain_{}.py", other)) continue;
    other_model = launch.program;
    if (!request.model.empty()) continue;
    diagnostics.add(launch.place,
                    fmt::format("{} trains a model that lockstep does not describe; it imports GPT models, which "
                                "pretrain_gpt.py trains; --model gpt puts one of these sizes in its place",
                                other_model));
  }
  if (!launch.program.empty() && launch.program != "pretrain_gpt.py" && other_model.empty())
    launch.notes.push_back(
        "The program is not pretrain_gpt.py: it was not read, and is taken for one that trains a GPT model of these "
        "arguments "
        "as that does.");
  std::vector<std::string> broken;
  Settings settings = read_megatron_arguments(launch.arguments, request.ignore_unknown, diagnostics, &broken);
  if (may_have_two) add_deepspeed(request, settings, diagnostics);
  if (!broken.empty())
    launch.notes.push_back(
        fmt::format("No value, or more than one, as from a variable that is not set: {}; {} not matter for gradients.",
                    fmt::join(broken, ", "), broken.size() == 1 ? "it does" : "they do"));
  return {std::move(settings), "a launch script of Megatron-LM", launch.world, true, launch.notes, false, other_model};
}

}  // namespace lockstep::importers
