// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/any_sizes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lockstep/prove.h"
#include "src/scenario/open_sizes.h"

namespace lockstep::diagnosis {

namespace {

/// Sizes that are "any" and for which there is no proof, as mistakes at their places.
std::vector<Diagnostic> not_decided(const Scenario& scenario, const Proof& proof) {
  Diagnostics diagnostics;
  const Json* layout = scenario.document.find("layout");
  const Proof::Limit limit = proof.limits.empty() ? Proof::Limit{"", "", proof.statement} : proof.limits.front();
  const auto add = [&](const Json* part, const std::string& pointer, const std::string& what) {
    const std::string key = pointer.substr(pointer.rfind('/') + 1);
    const Json* size = part == nullptr ? nullptr : part->find(key);
    const Place place = size == nullptr ? Place{nullptr, 0, 0, pointer} : size->place();
    diagnostics.add(place, fmt::format("{} is not decided{}: {}{}; give a number", what,
                                       limit.sizes.empty() ? "" : " for " + limit.sizes,
                                       limit.step.empty() ? "" : "step \"" + limit.step + "\": ", limit.why));
  };
  for (const Axis axis : scenario.layout.any) {
    const std::string name(name_of(axis));
    add(layout, "/layout/" + name, "the size \"any\" of the axis " + name);
  }
  if (scenario::has_any_micro_batches(scenario))
    add(scenario.document.find("batch"), "/batch/micro_batches", "the number \"any\" of micro-batches");
  return diagnostics.sorted();
}

/// A scenario of given sizes that stands for a file with other ones.
std::shared_ptr<Scenario> in_place_of(const Scenario& file, const Scenario& concrete) {
  auto shown = std::make_shared<Scenario>(concrete);
  shown->file = file.file;
  shown->name = file.name;
  shown->changes = file.changes;
  shown->expect = file.expect;
  return shown;
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
  std::shared_ptr<Scenario> shown = in_place_of(scenario, *concrete);
  std::vector<std::string> names;
  names.reserve(scenario.layout.any.size() + 1);
  for (const Axis axis : scenario.layout.any) names.emplace_back(name_of(axis));
  if (scenario::has_any_micro_batches(scenario)) names.emplace_back("micro_batches");
  result.notes.push_back(
      fmt::format("With any {} it is {}. Shown is {}.", fmt::join(names, " and "), proof.statement,
                  proof.counterexample ? "the smallest layout that is wrong" : "a small layout that stands for all"));
  return shown;
}

std::unique_ptr<CheckResult> at_two_of_any(const CheckResult& result) {
  const Prover prover(*result.written);
  Sizes sizes;
  for (const Axis axis : prover.proof().axes) sizes.axes[axis] = 2;
  if (prover.proof().micro_batches) sizes.micro_batches = 2;
  const std::shared_ptr<const Scenario> concrete = prover.scenario_at(sizes);
  if (!concrete) return nullptr;
  auto there = std::make_unique<CheckResult>(
      check_scenario(in_place_of(*result.written, *concrete), CheckOptions::verdict_alone()));
  if (there->verdict != Verdict::mismatch) return nullptr;
  there->written = result.written;
  return there;
}

}  // namespace lockstep::diagnosis
