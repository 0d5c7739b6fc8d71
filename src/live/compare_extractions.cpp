// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <set>
#include <tuple>

#include "lockstep/extraction_comparison.h"
#include "src/base/counted.h"
#include "src/live/compared_contents.h"
#include "src/live/left_behind.h"
#include "src/live/words.h"
#include "src/symbolic/program_operations.h"

namespace lockstep {

namespace live {

namespace {

constexpr const char* nobody_reads = "nothing: no optimizer gets it";

/// Stretches of elements that several ranks read and in which they get one sum.
struct ReadByRanks {
  Interval elements;
  int sum = 0;
  std::vector<int> ranks;  // ascending
};

std::vector<ReadByRanks> by_ranks(const std::vector<ReadStretch>& stretches) {
  std::map<std::tuple<std::int64_t, std::int64_t, int>, std::vector<int>> grouped;
  for (const ReadStretch& one : stretches) grouped[{one.elements.begin, one.elements.end, one.sum}].push_back(one.rank);
  std::vector<ReadByRanks> all;
  for (auto& [key, ranks] : grouped) {
    const auto& [begin, end, sum] = key;
    std::sort(ranks.begin(), ranks.end());
    ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
    all.push_back({{begin, end}, sum, std::move(ranks)});
  }
  return all;
}

/// "ddp.py in forward" of "ddp.py:12 in forward".
std::string without_line(const std::string& call) {
  const std::size_t in = call.find(" in ");
  const std::size_t colon = call.rfind(':', in);
  return colon == std::string::npos ? call : call.substr(0, colon) + (in == std::string::npos ? "" : call.substr(in));
}

class Comparing {
 public:
  Comparing(const std::shared_ptr<const Source>& before, const std::shared_ptr<const Source>& after)
      : before_(read_extraction(before)), after_(read_extraction(after)) {
    result_.before = before->name;
    result_.after = after->name;
  }

  ExtractionComparison run() {
    hold_apart();
    if (!result_.apart.empty()) return std::move(result_);
    const Header& header = before_.run.header;
    for (std::size_t i = 0; i < header.axes.size(); ++i) result_.axes.emplace_back(header.axes[i], header.sizes[i]);
    result_.world = header.world;
    result_.steps = static_cast<int>(before_.run.steps.size());
    parameters();
    ComparedSide before(before_, sums_), after(after_, sums_);
    for (const int step : before_.run.steps) {
      result_.step = step;
      compare(before, after, step);
      if (!result_.gradients.empty()) break;
    }
    if (result_.gradients.empty() && !before_.run.steps.empty()) result_.step = before_.run.steps.front();
    for (const auto& [name, ranks] : other_readers_)
      result_.ownership.emplace_back(name, static_cast<int>(ranks.size()));
    for (const VerifiedCollective& one : before.collectives().wrong) result_.unmet_before.push_back(one.what);
    for (const VerifiedCollective& one : after.collectives().wrong) result_.unmet_after.push_back(one.what);
    if (result_.elements == 0 && result_.gradients.empty() && result_.undecided.empty())
      result_.undecided.push_back({"", "", "no optimizer of the new one gets anything in these steps"});
    if (has_norms(before_) || has_norms(after_))
      result_.notes.emplace_back(
          "The norms by which gradients are clipped are not compared; `lockstep check` of each file judges them.");
    gaps();
    calls();
    return std::move(result_);
  }

 private:
  static bool has_norms(const Extraction& extraction) {
    return std::any_of(extraction.details.begin(), extraction.details.end(),
                       [](const ExtractedProgram& details) { return !details.norms.empty(); });
  }

  /// What makes contributions of one something else than those of the other.
  void hold_apart() {
    const Header &a = before_.run.header, &b = after_.run.header;
    const auto layout = [](const Header& header) {
      std::string text;
      for (std::size_t i = 0; i < header.axes.size(); ++i)
        text += fmt::format("{}{} {}", i == 0 ? "" : " × ", header.axes[i], header.sizes[i]);
      return text + fmt::format(" = {}", counted(header.world, "rank"));
    };
    if (a.world != b.world || a.axes != b.axes || a.sizes != b.sizes || a.mesh_ranks != b.mesh_ranks) {
      const std::string old_text = layout(a), new_text = layout(b);
      result_.apart.push_back(old_text == new_text
                                  ? "Ranks have other places in the mesh."
                                  : fmt::format("The old one is of {}, the new one of {}.", old_text, new_text));
    }
    if (a.data_axes != b.data_axes) result_.apart.push_back("Ranks read other parts of the batch: other data axes.");
    if (before_.run.steps != after_.run.steps)
      result_.apart.push_back(fmt::format("The old one has {}, the new one {}.",
                                          counted(before_.run.steps.size(), "optimizer step"),
                                          counted(after_.run.steps.size(), "optimizer step")));
    if (before_.run.steps.empty() && result_.apart.empty()) result_.apart.emplace_back("No optimizer steps in them.");
  }

