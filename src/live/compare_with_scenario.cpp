// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>
#include <tuple>

#include "lockstep/communication.h"
#include "lockstep/extraction_comparison.h"
#include "lockstep/operation.h"
#include "src/base/counted.h"
#include "src/diagnosis/at_the_layout.h"
#include "src/diagnosis/fold_names.h"
#include "src/diagnosis/workload.h"
#include "src/live/code_calls.h"
#include "src/live/compared_reads.h"
#include "src/live/left_behind.h"
#include "src/live/scenario_alignment.h"
#include "src/live/scheduled_side.h"

namespace lockstep {

namespace live {

namespace {

class ScenarioWords : public SumWords {
 public:
  ScenarioWords(const ScheduledSide& side, int logical, int step) : side_(side), logical_(logical), step_(step) {}
  std::string formula(int sum, int rank) const override { return side_.formula(sum, logical_, rank, step_); }
  const std::string& reason(int sum) const override { return side_.reason(sum); }

 private:
  const ScheduledSide& side_;
  int logical_, step_;
};

class ComparingWithScenario {
 public:
  ComparingWithScenario(const Scenario& scenario, const std::shared_ptr<const Source>& code,
                        const ParameterNames& names)
      : scenario_(scenario),
        schedule_(*scenario.schedule),
        code_(read_extraction(code)),
        alignment_(align(scenario, code_, names)) {
    result_.with_scenario = true;
    result_.before = scenario.file;
    result_.after = code->name;
    const Header& header = code_.run.header;
    for (std::size_t i = 0; i < header.axes.size(); ++i) result_.axes.emplace_back(header.axes[i], header.sizes[i]);
    result_.world = header.world;
    result_.apart = alignment_.apart;
    result_.notes = alignment_.notes;
  }

  ExtractionComparison run() {
    if (!result_.apart.empty()) return std::move(result_);
    const diagnosis::Workload workload = diagnosis::estimate_workload(schedule_);
    if (const std::string why = diagnosis::too_large(workload); !why.empty())
      throw InputError({diagnosis::at_the_layout(scenario_, why)});
    if (const std::string why = diagnosis::too_large_here(workload, workload.bytes); !why.empty())
      throw std::runtime_error(why);
    ComparedSums sums, of_code;
    ScheduledSide expected(scenario_, alignment_.logical_named, code_.run.steps, code_.run.header.loss, sums);
    if (expected.timeline().outcome.kind != Outcome::Kind::complete) {
      result_.apart.emplace_back(
          "The scenario does not come to its end, so that there is nothing to compare with: `lockstep check` says "
          "where.");
      return std::move(result_);
    }
    ComparedSide found(code_, of_code);
    result_.only_before = alignment_.only_scenario;
    result_.only_after = alignment_.only_code;
    result_.ties = alignment_.ties;
    result_.steps = alignment_.steps;
    for (const int parameter : alignment_.other_shape)
      reads_.undecided(declared(parameter).name, "", "it has another shape in the scenario");
    for (int step = 0; step < alignment_.steps && result_.gradients.empty(); ++step) {
      result_.step = code_.run.steps[at(step)];
      compare(expected, found, of_code, step);
    }
    if (result_.gradients.empty()) result_.step = code_.run.steps.front();
    reads_.finish();
    placements(expected);
    for (const VerifiedCollective& one : found.collectives().wrong) result_.unmet_after.push_back(one.what);
    gaps();
    said_of_formulas(expected);
    calls(expected);
    if (result_.elements == 0 && result_.gradients.empty() && result_.undecided.empty())
      result_.undecided.push_back({"", "", "no optimizer of the code gets anything that the scenario knows"});
    return std::move(result_);
  }

 private:
  const DeclaredParameter& declared(int parameter) const { return code_.run.parameters[at(parameter)].declared; }

  struct Reads {
    int logical = 0;
    std::vector<ReadStretch> expected, found;
  };

