// SPDX-License-Identifier: Apache-2.0
#include "src/symbolic/parametric/counterexample.h"

#include <algorithm>
#include <functional>
#include <map>
#include <queue>
#include <set>
#include <tuple>

#include "lockstep/symbolic.h"
#include "src/base/at.h"

namespace lockstep::parametric {

namespace {

bool is_stuck(Outcome::Kind ended) {
  return ended == Outcome::Kind::deadlock || ended == Outcome::Kind::invalid_collective;
}

}  // namespace

std::optional<Proof::Counterexample> replay(const Scenario& scenario, const Sizes& sizes) {
  const Schedule& schedule = *scenario.schedule;
  Timeline timeline;
  try {
    timeline = walk(schedule);
  } catch (const InputError&) {
    return std::nullopt;
  }
  SymbolicEngine engine(schedule, timeline);
  const SymbolicResult result = engine.run();
  const bool is_wrong = !timeline.step_ends.empty() && !result.match;
  Outcome::Kind ended = timeline.outcome.kind;
  if (is_wrong && is_stuck(ended))
    ended = Outcome::Kind::complete;  // an optimizer step before has an end, and is wrong
  if (ended == Outcome::Kind::complete && !is_wrong) return std::nullopt;
  Proof::Counterexample example;
  example.sizes = sizes;
  example.ended = ended;
  example.document = scenario.document;
  const char* verdict = ended == Outcome::Kind::complete             ? "mismatch"
                        : ended == Outcome::Kind::race               ? "race"
                        : ended == Outcome::Kind::invalid_collective ? "invalid_collective"
                                                                     : "deadlock";
  example.document.set("expect", Json::object({{"verdict", {}, Json::string(verdict)}}));
  if (is_stuck(ended)) return example;
  for (const BufferResult& buffer : result.buffers) {
    const auto wrong =
        std::find_if(buffer.pieces.begin(), buffer.pieces.end(), [](const PieceResult& piece) { return !piece.right; });
    if (wrong == buffer.pieces.end()) continue;
    const LocalBuffer& local = schedule.model.local(buffer.rank).buffers[at(buffer.buffer)];
    const std::vector<Term> support = reference_terms(schedule, local.logical, local.piece, result.step);
    example.rank = buffer.rank;
    example.parameter = schedule.model.parameters()[at(local.parameters.front())].name;
    example.got = print_formula(schedule, buffer.rank, buffer.buffer,
                                engine.terms(wrong->form, buffer.rank, buffer.buffer), support);
    example.expected = print_formula(schedule, buffer.rank, buffer.buffer,
                                     engine.terms(wrong->reference, buffer.rank, buffer.buffer), support);
    break;
  }
  const auto name = [&](int rank, int buffer) {
    const LocalBuffer& local = schedule.model.local(rank).buffers[at(buffer)];
    return schedule.model.parameters()[at(local.parameters.front())].name;
  };
  if (example.parameter.empty() && !result.unowned.empty()) {
    example.rank = result.unowned.front().rank;
    example.parameter = name(example.rank, result.unowned.front().buffer);
    example.unowned = true;
  } else if (example.parameter.empty() && !result.norm.empty()) {
    example.rank = result.norm.front().rank;
    example.parameter = schedule.model.parameters()[at(result.norm.front().parameter)].name;
    example.counted = result.norm.front().counted;
  }
  return example;
}

void each_suspect(const std::vector<Reason>& reasons, const Sizes& base, const std::vector<Axis>& axes,
                  bool micro_batches, const std::function<bool(const Sizes&)>& visit) {
  std::vector<std::vector<int>> tried;  // by axis, then micro-batches; ascending
  std::map<Variable, std::set<int>> beside_zeros;
  for (const Reason& reason : reasons) {
    for (auto& [variable, sizes] : sizes_beside_zeros(reason)) beside_zeros[variable].merge(sizes);
  }
  const auto add_beside_zeros = [&](Variable::Kind kind, Axis axis, std::set<int>& sizes) {
    for (const auto& [variable, some] : beside_zeros) {
      if (variable.kind == kind && (kind == Variable::Kind::micro_batches || variable.axis == axis))
        sizes.insert(some.begin(), some.end());
    }
  };
  for (const Axis axis : axes) {
    std::set<int> sizes = {1, 2, 3, 4, 5, 6};
    for (const Reason& reason : reasons) {
      for (const std::map<Axis, int>* of : {&reason.of->exact, &reason.of->least, &reason.least}) {
        if (of->contains(axis)) sizes.insert(of->at(axis));
      }
    }
    add_beside_zeros(Variable::Kind::size, axis, sizes);
    tried.emplace_back(sizes.begin(), sizes.end());
  }
  if (micro_batches) {
    std::set<int> counts = {1, 2, 3};
    for (const Reason& reason : reasons) counts.insert(*reason.representative->sizes.micro_batches);
    add_beside_zeros(Variable::Kind::micro_batches, {}, counts);
    tried.emplace_back(counts.begin(), counts.end());
  }
  const auto world = [](const Sizes& sizes) {
    std::int64_t product = 1;
    for (const auto& [axis, size] : sizes.axes) product *= size;
    return std::pair(product, sizes.micro_batches.value_or(0));
  };
  const auto at_places = [&](const std::vector<std::size_t>& places) {
    Sizes sizes = base;
    for (std::size_t i = 0; i < axes.size(); ++i) sizes.axes[axes[i]] = tried[i][places[i]];
    if (micro_batches) sizes.micro_batches = tried.back()[places.back()];
    return sizes;
  };
  std::vector<Sizes> representatives;
  representatives.reserve(reasons.size());
  for (const Reason& reason : reasons) representatives.push_back(reason.representative->sizes);
  std::stable_sort(representatives.begin(), representatives.end(),
                   [&](const Sizes& a, const Sizes& b) { return world(a) < world(b); });

  std::int64_t compared = 0;
  const auto goes_on = [&](const Sizes& sizes) {
    const bool possible = std::any_of(reasons.begin(), reasons.end(), [&](const Reason& reason) {
      ++compared;
      return applies(reason, sizes);
    });
    return !possible || visit(sizes);
  };
  // There may be billions: they are made in the order of their ranks, each from the one with one size less, and after
  // so many comparisons those that the reasons were found at are left.
  constexpr std::int64_t most_compared = 5'000'000;
  using Next = std::tuple<std::int64_t, int, std::vector<std::size_t>>;
  std::priority_queue<Next, std::vector<Next>, std::greater<>> waiting;
  const auto wait = [&](std::vector<std::size_t> places) {
    const auto [ranks, count] = world(at_places(places));
    waiting.emplace(ranks, count, std::move(places));
  };
  wait(std::vector<std::size_t>(tried.size(), 0));
  auto representative = representatives.begin();
  while (!waiting.empty() && compared < most_compared) {
    const auto [ranks, count, places] = waiting.top();
    waiting.pop();
    for (; representative != representatives.end() && world(*representative) < std::pair(ranks, count);
         ++representative)
      if (!goes_on(*representative)) return;
    if (!goes_on(at_places(places))) return;
    for (std::size_t i = places.size(); i-- > 0;) {
      if (places[i] + 1 < tried[i].size()) {
        std::vector<std::size_t> larger = places;
        ++larger[i];
        wait(std::move(larger));
      }
      if (places[i] > 0) break;  // what is larger in front of it comes from another one
    }
  }
  for (; representative != representatives.end(); ++representative)
    if (!goes_on(*representative)) return;
}

std::optional<Proof::Counterexample> smallest_wrong(const Layouts& layouts, const std::vector<Reason>& reasons,
                                                    std::vector<Sizes>& right) {
  std::optional<Proof::Counterexample> example;
  int looked_at = 0;
  std::set<std::map<Axis, int>> refused;  // with all numbers of micro-batches that were tried
  const auto find_at = [&](const Sizes& sizes) -> bool {
    const std::shared_ptr<const Scenario> there = layouts.read(sizes);
    if (!there) return false;
    example = replay(*there, sizes);
    if (example && is_stuck(example->ended)) example.reset();  // no reason is about that
    if (!example) right.push_back(sizes);
    return true;
  };
  each_suspect(reasons, layouts.base(), layouts.axes(), layouts.micro_batches(), [&](const Sizes& sizes) {
    if (!find_at(sizes)) {
      refused.insert(sizes.axes);
      return true;
    }
    refused.erase(sizes.axes);
    return !example && ++looked_at < 40;
  });
  if (!example || !layouts.micro_batches()) return example;
  // Rules may refuse the few numbers of micro-batches that were tried, and allow others below that of the example.
  constexpr int most = 64;
  Proof::Counterexample found = *example;
  Sizes sizes = found.sizes;
  const int count = *sizes.micro_batches;
  for (int fewer = 1; fewer < std::min(count, most); ++fewer) {
    sizes.micro_batches = fewer;
    const bool possible =
        std::any_of(reasons.begin(), reasons.end(), [&](const Reason& reason) { return applies(reason, sizes); });
    if (!possible || !find_at(sizes) || !example) continue;
    found = *example;
    break;
  }
  example = std::move(found);
  example->is_smallest =
      count <= most && std::all_of(refused.begin(), refused.end(), [&](const std::map<Axis, int>& axes) {
        std::map<Axis, SizeRange> ranges;
        for (const auto& [axis, size] : axes) ranges.emplace(axis, SizeRange::exactly(Rational(size)));
        return layouts.refuses_all(ranges, std::nullopt);
      });
  return example;
}

}  // namespace lockstep::parametric
