// SPDX-License-Identifier: Apache-2.0
#include "src/live/extraction_columns.h"

#include <algorithm>

#include "src/live/run_layout.h"

namespace lockstep::live {

namespace {

std::uint64_t slot_key(int rank, int source) {
  return static_cast<std::uint64_t>(rank) << 32 | static_cast<std::uint32_t>(source);
}

/// Along which axes the run says of a parameter that ranks have the same gradient, and along which it says nothing.
/// Others are data axes, or have shares or what is added up.
struct AxesOfParameter {
  std::uint32_t replicas = 0, unsaid = 0;

  AxesOfParameter(const CapturedRun& run, int parameter) {
    const std::vector<std::string>& placed = run.parameters[at(parameter)].declared.placed;
    for (std::size_t axis = 0; axis < run.header.axes.size(); ++axis) {
      const std::string& name = run.header.axes[axis];
      const std::uint32_t bit = std::uint32_t{1} << axis;
      if ((run.data_axes & bit) != 0 || run.header.sizes[axis] == 1 || splits_sequence(name) ||
          name == name_of(Axis::pp))
        continue;
      const bool is_placed = std::find(placed.begin(), placed.end(), name) != placed.end();
      (is_placed ? replicas : unsaid) |= bit;
    }
  }
};

}  // namespace

ExtractedContributions::ExtractedContributions(const Extraction& extraction)
    : of_parameter_(extraction.run.parameters.size()) {
  std::map<std::tuple<int, int, std::int64_t, std::int64_t>, int> numbers;
  for (const ExtractedProgram& details : extraction.details) {
    for (const ExtractedContribution& one : details.contributions) {
      const auto [found, is_new] =
          numbers.try_emplace({one.step, one.region, one.first, one.elements}, static_cast<int>(groups_.size()));
      if (is_new) {
        groups_.push_back({one.step, one.region, one.first, one.elements, {}});
        of_parameter_[at(extraction.regions[at(one.region)].parameter)].push_back(found->second);
      }
      for (const int rank : details.ranks)
        groups_[at(found->second)].who.push_back({rank, one.source, one.micro_batch, one.partial, one.line});
    }
  }
  for (ContributionGroup& group : groups_) {
    std::stable_sort(group.who.begin(), group.who.end(), [](const Contributor& a, const Contributor& b) {
      return std::tie(a.rank, a.micro_batch) < std::tie(b.rank, b.micro_batch);
    });
  }
}

ExtractedColumns::ExtractedColumns(const Extraction& extraction, const ExtractedContributions& contributions,
                                   const std::vector<int>& groups, const std::map<int, Expected>& expected,
                                   int parameter, std::uint32_t replicas) {
  const CapturedRun& run = extraction.run;
  const AxesOfParameter axes(run, parameter);
  std::map<std::tuple<int, int, int>, int> numbers;   // by step, micro-batch and coordinates on all axes but replicas'
  std::map<std::tuple<int, int, int>, Slot> members;  // by step, rank and micro-batch
  std::map<std::tuple<int, int, int>, int> unsaid;    // coordinates on axes of which nothing is said, by all others
  struct Found {
    int step;
    Contributor who;
  };
  std::vector<Found> all;
  for (const int number : groups) {
    const ContributionGroup& group = contributions.group(number);
    for (const Contributor& who : group.who) all.push_back({group.step, who});
  }
  std::stable_sort(all.begin(), all.end(), [](const Found& a, const Found& b) {
    return std::tie(a.step, a.who.rank, a.who.micro_batch) < std::tie(b.step, b.who.rank, b.who.micro_batch);
  });
  for (const auto& [step, who] : all) {
    const std::uint32_t open = axes.unsaid & ~who.partial, alike = (axes.replicas & ~who.partial) | (open & replicas);
    if (open != 0) {
      const auto [first, is_new] = unsaid.try_emplace({step, who.micro_batch, run.other_coordinates(who.rank, open)},
                                                      run.coordinates(who.rank, open));
      if (!is_new && first->second != run.coordinates(who.rank, open)) unsaid_ |= open;
    }
    const auto [found, is_new] = numbers.try_emplace({step, who.micro_batch, run.other_coordinates(who.rank, alike)},
                                                     static_cast<int>(columns_.size()));
    if (is_new) {
      Column column;
      column.rank = who.rank;
      column.step = step;
      column.micro_batch = who.micro_batch;
      column.expected = expected.at(step).of(who.rank, who.micro_batch);
      columns_.push_back(std::move(column));
      contributions_of_.emplace_back();
    }
    Column& column = columns_[at(found->second)];
    const auto [slot, first] = members.try_emplace({step, who.rank, who.micro_batch},
                                                   Slot{found->second, static_cast<int>(column.members.size())});
    if (first) {
      column.members.emplace_back(who.rank, who.micro_batch);
      contributions_of_[at(found->second)].push_back(0);
    }
    ++contributions_of_[at(found->second)][at(slot->second.member)];
    slots_.emplace(slot_key(who.rank, who.source), slot->second);
  }
}

const ExtractedColumns::Slot* ExtractedColumns::slot(int rank, int source) const {
  const auto found = slots_.find(slot_key(rank, source));
  return found == slots_.end() ? nullptr : &found->second;
}

Explanation ExtractedColumns::explain(const std::vector<symbolic::ComposedTerm>& terms, bool& uneven) const {
  Explanation found;
  found.explained = found.told_apart = true;
  for (const Column& column : columns_) found.entered.push_back({&column, 0, 0, Rational(0)});
  // Several contributions of one rank in one micro-batch are one gradient, and come with one coefficient.
  std::map<std::pair<int, int>, std::pair<int, Rational>> of_member;  // how many came, and with what
  for (const symbolic::ComposedTerm& term : terms) {
    const Slot* own = slot(term.rank, term.source);
    const auto [place, is_new] = of_member.try_emplace({own->column, own->member}, 0, term.coefficient);
    ++place->second.first;
    uneven = uneven || place->second.second != term.coefficient;
  }
  for (const auto& [member, came] : of_member) {
    const auto& [column, number] = member;
    uneven = uneven || came.first != contributions_of_[at(column)][at(number)];
    *found.entered[at(column)].exact += came.second;
  }
  found.uniform = true;
  std::optional<Rational> factor;
  for (ColumnCoefficient& one : found.entered) {
    one.value = to_double(*one.exact);
    const std::optional<Rational>& expected = one.column->expected;
    if (expected && expected->is_zero()) {
      found.uniform = found.uniform && one.exact->is_zero();
      continue;
    }
    const Rational own = expected ? *one.exact / *expected : *one.exact;
    found.uniform = found.uniform && (!factor || *factor == own);
    found.of_expected = expected.has_value();
    factor = own;
  }
  if (found.uniform && !factor) {
    factor = Rational(1);
    found.of_expected = true;  // nothing is expected, and nothing came
  }
  if (found.uniform) {
    found.exact_factor = factor;
    found.factor = to_double(*factor);
    found.right = found.of_expected && factor->is_one();
  }
  return found;
}

}  // namespace lockstep::live
