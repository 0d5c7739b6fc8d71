// SPDX-License-Identifier: Apache-2.0
#include "src/live/extraction_norms.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "src/base/at.h"
#include "src/base/counted.h"

namespace lockstep::live {

namespace {

using symbolic::ComposedTerm;
using symbolic::Stretches;

/// How often a norm counts elements of a parameter, where that is not once.
using Miscounts = std::set<std::pair<int, Rational>>;  // parameter and times

class NormVerdicts {
 public:
  NormVerdicts(const Extraction& extraction, symbolic::ProgramForms& forms, RegionOverlaps& overlaps, int step)
      : extraction_(extraction), forms_(forms), overlaps_(overlaps), step_(step) {}

  NormFindings run() {
    for (const ExtractedProgram& program : extraction_.details) {
      for (const ExtractedResult& result : program.results) {
        if (result.step != step_) continue;
        const int parameter = extraction_.regions[at(result.region)].parameter;
        (result.content < 0 ? without_gradient_ : with_gradient_)[parameter].push_back(
            {result.region, result.first, result.elements});
        if (result.content >= 0) readers_[parameter].insert(&program);
        if (!program.squares.empty()) results_[{&program, parameter}].push_back(&result);
      }
    }
    collect();
    for (const Clip& clip : clips_) verify(clip);
    tell_scaled();
    return std::move(found_);
  }

 private:
  /// Calls of a clipping function that are one clipping.
  struct Clip {
    std::set<int> parameters;  ///< that some rank clips
    std::vector<std::pair<const ExtractedProgram*, const ExtractedNorm*>> calls;
    std::set<const ExtractedProgram*> programs;
  };

  /// Norms of programs that clip the same parameters are one clipping, the n-th of these in each; and so are those of
  /// programs that clip others where they have one in common, or one of them counts squares of what the other clips.
  void collect() {
    std::map<std::pair<std::vector<int>, int>, Clip> alike;  // by parameters, and how many such came before
    for (const ExtractedProgram& program : extraction_.details) {
      std::map<std::vector<int>, int> came;
      for (const ExtractedNorm& norm : program.norms) {
        if (norm.step != step_) continue;
        if (norm.loss_scale != 1) {
          scaled_[{norm.call, norm.loss_scale}].emplace_back(&program, &norm);
          continue;
        }
        std::vector<int> own = norm.parameters;
        std::sort(own.begin(), own.end());
        Clip& clip = alike[{own, came[own]++}];
        clip.parameters.insert(own.begin(), own.end());
        clip.calls.emplace_back(&program, &norm);
        clip.programs.insert(&program);
      }
    }
    std::map<int, std::vector<int>> having;  // by parameter, numbers of those that clip or count it
    for (auto& [key, clip] : alike) {
      std::set<int> named = clip.parameters;
      for (const auto& [program, norm] : clip.calls) count_in(*program, *norm, named);
      for (const int parameter : named) having[parameter].push_back(static_cast<int>(clips_.size()));
      clips_.push_back(std::move(clip));
    }
    std::vector<int> of(clips_.size());  // the first of those that each is one with
    std::iota(of.begin(), of.end(), 0);
    const auto first = [&](int one) {
      while (of[at(one)] != one) one = of[at(one)];
      return one;
    };
    for (const auto& [parameter, numbers] : having) {
      for (std::size_t i = 0; i < numbers.size(); ++i) {
        for (std::size_t k = i + 1; k < numbers.size(); ++k) {
          const Clip &one = clips_[at(numbers[i])], &other = clips_[at(numbers[k])];
          if (are_apart(one, other)) {
            const int a = first(numbers[i]), b = first(numbers[k]);
            of[at(std::max(a, b))] = std::min(a, b);
          }
        }
      }
    }
    for (int one = static_cast<int>(clips_.size()) - 1; one >= 0; --one) {
      if (of[at(one)] == one) continue;
      Clip &into = clips_[at(first(one))], &from = clips_[at(one)];
      into.parameters.insert(from.parameters.begin(), from.parameters.end());
      into.calls.insert(into.calls.end(), from.calls.begin(), from.calls.end());
      into.programs.insert(from.programs.begin(), from.programs.end());
      from.calls.clear();
    }
    std::erase_if(clips_, [](const Clip& clip) { return clip.calls.empty(); });
  }

  /// Whether no rank does both.
  static bool are_apart(const Clip& one, const Clip& other) {
    return std::none_of(one.programs.begin(), one.programs.end(),
                        [&](const ExtractedProgram* program) { return other.programs.contains(program); });
  }

  /// Adds the parameters whose squares are in a norm.
  void count_in(const ExtractedProgram& program, const ExtractedNorm& norm, std::set<int>& parameters) {
    for (const symbolic::Stretch& stretch : forms_.result(program.ranks.front(), norm.content)) {
      if (stretch.form < 0) continue;
      for (const ComposedTerm& term : forms_.terms_of(stretch.form)) {
        const ExtractedProgram& details = extraction_.details[at(extraction_.programs.program_of[at(term.rank)])];
        const int number = details.square_of[at(term.source)];
        if (number >= 0) parameters.insert(details.squares[at(number)].parameter);
      }
    }
  }

