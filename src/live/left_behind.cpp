// SPDX-License-Identifier: Apache-2.0
#include "src/live/left_behind.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <tuple>

#include "src/base/at.h"
#include "src/base/counted.h"
#include "src/live/region_overlaps.h"
#include "src/live/value_paths.h"
#include "src/live/words.h"

namespace lockstep::live {

namespace {

/// Whether nothing of the steps is known to be missing.
bool is_whole(const CapturedRun& run, const std::vector<int>& steps) {
  return std::none_of(run.gaps.begin(), run.gaps.end(), [&](const RunGap& gap) { return gap.concerns(steps); }) &&
         std::none_of(run.unknowns.begin(), run.unknowns.end(), [&](const auto& unknown) {
           const int step = unknown.first.first;
           return step < 0 || std::find(steps.begin(), steps.end(), step) != steps.end();
         });
}

/// What optimizers do not get, and no call brings.
class LeftBehind {
 public:
  explicit LeftBehind(const CapturedRun& run) : run_(run) {}

  /// `in_part`: other elements of the parameter come to the ranks.
  void add(int parameter, bool in_part, const std::vector<int>& ranks) {
    found_[{parameter, in_part}].insert(ranks.begin(), ranks.end());
  }

  std::vector<std::string> sentences() const {
    std::map<std::pair<bool, std::vector<int>>, std::set<int>> by_ranks;
    for (const auto& [what, ranks] : found_) by_ranks[{what.second, {ranks.begin(), ranks.end()}}].insert(what.first);
    std::vector<std::string> sentences;
    for (const auto& [who, parameters] : by_ranks) {
      const auto& [in_part, ranks] = who;
      const std::string others = parameters.size() == 1 ? "" : " and " + counted(parameters.size() - 1, "other");
      const std::string what = run_.parameters[at(*parameters.begin())].declared.name + others;
      sentences.push_back(fmt::format("the optimizer of {} {}, and nothing that was recorded brings it the new values.",
                                      rank_words(ranks),
                                      in_part ? fmt::format("gets only a part of {}, others' get the rest", what)
                                              : fmt::format("never gets {}, others' do", what)));
    }
    return sentences;
  }

 private:
  const CapturedRun& run_;
  std::map<std::pair<int, bool>, std::set<int>> found_;  // ranks, by parameter
};

/// Whether a call brings a rank values that may be new: a gather that came before them will come again, while a
/// broadcast before the first backward pass, and any call before the model's first one, brings what training begins
/// with.
bool brings(const CapturedCollective& call, std::size_t members, int first_contribution) {
  if (members < 2 || call.early) return false;
  return call.op == "all_gather" || (call.op == "broadcast" && call.line > first_contribution);
}

using PieceSet = std::set<std::pair<int, int>>;  // parameter and piece

/// Of a rank's contributions in these steps, or of what its optimizer gets in them.
PieceSet cells_of(const RankRecord& rank, const std::vector<int>& steps, std::vector<SketchedTensor> RankStep::*which) {
  PieceSet cells;
  for (const int step : steps) {
    const auto content = rank.steps.find(step);
    if (content == rank.steps.end()) continue;
    for (const SketchedTensor& one : content->second.*which) cells.emplace(one.parameter, one.piece);
  }
  return cells;
}

ValuePaths paths_of(const CapturedRun& run) {
  ValuePaths paths(run.header.world);
  std::map<std::vector<int>, int> groups;
  for (const RankRecord& rank : run.ranks) {
    int first = 0;
    for (const auto& [step, content] : rank.steps) {
      if (first == 0 && !content.contributions.empty()) first = content.contributions.front().line;
    }
    std::set<std::pair<int, int>> known;  // group and root
    for (const CapturedCollective& call : rank.collectives) {
      if (!brings(call, call.group.size(), first)) continue;
      const int group = groups.try_emplace(call.group, static_cast<int>(groups.size())).first->second;
      if (known.emplace(group, call.root).second) paths.add(rank.header.rank, group, call.root);
    }
  }
  return paths;
}

/// What of an extraction's regions ranks contribute to in some steps, and what their optimizers get.
class ExtractedParts {
 public:
  ExtractedParts(const Extraction& extraction, const std::vector<int>& steps)
      : extraction_(extraction),
        overlaps_(extraction),
        contributed_(extraction.details.size()),
        gotten_(extraction.details.size()) {
    const auto is_looked_at = [&](int step) { return std::find(steps.begin(), steps.end(), step) != steps.end(); };
    for (std::size_t i = 0; i < extraction.details.size(); ++i) {
      for (const ExtractedContribution& one : extraction.details[i].contributions) {
        if (is_looked_at(one.step)) contributed_[i].insert({one.region, one.first, one.elements});
      }
      for (const ExtractedResult& one : extraction.details[i].results) {
        if (!is_looked_at(one.step)) continue;
        const RegionPart part{one.region, one.first, one.elements};
        all_[parameter(part)].push_back(part);
        if (one.ranks.empty()) gotten_[i].push_back(part);
        for (const int rank : one.ranks) of_rank_[rank].push_back(part);
      }
    }
  }

