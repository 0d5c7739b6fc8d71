// SPDX-License-Identifier: Apache-2.0
#include "src/cli/files.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <set>

#include "lockstep/diagnostic.h"
#include "lockstep/json.h"
#include "lockstep/scenario.h"
#include "src/base/counted.h"
#include "src/base/inputs.h"
#include "src/cli/glob.h"
#include "src/cli/ignored_files.h"
#include "src/cli/options.h"
#include "src/cli/output.h"
#include "src/report/clean_text.h"
#include "src/scenario/allowed_files.h"
#include "src/scenario/named_file.h"

namespace lockstep::cli {

namespace fs = std::filesystem;

namespace {

/// What becomes of a file that a folder or a glob has, and nobody has named.
enum class InFolder {
  taken,
  of_scenarios,  ///< a framework or a model, which scenarios name: left out without a word
  another,       ///< what other programs have: left out, and counted
};

/// A file with a mistake in its JSON is taken: it may be a scenario, and whoever reads it says what is wrong.
InFolder found_scenario(const fs::path& path) {
  // What a link outside of the folder leads to is not looked at; who reads it as a scenario says what is wrong.
  if (scenario::leads_outside(path)) return InFolder::taken;
  std::string error;
  const std::optional<std::string> text = scenario::read_text_file(path, error);
  if (!text) return InFolder::taken;
  const auto has = [&](const char* word) { return text->find(word) != std::string::npos; };
  // As nearly all scenarios begin; they are read once more anyway.
  const std::size_t brace = text->find_first_not_of(" \t\r\n");
  const std::size_t first = brace == std::string::npos ? brace : text->find_first_not_of(" \t\r\n", brace + 1);
  const bool begins = first != std::string::npos && (*text)[brace] == '{' && text->substr(first, 10) == "\"lockstep\"";
  if (begins && has("\"layout\"") && has("\"schedule\"")) return InFolder::taken;
  Diagnostics diagnostics;
  const Json document = parse_json(std::make_shared<const Source>(Source{path.string(), *text}), diagnostics);
  const auto says = [&](const char* key) { return document.find(key) != nullptr; };
  if (says("lockstep_framework") || says("lockstep_model")) return InFolder::of_scenarios;
  const bool may_be_one = !diagnostics.empty() || document.is_null() || says("lockstep") || says("layout") ||
                          says("schedule") || says("lockstep_extract");
  return may_be_one ? InFolder::taken : InFolder::another;
}

constexpr std::uint64_t most_bytes = 64 << 20;

/// What a command takes.
struct Wanted {
  std::vector<std::string> endings;
  std::string_view one;                ///< "scenario"
  bool takes_input;                    ///< "-" is standard input
  bool once;                           ///< a file that is there twice is taken once
  bool reads_gitignore;                ///< what a run writes is often ignored, and is what is asked for
  InFolder (*found)(const fs::path&);  ///< of what is found in folders and by globs
};

const Wanted scenarios{{".json", ".jsonc"}, "scenario", true, true, true, found_scenario};
const Wanted dumps{{".json"}, "dump", false, true, false, [](const fs::path&) { return InFolder::taken; }};
const Wanted tensors{
    {".safetensors", ".npy"}, "file of tensors", false, false, false, [](const fs::path&) { return InFolder::taken; }};

/// Of what is found, and was not named: a pipe, which nobody may ever write to, or a device.
bool never_opened(const fs::path& path) {
  std::error_code error;
  return fs::is_other(path, error) || scenario::is_of_the_system(path);
}

/// What a search passed over, to be told.
struct PassedOver {
  std::set<std::string> others;   ///< JSON of other programs
  std::set<std::string> ignored;  ///< files, and folders with "/" at the end, that .gitignore names
};

std::vector<std::string> files_in(const fs::path& folder, const Wanted& wanted, PassedOver& passed_over) {
  std::vector<std::string> files;
  IgnoredFiles ignored(folder);
  for (fs::recursive_directory_iterator entry(folder), end; entry != end; ++entry) {
    const fs::path& path = entry->path();
    const bool hidden = path.filename().native().starts_with(".");
    // A link to itself is neither a folder nor a file; whoever opens it says so, and the others go on.
    std::error_code error;
    const bool is_folder = entry->is_directory(error);
    if (!is_folder && never_opened(path)) continue;
    const std::string ending = path.extension().string();
    const bool fits =
        is_folder || std::find(wanted.endings.begin(), wanted.endings.end(), ending) != wanted.endings.end();
    const bool is_ignored = fits && !hidden && wanted.reads_gitignore && ignored.ignores(path, is_folder);
    if (is_ignored) passed_over.ignored.insert(path.lexically_normal().string() + (is_folder ? "/" : ""));
    if (is_folder && (hidden || is_ignored)) entry.disable_recursion_pending();
    if (is_folder || hidden || !fits || is_ignored) continue;
    const InFolder found = wanted.found(path);
    const std::string name = path.lexically_normal().string();
    if (found == InFolder::taken) files.push_back(name);
    if (found == InFolder::another) passed_over.others.insert(name);
  }
  std::sort(files.begin(), files.end());
  return files;
}

/// A name in the same folder that was perhaps meant.
std::string near_name(const fs::path& path, const std::vector<std::string>& endings) {
  const fs::path folder = path.parent_path().empty() ? fs::path(".") : path.parent_path();
  std::error_code error;
  std::vector<std::string> names;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  // Endings are easily left out.
  for (const std::string& ending : endings) {
    const std::string whole = path.filename().string() + ending;
    if (std::find(names.begin(), names.end(), whole) != names.end())
      return fmt::format("; did you mean \"{}\"?", whole);
  }
  return did_you_mean(path.filename().string(), names);
}

std::string no_match(const std::string& pattern, std::size_t fitting, std::string_view one) {
  if (fitting > 0)
    return fmt::format("the glob {} fits {} or {}, and none of them is or holds a {}", pattern,
                       counted(fitting, "file"), fitting == 1 ? "folder" : "folders", one);
  const std::string folder = fixed_part(pattern);
  std::error_code error;
  if (!folder.empty() && !fs::exists(folder, error))
    return fmt::format("no file fits the glob {}: there is no folder {}{}", pattern, folder, near_name(folder, {}));
  return fmt::format("no file or folder fits the glob {}", pattern);
}

/// What two spellings of a path have in common: it is without "./" and doubled slashes. "a/.." stays, for `a` may be a
/// link. Standard input is no path.
std::string spelling(const std::string& path) {
  if (path == standard_input_name) return "";
  const fs::path whole(path);
  const bool climbs = std::find(whole.begin(), whole.end(), "..") != whole.end();
  return climbs ? path : whole.lexically_normal().string();
}

class Search {
 public:
  explicit Search(const Wanted& wanted) : wanted_(wanted) {}