  void verify(const Clip& clip) {
    std::vector<std::pair<int, const ExtractedNorm*>> norms;
    for (const auto& [program, norm] : clip.calls) {
      for (const int rank : program->ranks) norms.emplace_back(rank, norm);
    }
    std::sort(norms.begin(), norms.end(), [](const auto& one, const auto& other) {
      return std::tie(one.first, one.second->line) < std::tie(other.first, other.second->line);
    });
    const std::string call = at_call(*norms.front().second);
    by_form_.clear();
    std::map<Rational, std::pair<std::set<int>, std::set<int>>> wrong;  // by times: parameters and ranks
    for (const auto& [rank, norm] : norms) {
      std::string why;
      const Miscounts* counts = counts_of(rank, *norm, clip.parameters, why);
      if (counts == nullptr) {
        found_.notes.push_back(not_known(call) + why + ".");
        return;
      }
      for (const auto& [parameter, times] : *counts) {
        wrong[times].first.insert(parameter);
        wrong[times].second.insert(rank);
      }
    }
    for (const auto& [times, where] : wrong) {
      VerifyFinding finding;
      finding.kind = Mistake::norm_count;
      finding.what =
          fmt::format("the norm by which gradients are clipped{} {}", call,
                      times.is_zero() ? "leaves out elements"
                                      : fmt::format("counts elements {} times instead of once", times.to_string()));
      finding.parameters.assign(where.first.begin(), where.first.end());
      finding.ranks.assign(where.second.begin(), where.second.end());
      finding.steps = {step_};
      found_.wrong.push_back(std::move(finding));
    }
    if (!wrong.empty()) return;
    if (is_told(clip)) {
      found_.notes.push_back(
          fmt::format("{}{} of {} ranks clip by it.", not_known(call), norms.size(), extraction_.run.header.world));
      return;
    }
    if (const std::string why = why_undecided(clip); !why.empty()) {
      if (told_.insert(call).second) found_.gaps.push_back(not_known(call) + why + ".");
      return;
    }
    found_.notes.push_back(fmt::format("the norm by which gradients are clipped{} counts each element of {} once.",
                                       call, counted(clip.parameters.size(), "parameter")));
  }

  /// Whether it is said of a parameter by itself that not all who step with it clip it (find_clipped_by_some).
  bool is_told(const Clip& clip) const {
    return std::any_of(clip.parameters.begin(), clip.parameters.end(), [&](int parameter) {
      return readers_.contains(parameter) && outside_of(clip, parameter) != nullptr &&
             extraction_.run.unknown(step_, parameter) != nullptr;
    });
  }

  /// Who gets a gradient of a parameter, and does not take part in a clipping; null where there is none.
  const ExtractedProgram* outside_of(const Clip& clip, int parameter) const {
    const auto& programs = readers_.at(parameter);
    const auto found = std::find_if(programs.begin(), programs.end(),
                                    [&](const ExtractedProgram* program) { return !clip.programs.contains(program); });
    return found == programs.end() ? nullptr : *found;
  }

  /// What one device would do differently, perhaps, than ranks that each count all that they clip; "" where all is
  /// known.
  std::string why_undecided(const Clip& clip) const {
    const int rank = (*clip.programs.begin())->ranks.front();
    for (const auto& [parameter, programs] : readers_) {
      const ExtractedProgram* outside = outside_of(clip, parameter);
      if (outside == nullptr) continue;
      const bool inside = std::any_of(programs.begin(), programs.end(),
                                      [&](const ExtractedProgram* program) { return clip.programs.contains(program); });
      const int other = outside->ranks.front();
      if (clip.parameters.contains(parameter))
        return fmt::format("rank {}, which steps with {} too, does not clip it by that norm", other,
                           name_of(parameter));
      if (!inside)
        return fmt::format(
            "rank {} clips {} by it, and no rank that does has {}, which rank {} steps with: nothing says whether one "
            "device would clip both by one norm",
            rank, name_of(*clip.parameters.begin()), name_of(parameter), other);
    }
    return "";
  }

  const std::string& name_of(int parameter) const { return extraction_.run.parameters[at(parameter)].declared.name; }

  static std::string not_known(const std::string& call) {
    return fmt::format("whether the norm by which gradients are clipped{} is right is not known: ", call);
  }

  /// Clippings before a loss scaler has taken its scale out.
  void tell_scaled() {
    for (const auto& [key, calls] : scaled_) {
      std::set<int> parameters, ranks;
      for (const auto& [program, norm] : calls) {
        parameters.insert(norm->parameters.begin(), norm->parameters.end());
        ranks.insert(program->ranks.begin(), program->ranks.end());
      }
      VerifyFinding finding;
      finding.kind = Mistake::norm_count;
      finding.what = fmt::format(
          "the norm by which gradients are clipped{} is {} times that of the gradients: a loss scaler's scale is in "
          "them",
          at_call(*calls.front().second), key.second);
      finding.parameters.assign(parameters.begin(), parameters.end());
      finding.ranks.assign(ranks.begin(), ranks.end());
      finding.steps = {step_};
      found_.wrong.push_back(std::move(finding));
    }
  }

  static std::string at_call(const ExtractedNorm& norm) { return norm.call.empty() ? "" : " at " + norm.call; }

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
  std::map<int, std::set<const ExtractedProgram*>> readers_;  // by parameter, who gets a gradient of it
  /// By call and scale, clippings of what a loss scaler has scaled.
  std::map<std::pair<std::string, double>, std::vector<std::pair<const ExtractedProgram*, const ExtractedNorm*>>>
      scaled_;
  std::set<std::string> told_;                                               // calls of which nothing is known
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

NormFindings norm_findings(const Extraction& extraction, symbolic::ProgramForms& forms, RegionOverlaps& overlaps,
                           int step) {
  return NormVerdicts(extraction, forms, overlaps, step).run();
}

}  // namespace lockstep::live