  /// Parameters of which ranks of a program contribute to elements that some optimizer gets, and none of these ranks';
  /// and whether theirs get others.
  std::map<int, bool> lacking(int program, const std::vector<int>& from) {
    std::vector<int> programs, ranks;
    for (const int rank : from) {
      programs.push_back(extraction_.programs.program_of[at(rank)]);
      if (of_rank_.contains(rank)) ranks.push_back(rank);
    }
    std::sort(programs.begin(), programs.end());
    programs.erase(std::unique(programs.begin(), programs.end()), programs.end());
    const auto [found, is_new] = known_.try_emplace({program, programs, ranks});
    if (is_new) found->second = look(program, programs, ranks);
    return found->second;
  }

 private:
  using Parts = std::map<int, std::vector<RegionPart>>;  // by parameter

  int parameter(const RegionPart& part) const { return extraction_.regions[at(part.region)].parameter; }

  std::map<int, bool> look(int program, const std::vector<int>& programs, const std::vector<int>& ranks) {
    Parts gotten;
    for (const int one : programs) {
      for (const RegionPart& part : gotten_[at(one)]) gotten[parameter(part)].push_back(part);
    }
    for (const int rank : ranks) {
      for (const RegionPart& part : of_rank_[rank]) gotten[parameter(part)].push_back(part);
    }
    std::map<int, bool> lacking;
    std::set<int> touched;
    for (const RegionPart& one : contributed_[at(program)]) {
      const int own = parameter(one);
      const auto [by_any, is_new] = by_any_.try_emplace(one);
      if (is_new) by_any->second = overlaps_.covered(one, all_[own]);
      if (!by_any->second.compared) continue;  // which is told where it is judged
      const RegionOverlaps::Covered by_these = overlaps_.covered(one, gotten[own]);
      if (!by_these.elements.empty()) touched.insert(own);
      if (!subtract(by_any->second.elements, by_these.elements).empty()) lacking[own] = false;
    }
    for (auto& [own, in_part] : lacking) in_part = touched.contains(own);
    return lacking;
  }

  const Extraction& extraction_;
  RegionOverlaps overlaps_;
  std::vector<std::set<RegionPart>> contributed_;   // by program
  std::vector<std::vector<RegionPart>> gotten_;     // by program, of all its ranks alike
  std::map<int, std::vector<RegionPart>> of_rank_;  // of some ranks of a program
  Parts all_;
  std::map<RegionPart, RegionOverlaps::Covered> by_any_;  // what is contributed to, and what of it some optimizer gets
  std::map<std::tuple<int, std::vector<int>, std::vector<int>>, std::map<int, bool>> known_;
};

ValuePaths paths_of(const Extraction& extraction) {
  ValuePaths paths(extraction.run.header.world);
  const symbolic::RankPrograms& programs = extraction.programs;
  for (std::size_t i = 0; i < extraction.details.size(); ++i) {
    const ExtractedProgram& program = extraction.details[i];
    const int first = program.contributions.empty() ? 0 : program.contributions.front().line;
    std::set<std::pair<int, int>> known;  // group and position of the root
    for (std::size_t call = 0; call < program.calls.size(); ++call) {
      const symbolic::ProgramCall& own = programs.programs[i].calls[call];
      if (own.group < 0) continue;
      const symbolic::ProgramGroup& group = programs.groups[at(own.group)];
      const std::size_t members = programs.members[at(group.on(program.ranks.front()))].size();
      if (!brings(program.calls[call], members, first) || !known.emplace(own.group, own.root).second) continue;
      for (const int rank : program.ranks) {
        const int number = group.on(rank);
        paths.add(rank, number, own.root < 0 ? -1 : programs.members[at(number)][at(own.root)]);
      }
    }
  }
  return paths;
}

}  // namespace

std::vector<std::string> ranks_left_behind(const CapturedRun& run, const std::vector<int>& steps) {
  if (!run.header.collectives || !is_whole(run, steps)) return {};
  std::map<int, PieceSet> contributed, gotten;  // by rank
  PieceSet all;
  for (const RankRecord& rank : run.ranks) {
    contributed[rank.header.rank] = cells_of(rank, steps, &RankStep::contributions);
    PieceSet own = cells_of(rank, steps, &RankStep::results);
    all.insert(own.begin(), own.end());
    gotten[rank.header.rank] = std::move(own);
  }
  LeftBehind behind(run);
  for (const ValuePaths::Receivers& one : paths_of(run).receivers()) {
    PieceSet brought;
    for (const int rank : one.from) brought.insert(gotten[rank].begin(), gotten[rank].end());
    for (const int rank : one.ranks) {
      for (const auto& cell : contributed[rank]) {
        if (!all.contains(cell) || brought.contains(cell)) continue;
        const auto other = brought.lower_bound({cell.first, 0});
        behind.add(cell.first, other != brought.end() && other->first == cell.first, {rank});
      }
    }
  }
  return behind.sentences();
}

std::vector<std::string> ranks_left_behind(const Extraction& extraction, const std::vector<int>& steps) {
  if (!is_whole(extraction.run, steps)) return {};
  ExtractedParts parts(extraction, steps);
  LeftBehind behind(extraction.run);
  for (const ValuePaths::Receivers& one : paths_of(extraction).receivers()) {
    std::map<int, std::vector<int>> by_program;
    for (const int rank : one.ranks) by_program[extraction.programs.program_of[at(rank)]].push_back(rank);
    for (const auto& [program, ranks] : by_program) {
      for (const auto& [parameter, in_part] : parts.lacking(program, one.from)) behind.add(parameter, in_part, ranks);
    }
  }
  return behind.sentences();
}

}  // namespace lockstep::live
