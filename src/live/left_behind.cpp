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

}  // namespace

std::vector<std::string> ranks_left_behind(const CapturedRun& run, const std::vector<int>& steps) {
  std::vector<std::string> sentences;
  const bool is_known =
      std::none_of(run.gaps.begin(), run.gaps.end(), [&](const RunGap& gap) { return gap.concerns(steps); }) &&
      std::none_of(run.unknowns.begin(), run.unknowns.end(), [&](const auto& unknown) {
        const int step = unknown.first.first;
        return step < 0 || std::find(steps.begin(), steps.end(), step) != steps.end();
      });
  if (!run.header.collectives || !is_known) return sentences;
  std::set<int> brought;  // ranks that get values from others, now or in another step
  for (const RankRecord& rank : run.ranks) {
    for (const CapturedCollective& call : rank.collectives) {
      if (call.group.size() > 1 && brings_values(call.op)) brought.insert(rank.header.rank);
    }
  }
  std::vector<char> gets(run.parameters.size(), 0);  // some rank's optimizer
  std::map<std::vector<int>, std::set<int>> found;   // parameters, by the ranks without
  std::map<int, std::set<int>> without;              // ranks, by parameter
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
  for (const auto& [parameter, ranks] : without) {
    if (gets[at(parameter)] != 0) found[{ranks.begin(), ranks.end()}].insert(parameter);
  }
  for (const auto& [ranks, parameters] : found) {
    const std::string& first = run.parameters[at(*parameters.begin())].declared.name;
    sentences.push_back(fmt::format(
        "the optimizer of {} never gets {}{}, others' do, and nothing that was recorded brings it the new values.",
        rank_words(ranks), first, parameters.size() == 1 ? "" : " and " + counted(parameters.size() - 1, "other")));
  }
  return sentences;
}

}  // namespace lockstep::live
