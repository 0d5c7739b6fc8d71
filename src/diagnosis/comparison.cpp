// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "src/base/at.h"
#include "src/base/budget.h"
#include "src/diagnosis/at_the_layout.h"
#include "src/diagnosis/correspondence.h"
#include "src/diagnosis/handed_over.h"
#include "src/diagnosis/norm_differences.h"
#include "src/diagnosis/owned_values.h"
#include "src/diagnosis/workload.h"

namespace lockstep {

namespace {

/// Of one pair of formulas: all further ones are counted.
constexpr std::size_t most_stretches = 64;

/// One of the two schedules with its replay.
struct Side {
  const Schedule& schedule;
  diagnosis::Replayed replayed;
  std::map<std::tuple<int, int, int>, int> value_of;  ///< by form, local model and buffer
  std::map<ClipFactor, int> norm_of;                  ///< that a factor is of

  const LocalBuffer& buffer(int rank, int index) const { return schedule.model.local(rank).buffers[at(index)]; }
};

class Comparer {
 public:
  Comparer(ScheduleComparison& result, diagnosis::Correspondence& correspondence)
      : result_(result),
        correspondence_(correspondence),
        before_{*result.before.scenario->schedule, {}, {}, {}},
        after_{*result.after.scenario->schedule, {}, {}, {}} {
    before_.replayed = diagnosis::replay_handed_over(before_.schedule, *result.before.timeline);
    after_.replayed = diagnosis::replay_handed_over(after_.schedule, *result.after.timeline);
  }

  void run() {
    const std::size_t steps = std::min(before_.replayed.steps.size(), after_.replayed.steps.size());
    for (std::size_t step = 0; step < steps; ++step) {
      result_.step = static_cast<int>(step);
      compare_step(step);
      if (!differences_.empty()) break;
    }
    finish();
    if (steps > 0) compare_norms();  // of steps that both complete
  }

 private:
  void compare_norms() {
    const SymbolicResult &before = before_.replayed.result, &after = after_.replayed.result;
    result_.has_norm = !before.norm_of.empty() || !after.norm_of.empty();
    result_.norms = diagnosis::norm_differences(before_.schedule.model, before, after_.schedule.model, after);
  }

  /// Two formulas that stand against each other in a parameter.
  struct Pair {
    int logical = 0, before = 0, after = 0;  ///< values
    friend auto operator<=>(const Pair&, const Pair&) = default;
  };
  struct Found {
    diagnosis::OwnedStretch before, after;         ///< an owner of each
    std::vector<diagnosis::OwnedStretch> in_both;  ///< what ranks own in both
    std::vector<DifferingElements> moved;          ///< what others own in the new one
    std::int64_t more = 0;                         ///< elements of further moved ones
  };

  void compare_step(std::size_t step) {
    const diagnosis::HandedOver &old_step = before_.replayed.steps[step], &new_step = after_.replayed.steps[step];
    std::set<std::pair<int, int>> with_other_owners;
    std::map<int, OwnershipDifference> ownership;
    result_.elements = 0;
    for (int rank = 0; rank < before_.schedule.mesh.world(); ++rank) {
      const std::vector<int>& buffers = correspondence_.buffers(rank);
      for (std::size_t i = 0; i < buffers.size(); ++i) {
        const int old_buffer = static_cast<int>(i), new_buffer = buffers[i];
        const LocalBuffer& local = before_.buffer(rank, old_buffer);
        const auto& old_pieces = old_step.pieces[at(rank)][i];
        const auto& new_pieces = new_step.pieces[at(rank)][at(new_buffer)];
        compare_pieces(rank, old_buffer, new_buffer, old_pieces, new_pieces);
        const Intervals old_owned = owned(old_pieces), new_owned = owned(new_pieces);
        if (old_owned != new_owned) {
          with_other_owners.emplace(local.logical, local.piece);
          OwnershipDifference& difference = ownership[local.logical];
          if (difference.ranks++ == 0) {
            difference.parameter = before_.schedule.model.logicals()[at(local.logical)].name;
            difference.rank = rank;
            difference.before = old_owned;
            difference.after = new_owned;
          }
        }
      }
    }
    compare_owners(with_other_owners, old_step, new_step);
    result_.ownership.clear();
    for (auto& [logical, difference] : ownership) result_.ownership.push_back(std::move(difference));
  }

  static Intervals owned(const std::vector<diagnosis::HandedOver::Piece>& pieces) {
    Intervals result;
    for (const diagnosis::HandedOver::Piece& piece : pieces) {
      if (!result.empty() && result.back().end == piece.elements.begin)
        result.back().end = piece.elements.end;
      else
        result.push_back(piece.elements);
    }
    return result;
  }