  std::vector<std::string> all(const std::vector<std::string>& arguments) {
    for (const std::string& argument : arguments) {
      std::error_code error;
      if (argument == "-" && wanted_.takes_input) {
        take({std::string(standard_input_name)});
      } else if (fs::exists(fs::status(argument, error)) || fs::is_symlink(argument, error)) {
        // A file that is called as standard input is here.
        take(found_at(argument == standard_input_name ? fmt::format("./{}", argument) : argument, true));
      } else if (is_glob(argument)) {
        take(found_by(argument));
      } else {
        missing_.push_back({{}, no_such(argument)});
      }
    }
    if (!missing_.empty()) throw InputError(std::move(missing_));
    tell_of_others();
    return std::move(files_);
  }

 private:
  void take(const std::vector<std::string>& files) {
    for (const std::string& file : files) {
      if (!wanted_.once || seen_.insert(spelling(file)).second) files_.push_back(file);
    }
  }

  std::vector<std::string> found_at(const std::string& path, bool named) {
    try {
      std::error_code error;
      if (fs::is_directory(path, error)) return files_in(path, wanted_, passed_over_);
    } catch (const fs::filesystem_error& failure) {
      missing_.push_back({{}, fmt::format("cannot read the folder {}: {}", path, failure.code().message())});
      return {};
    }
    if (named) return {path};
    if (never_opened(path)) return {};
    const InFolder found = wanted_.found(path);
    if (found == InFolder::another) passed_over_.others.insert(path);
    return found == InFolder::taken ? std::vector<std::string>{path} : std::vector<std::string>{};
  }

  /// A folder may hold files that are not looked at, and that is said.
  void tell_of_others() {
    const std::size_t others = passed_over_.others.size();
    tell_once(
        fmt::format("{} that {}", counted(others, "JSON file"), others == 1 ? "is no scenario" : "are no scenarios"),
        passed_over_.others);
    tell_once("what .gitignore names", passed_over_.ignored);
  }

  static void tell_once(const std::string& what, const std::set<std::string>& paths) {
    static std::set<std::set<std::string>> told;  // who watches a folder searches it again and again
    if (paths.empty() || !told.insert(paths).second) return;
    tell(fmt::format("lockstep: passed over {}: {}{}\n", what, report::one_line_text(*paths.begin()),
                     paths.size() == 1   ? ""
                     : paths.size() == 2 ? " and another"
                                         : " and others"));
  }

  std::vector<std::string> found_by(const std::string& pattern) {
    const std::vector<std::string> fitting = expand_glob(pattern);
    std::vector<std::string> files;
    const std::size_t before = missing_.size();
    for (const std::string& path : fitting) {
      const std::vector<std::string> here = found_at(path, false);
      files.insert(files.end(), here.begin(), here.end());
    }
    if (files.empty() && missing_.size() == before)
      missing_.push_back({{}, no_match(pattern, fitting.size(), wanted_.one)});
    return files;
  }

  std::string no_such(const std::string& argument) const {
    if (argument.empty()) return "an empty name was given where a file or folder was expected";
    return fmt::format("there is no file or folder {}{}", argument, near_name(argument, wanted_.endings));
  }

