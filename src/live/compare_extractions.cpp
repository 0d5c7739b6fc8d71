// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "lockstep/extraction_comparison.h"
#include "src/base/counted.h"
#include "src/live/code_calls.h"
#include "src/live/compared_reads.h"
#include "src/live/left_behind.h"
#include "src/live/words.h"

namespace lockstep {

namespace live {

namespace {

class ExtractionWords : public SumWords {
 public:
  ExtractionWords(const ComparedSide& side, int parameter, int step)
      : side_(side), parameter_(parameter), step_(step) {}
  std::string formula(int sum, int) const override { return side_.formula(sum, parameter_, step_); }
  const std::string& reason(int sum) const override { return side_.reason_of(sum); }

 private:
  const ComparedSide& side_;
  int parameter_, step_;
};

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
    reads_.finish();
    for (const VerifiedCollective& one : before.collectives().wrong) result_.unmet_before.push_back(one.what);
    for (const VerifiedCollective& one : after.collectives().wrong) result_.unmet_after.push_back(one.what);
    if (result_.elements == 0 && result_.gradients.empty() && result_.undecided.empty())
      result_.undecided.push_back({"", "", "no optimizer of the new one gets anything in these steps"});
    if (has_norms(before_) || has_norms(after_))
      result_.notes.emplace_back(
          "The norms by which gradients are clipped are not compared; `lockstep check` of each file judges them.");
    gaps();
    count_calls(before_, false, result_.calls);
    count_calls(after_, true, result_.calls);
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
        reads_.compare(name, stretches, there == new_reads.end() ? std::vector<ReadStretch>() : there->second,
                       ExtractionWords(before, a, step), ExtractionWords(after, b, step));
      }
      for (auto& [space, stretches] : new_reads) {
        if (old_reads.contains(space)) continue;
        if (old_reads.empty())
          reads_.compare(name, {}, stretches, ExtractionWords(before, a, step), ExtractionWords(after, b, step));
        else
          cut_otherwise = true;
      }
      if (cut_otherwise)
        reads_.undecided(name, "",
                         "optimizers of the two read it in boxes that are cut otherwise, which are not compared");
      if (before.contributors(a, step) != after.contributors(b, step) && told_.insert(name).second)
        result_.notes.push_back(fmt::format(
            "Backward yields gradients of {} on other ranks or in other micro-batches in the new one.", name));
    }
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

  Extraction before_, after_;
  ExtractionComparison result_;
  ReadComparison reads_{result_};
  ComparedSums sums_;
  std::vector<std::pair<int, int>> pairs_;  // parameters of both
  std::set<std::string> told_;
};

}  // namespace

}  // namespace live

ExtractionComparison::Verdict ExtractionComparison::verdict() const {
  if (!gradients.empty() || !only_before.empty() || !only_after.empty() || !placements.empty() || !ties.empty())
    return Verdict::other;
  if (unmet_before.empty() != unmet_after.empty()) return Verdict::other;
  return apart.empty() && undecided.empty() && unmet_before.empty() ? Verdict::same : Verdict::undecided;
}

ExtractionComparison compare_extractions(const std::shared_ptr<const Source>& before,
                                         const std::shared_ptr<const Source>& after) {
  return live::Comparing(before, after).run();
}

}  // namespace lockstep