  void compare_pieces(int rank, int old_buffer, int new_buffer,
                      const std::vector<diagnosis::HandedOver::Piece>& old_pieces,
                      const std::vector<diagnosis::HandedOver::Piece>& new_pieces) {
    auto other = new_pieces.begin();
    for (const diagnosis::HandedOver::Piece& piece : old_pieces) {
      while (other != new_pieces.end() && other->elements.end <= piece.elements.begin) ++other;
      for (auto at = other; at != new_pieces.end() && at->elements.begin < piece.elements.end; ++at) {
        const Interval common = intersect(piece.elements, at->elements);
        result_.elements += common.size();
        add(stretch(before_, rank, old_buffer, common, piece.form),
            stretch(after_, rank, new_buffer, common, at->form));
      }
    }
  }

  /// Somebody owns an element of these pieces in one of the two alone: all owners' values of it together must be the
  /// same.
  void compare_owners(const std::set<std::pair<int, int>>& pieces, const diagnosis::HandedOver& old_step,
                      const diagnosis::HandedOver& new_step) {
    if (pieces.empty()) return;
    struct Owners {
      std::vector<diagnosis::OwnedStretch> before, after;
    };
    std::map<std::pair<int, int>, Owners> owners;
    for (int rank = 0; rank < before_.schedule.mesh.world(); ++rank) {
      const std::vector<int>& buffers = correspondence_.buffers(rank);
      for (std::size_t i = 0; i < buffers.size(); ++i) {
        const int old_buffer = static_cast<int>(i), new_buffer = buffers[i];
        const LocalBuffer& local = before_.buffer(rank, old_buffer);
        if (pieces.count({local.logical, local.piece}) == 0) continue;
        Owners& here = owners[{local.logical, local.piece}];
        for (const auto& piece : old_step.pieces[at(rank)][i])
          here.before.push_back(stretch(before_, rank, old_buffer, piece.elements, piece.form));
        for (const auto& piece : new_step.pieces[at(rank)][at(new_buffer)])
          here.after.push_back(stretch(after_, rank, new_buffer, piece.elements, piece.form));
      }
    }
    for (auto& [piece, both] : owners) {
      const std::vector<diagnosis::OwnedStretch> gained = alone(both.after, both.before);
      const std::map<int, diagnosis::Held> before = diagnosis::by_value(alone(both.before, both.after)),
                                           all_after = diagnosis::by_value(both.after);
      const std::map<int, diagnosis::Held> after = diagnosis::by_value(gained),
                                           all_before = diagnosis::by_value(both.before);
      Intervals owned_before;
      for (const auto& [value, held] : all_before) owned_before = unite(owned_before, held.where);
      for (const diagnosis::OwnedStretch& stretch : gained)
        result_.elements += size(intersect(owned_before, stretch.elements));
      std::map<std::pair<int, int>, Intervals> moved;
      for (diagnosis::OtherValue& other : diagnosis::other_values(before, all_after))
        moved[{other.before, other.after}] = std::move(other.elements);
      // And what an owner in the new one has, and none had in the old one.
      for (const diagnosis::OtherValue& other : diagnosis::other_values(after, all_before)) {
        Intervals& elements = moved[{other.after, other.before}];
        elements = unite(elements, other.elements);
      }
      for (const auto& [values, elements] : moved)
        add_moved(elements, all_before.at(values.first).stretches, all_after.at(values.second).stretches);
    }
  }

  /// What of `stretches` their ranks do not own in the other schedule; what they do is compared rank by rank.
  static std::vector<diagnosis::OwnedStretch> alone(const std::vector<diagnosis::OwnedStretch>& stretches,
                                                    const std::vector<diagnosis::OwnedStretch>& others) {
    std::map<int, Intervals> owned_there;
    for (const diagnosis::OwnedStretch& other : others) {
      Intervals& there = owned_there[other.rank];
      if (!there.empty() && there.back().end == other.elements.begin)
        there.back().end = other.elements.end;
      else
        there.push_back(other.elements);
    }
    std::vector<diagnosis::OwnedStretch> result;
    for (diagnosis::OwnedStretch stretch : stretches) {
      for (const Interval& elements : subtract({stretch.elements}, owned_there[stretch.rank])) {
        stretch.elements = elements;
        result.push_back(stretch);
      }
    }
    return result;
  }

  diagnosis::OwnedStretch stretch(Side& side, int rank, int buffer, const Interval& elements, int form) {
    return {elements, value(side, rank, buffer, form), rank, buffer, form};
  }