  void parameters() {
    std::map<std::string, int> of_before;
    for (std::size_t i = 0; i < before_.run.parameters.size(); ++i)
      of_before.emplace(before_.run.parameters[i].declared.name, static_cast<int>(i));
    std::set<std::string> both;
    for (std::size_t i = 0; i < after_.run.parameters.size(); ++i) {
      const DeclaredParameter& there = after_.run.parameters[i].declared;
      const auto found = of_before.find(there.name);
      if (found == of_before.end()) {
        result_.only_after.push_back(there.name);
        continue;
      }
      both.insert(there.name);
      const DeclaredParameter& here = before_.run.parameters[at(found->second)].declared;
      if (here.shape != there.shape)
        result_.undecided.push_back({there.name, "", "it has another shape in the new one"});
      else
        pairs_.emplace_back(found->second, static_cast<int>(i));
    }
    for (const RunParameter& one : before_.run.parameters) {
      if (!both.contains(one.declared.name)) result_.only_before.push_back(one.declared.name);
    }
  }

  void compare(ComparedSide& before, ComparedSide& after, int step) {
    for (const auto& [a, b] : pairs_) {
      const std::string& name = before_.run.parameters[at(a)].declared.name;
      auto old_reads = before.read(a, step), new_reads = after.read(b, step);
      for (const auto& [space, stretches] : new_reads) {
        for (const ReadStretch& one : stretches) result_.elements += one.elements.size();
      }
      bool cut_otherwise = false;
      for (auto& [space, stretches] : old_reads) {
        const auto there = new_reads.find(space);
        if (there == new_reads.end() && !new_reads.empty()) {
          cut_otherwise = true;
          continue;
        }
        compare({a, b, step, name, before, after}, by_ranks(stretches),
                there == new_reads.end() ? std::vector<ReadByRanks>() : by_ranks(there->second));
      }
      for (auto& [space, stretches] : new_reads) {
        if (old_reads.contains(space)) continue;
        if (old_reads.empty())
          compare({a, b, step, name, before, after}, {}, by_ranks(stretches));
        else
          cut_otherwise = true;
      }
      if (cut_otherwise)
        undecided(name, "", "optimizers of the two read it in boxes that are cut otherwise, which are not compared");
      if (before.contributors(a, step) != after.contributors(b, step) && told_.insert(name).second)
        result_.notes.push_back(fmt::format(
            "Backward yields gradients of {} on other ranks or in other micro-batches in the new one.", name));
    }
  }

  struct Where {
    int old_parameter, new_parameter, step;
    const std::string& name;
    const ComparedSide &before, &after;
  };

  /// Elements in their order, cut where either side begins to read something else.
  void compare(const Where& where, const std::vector<ReadByRanks>& before, const std::vector<ReadByRanks>& after) {
    std::set<std::int64_t> ends;
    for (const std::vector<ReadByRanks>* side : {&before, &after}) {
      for (const ReadByRanks& one : *side) ends.insert({one.elements.begin, one.elements.end});
    }
    std::map<std::pair<int, int>, GradientDifference> found;  // by both sums
    using Open = std::multimap<std::int64_t, const ReadByRanks*>;
    Open old_open, new_open;  // by their end
    auto old_next = before.begin(), new_next = after.begin();
    for (auto end = ends.begin(); end != ends.end() && std::next(end) != ends.end(); ++end) {
      const Interval part{*end, *std::next(end)};
      const auto move_on = [&](Open& open, auto& next, const std::vector<ReadByRanks>& side) {
        open.erase(open.begin(), open.upper_bound(part.begin));
        for (; next != side.end() && next->elements.begin <= part.begin; ++next)
          open.emplace(next->elements.end, &*next);
      };
      move_on(old_open, old_next, before);
      move_on(new_open, new_next, after);
      if (!old_open.empty() || !new_open.empty()) compare_part(where, part, old_open, new_open, found);
    }
    for (auto& [sums, difference] : found) {
      const auto formula = [&](const ComparedSide& side, int sum, int parameter) {
        return sum == ComparedSide::no_gradient ? std::string("no gradient")
               : sum == nobody                  ? std::string(nobody_reads)
                                                : side.formula(sum, parameter, where.step);
      };
      difference.parameter = where.name;
      difference.before = formula(where.before, sums.first, where.old_parameter);
      difference.after = formula(where.after, sums.second, where.new_parameter);
      result_.gradients.push_back(std::move(difference));
    }
  }

