// SPDX-License-Identifier: Apache-2.0
#include "src/live/code_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "src/symbolic/program_operations.h"

namespace lockstep::live {

namespace {

/// "ddp.py in forward" of "ddp.py:12 in forward".
std::string without_line(const std::string& call) {
  const std::size_t in = call.find(" in ");
  const std::size_t colon = call.rfind(':', in);
  return colon == std::string::npos ? call : call.substr(0, colon) + (in == std::string::npos ? "" : call.substr(in));
}

/// By the size of the process group in which a rank makes a call of a program: how many do.
std::map<int, std::int64_t> ranks_by_group(const Extraction& extraction, std::size_t program, std::size_t call) {
  const symbolic::RankPrograms& programs = extraction.programs;
  const symbolic::ProgramCall& own = programs.programs[program].calls[call];
  const bool meets_one = symbolic::program_operation(own.op).in_pairs;
  const int group = meets_one ? -1 : own.group;
  std::map<int, std::int64_t> ranks;
  for (const int rank : extraction.details[program].ranks)
    ++ranks[group < 0 ? 0 : static_cast<int>(programs.members[at(programs.groups[at(group)].on(rank))].size())];
  return ranks;
}

}  // namespace

void count_calls(const Extraction& extraction, bool is_new, std::vector<CallDifference>& calls) {
  std::map<std::tuple<std::string, std::string, int>, std::size_t> places;
  for (std::size_t i = 0; i < calls.size(); ++i) places[{calls[i].op, calls[i].call, calls[i].group}] = i;
  for (std::size_t program = 0; program < extraction.details.size(); ++program) {
    const ExtractedProgram& details = extraction.details[program];
    for (std::size_t number = 0; number < details.calls.size(); ++number) {
      const CapturedCollective& call = details.calls[number];
      const std::string op =
          call.reduce.empty() || call.reduce == "sum" ? call.op : fmt::format("{} ({})", call.op, call.reduce);
      for (const auto& [size, ranks] : ranks_by_group(extraction, program, number)) {
        const auto [place, is_first] = places.try_emplace({op, without_line(call.call), size}, calls.size());
        if (is_first) calls.push_back({op, without_line(call.call), size, 0, 0, 0, 0});
        CallDifference& here = calls[place->second];
        (is_new ? here.calls_after : here.calls_before) += ranks;
        (is_new ? here.elements_after : here.elements_before) += ranks * call.elements;
      }
    }
  }
}

std::vector<std::string> calls_behind(const Extraction& extraction, int parameter, int step, int rank) {
  const std::size_t number = at(extraction.programs.program_of[at(rank)]);
  const symbolic::RankProgram& program = extraction.programs.programs[number];
  const ExtractedProgram& details = extraction.details[number];
  std::set<int> behind;
  std::vector<int> next;
  const auto follow = [&](const symbolic::ProgramContent& content) {
    for (const int call : symbolic::calls_read(program, content)) {
      if (behind.insert(call).second) next.push_back(call);
    }
  };
  for (const ExtractedResult& result : details.results) {
    const std::vector<int>& ranks = details.ranks_of(result);
    if (result.step == step && result.content >= 0 && extraction.regions[at(result.region)].parameter == parameter &&
        std::binary_search(ranks.begin(), ranks.end(), rank))
      follow(program.results[at(result.content)]);
  }
  while (!next.empty()) {
    const int call = next.back();
    next.pop_back();
    follow(program.calls[at(call)].input);
  }
  std::vector<std::string> words;
  for (const int call : behind) {
    const CapturedCollective& one = details.calls[at(call)];
    std::string text = one.call.empty() ? one.op : fmt::format("{} at {}", one.op, one.call);
    if (std::find(words.begin(), words.end(), text) == words.end()) words.push_back(std::move(text));
  }
  return words;
}

}  // namespace lockstep::live