  /// Equal numbers are equal values, on both sides.
  int value(Side& side, int rank, int buffer, int form) {
    const auto [found, is_new] = side.value_of.try_emplace({form, side.schedule.model.local(rank).id, buffer}, 0);
    if (is_new) found->second = intern(side, side.replayed.engine->terms(form, rank, buffer));
    return found->second;
  }

  int intern(Side& side, const std::vector<Term>& terms) {
    Value value;
    for (const Term& term : terms) {
      const Rational plain =
          term.leftover.empty() ? term.coefficient * side.replayed.engine->by(term) : term.coefficient;
      if (plain.is_zero()) continue;
      const int logical =
          term.logical < 0 || &side == &after_ ? term.logical : correspondence_.logical_after(term.logical);
      std::vector<int> clips;
      clips.reserve(term.clips.size());
      for (const ClipFactor& factor : term.clips) clips.push_back(clip(side, factor));
      std::sort(clips.begin(), clips.end());
      value.emplace_back(term.rank, term.micro_batch, term.site_use, logical, term.foreign ? term.piece : -1,
                         term.offset, term.leftover, plain.to_string(), std::move(clips));
    }
    std::sort(value.begin(), value.end());
    return numbers_.emplace(std::move(value), static_cast<int>(numbers_.size())).first->second;
  }

  /// Equal numbers are factors of norms that count the same, however each side names them.
  int clip(Side& side, const ClipFactor& factor) {
    if (factor.rank < 0) return -1 - factor.number;
    if (const auto known = side.norm_of.find(factor); known != side.norm_of.end()) return known->second;
    const NormCounts norm = side.replayed.engine->counts_of(factor);
    const auto counted = [&](const std::vector<NormCounts::Run>& runs) {
      std::vector<CountedRun> result;
      for (const NormCounts::Run& run : runs) {
        std::vector<int> values;
        values.reserve(run.counted.size());
        for (const std::vector<Term>& terms : run.counted) values.push_back(intern(side, terms));
        std::sort(values.begin(), values.end());
        const int logical = &side == &after_ ? run.logical : correspondence_.logical_after(run.logical);
        result.emplace_back(logical, run.piece, run.begin, std::move(values));
      }
      std::sort(result.begin(), result.end());
      return result;
    };
    CountedNorm key = {{counted(norm.summed)}};
    for (const auto& members : norm.means) {
      auto& mean = key.emplace_back();
      for (const auto& member : members) mean.push_back(counted(member));
      std::sort(mean.begin(), mean.end());
    }
    std::sort(key.begin() + 1, key.end());
    const int number = norm_numbers_.emplace(std::move(key), static_cast<int>(norm_numbers_.size())).first->second;
    return side.norm_of[factor] = number;
  }

  Found& found(const diagnosis::OwnedStretch& old_one, const diagnosis::OwnedStretch& new_one) {
    const int logical = before_.buffer(old_one.rank, old_one.buffer).logical;
    const auto [here, is_new] = differences_.try_emplace({logical, old_one.value, new_one.value});
    if (is_new) {
      here->second.before = old_one;
      here->second.after = new_one;
    }
    return here->second;
  }

  void add(const diagnosis::OwnedStretch& old_one, const diagnosis::OwnedStretch& new_one) {
    if (old_one.value != new_one.value) found(old_one, new_one).in_both.push_back(old_one);
  }

  void add_moved(const Intervals& elements, const std::vector<diagnosis::OwnedStretch>& before,
                 const std::vector<diagnosis::OwnedStretch>& after) {
    Found& here = found(before.front(), after.front());
    for (DifferingElements& each : diagnosis::holders(elements, before, after, most_stretches, here.more))
      here.moved.push_back(std::move(each));
  }

  std::vector<Term> terms(const Side& side, int form, int rank, int buffer) const {
    std::vector<Term> result = side.replayed.engine->terms(form, rank, buffer);
    if (!result_.plain) return result;
    for (Term& term : result) {
      if (term.leftover.empty()) term.coefficient = term.coefficient * side.replayed.engine->by(term);
    }
    return result;
  }

  std::string formula(const Side& side, const diagnosis::OwnedStretch& owner) const {
    const LocalBuffer& local = side.buffer(owner.rank, owner.buffer);
    return print_formula(side.schedule, owner.rank, owner.buffer, terms(side, owner.form, owner.rank, owner.buffer),
                         reference_terms(side.schedule, local.logical, local.piece, result_.step));
  }

