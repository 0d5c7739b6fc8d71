// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/any_sizes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lockstep/prove.h"

namespace lockstep {

namespace {

/// Axes of size "any" for which there is no proof, as mistakes at their places.
std::vector<Diagnostic> not_decided(const Scenario& scenario, const Proof& proof) {
  Diagnostics diagnostics;
  const Json* layout = scenario.document.find("layout");
  const Proof::Limit limit = proof.limits.empty() ? Proof::Limit{"", "", proof.statement} : proof.limits.front();
  for (const Axis axis : scenario.layout.any) {
    const Json* size = layout == nullptr ? nullptr : layout->find(name_of(axis));
    const Place place =
        size == nullptr ? Place{nullptr, 0, 0, fmt::format("/layout/{}", name_of(axis))} : size->place();
    diagnostics.add(place, fmt::format("the size \"any\" of the axis {} is not decided{}: {}{}; give a number",
                                       name_of(axis), limit.sizes.empty() ? "" : " for " + limit.sizes,
                                       limit.step.empty() ? "" : "step \"" + limit.step + "\": ", limit.why));
  }
  return diagnostics.sorted();
}

}  // namespace

std::shared_ptr<const Scenario> shown_for_any(const Scenario& scenario, CheckResult& result) {
  const Prover prover(scenario);
  const Proof& proof = prover.proof();
  if (proof.verdict == Proof::Verdict::undecided) {
    result.errors = not_decided(scenario, proof);
    return nullptr;
  }
  Sizes sizes;
  for (const Axis axis : proof.axes) sizes.axes[axis] = 2;
  if (proof.counterexample) sizes = proof.counterexample->sizes;
  std::shared_ptr<const Scenario> concrete = prover.scenario_at(sizes);
  if (!concrete) concrete = prover.scenario_at({});
  auto shown = std::make_shared<Scenario>(*concrete);
  shown->file = scenario.file;
  shown->name = scenario.name;
  shown->expect = scenario.expect;
  std::vector<std::string> names;
  for (const Axis axis : scenario.layout.any) names.emplace_back(name_of(axis));
  result.notes.push_back(
      fmt::format("With any {} it is {}. Shown is {}.", fmt::join(names, " and "), proof.statement,
                  proof.counterexample ? "the smallest layout that is wrong" : "a small layout that stands for all"));
  return shown;
}

}  // namespace lockstep