  static constexpr int nobody = std::numeric_limits<int>::min();
  using ByRank = std::map<int, std::set<int>>;

  void compare_part(const Where& where, const Interval& part,
                    const std::multimap<std::int64_t, const ReadByRanks*>& before,
                    const std::multimap<std::int64_t, const ReadByRanks*>& after,
                    std::map<std::pair<int, int>, GradientDifference>& found) {
    for (const auto& [side, open] : {std::pair(&where.before, &before), std::pair(&where.after, &after)}) {
      for (const auto& [end, one] : *open) {
        if (one->sum < ComparedSide::no_gradient)
          return undecided(where.name, part_words(part), side->reason_of(one->sum));
      }
    }
    if (before.size() == 1 && after.size() == 1 && before.begin()->second->sum == after.begin()->second->sum) {
      // One sum, whoever reads it.
      other_readers(where.name, before.begin()->second->ranks, after.begin()->second->ranks);
      return;
    }
    ByRank old_sums, new_sums;
    std::set<int> of_old, of_new;
    for (const auto& [end, one] : before) {
      of_old.insert(one->sum);
      for (const int rank : one->ranks) old_sums[rank].insert(one->sum);
    }
    for (const auto& [end, one] : after) {
      of_new.insert(one->sum);
      for (const int rank : one->ranks) new_sums[rank].insert(one->sum);
    }
    if (of_old.empty()) of_old = {nobody};
    if (of_new.empty()) of_new = {nobody};
    std::map<std::pair<int, int>, std::pair<std::set<int>, std::set<int>>> here;
    std::vector<int> old_ranks, new_ranks;
    for (const auto& [rank, sums] : old_sums) {
      old_ranks.push_back(rank);
      const auto there = new_sums.find(rank);
      const std::set<int>& others = there == new_sums.end() ? of_new : there->second;
      if (sums == others ||
          (there == new_sums.end() && std::includes(others.begin(), others.end(), sums.begin(), sums.end())))
        continue;
      auto& [old_of, new_of] = here[{*sums.begin() == *others.begin() ? *sums.rbegin() : *sums.begin(),
                                     *sums.begin() == *others.begin() ? *others.rbegin() : *others.begin()}];
      old_of.insert(rank);
      if (there != new_sums.end()) new_of.insert(rank);
    }
    for (const auto& [rank, sums] : new_sums) {
      new_ranks.push_back(rank);
      if (old_sums.contains(rank) || std::includes(of_old.begin(), of_old.end(), sums.begin(), sums.end())) continue;
      here[{*of_old.begin(), *sums.begin()}].second.insert(rank);
    }
    other_readers(where.name, old_ranks, new_ranks);
    for (auto& [sums, ranks] : here) {
      // Where a rank reads it in one of the two alone, it stands against those who read it in the other.
      if (ranks.first.empty()) ranks.first = readers(old_sums, sums.first);
      if (ranks.second.empty()) ranks.second = readers(new_sums, sums.second);
      add(found[sums], part, ranks.first, ranks.second);
    }
  }

  static std::set<int> readers(const ByRank& sums, int sum) {
    std::set<int> ranks;
    for (const auto& [rank, own] : sums) {
      if (own.contains(sum)) ranks.insert(rank);
    }
    return ranks;
  }

  static void add(GradientDifference& difference, const Interval& part, const std::set<int>& old_ranks,
                  const std::set<int>& new_ranks) {
    DifferingElements next{part, {old_ranks.begin(), old_ranks.end()}, {}};
    if (old_ranks != new_ranks) next.new_ranks.assign(new_ranks.begin(), new_ranks.end());
    if (!difference.where.empty()) {
      DifferingElements& last = difference.where.back();
      if (last.elements.end == part.begin && last.ranks == next.ranks && last.new_ranks == next.new_ranks) {
        last.elements.end = part.end;
        return;
      }
    }
    constexpr std::size_t most = 64;
    if (difference.where.size() < most)
      difference.where.push_back(std::move(next));
    else
      difference.more += part.size();
  }

