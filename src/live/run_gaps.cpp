// SPDX-License-Identifier: Apache-2.0
#include "src/live/run_gaps.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "src/base/at.h"
#include "src/base/budget.h"
#include "src/base/counted.h"
#include "src/live/event.h"
#include "src/live/words.h"

namespace lockstep::live {

namespace {

std::string steps_words(const std::vector<int>& steps) {
  return fmt::format("optimizer step{} {}", steps.size() == 1 ? "" : "s", numbers_words(steps));
}

void add_gap(CapturedRun& run, int step, std::string what) { run.gaps.push_back({std::move(what), step, step}); }

/// Takes steps out that the loss scalers of all ranks skipped: they have no results. Where those of some did, replicas
/// drift apart.
void drop_skipped(CapturedRun& run, std::set<int>& steps) {
  for (const int step : steps) {
    std::vector<int> skipped, taken;
    for (const RankRecord& rank : run.ranks) {
      const auto found = rank.steps.find(step);
      if (found != rank.steps.end() && found->second.complete)
        (found->second.skipped ? skipped : taken).push_back(rank.header.rank);
    }
    if (skipped.empty()) continue;
    if (taken.empty()) {
      run.skipped.push_back(step);
    } else {
      run.divided[step] =
          fmt::format("{} skipped the optimizer step, for {} loss scaler found infinite gradients, and {} stepped",
                      rank_words(skipped), skipped.size() == 1 ? "its" : "their", rank_words(taken));
    }
  }
  for (const int step : run.skipped) steps.erase(step);
  if (!run.skipped.empty())
    run.notes.push_back(fmt::format("{} {} skipped: loss scalers found infinite gradients.", steps_words(run.skipped),
                                    run.skipped.size() == 1 ? "was" : "were"));
}

/// What came before gradients were set to zero is no part of a step if it was infinite or no number. If all was finite,
/// and not all steps are so, nobody can say whether somebody meant it; in all steps it is judged, and so a mistake.
void find_zeroed(CapturedRun& run) {
  std::map<int, int> places;  // of the last zeroing, by step; -1: not the same on all ranks
  std::size_t most = 0;
  for (const int step : run.steps) {
    std::set<int> last;
    for (const RankRecord& rank : run.ranks) {
      const auto found = rank.steps.find(step);
      if (found == rank.steps.end() || !found->second.complete) continue;
      last.insert(found->second.zeroed.empty() ? 0 : found->second.zeroed.back());
      most = std::max(most, found->second.zeroed.size());
    }
    if (last.size() > 1) places[step] = -1;
    if (last.size() == 1 && *last.begin() > 0) places[step] = *last.begin();
  }
  const bool always = places.size() == run.steps.size() && (places.size() > 1 || most > 1);
  std::vector<int> dropped;
  for (const auto& [step, place] : places) {
    const auto before = [place = place](const SketchedTensor& one) { return one.micro_batch < place; };
    const auto bad = [&](const SketchedTensor& one) { return before(one) && one.non_finite > 0; };
    bool finite = true;
    for (const RankRecord& rank : run.ranks) {
      const auto found = rank.steps.find(step);
      if (found == rank.steps.end()) continue;
      const std::vector<SketchedTensor>& all = found->second.contributions;
      finite = finite && std::none_of(all.begin(), all.end(), bad);
    }
    if (place < 0) {
      add_gap(
          run, step,
          fmt::format("in optimizer step {}, ranks set their gradients to zero before different micro-batches.", step));
      run.unknowns.try_emplace({step, -1}, "ranks set their gradients to zero before different micro-batches");
    } else if (!finite) {
      dropped.push_back(step);
      for (RankRecord& rank : run.ranks) {
        const auto found = rank.steps.find(step);
        if (found == rank.steps.end()) continue;
        std::erase_if(found->second.contributions, before);
        for (std::size_t i = 0; i < std::min(at(place), found->second.tokens.size()); ++i)
          if (found->second.tokens[i]) found->second.tokens[i] = 0;
      }
    } else if (!always) {
      add_gap(run, step,
              fmt::format("in optimizer step {}, gradients were set to zero before micro-batch {}, and in others not: "
                          "nobody knows whether what came before is to be in it.",
                          step, place));
      run.unknowns.try_emplace({step, -1}, "gradients were set to zero between micro-batches, and not in every step");
    }
  }
  if (!dropped.empty())
    run.notes.push_back(fmt::format(
        "in {}, micro-batches with elements that are infinite or no numbers were left out: gradients were set to zero "
        "after them.",
        steps_words(dropped)));
}

/// A training may end with micro-batches after its last optimizer step: every rank has ended its capture then.
void drop_leftover(CapturedRun& run, std::set<int>& steps) {
  if (steps.size() < 2) return;
  const int last = *steps.rbegin();
  int micro_batches = 0;
  for (const RankRecord& rank : run.ranks) {
    const auto found = rank.steps.find(last);
    if (!rank.ended || rank.cut_off || (found != rank.steps.end() && found->second.complete)) return;
    if (found != rank.steps.end()) micro_batches = std::max(micro_batches, found->second.micro_batches);
  }
  steps.erase(last);
  const std::string count = counted(micro_batches, "micro-batch");
  const char* const they = micro_batches == 1 ? "it" : "they";
  std::set<std::string> doubts;
  for (const RankRecord& rank : run.ranks) {
    for (const CaptureGap& gap : rank.gaps) {
      if (gap.step == last) doubts.insert(gap.why);
    }
  }
  if (doubts.empty())
    run.notes.push_back(
        fmt::format("{} after the last optimizer step: no optimizer got what {} yielded.", count, they));
  else
    add_gap(run, last,
            fmt::format("{} after the last optimizer step that was captured: {}: what an optimizer got of what {} "
                        "yielded is not judged.",
                        count, fmt::join(doubts, "; "), they));
}

/// A rank that died, or whose file was cut off, tells all of the optimizer steps after which it went on.
void find_unfinished(CapturedRun& run) {
  std::vector<int> died;
  int first = std::numeric_limits<int>::max();
  for (const RankRecord& rank : run.ranks) {
    if (rank.ended && !rank.cut_off) continue;
    const int untold = untold_from(rank, run.steps);
    if (rank.cut_off) run.gaps.push_back({fmt::format("{}: the last line is not complete.", rank.file), untold});
    if (rank.ended) continue;
    died.push_back(rank.header.rank);
    first = std::min(first, untold);
  }
  if (!died.empty())
    run.gaps.push_back(
        {fmt::format("{} did not end the capture: the last lines are missing.", rank_words(died)), first});
  for (const int step : run.steps) {
    std::vector<int> without, unfinished;
    for (const RankRecord& rank : run.ranks) {
      const auto found = rank.steps.find(step);
      if (found == rank.steps.end()) {
        without.push_back(rank.header.rank);
      } else if (!found->second.complete) {
        unfinished.push_back(rank.header.rank);
      }
    }
    if (!without.empty())
      add_gap(run, step,
              fmt::format("{} did not capture optimizer step {}, which others did.", rank_words(without), step));
    if (!unfinished.empty())
      add_gap(run, step, fmt::format("{} did not finish optimizer step {}.", rank_words(unfinished), step));
  }
}

/// A parameter waits where no optimizer that has it stepped. Where that of one rank did and that of another did not,
/// copies of it are no longer the same.
void find_waiting(CapturedRun& run) {
  for (const int step : run.steps) {
    std::set<int> waiting, gotten;
    std::map<int, std::set<int>> ranks_that_wait;  // by parameter
    for (const RankRecord& rank : run.ranks) {
      const auto found = rank.steps.find(step);
      if (found == rank.steps.end()) continue;
      const std::set<int> own(found->second.waiting.begin(), found->second.waiting.end());
      waiting.insert(own.begin(), own.end());
      for (const int parameter : own) ranks_that_wait[parameter].insert(rank.header.rank);
      // What was clipped is told although nobody stepped.
      for (const SketchedTensor& result : found->second.results) {
        if (!own.contains(result.parameter)) gotten.insert(result.parameter);
      }
    }
    std::map<std::set<int>, std::set<int>> left_out;  // parameters, by ranks
    for (const int parameter : waiting) {
      if (!gotten.contains(parameter)) {
        run.waiting.emplace(step, parameter);
      } else {
        left_out[ranks_that_wait.at(parameter)].insert(parameter);
      }
    }
    for (const auto& [ranks, parameters] : left_out) {
      const std::string& first = run.parameters[at(*parameters.begin())].declared.name;
      add_gap(run, step,
              fmt::format("in optimizer step {} the optimizer of {}{} did not step on {}, and did on other ranks.",
                          step, first, parameters.size() > 1 ? " and " + counted(parameters.size() - 1, "other") : "",
                          rank_words({ranks.begin(), ranks.end()})));
    }
  }
}

void find_unknowns(CapturedRun& run) {
  for (const RankRecord& rank : run.ranks) {
    for (const CaptureGap& gap : rank.gaps) {
      const int step = gap.step.value_or(-1);
      if (gap.is_wrong) {
        const std::vector<int> steps = gap.step ? std::vector<int>{step} : run.steps;
        Budget::spend(std::ssize(gap.parameters) * std::ssize(steps));
        for (const int parameter : gap.parameters) {
          for (const int own : steps)
            run.wrongs.try_emplace({own, parameter}, RunWrong{gap.why, {}, gap.line})
                .first->second.ranks.insert(rank.header.rank);
        }
        continue;
      }
      if (gap.of_all) run.unknowns.try_emplace({step, -1}, gap.why);
      for (const int parameter : gap.parameters) run.unknowns.try_emplace({step, parameter}, gap.why);
    }
  }
}

/// What optimizers get is looked at before it is clipped. After that nobody may change it, and replicas of it must be
/// clipped alike.
void find_clipped(CapturedRun& run) {
  const auto tells = [](const SketchedTensor& one) { return one.changed || one.clipped; };
  for (const int step : run.steps) {
    const bool is_clipped = std::any_of(run.ranks.begin(), run.ranks.end(), [&](const RankRecord& rank) {
      const auto found = rank.steps.find(step);
      return found != rank.steps.end() &&
             std::any_of(found->second.results.begin(), found->second.results.end(), tells);
    });
    if (!is_clipped) continue;
    std::map<std::tuple<int, int, Dtype, std::string>, GradientHash> left;
    for (const RankRecord& rank : run.ranks) {
      const auto found = rank.steps.find(step);
      if (found == rank.steps.end()) continue;
      for (const SketchedTensor& one : found->second.results) {
        if (one.changed)
          run.doubts.try_emplace({step, one.parameter},
                                 "it was right before it was clipped, and was changed between clipping and the "
                                 "optimizer's step");
        if (one.row < 0 || one.changed) continue;
        const GradientHash& own = one.clipped ? *one.clipped : one.hash;
        const auto& first =
            left.try_emplace({one.parameter, one.piece, one.dtype, one.hash.to_string()}, own).first->second;
        if (!(first == own))
          run.doubts.try_emplace({step, one.parameter},
                                 "it was right before it was clipped, and ranks clipped the same gradient to different "
                                 "ones");
      }
    }
  }
}

}  // namespace

int untold_from(const RankRecord& rank, const std::vector<int>& steps) {
  if (rank.ended && !rank.cut_off) {
    const auto lacks = std::find_if(steps.begin(), steps.end(), [&](int step) { return !rank.steps.contains(step); });
    return lacks == steps.end() ? std::numeric_limits<int>::max() : *lacks;
  }
  int before = std::numeric_limits<int>::min();
  for (const int step : steps) {
    const auto found = rank.steps.find(step);
    if (found == rank.steps.end() || !found->second.complete) {
      const bool has_begun = found != rank.steps.end() && !found->second.contributions.empty();
      return has_begun ? step : before;
    }
    before = step;
  }
  return before;
}

void find_gaps(CapturedRun& run) {
  std::set<int> steps, present;
  for (const RankRecord& rank : run.ranks) {
    present.insert(rank.header.rank);
    for (const auto& [step, content] : rank.steps) {
      // What is issued after the last optimizer step, such as a gathering of parameters, begins no other.
      if (content.complete || !content.contributions.empty() || !content.results.empty()) steps.insert(step);
    }
  }
  drop_skipped(run, steps);
  drop_leftover(run, steps);
  run.steps.assign(steps.begin(), steps.end());
  std::int64_t micro_batches = 0;
  for (const int step : run.steps) {
    int most = 1;
    for (const RankRecord& rank : run.ranks) {
      const auto found = rank.steps.find(step);
      if (found != rank.steps.end()) most = std::max(most, found->second.micro_batches);
    }
    micro_batches += most;
  }
  if (micro_batches > most_whole / 2)
    throw InputError({Diagnostic{{},
                                 fmt::format("{}: the run has {} micro-batches, more micro-batches than can be counted",
                                             run.folder, micro_batches)}});
  for (int rank = 0; rank < run.header.world; ++rank) {
    if (!present.contains(rank)) run.missing_ranks.push_back(rank);
  }
  if (!run.missing_ranks.empty())
    run.gaps.push_back(
        {fmt::format("{} of {} left no file: what {} contributed is not known.", rank_words(run.missing_ranks),
                     run.header.world, run.missing_ranks.size() == 1 ? "it" : "they")});
  find_unfinished(run);
  if (run.steps.empty()) run.gaps.push_back({"no optimizer step was captured."});
  find_waiting(run);
  find_zeroed(run);
  find_unknowns(run);
  find_clipped(run);
}

std::vector<std::string> gap_sentences(const CapturedRun& run, const std::vector<int>& steps,
                                       const std::vector<char>& chosen) {
  struct Affected {
    std::set<int> ranks, steps, parameters;
  };
  std::map<std::pair<std::string, bool>, Affected> affected;  // by the reason, and whether it is of all parameters
  for (const RankRecord& rank : run.ranks) {
    for (const CaptureGap& gap : rank.gaps) {
      if (gap.is_wrong || (gap.step && !std::binary_search(steps.begin(), steps.end(), *gap.step))) continue;
      const bool concerns = std::any_of(gap.parameters.begin(), gap.parameters.end(),
                                        [&](int parameter) { return chosen[at(parameter)] != 0; });
      if (!gap.parameters.empty() && !concerns) continue;
      Affected& one = affected[{gap.why, gap.of_all}];
      one.ranks.insert(rank.header.rank);
      if (gap.step) one.steps.insert(*gap.step);
      for (const int parameter : gap.parameters) {
        if (chosen[at(parameter)] != 0) one.parameters.insert(parameter);
      }
    }
  }
  std::vector<std::string> sentences;
  for (const auto& [what, one] : affected) {
    const auto& [why, of_all] = what;
    std::string text;
    if (static_cast<int>(one.ranks.size()) < run.header.world)
      text += fmt::format("on {}, ", rank_words({one.ranks.begin(), one.ranks.end()}));
    if (!one.steps.empty()) text += fmt::format("in {}, ", steps_words({one.steps.begin(), one.steps.end()}));
    text += why;
    if (of_all) text += ": what the optimizers get is not judged";
    if (!one.parameters.empty())
      text += fmt::format(": what the optimizers get of {}{} is not judged",
                          run.parameters[at(*one.parameters.begin())].declared.name,
                          one.parameters.size() == 1 ? "" : " and " + counted(one.parameters.size() - 1, "other"));
    sentences.push_back(text + ".");
  }
  return sentences;
}

std::string waiting_sentence(const CapturedRun& run, const std::vector<int>& steps, const std::vector<char>& chosen) {
  std::vector<int> found;
  for (std::size_t i = 0; i < run.parameters.size(); ++i) {
    const auto parameter = static_cast<int>(i);
    const bool waits = std::all_of(steps.begin(), steps.end(), [&](int step) { return run.waits(step, parameter); });
    if (chosen[i] != 0 && waits && !steps.empty()) found.push_back(parameter);
  }
  if (found.empty()) return "";
  return fmt::format(
      "no optimizer that has {}{} stepped in the optimizer steps that were looked at: more of them (--steps) say what "
      "it gets.",
      run.parameters[at(found.front())].declared.name,
      found.size() == 1 ? "" : " or " + counted(found.size() - 1, "other"));
}

const std::string* CapturedRun::unknown(int step, int parameter) const {
  if (unknowns.empty()) return nullptr;
  for (const auto& key :
       {std::pair(step, parameter), std::pair(step, -1), std::pair(-1, parameter), std::pair(-1, -1)}) {
    if (const auto found = unknowns.find(key); found != unknowns.end()) return &found->second;
  }
  return nullptr;
}

const RunWrong* CapturedRun::wrong(int step, int parameter) const {
  const auto found = wrongs.find({step, parameter});
  return found == wrongs.end() ? nullptr : &found->second;
}

}  // namespace lockstep::live