  const Wanted& wanted_;
  std::vector<std::string> files_;
  PassedOver passed_over_;
  std::set<std::string> seen_;
  std::vector<Diagnostic> missing_;
};

/// The path without links and detours, however it is spelled; what it leads to need not be there.
fs::path whole(const std::string& path) {
  std::error_code error;
  const fs::path from_root = fs::absolute(path, error);
  const fs::path result = fs::weakly_canonical(from_root, error);
  return error ? from_root.lexically_normal() : result;
}

}  // namespace

std::vector<std::string> scenario_files(const std::vector<std::string>& arguments) {
  return Search(scenarios).all(arguments);
}

std::vector<std::string> tensor_files(const std::vector<std::string>& arguments) {
  return Search(tensors).all(arguments);
}

std::vector<std::string> dump_files(const std::vector<std::string>& arguments) { return Search(dumps).all(arguments); }

std::string one_scenario_file(std::string_view command, const std::string& argument) {
  const std::vector<std::string> files = scenario_files({argument});
  if (files.size() == 1) return files.front();
  if (files.empty())
    usage_error(fmt::format("{} takes one scenario, and there is no *.json or *.jsonc file in the folder {}", command,
                            argument));
  usage_error(fmt::format("{} takes one scenario, and {} stands for {}: {} and others; name one of them", command,
                          argument, files.size(), files.front()));
}

std::vector<std::string> expanded_files(const std::vector<std::string>& arguments) {
  std::vector<std::string> files;
  std::vector<Diagnostic> missing;
  for (const std::string& argument : arguments) {
    std::error_code error;
    if (!is_glob(argument) || fs::exists(fs::status(argument, error))) {
      files.push_back(argument);
      continue;
    }
    const std::vector<std::string> found = expand_glob(argument);
    if (found.empty()) missing.push_back({{}, no_match(argument, 0, "")});
    files.insert(files.end(), found.begin(), found.end());
  }
  if (!missing.empty()) throw InputError(std::move(missing));
  return files;
}

std::shared_ptr<const Source> read_source(const std::string& file, std::string_view expected) {
  std::error_code error;
  const bool standard = file == "-";
  if (!standard && !std::filesystem::exists(file, error)) usage_error(fmt::format("there is no file {}", file));
  if (std::filesystem::is_directory(file, error)) usage_error(fmt::format("{} is a folder; expected a file", file));
  std::ifstream opened;
  if (!standard) opened.open(file, std::ios::binary);
  std::istream& stream = standard ? std::cin : opened;
  if (!stream) usage_error(fmt::format("cannot read {}", file));
  if (standard)
    note_input(STDIN_FILENO);
  else
    note_input(std::filesystem::path(file));
  auto source = std::make_shared<Source>();
  source->name = file;
  char buffer[1 << 16];
  while (stream.read(buffer, sizeof buffer) || stream.gcount() > 0) {
    source->text.append(buffer, static_cast<std::size_t>(stream.gcount()));
    if (source->text.size() > most_bytes)
      usage_error(fmt::format("{} is larger than 64 MiB; expected {}", file, expected));
  }
  if (source->text.find('\0') != std::string::npos)
    usage_error(fmt::format("{} is a binary file; expected {} as text", file, expected));
  return source;
}

void keep_inputs(const std::string& output, const std::vector<std::string>& inputs) {
  std::error_code failed;
  if (output.empty() || !std::filesystem::exists(output, failed)) return;
  const std::filesystem::path folder = std::filesystem::path(output).parent_path();
  for (const std::string& input : inputs) {
    const bool is_folder = std::filesystem::is_directory(input, failed);
    const std::filesystem::path place = !is_folder ? std::filesystem::path(output) : folder.empty() ? "." : folder;
    const bool lies_in = is_folder && std::filesystem::equivalent(place, input, failed);
    const bool is_it = !is_folder && std::filesystem::is_regular_file(output, failed) &&
                       std::filesystem::equivalent(place, input, failed);
    if (lies_in || is_it)
      usage_error(fmt::format("the report would replace {}, which it is about; give it another name",
                              is_folder ? output : input));
  }
}

void keep_what_was_read(const std::string& output) {
  if (!output.empty() && was_read(output))
    throw ReplacedInput(
        fmt::format("{} was read by this call, and what it writes would replace it; give another name", output));
}

void keep_apart(const std::vector<std::string>& outputs) {
  for (auto one = outputs.begin(); one != outputs.end(); ++one) {
    for (auto other = outputs.begin(); other != one; ++other) {
      std::error_code error;
      if (one->empty() || other->empty() || whole(*one) != whole(*other)) continue;
      if (fs::is_character_file(*one, error)) continue;  // "/dev/null" takes any number
      const std::string both = *one == *other ? *one : fmt::format("{}, which is {} too", *other, *one);
      usage_error(fmt::format("two reports cannot be written to one file, {}; give one of them another name", both));
    }
  }
}

}  // namespace lockstep::cli
