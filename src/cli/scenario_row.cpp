// SPDX-License-Identifier: Apache-2.0
#include "src/cli/scenario_row.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "lockstep/rational.h"
#include "lockstep/scenario.h"
#include "src/diagnosis/kind_of_mistake.h"
#include "src/diagnosis/other_tests.h"
#include "src/report/clean_text.h"

namespace lockstep::cli {

namespace {

const Rational accepted_error(8, 100);

/// "NVIDIA/Megatron-LM#844", "deepspeedai/DeepSpeed PR 545" and "pytorch/pytorch, release 2.13.0 as run" taken apart.
std::pair<std::string, std::string> project_and_number(const std::string& source) {
  const std::size_t end = std::min(source.find_first_of(" #,;:"), source.size());
  std::string number = source.substr(end);
  const std::size_t begin = number.find_first_not_of(" ,;:");
  number = begin == std::string::npos ? "" : number.substr(begin);
  number = number.substr(0, number.find_first_of(",;:"));
  return {source.substr(0, end), number};
}

std::string axes_text(const Layout& layout) {
  std::vector<std::string> axes;
  const auto add = [&](Axis axis, int size) {
    if (std::find(layout.any.begin(), layout.any.end(), axis) != layout.any.end()) {
      axes.push_back(fmt::format("{} any", name_of(axis)));
    } else if (size > 1) {
      axes.push_back(fmt::format("{} {}", name_of(axis), size));
    }
  };
  add(Axis::pp, layout.pp);
  if (layout.dp_replicate > 1) {
    add(Axis::dp_replicate, layout.dp_replicate);
    add(Axis::dp_shard, layout.dp_shard);
  } else {
    add(Axis::dp, layout.dp);
  }
  add(Axis::sp, layout.sp);
  add(Axis::cp, layout.cp);
  add(Axis::tp, layout.tp);
  add(Axis::ep, layout.ep);
  if (layout.etp != layout.tp) add(Axis::etp, layout.etp);
  return axes.empty() ? "-" : fmt::format("{}", fmt::join(axes, ", "));
}

}  // namespace

ScenarioRow row_of(const CheckResult& result) {
  ScenarioRow row;
  row.verdict = std::string(name_of(result.verdict));
  row.axes = row.mistake = row.factor = row.replicas = row.tolerance = "-";
  row.file = row.name = report::file_text(result.file);
  if (result.scenario == nullptr) return row;
  const Scenario& scenario = *result.scenario;
  row.name = scenario.name;
  std::tie(row.project, row.number) = project_and_number(scenario.source_reference);
  row.title = scenario.title;
  row.axes = axes_text(scenario.layout);
  if (result.verdict == Verdict::error) return row;
  row.mistake = result.verdict == Verdict::match ? "none" : std::string(name_of(diagnosis::kind_of_mistake(result)));
  const std::optional<Rational> ratio = overall_ratio(result);
  if (ratio) row.factor = ratio->to_string();
  if (result.verdict != Verdict::mismatch || symbolic_of(result) == nullptr) return row;
  // Its values are right: a factor of 1 would say that all is well.
  if (diagnosis::wrong_in_norm_alone(result)) row.factor = "norm";
  if (diagnosis::wrong_in_model_alone(result)) row.factor = "-";
  row.replicas = std::string(diagnosis::name_of(diagnosis::compare_replicas(result)));
  row.tolerance = diagnosis::within_tolerance(result, accepted_error) ? "passes" : "fails";
  return row;
}

}  // namespace lockstep::cli