  void compare(ScheduledSide& expected, ComparedSide& found, const ComparedSums& of_code, int step) {
    std::vector<Reads> all;  // read before anything is written of them: how depends on all
    for (std::size_t logical = 0; logical < alignment_.code_of.size(); ++logical) {
      const bool has_code = std::any_of(alignment_.code_of[logical].begin(), alignment_.code_of[logical].end(),
                                        [&](int parameter) { return alignment_.logical_of[at(parameter)] >= 0; });
      if (!has_code) continue;
      Reads& reads = all.emplace_back();
      reads.logical = static_cast<int>(logical);
      reads.expected = expected.read(reads.logical, step);
      for (const int parameter : alignment_.code_of[logical]) {
        if (alignment_.logical_of[at(parameter)] < 0) continue;
        for (ReadStretch& one : flat(expected, found, of_code, parameter, step)) {
          result_.elements += one.elements.size();
          reads.found.push_back(one);
        }
      }
      contributors(expected, found, reads.logical, step);
    }
    result_.parameters = static_cast<int>(all.size());
    for (const Reads& reads : all) {
      const std::size_t before = result_.gradients.size();
      const ScenarioWords words(expected, reads.logical, step);
      reads_.compare(schedule_.model.logicals()[at(reads.logical)].name, reads.expected, reads.found, words, words);
      if (result_.gradients.size() > before && yields_other_parts(reads.logical, step)) {
        result_.gradients.erase(result_.gradients.begin() + static_cast<std::ptrdiff_t>(before),
                                result_.gradients.end());
        reads_.undecided(
            schedule_.model.logicals()[at(reads.logical)].name, "",
            "backward yields elements of it on ranks of the code that do not hold them in the scenario, so "
            "that whose gradients these are is not known");
      }
      for (std::size_t i = before; i < result_.gradients.size(); ++i)
        say_where(expected, reads.logical, step, result_.gradients[i]);
    }
  }

  /// Whether a rank of the code yields gradients of elements of a parameter that it does not hold in the scenario.
  bool yields_other_parts(int logical, int step) const {
    const Model& model = schedule_.model;
    const std::vector<std::int64_t>& shape = model.logicals()[at(logical)].shape;
    std::set<std::tuple<int, std::int64_t, std::int64_t, int>> known;
    for (const ExtractedProgram& program : code_.details) {
      for (const ExtractedContribution& one : program.contributions) {
        const Region& region = code_.regions[at(one.region)];
        if (one.step != code_.run.steps[at(step)] || alignment_.logical_of[at(region.parameter)] != logical) continue;
        for (const int rank : program.ranks) {
          const int buffer = model.buffer_of_copy(rank, logical);
          if (buffer < 0) continue;
          const LocalBuffer& local = model.local(rank).buffers[at(buffer)];
          if (!known.emplace(one.region, one.first, one.elements, local.piece).second) continue;
          if (!is_part_of(region, one, shape, model.pieces(local.logical)[at(local.piece)])) return true;
        }
      }
    }
    return false;
  }

  static bool is_part_of(const Region& region, const ExtractedContribution& one, const std::vector<std::int64_t>& shape,
                         const Piece& piece) {
    if (!region.begin) {
      for (std::size_t dim = 0; dim < shape.size(); ++dim) {
        if (intersect(region.piece[dim], piece.dims[dim]) != region.piece[dim]) return false;
      }
      return true;
    }
    const auto runs = runs_of_box(shape, piece.dims, {0, piece.numel});
    if (!runs) return true;  // it is not compared
    const Interval own{*region.begin + one.first, *region.begin + one.first + one.elements};
    std::int64_t common = 0;
    for (const BoxRun& run : *runs)
      common += std::max<std::int64_t>(0, intersect(own, {run.begin, run.begin + run.own.size()}).size());
    return common == own.size();
  }