  static std::string part_words(const Interval& part) { return fmt::format("[{}, {})", part.begin, part.end); }

  void undecided(const std::string& name, const std::string& elements, const std::string& why) {
    if (!undecided_.insert({name, why}).second) return;
    result_.undecided.push_back({name, elements, why});
  }

  void other_readers(const std::string& name, const std::vector<int>& before, const std::vector<int>& after) {
    if (before == after) return;
    std::vector<int> others;
    std::set_symmetric_difference(before.begin(), before.end(), after.begin(), after.end(), std::back_inserter(others));
    other_readers_[name].insert(others.begin(), others.end());
  }

  /// What of either is missing may be a difference.
  void gaps() {
    const std::vector<std::string> old_behind = ranks_left_behind(before_, before_.run.steps);
    const std::vector<std::string> new_behind = ranks_left_behind(after_, after_.run.steps);
    for (const auto& [side, extraction, behind, others] : {std::tuple("old", &before_, &old_behind, &new_behind),
                                                           std::tuple("new", &after_, &new_behind, &old_behind)}) {
      for (const RunGap& gap : extraction->run.gaps) {
        if (gap.concerns(extraction->run.steps)) missing(side, gap.what);
      }
      for (const std::string& sentence : *behind) {
        if (std::find(others->begin(), others->end(), sentence) == others->end())
          missing(side, sentence);
        else if (behind == &old_behind)
          result_.notes.push_back("In both " + sentence);
      }
    }
  }

  void missing(const char* side, std::string sentence) {
    if (sentence.ends_with('.')) sentence.pop_back();
    result_.undecided.push_back({"", "", fmt::format("of the {} one: {}", side, sentence)});
  }

  void calls() {
    std::map<std::tuple<std::string, std::string, int>, std::size_t> places;
    for (const bool is_new : {false, true}) {
      const Extraction& extraction = is_new ? after_ : before_;
      for (std::size_t program = 0; program < extraction.details.size(); ++program) {
        const ExtractedProgram& details = extraction.details[program];
        for (std::size_t number = 0; number < details.calls.size(); ++number) {
          const CapturedCollective& call = details.calls[number];
          const std::string op =
              call.reduce.empty() || call.reduce == "sum" ? call.op : fmt::format("{} ({})", call.op, call.reduce);
          for (const auto& [size, ranks] : ranks_by_group(extraction, program, number)) {
            const auto [place, is_first] =
                places.try_emplace({op, without_line(call.call), size}, result_.calls.size());
            if (is_first) result_.calls.push_back({op, without_line(call.call), size, 0, 0, 0, 0});
            CallDifference& here = result_.calls[place->second];
            (is_new ? here.calls_after : here.calls_before) += ranks;
            (is_new ? here.elements_after : here.elements_before) += ranks * call.elements;
          }
        }
      }
    }
  }

  /// By the size of the process group in which a rank makes a call of a program: how many do.
  static std::map<int, std::int64_t> ranks_by_group(const Extraction& extraction, std::size_t program,
                                                    std::size_t call) {
    const symbolic::RankPrograms& programs = extraction.programs;
    const symbolic::ProgramCall& own = programs.programs[program].calls[call];
    const bool meets_one = symbolic::program_operation(own.op).in_pairs;
    const int group = meets_one ? -1 : own.group;
    std::map<int, std::int64_t> ranks;
    for (const int rank : extraction.details[program].ranks)
      ++ranks[group < 0 ? 0 : static_cast<int>(programs.members[at(programs.groups[at(group)].on(rank))].size())];
    return ranks;
  }

  Extraction before_, after_;
  ExtractionComparison result_;
  ComparedSums sums_;
  std::vector<std::pair<int, int>> pairs_;  // parameters of both
  std::map<std::string, std::set<int>> other_readers_;
  std::set<std::pair<std::string, std::string>> undecided_;
  std::set<std::string> told_;
};

}  // namespace

}  // namespace live

ExtractionComparison::Verdict ExtractionComparison::verdict() const {
  if (!gradients.empty() || !only_before.empty() || !only_after.empty()) return Verdict::other;
  if (unmet_before.empty() != unmet_after.empty()) return Verdict::other;
  return apart.empty() && undecided.empty() && unmet_before.empty() ? Verdict::same : Verdict::undecided;
}

ExtractionComparison compare_extractions(const std::shared_ptr<const Source>& before,
                                         const std::shared_ptr<const Source>& after) {
  return live::Comparing(before, after).run();
}

}  // namespace lockstep