  static bool covers(const DifferingElements& all, const DifferingElements& some) {
    return all.elements.begin <= some.elements.begin && some.elements.end <= all.elements.end &&
           std::includes(all.ranks.begin(), all.ranks.end(), some.ranks.begin(), some.ranks.end());
  }

  void finish() {
    const auto factors = [](const Side& side, const diagnosis::OwnedStretch& owner) {
      std::set<std::string> result;
      for (const Term& term : side.replayed.engine->terms(owner.form, owner.rank, owner.buffer)) {
        if (term.leftover.empty()) result.insert(side.replayed.engine->by(term).to_string());
      }
      return result;
    };
    for (const auto& [pair, found] : differences_) {
      if (factors(before_, found.before) != factors(after_, found.after)) result_.plain = true;
    }
    for (auto& [pair, found] : differences_) {
      GradientDifference difference;
      difference.parameter = before_.schedule.model.logicals()[at(pair.logical)].name;
      difference.before = formula(before_, found.before);
      difference.after = formula(after_, found.after);
      difference.more = found.more;
      for (const auto& [value, held] : diagnosis::by_value(std::move(found.in_both)))
        difference.where = diagnosis::holders(held.where, held.stretches, {}, most_stretches, difference.more);
      // Of what others own now all holders are told, those that own it in both among them.
      std::erase_if(difference.where, [&](const DifferingElements& each) {
        return std::any_of(found.moved.begin(), found.moved.end(),
                           [&](const DifferingElements& moved) { return covers(moved, each); });
      });
      for (DifferingElements& each : found.moved) {
        if (difference.where.size() < most_stretches)
          difference.where.push_back(std::move(each));
        else
          difference.more += each.elements.size();
      }
      result_.gradients.push_back(std::move(difference));
    }
  }

  using Value =
      std::vector<std::tuple<int, int, int, int, int, std::int64_t, std::string, std::string, std::vector<int>>>;
  using CountedRun = std::tuple<int, int, std::int64_t, std::vector<int>>;
  using CountedNorm = std::vector<std::vector<std::vector<CountedRun>>>;  // the sum, then each mean: by member

  ScheduleComparison& result_;
  diagnosis::Correspondence& correspondence_;
  Side before_, after_;
  std::map<Value, int> numbers_;
  std::map<CountedNorm, int> norm_numbers_;
  std::map<Pair, Found> differences_;
};

/// Neither may be larger than what is checked, and both must fit in this machine's memory together.
void require_to_fit(const Scenario& before, const Scenario& after) {
  double bytes = 0;
  for (const Scenario* scenario : {&before, &after}) {
    const diagnosis::Workload workload = diagnosis::estimate_workload(*scenario->schedule);
    if (const std::string why = diagnosis::too_large(workload); !why.empty())
      throw InputError({diagnosis::at_the_layout(*scenario, why)});
    bytes += workload.bytes;
    if (const std::string why = diagnosis::too_large_here(workload, bytes); !why.empty()) throw std::runtime_error(why);
  }
}

ComparedSchedule replay(std::shared_ptr<const Scenario> scenario) {
  ComparedSchedule result;
  result.scenario = std::move(scenario);
  result.timeline = std::make_shared<const Timeline>(walk(*result.scenario->schedule));
  result.outcome = result.timeline->outcome.kind;
  return result;
}

}  // namespace

ScheduleComparison compare(std::shared_ptr<const Scenario> before, std::shared_ptr<const Scenario> after) {
  ScheduleComparison result;
  diagnosis::Correspondence correspondence(*before->schedule, *after->schedule);
  result.apart = correspondence.apart();
  for (const auto& [name, scenario] : {std::pair("old", before), {"new", after}}) {
    if (scenario->preset && !scenario->preset->edits.empty())
      result.apart.push_back(fmt::format(
          "The edits of the model in the {} one are not followed here: they change what its own communication "
          "does to gradients. `lockstep check` runs the model.",
          name));
  }
  result.before.scenario = std::move(before);
  result.after.scenario = std::move(after);
  if (!result.apart.empty()) return result;
  require_to_fit(*result.before.scenario, *result.after.scenario);
  const Budget budget(Budget::replay);
  result.before = replay(result.before.scenario);
  result.after = replay(result.after.scenario);
  result.complete = result.before.outcome == Outcome::Kind::complete && result.after.outcome == Outcome::Kind::complete;
  Comparer(result, correspondence).run();
  const int step = std::max(result.step, 0);
  for (ComparedSchedule* side : {&result.before, &result.after})
    side->communication = communication(*side->scenario->schedule, *side->timeline, step);
  return result;
}

}  // namespace lockstep