  /// What the code's optimizers read of a parameter, in the scenario's sums and row-major indices.
  std::vector<ReadStretch> flat(ScheduledSide& expected, ComparedSide& found, const ComparedSums& of_code,
                                int parameter, int step) {
    std::vector<ReadStretch> all;
    std::map<int, int> numbers;
    for (const auto& [space, stretches] : found.read(parameter, code_.run.steps[at(step)])) {
      const Region& region = found.region_of(parameter, space);
      for (ReadStretch one : stretches) {
        const int sum = one.sum;
        const int logical = alignment_.logical_of[at(parameter)];
        if (sum == ComparedSide::no_gradient && schedule_.model.logicals()[at(logical)].frozen) continue;
        const auto [known, is_new] = numbers.try_emplace(sum, 0);
        if (is_new)
          known->second = sum >= 0                           ? expected.of_code(of_code.terms(sum))
                          : sum == ComparedSide::no_gradient ? expected.of_code({})
                                                             : expected.unknown(found.reason_of(sum));
        one.sum = known->second;
        if (region.begin) {
          all.push_back(one);
          continue;
        }
        const auto runs = runs_of_box(declared(parameter).shape, region.piece, one.elements);
        if (!runs) {
          reads_.undecided(declared(parameter).name, "",
                           "the code cuts it into so many rows that they are not compared");
          continue;
        }
        for (const BoxRun& run : *runs) all.push_back({{run.begin, run.begin + run.own.size()}, one.sum, one.rank});
      }
    }
    return all;
  }

  void contributors(const ScheduledSide& expected, const ComparedSide& found, int logical, int step) {
    std::set<std::pair<int, int>> code;
    for (const int parameter : alignment_.code_of[at(logical)]) {
      for (const auto& who : found.contributors(parameter, code_.run.steps[at(step)])) code.insert(who);
    }
    const std::vector<std::pair<int, int>> scenario = expected.contributors(logical, step);
    if (std::equal(code.begin(), code.end(), scenario.begin(), scenario.end())) return;
    const std::string name = diagnosis::folded_name(schedule_.model.logicals()[at(logical)].name);
    if (told_.insert(name).second)
      result_.notes.push_back(
          fmt::format("Backward yields gradients of {} on other ranks or in other micro-batches of the code.", name));
  }

  void say_where(const ScheduledSide& expected, int logical, int step, GradientDifference& difference) {
    const DifferingElements& first = difference.where.front();
    const std::vector<int>& readers = first.new_ranks.empty() ? first.ranks : first.new_ranks;
    if (!first.ranks.empty() && difference.before != nobody_reads)
      difference.before_by = expected.step_names(logical, first.ranks.front(), step);
    for (const int parameter : alignment_.code_of[at(logical)]) {
      if (!readers.empty() && difference.after != nobody_reads && difference.after_by.empty())
        difference.after_by = calls_behind(code_, parameter, code_.run.steps[at(step)], readers.front());
    }
  }

  /// Whether ranks along an axis yield one gradient or shares of one: both sides have to mean the same.
  void placements(const ScheduledSide& expected) {
    const Header& header = code_.run.header;
    std::set<std::pair<int, std::size_t>> partial;  // parameters, and axes along which they are shares
    for (const ExtractedProgram& program : code_.details) {
      for (const ExtractedContribution& one : program.contributions) {
        for (std::size_t axis = 0; axis < header.axes.size(); ++axis) {
          if ((one.partial >> axis & 1U) != 0) partial.emplace(code_.regions[at(one.region)].parameter, axis);
        }
      }
    }
    std::map<std::pair<std::string, std::string>, int> unsaid;
    for (std::size_t axis = 0; axis < header.axes.size(); ++axis) {
      const std::string& name = header.axes[axis];
      const std::optional<Axis> of_scenario = alignment_.axes[axis];
      if (header.sizes[axis] == 1 || of_scenario == Axis::pp || of_scenario == Axis::cp || of_scenario == Axis::sp ||
          std::find(header.data_axes.begin(), header.data_axes.end(), name) != header.data_axes.end())
        continue;
      const std::uint32_t bit = std::uint32_t{1} << axis;
      for (std::size_t i = 0; i < alignment_.logical_of.size(); ++i) {
        const int logical = alignment_.logical_of[i];
        if (logical < 0) continue;
        const std::optional<bool> one = one_along(expected, logical, bit);
        if (!one) continue;
        const DeclaredParameter& parameter = declared(static_cast<int>(i));
        const bool said = std::find(parameter.placed.begin(), parameter.placed.end(), name) != parameter.placed.end();
        const bool shares = partial.contains({static_cast<int>(i), axis});
        const std::string folded = diagnosis::folded_name(parameter.name);
        if (!said && !shares)
          ++unsaid[{name, *one ? "one gradient" : "shares of one"}];
        else if (shares == *one && told_.insert(name + " " + folded).second)
          result_.placements.push_back(fmt::format("Ranks along {} yield {} of {} in the code, and {} in the scenario.",
                                                   name, shares ? "shares of the gradient" : "one gradient", folded,
                                                   *one ? "one gradient" : "shares of it"));
      }
    }
    for (const auto& [what, count] : unsaid)
      result_.notes.push_back(
          fmt::format("The code does not say of {} what ranks along {} yield: {}, as the scenario has it.",
                      counted(count, "parameter"), what.first, what.second));
  }

