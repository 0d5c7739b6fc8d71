// SPDX-License-Identifier: Apache-2.0
#include "src/symbolic/parametric/counterexample.h"

#include <algorithm>
#include <map>
#include <set>

#include "lockstep/symbolic.h"
#include "src/base/at.h"

namespace lockstep::parametric {

namespace {

/// Replays the scenario at these sizes on every rank. Nothing where it is right.
std::optional<Proof::Counterexample> replay(const Layouts& layouts, const Sizes& sizes) {
  const std::shared_ptr<const Scenario> scenario = layouts.read(sizes);
  if (!scenario) return std::nullopt;
  const Schedule& schedule = *scenario->schedule;
  Timeline timeline;
  try {
    timeline = walk(schedule);
  } catch (const InputError&) {
    return std::nullopt;
  }
  SymbolicEngine engine(schedule, timeline);
  const SymbolicResult result = engine.run();
  const bool race = timeline.outcome.kind == Outcome::Kind::race;
  if (!race && (timeline.step_ends.empty() || result.match)) return std::nullopt;
  Proof::Counterexample example;
  example.sizes = sizes;
  example.document = scenario->document;
  example.document.set("expect", Json::object({{"verdict", {}, Json::string(race ? "race" : "mismatch")}}));
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

}  // namespace

void each_suspect(const std::vector<Reason>& reasons, const Sizes& base, const std::vector<Axis>& axes,
                  bool micro_batches, const std::function<bool(const Sizes&)>& visit) {
  // Sizes in the order of their ranks; only those at which something may be wrong are looked at.
  std::vector<Sizes> candidates = {base};
  for (const Axis axis : axes) {
    std::set<int> tried = {1, 2, 3, 4, 5, 6};
    for (const Reason& reason : reasons) {
      for (const std::map<Axis, int>* of : {&reason.of->exact, &reason.of->least, &reason.least}) {
        if (of->contains(axis)) tried.insert(of->at(axis));
      }
    }
    std::vector<Sizes> more;
    for (const Sizes& sizes : candidates) {
      for (const int size : tried) {
        more.push_back(sizes);
        more.back().axes[axis] = size;
      }
    }
    candidates = std::move(more);
  }
  if (micro_batches) {
    std::vector<Sizes> more;
    std::set<int> counts = {1, 2, 3};
    for (const Reason& reason : reasons) counts.insert(*reason.representative->sizes.micro_batches);
    for (const Sizes& sizes : candidates) {
      for (const int count : counts) {
        more.push_back(sizes);
        more.back().micro_batches = count;
      }
    }
    candidates = std::move(more);
  }
  for (const Reason& reason : reasons) candidates.push_back(reason.representative->sizes);
  const auto world = [](const Sizes& sizes) {
    int product = 1;
    for (const auto& [axis, size] : sizes.axes) product *= size;
    return std::pair(product, sizes.micro_batches.value_or(0));
  };
  std::stable_sort(candidates.begin(), candidates.end(),
                   [&](const Sizes& a, const Sizes& b) { return world(a) < world(b); });
  for (const Sizes& sizes : candidates) {
    const bool possible =
        std::any_of(reasons.begin(), reasons.end(), [&](const Reason& reason) { return applies(reason, sizes); });
    if (possible && !visit(sizes)) return;
  }
}

std::optional<Proof::Counterexample> smallest_wrong(const Layouts& layouts, const std::vector<Reason>& reasons) {
  std::optional<Proof::Counterexample> example;
  int looked_at = 0;
  each_suspect(reasons, layouts.base(), layouts.axes(), layouts.micro_batches(), [&](const Sizes& sizes) {
    if (!layouts.read(sizes)) return true;
    example = replay(layouts, sizes);
    return !example && ++looked_at < 40;
  });
  return example;
}

}  // namespace lockstep::parametric
