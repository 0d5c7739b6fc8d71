// SPDX-License-Identifier: Apache-2.0
#include "src/live/left_behind.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "src/base/at.h"
#include "src/base/counted.h"
#include "src/live/words.h"

namespace lockstep::live {

namespace {

bool brings_values(const std::string& op) { return op == "all_gather" || op == "broadcast"; }

/// Whether nothing of the steps is known to be missing.
bool is_whole(const CapturedRun& run, const std::vector<int>& steps) {
  return std::none_of(run.gaps.begin(), run.gaps.end(), [&](const RunGap& gap) { return gap.concerns(steps); }) &&
         std::none_of(run.unknowns.begin(), run.unknowns.end(), [&](const auto& unknown) {
           const int step = unknown.first.first;
           return step < 0 || std::find(steps.begin(), steps.end(), step) != steps.end();
         });
}

/// `gets`: by parameter, whether some rank's optimizer does; `without`: ranks, by parameter.
std::vector<std::string> sentences_of(const CapturedRun& run, const std::vector<char>& gets,
                                      const std::map<int, std::set<int>>& without) {
  std::map<std::vector<int>, std::set<int>> found;  // parameters, by the ranks without
  for (const auto& [parameter, ranks] : without) {
    if (gets[at(parameter)] != 0) found[{ranks.begin(), ranks.end()}].insert(parameter);
  }
  std::vector<std::string> sentences;
  for (const auto& [ranks, parameters] : found) {
    const std::string& first = run.parameters[at(*parameters.begin())].declared.name;
    sentences.push_back(fmt::format(
        "the optimizer of {} never gets {}{}, others' do, and nothing that was recorded brings it the new values.",
        rank_words(ranks), first, parameters.size() == 1 ? "" : " and " + counted(parameters.size() - 1, "other")));
  }
  return sentences;
}

}  // namespace

std::vector<std::string> ranks_left_behind(const CapturedRun& run, const std::vector<int>& steps) {
  if (!run.header.collectives || !is_whole(run, steps)) return {};
  std::set<int> brought;  // ranks that get values from others, now or in another step
  for (const RankRecord& rank : run.ranks) {
    for (const CapturedCollective& call : rank.collectives) {
      if (call.group.size() > 1 && brings_values(call.op)) brought.insert(rank.header.rank);
    }
  }
  std::vector<char> gets(run.parameters.size(), 0);
  std::map<int, std::set<int>> without;
  for (const RankRecord& rank : run.ranks) {
    std::vector<char> yields(run.parameters.size(), 0), own(run.parameters.size(), 0);
    for (const int step : steps) {
      const auto content = rank.steps.find(step);
      if (content == rank.steps.end()) continue;
      for (const SketchedTensor& one : content->second.contributions) yields[at(one.parameter)] = 1;
      for (const SketchedTensor& one : content->second.results) own[at(one.parameter)] = gets[at(one.parameter)] = 1;
    }
    if (brought.contains(rank.header.rank)) continue;
    for (std::size_t i = 0; i < yields.size(); ++i) {
      if (yields[i] != 0 && own[i] == 0) without[static_cast<int>(i)].insert(rank.header.rank);
    }
  }
  return sentences_of(run, gets, without);
}

std::vector<std::string> ranks_left_behind(const Extraction& extraction, const std::vector<int>& steps) {
  const CapturedRun& run = extraction.run;
  if (!is_whole(run, steps)) return {};
  const auto is_looked_at = [&](int step) { return std::find(steps.begin(), steps.end(), step) != steps.end(); };
  std::vector<char> gets(run.parameters.size(), 0);
  std::map<int, std::set<int>> without;
  for (std::size_t i = 0; i < extraction.details.size(); ++i) {
    const ExtractedProgram& program = extraction.details[i];
    std::set<int> yields;
    for (const ExtractedContribution& one : program.contributions) {
      if (is_looked_at(one.step)) yields.insert(extraction.regions[at(one.region)].parameter);
    }
    for (const ExtractedResult& one : program.results) {
      if (!is_looked_at(one.step)) continue;
      const int parameter = extraction.regions[at(one.region)].parameter;
      yields.erase(parameter);
      gets[at(parameter)] = 1;
    }
    const bool is_brought = std::any_of(program.calls.begin(), program.calls.end(),
                                        [](const CapturedCollective& call) { return brings_values(call.op); });
    if (is_brought) continue;
    for (const int parameter : yields) without[parameter].insert(program.ranks.begin(), program.ranks.end());
  }
  return sentences_of(run, gets, without);
}

}  // namespace lockstep::live
