// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/diagnostic.h"

namespace lockstep::cli {

/// What every command says of an argument that scenario_files() reads.
inline constexpr std::string_view files_help =
    "Scenario files, folders that are searched for *.json and *.jsonc, or globs in quotes such as 'cases/**/*.json'; - "
    "is "
    "standard input.";
inline constexpr std::string_view file_help =
    "Scenario file; - is standard input. A folder or a glob will do where it stands for one.";

/// The scenario files that the arguments stand for, each once: files as they are, standard_input_name for "-", folders
/// searched for *.json and *.jsonc at any depth, and globs (glob.h) that the shell has not expanded; what is found in a
/// folder or by a glob is sorted. Hidden files and folders are skipped, and so are framework and model files that were
/// not named, and in folders what .gitignore names (ignored_files.h). Throws InputError for paths that do not exist,
/// all of them at once.
std::vector<std::string> scenario_files(const std::vector<std::string>& arguments);

/// The one file that the argument of `command` stands for. Throws InputError where it stands for none or several.
std::string one_scenario_file(std::string_view command, const std::string& argument);

/// Files of tensors: as scenario_files(), but *.safetensors and *.npy, each as often as it is there; standard input is
/// none.
std::vector<std::string> tensor_files(const std::vector<std::string>& arguments);

/// Dumps of one rank each: as scenario_files(), but *.json alone; standard input is none.
std::vector<std::string> dump_files(const std::vector<std::string>& arguments);

/// Files of any kind, and "-": arguments that do not exist and are globs are expanded, all others stay as they are.
/// Throws InputError for a glob that nothing fits.
std::vector<std::string> expanded_files(const std::vector<std::string>& arguments);

/// An output in place of an input: the call is refused as a whole.
class ReplacedInput : public InputError {
 public:
  explicit ReplacedInput(std::string message) : InputError({Diagnostic{{}, std::move(message)}}) {}
};

/// Throws InputError where `output` is one of the files, or lies in one of the folders, that are read: it would replace
/// what it is about. "" is standard output.
void keep_inputs(const std::string& output, const std::vector<std::string>& inputs);

/// Throws ReplacedInput where this process has read what lies at `output`, such as a framework file.
void keep_what_was_read(const std::string& output);

/// Throws InputError where two of the outputs are one file, however they are spelled, and no device.
void keep_apart(const std::vector<std::string>& outputs);

/// The text of a file; "-" is standard input. Throws InputError where it cannot be read, is larger than 64 MiB or holds
/// a zero byte. `expected`: what it should be, for messages: "a configuration".
std::shared_ptr<const Source> read_source(const std::string& file, std::string_view expected);

}  // namespace lockstep::cli
