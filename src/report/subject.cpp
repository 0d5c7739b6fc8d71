// SPDX-License-Identifier: Apache-2.0
#include "src/report/subject.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "src/base/at.h"
#include "src/base/refuse.h"

namespace lockstep::report {

namespace {

constexpr std::size_t most_ranges = 4;

/// The parameters that a name or a selector means: one, or all that it fits.
std::vector<int> parameters_named(const Model& model, const std::string& name) {
  std::vector<std::string> names;
  std::vector<int> fitting;
  const bool readable = !Selectors::check(name);
  const Selectors selectors(std::vector<std::string>{name});
  for (std::size_t index = 0; index < model.parameters().size(); ++index) {
    const Parameter& parameter = model.parameters()[index];
    if (parameter.name == name) return {static_cast<int>(index)};
    if (readable && selectors.chooses(parameter, std::accumulate(parameter.shape.begin(), parameter.shape.end(),
                                                                 std::int64_t{1}, std::multiplies<>())))
      fitting.push_back(static_cast<int>(index));
    names.push_back(parameter.name);
  }
  if (!fitting.empty()) return fitting;
  const std::string near = did_you_mean(name, names);
  refuse(fmt::format("the scenario has no parameter \"{}\"{}", name,
                     near.empty() ? "; `lockstep show` lists them, and a glob or tag:NAME is taken too" : near));
}

}  // namespace

GridRequest request_for(const CheckResult& result, int parameter) {
  const Schedule& schedule = *result.scenario->schedule;
  const int logical = schedule.model.logical_of(parameter);
  for (int rank = 0; rank < schedule.mesh.world(); ++rank) {
    const int buffer = schedule.model.buffer_of(rank, logical);
    if (buffer < 0) continue;
    const LocalBuffer& local = schedule.model.local(rank).buffers[at(buffer)];
    const bool named = std::find(local.parameters.begin(), local.parameters.end(), parameter) != local.parameters.end();
    if (named && local.numel > 0) return {rank, buffer, {0, local.numel}, std::nullopt};
  }
  refuse(fmt::format("no rank holds a gradient of {}: it is frozen or empty",
                     schedule.model.parameters()[at(parameter)].name));
}

GridRequest wrong_request(const ParameterFinding& finding, GridRequest otherwise) {
  for (const RankGroup& group : finding.groups) {
    if (group.symbolic == nullptr) continue;
    for (const PieceResult& piece : group.symbolic->pieces) {
      if (!piece.right) return {group.ranks.front(), group.buffer, piece.elements, std::nullopt};
    }
  }
  return otherwise;
}

Subject subject_of(const CheckResult& result, const std::string& asked) {
  const Model& model = result.scenario->schedule->model;
  const std::vector<ParameterFinding> wrong = collect_findings(result, false);
  if (!asked.empty()) {
    const std::vector<int> parameters = parameters_named(model, asked);
    for (const ParameterFinding& finding : wrong) {
      if (std::find(parameters.begin(), parameters.end(), finding.parameter) == parameters.end()) continue;
      return {finding.parameter, wrong_request(finding, request_for(result, finding.parameter))};
    }
    return {parameters.front(), request_for(result, parameters.front())};
  }
  for (const ParameterFinding& finding : wrong) {
    const GridRequest request = request_for(result, finding.parameter);
    return {finding.parameter, wrong_request(finding, request)};
  }
  for (std::size_t index = 0; index < model.parameters().size(); ++index) {
    if (!model.parameters()[index].frozen)
      return {static_cast<int>(index), request_for(result, static_cast<int>(index))};
  }
  refuse("every parameter of the scenario is frozen: there is no gradient to explain");
}

std::vector<GridRequest> requests_for(const CheckResult& result, const Subject& subject,
                                      const std::vector<Interval>& ranges) {
  const Model& model = result.scenario->schedule->model;
  const int logical = model.logical_of(subject.parameter);
  const auto holds = [&](int rank, std::int64_t element) {
    const int buffer = model.buffer_of(rank, logical);
    return buffer >= 0 && model.local(rank).buffers[at(buffer)].numel > element;
  };
  std::vector<GridRequest> requests;
  for (const Interval& range : ranges) {
    int rank = subject.request.rank;
    for (int other = 0; !holds(rank, range.begin); ++other) rank = other;
    requests.push_back({rank, model.buffer_of(rank, logical), range, std::nullopt});
  }
  return requests;
}

void keep_telling(std::vector<GridRequest>& requests, std::int64_t element) {
  if (requests.size() <= most_ranges) return;
  const auto wanted = std::find_if(requests.begin(), requests.end(), [&](const GridRequest& request) {
    return request.elements.begin <= element && element < request.elements.end;
  });
  if (wanted - requests.begin() >= static_cast<std::ptrdiff_t>(most_ranges)) requests[most_ranges - 1] = *wanted;
  requests.resize(most_ranges);
}

bool in_the_middle(const Snapshot& snapshot, int micro_batches) {
  return micro_batches > 4 && snapshot.micro_batch >= 2 && snapshot.micro_batch < micro_batches - 1;
}

}  // namespace lockstep::report
