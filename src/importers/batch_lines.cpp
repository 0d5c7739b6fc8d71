// SPDX-License-Identifier: Apache-2.0
#include "src/importers/batch_lines.h"

#include <charconv>
#include <cstdint>
#include <optional>
#include <sstream>
#include <string_view>

namespace lockstep::importers {

namespace {

constexpr std::string_view mark = "#SBATCH";
constexpr std::string_view blank = " \t\r";

/// The options of all lines. Of an option that is given twice the last one counts.
std::map<std::string, std::string> options_of(const std::string& script) {
  // The names of one option, the first as it is kept.
  static const std::map<std::string, std::string> same = {
      {"-N", "--nodes"}, {"-n", "--ntasks"}, {"-G", "--gpus"}, {"--tasks-per-node", "--ntasks-per-node"}};
  std::map<std::string, std::string> options;
  for (const std::string& line : batch_lines(script)) {
    std::istringstream words(line.substr(mark.size()));
    std::string waiting;  // an option whose value is the next word
    for (std::string word; words >> word && !word.starts_with('#');) {
      std::erase_if(word, [](char c) { return c == '"' || c == '\''; });
      if (!waiting.empty() && !word.starts_with('-')) {
        options[waiting] = word;
        waiting.clear();
        continue;
      }
      const bool is_long = word.starts_with("--");
      const std::size_t end = is_long ? word.find('=') : 2;
      std::string name = word.substr(0, end);
      if (const auto found = same.find(name); found != same.end()) name = found->second;
      if (end < word.size()) {
        options[name] = word.substr(is_long ? end + 1 : end);
        waiting.clear();
      } else {
        waiting = name;
      }
    }
  }
  return options;
}

std::optional<std::int64_t> number_in(std::string_view text) {
  constexpr std::int64_t most = 1'000'000;
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_whole = error == std::errc() && end == text.data() + text.size();
  return is_whole && value > 0 && value <= most ? std::optional(value) : std::nullopt;
}

/// Of "8" or "a100:8".
std::optional<std::int64_t> number_of_gpus(std::string_view text) {
  return number_in(text.substr(text.rfind(':') + 1));
}

/// Of "--gres=gpu:8", "gpu:a100:8" or "gpu", which is one; other resources may stand beside it.
std::optional<std::int64_t> gpus_of_resources(const std::string& text) {
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    part = part.substr(0, part.find('('));
    if (part == "gpu") return 1;
    if (part.starts_with("gpu:")) return number_of_gpus(part).value_or(part.find(':', 4) == std::string::npos ? 1 : 0);
  }
  return std::nullopt;
}

}  // namespace

std::vector<std::string> batch_lines(const std::string& script) {
  std::vector<std::string> result;
  std::istringstream lines(script);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find_first_not_of(blank);
    if (first == std::string::npos) continue;
    if (line[first] != '#') break;
    if (line.starts_with(mark)) result.push_back(line);
  }
  return result;
}

std::map<std::string, std::string> batch_variables(const std::string& script) {
  const std::map<std::string, std::string> options = options_of(script);
  const auto text = [&](const char* name) {
    const auto found = options.find(name);
    return found != options.end() ? found->second : std::string();
  };
  std::map<std::string, std::string> variables;
  const auto set = [&](const std::vector<const char*>& names, const std::optional<std::int64_t>& value) {
    for (const char* name : names) {
      if (value && *value > 0) variables[name] = std::to_string(*value);
    }
  };
  const auto nodes = number_in(text("--nodes")), each = number_in(text("--ntasks-per-node"));
  auto tasks = number_in(text("--ntasks"));
  if (!tasks && text("--ntasks").empty() && nodes && each) tasks = *nodes * *each;
  auto gpus = number_of_gpus(text("--gpus-per-node"));
  set({"SLURM_GPUS_PER_NODE"}, gpus);
  if (!gpus) gpus = gpus_of_resources(text("--gres"));
  set({"SLURM_NNODES", "SLURM_JOB_NUM_NODES"}, nodes);
  set({"SLURM_NTASKS_PER_NODE"}, each);
  set({"SLURM_NTASKS", "SLURM_NPROCS"}, tasks);
  set({"SLURM_GPUS_ON_NODE"}, gpus);
  set({"SLURM_GPUS"}, number_of_gpus(text("--gpus")));
  // Of the first process of any job; its number is made up.
  if (!batch_lines(script).empty())
    variables.insert({{"SLURM_JOB_ID", "1"}, {"SLURM_PROCID", "0"}, {"SLURM_NODEID", "0"}});
  constexpr std::int64_t most_gpus = 64;
  if (gpus && *gpus > 0 && *gpus <= most_gpus) {
    std::string& seen = variables["CUDA_VISIBLE_DEVICES"];
    for (std::int64_t i = 0; i < *gpus; ++i) seen += (i > 0 ? "," : "") + std::to_string(i);
  }
  return variables;
}

const std::vector<std::string>& layout_variables() {
  static const std::vector<std::string> names = {"SLURM_NNODES",       "SLURM_JOB_NUM_NODES",   "SLURM_NTASKS",
                                                 "SLURM_NPROCS",       "SLURM_NTASKS_PER_NODE", "SLURM_GPUS",
                                                 "SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE",   "CUDA_VISIBLE_DEVICES"};
  return names;
}

}  // namespace lockstep::importers