  std::optional<bool> one_along(const ScheduledSide& expected, int logical, std::uint32_t bit) const {
    std::map<int, int> first;  // ranks, by their coordinates along the other axes
    for (int rank = 0; rank < schedule_.mesh.world(); ++rank) {
      const auto [other, is_new] = first.emplace(code_.run.other_coordinates(rank, bit), rank);
      if (is_new) continue;
      if (const auto one = expected.one_gradient(logical, other->second, rank)) return one;
    }
    return std::nullopt;
  }

  void gaps() {
    for (const RunGap& gap : code_.run.gaps) {
      if (gap.concerns(code_.run.steps)) missing(gap.what);
    }
    for (const std::string& sentence : ranks_left_behind(code_, code_.run.steps)) missing(sentence);
  }

  void missing(std::string sentence) {
    if (sentence.ends_with('.')) sentence.pop_back();
    result_.undecided.push_back({"", "", "of the code: " + sentence});
  }

  void said_of_formulas(const ScheduledSide& expected) {
    const std::optional<CapturedLoss> loss = code_.run.header.loss;
    if (!loss)
      result_.undecided.push_back({"", "",
                                   "the code does not say what each of its backwards is the gradient of (--loss), so "
                                   "that by what the scenario's `backward` multiplies is not compared"});
    else if (*loss == CapturedLoss::sum && expected.scales())
      result_.undecided.push_back({"", "",
                                   "what each backward of the code is the gradient of counts as it is (loss sum), and "
                                   "by what the scenario's `backward` multiplies is not compared with that"});
    else if (expected.plain())
      result_.notes.push_back(fmt::format(
          "The scenario's `backward` does not multiply as a loss {} has it, so formulas are of the gradients of ranks' "
          "summed losses.",
          name_of(*loss)));
    if (std::any_of(code_.details.begin(), code_.details.end(),
                    [](const ExtractedProgram& details) { return !details.norms.empty(); }))
      result_.notes.emplace_back(
          "The norms by which gradients are clipped are not compared; `lockstep check` of each file judges them.");
  }

  /// Steps of the scenario that communicate, then what the code calls.
  void calls(const ScheduledSide& expected) {
    const Communication all = communication(schedule_, expected.timeline());
    for (const StepCommunication& one : all.steps) {
      CallDifference& here = result_.calls.emplace_back();
      here.call = one.step->name;
      here.op = std::string(operation(one.step->op).name);
      here.group = one.largest_group;
      here.calls_before = one.calls * one.largest_group;
    }
    count_calls(code_, true, result_.calls);
  }

  const Scenario& scenario_;
  const Schedule& schedule_;
  Extraction code_;
  ScenarioAlignment alignment_;
  ExtractionComparison result_;
  ReadComparison reads_{result_};
  std::set<std::string> told_;
};

}  // namespace

}  // namespace live

ExtractionComparison compare_with_scenario(const Scenario& scenario, const std::shared_ptr<const Source>& code,
                                           const ParameterNames& names) {
  return live::ComparingWithScenario(scenario, code, names).run();
}

}  // namespace lockstep
