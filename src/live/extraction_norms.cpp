// SPDX-License-Identifier: Apache-2.0
#include "src/live/extraction_norms.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "src/base/at.h"
#include "src/base/counted.h"

namespace lockstep::live {

namespace {

using symbolic::ComposedTerm;
using symbolic::Stretches;

/// How often a norm counts elements of a parameter, where that is not once.
using Miscounts = std::set<std::pair<int, Rational>>;  // parameter and times

class NormJudge {
 public:
  NormJudge(const Extraction& extraction, symbolic::ProgramForms& forms, RegionOverlaps& overlaps, int step)
      : extraction_(extraction), forms_(forms), overlaps_(overlaps), step_(step) {}

  NormFindings run() {
    for (const ExtractedProgram& program : extraction_.details) {
      for (const ExtractedResult& result : program.results) {
        if (result.step != step_) continue;
        const int parameter = extraction_.regions[at(result.region)].parameter;
        (result.content < 0 ? without_gradient_ : with_gradient_)[parameter].push_back(
            {result.region, result.first, result.elements});
        if (!program.squares.empty()) results_[{&program, parameter}].push_back(&result);
      }
      std::size_t number = 0;
      for (const ExtractedNorm& norm : program.norms) {
        if (norm.step != step_) continue;
        if (number == clips_.size()) clips_.emplace_back();
        Clip& clip = clips_[number++];
        clip.parameters.insert(norm.parameters.begin(), norm.parameters.end());
        for (const int rank : program.ranks) clip.norms.emplace_back(rank, &norm);
      }
    }
    for (Clip& clip : clips_) judge(clip);
    return std::move(found_);
  }

 private:
  /// A call of a clipping function, on all ranks.
  struct Clip {
    std::set<int> parameters;  ///< that some rank clips
    std::vector<std::pair<int, const ExtractedNorm*>> norms;
  };

  void judge(Clip& clip) {
    std::sort(clip.norms.begin(), clip.norms.end());
    by_form_.clear();
    std::map<Rational, std::pair<std::set<int>, std::set<int>>> wrong;  // by times: parameters and ranks
    for (const auto& [rank, norm] : clip.norms) {
      std::string why;
      const Miscounts* counts = counts_of(rank, *norm, clip.parameters, why);
      if (counts == nullptr) {
        found_.notes.push_back(fmt::format(
            "whether the norm by which gradients are clipped{} is right is not known: {}.", at_call(clip), why));
        return;
      }
      for (const auto& [parameter, times] : *counts) {
        wrong[times].first.insert(parameter);
        wrong[times].second.insert(rank);
      }
    }
    if (clip.norms.size() != at(extraction_.run.header.world)) {
      found_.notes.push_back(fmt::format(
          "whether the norm by which gradients are clipped{} is right is not known: {} of {} ranks clip by it.",
          at_call(clip), clip.norms.size(), extraction_.run.header.world));
      return;
    }
    for (const auto& [times, where] : wrong) {
      VerifyFinding finding;
      finding.kind = Mistake::norm_count;
      finding.what =
          fmt::format("the norm by which gradients are clipped{} {}", at_call(clip),
                      times.is_zero() ? "leaves out elements"
                                      : fmt::format("counts elements {} times instead of once", times.to_string()));
      finding.parameters.assign(where.first.begin(), where.first.end());
      finding.ranks.assign(where.second.begin(), where.second.end());
      finding.steps = {step_};
      found_.wrong.push_back(std::move(finding));
    }
    if (wrong.empty())
      found_.notes.push_back(fmt::format("the norm by which gradients are clipped{} counts each element of {} once.",
                                         at_call(clip), counted(clip.parameters.size(), "parameter")));
  }

  static std::string at_call(const Clip& clip) {
    const std::string& call = clip.norms.front().second->call;
    return call.empty() ? "" : " at " + call;
  }

  /// Null where nobody knows, and why.
  const Miscounts* counts_of(int rank, const ExtractedNorm& norm, const std::set<int>& parameters, std::string& why) {
    const Stretches held = forms_.result(rank, norm.content);
    if (held.size() != 1 || held.front().form < 0) {
      why = held.empty() ? std::string(symbolic::not_followed) : forms_.reason_of(held.front().form);
      return nullptr;
    }
    const auto [known, is_new] = by_form_.try_emplace(held.front().form);
    if (is_new) known->second = count(held.front().form, parameters);
    if (known->second.second.empty()) return &known->second.first;
    why = known->second.second;
    return nullptr;
  }

  std::pair<Miscounts, std::string> count(int form, const std::set<int>& parameters) {
    std::map<int, std::map<RegionPart, Rational>> parts;  // by parameter: how often each part is in it
    for (const int parameter : parameters) parts[parameter];
    for (const ComposedTerm& term : forms_.terms_of(form)) {
      const ExtractedProgram& details = extraction_.details[at(extraction_.programs.program_of[at(term.rank)])];
      const int number = details.square_of[at(term.source)];
      if (number < 0) return {{}, "a gradient is added to sums of squares"};
      const ExtractedSquare& square = details.squares[at(number)];
      if (square.step != step_) return {{}, "squares of another optimizer step are in it"};
      if (!parameters.contains(square.parameter)) return {{}, "squares of a parameter that it does not clip are in it"};
      for (const ExtractedResult* result : results_[{&details, square.parameter}]) {
        const std::vector<int>& ranks = details.ranks_of(*result);
        if (std::binary_search(ranks.begin(), ranks.end(), term.rank))
          parts[square.parameter][{result->region, result->first, result->elements}] += term.coefficient;
      }
    }
    // Which elements squares are of is known of what an optimizer gets alone; the rest is told by itself.
    std::erase_if(parts, [&](const auto& one) {
      return with_gradient_[one.first].empty() && without_gradient_[one.first].empty();
    });
    // What has no gradient on any rank adds nothing to a norm, whether it is counted or not.
    for (auto& [parameter, own] : parts) {
      for (const RegionPart& part : without_gradient_[parameter]) {
        const std::vector<RegionPart>& others = with_gradient_[parameter];
        if (std::none_of(own.begin(), own.end(), [&](const auto& one) { return may_overlap(part, one.first); }) &&
            std::none_of(others.begin(), others.end(), [&](const RegionPart& one) { return may_overlap(part, one); }))
          own.emplace(part, 1);
      }
    }
    Miscounts counts;
    for (const auto& [parameter, own] : parts) {
      if (!count(parameter, own, counts)) return {{}, "parts of a parameter are too many to compare"};
    }
    return {counts, ""};
  }

  bool may_overlap(const RegionPart& one, const RegionPart& other) const {
    const auto &begin = extraction_.regions[at(one.region)].begin,
               &begin_of_other = extraction_.regions[at(other.region)].begin;
    if (one.region != other.region && !(begin && begin_of_other)) return true;
    const std::int64_t first = one.first + begin.value_or(0), first_of_other = other.first + begin_of_other.value_or(0);
    return first < first_of_other + other.elements && first_of_other < first + one.elements;
  }

  /// Cuts the parts of a parameter where others begin and end. False where they cannot be compared.
  bool count(int parameter, const std::map<RegionPart, Rational>& parts, Miscounts& counts) {
    const std::vector<std::int64_t>& shape = extraction_.run.parameters[at(parameter)].declared.shape;
    const std::int64_t whole = std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
    std::map<std::int64_t, Rational> changes;  // by index: by how much what is counted changes there
    std::int64_t seen = 0;
    for (const auto& [part, times] : parts) {
      if (part.elements == 0) continue;
      if (const auto& begin = extraction_.regions[at(part.region)].begin) {
        changes[*begin + part.first] += times;
        changes[*begin + part.first + part.elements] += -times;
        continue;
      }
      // Boxes that overlap are not cut.
      std::vector<RegionPart> others;
      for (const auto& [other, unused] : parts) {
        if (other != part) others.push_back(other);
      }
      const RegionOverlaps::Covered covered = overlaps_.covered(part, others);
      if (!covered.compared || !covered.elements.empty()) return false;
      if (times != Rational(1)) counts.emplace(parameter, times);
      seen += part.elements;
    }
    std::int64_t end = 0;
    Rational now = 0;
    for (const auto& [index, change] : changes) {
      if (index > end && !now.is_zero()) {
        seen += index - end;
        if (now != Rational(1)) counts.emplace(parameter, now);
      }
      now += change;
      end = index;
    }
    if (seen < whole) counts.emplace(parameter, 0);
    return true;
  }

  const Extraction& extraction_;
  symbolic::ProgramForms& forms_;
  RegionOverlaps& overlaps_;
  int step_;
  std::vector<Clip> clips_;
  /// Of the step, by program and parameter.
  std::map<std::pair<const ExtractedProgram*, int>, std::vector<const ExtractedResult*>> results_;
  std::map<int, std::vector<RegionPart>> without_gradient_, with_gradient_;  // by parameter
  std::map<int, std::pair<Miscounts, std::string>> by_form_;                 // of a clip; a reason where nobody knows
  NormFindings found_;
};

}  // namespace

void find_clipped_by_some(Extraction& extraction) {
  std::map<std::pair<int, int>, int> clipped;  // by step and parameter: a rank that clips it
  std::set<std::pair<const ExtractedProgram*, std::pair<int, int>>> clips;
  for (const ExtractedProgram& program : extraction.details) {
    for (const ExtractedNorm& norm : program.norms) {
      for (const int parameter : norm.parameters) {
        clipped.try_emplace({norm.step, parameter}, program.ranks.front());
        clips.insert({&program, {norm.step, parameter}});
      }
    }
  }
  for (const ExtractedProgram& program : extraction.details) {
    for (const ExtractedResult& result : program.results) {
      const std::pair key(result.step, extraction.regions[at(result.region)].parameter);
      const auto found = clipped.find(key);
      if (found == clipped.end() || result.content < 0 || clips.contains({&program, key})) continue;
      extraction.run.unknowns.try_emplace(
          key, fmt::format("rank {} clips it by a norm, and rank {}, which steps with it too, does not", found->second,
                           program.ranks_of(result).front()));
    }
  }
}

NormFindings judge_norms(const Extraction& extraction, symbolic::ProgramForms& forms, RegionOverlaps& overlaps,
                         int step) {
  return NormJudge(extraction, forms, overlaps, step).run();
}

}  // namespace lockstep::live
