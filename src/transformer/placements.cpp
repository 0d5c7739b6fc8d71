// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "lockstep/transformer.h"
#include "src/base/at.h"
#include "src/transformer/generator.h"
#include "src/transformer/recognize.h"
#include "src/transformer/rounding.h"
#include "src/transformer/sharded_model.h"
#include "src/transformer/stage_division.h"

namespace lockstep {

namespace transformer {

namespace {

bool has(const std::vector<Axis>& axes, Axis axis) { return std::find(axes.begin(), axes.end(), axis) != axes.end(); }

/// What one rank's backward yields for one parameter, over all micro-batches.
struct Local {
  Home home;
  Real gradient;
  std::set<int> sources;  ///< ranks whose tokens it stems from
};

class Observer {
 public:
  Observer(const Scenario& scenario, const TransformerOptions& options)
      : schedule_(*scenario.schedule),
        config_(recognize(scenario)),
        data_(config_, schedule_, options.seed, scenario.preset->place),
        reference_(rounded_gradient(config_, initial_parameters(config_, options.seed), data_.sequences(0))) {
    const Mesh& mesh = schedule_.mesh;
    ShardedRun run;
    run.seed = options.seed;
    run.edits = read_site_edits(*scenario.preset);
    check_stage_division(config_, mesh.layout(), run.edits, scenario.preset->place);
    std::set<std::string> reached;
    run.reached = &reached;
    for (const std::string& use : config_.uses()) {
      const auto weight = [&](int rank, int m) {
        return data_.loss_weight(use, 0, m, mesh.coordinate(rank, Axis::dp), mesh.coordinate(rank, Axis::cp),
                                 mesh.coordinate(rank, Axis::sp));
      };
      add(run_sharded(config_, schedule_, data_, 0, use, weight, run));
    }
    check_reached(run.edits, reached);
  }

  void add(const std::vector<std::vector<LocalGradients>>& gradients) {
    const Mesh& mesh = schedule_.mesh;
    for (int rank = 0; rank < mesh.world(); ++rank) {
      for (const auto& [name, home] : local_parameters(config_, mesh, rank)) {
        Local& local = locals_[name][rank];
        local.home = home;
        if (local.gradient.size() == 0) local.gradient = Real(home.rows, home.columns);
        for (const LocalGradients& of_micro_batch : gradients[at(rank)]) {
          for (const auto& [key, gradient] : of_micro_batch) {
            if (key.first != name) continue;
            local.gradient += gradient;
            local.sources.insert(key.second);
          }
        }
      }
    }
  }

  PlacementReport observe() {
    const std::vector<Parameter>& parameters = schedule_.model.parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const auto found = locals_.find(parameters[i].name);
      if (found == locals_.end()) continue;  // one that never takes part
      const bool expert = found->first.find(".experts.") != std::string::npos;
      std::vector<Axis> axes = {Axis::dp, Axis::sp, Axis::cp, Axis::tp};
      if (expert) axes = {Axis::edp, Axis::ep, Axis::etp};
      std::set<Axis> replicated;
      for (const Axis axis : axes) {
        if (schedule_.mesh.size(axis) == 1) continue;
        const std::string observed = observed_along(axis, found->second, parameters[i]);
        if (observed == "R") replicated.insert(axis);
        const std::string claimed = claimed_along(axis, parameters[i]);
        report_.placements.push_back(
            {static_cast<int>(i), axis, claimed, observed, observed == "0" || observed == claimed});
      }
      add_up(found->second, replicated);
    }
    for (const auto& [name, sum] : sums_) {
      if (!near(sum, reference_.gradient.at(name), reference_.deviation.at(name))) report_.incomplete.push_back(name);
    }
    return std::move(report_);
  }

 private:
  static std::string claimed_along(Axis axis, const Parameter& parameter) {
    for (const Shard& shard : parameter.shard) {
      if (shard.axis == axis)
        return "S(" + std::to_string(shard.dim) + ")" + (has(parameter.dispatch, axis) ? " D" : "");
    }
    if (has(parameter.dispatch, axis)) return "D";
    // dp, cp and sp split the tokens, edp what of that the experts do not exchange.
    return axis != Axis::tp && axis != Axis::etp ? "P" : has(parameter.partial, axis) ? "P" : "R";
  }

  std::string observed_along(Axis axis, const std::map<int, Local>& holders, const Parameter& parameter) const {
    const Mesh& mesh = schedule_.mesh;
    bool all_zero = true, all_alike = true, cut = false, exchanged = false;
    int dimension = 0;
    const Groups groups = mesh.groups(Over{{{axis, std::nullopt}}});
    for (const std::vector<int>& members : groups.members) {
      const auto first = holders.find(members.front());
      if (first == holders.end()) continue;
      for (const int member : members) {
        const Local& local = holders.at(member);
        const Home& home = local.home;
        const Home& lead = first->second.home;
        if (home.row != lead.row || home.column != lead.column || home.tensor != lead.tensor) {
          cut = true;
          dimension = home.column != lead.column && parameter.shape.size() > 1 ? 1 : 0;
        }
        for (const int source : local.sources) {
          const int group = groups.group_of[at(source)];
          exchanged = exchanged || (source != member && group == groups.group_of[at(member)]);
        }
        const Real deviation = piece(reference_.deviation, home);
        const Real zero = Real(home.rows, home.columns);
        all_zero = all_zero && near(local.gradient, zero, deviation);
        all_alike = all_alike && !cut && near(local.gradient, first->second.gradient, deviation);
      }
    }
    if (cut) return "S(" + std::to_string(dimension) + ")" + (exchanged ? " D" : "");
    if (exchanged) return "D";
    return all_zero ? "0" : all_alike ? "R" : "P";
  }

  static Real piece(const Tensors<double>& tensors, const Home& home) {
    return block_of(tensors.at(home.tensor), home.row, home.column, home.rows, home.columns);
  }

  /// Within the bound on rounding, for several values that are added up.
  bool near(const Real& a, const Real& b, const Real& deviation) const {
    for (Index i = 0; i < a.size(); ++i) {
      if (!(std::abs(a(i) - b(i)) <= 4 * reference_.worst(deviation(i)))) return false;
    }
    return true;
  }

  /// Adds the gradients of all ranks that do not repeat another's to the tensor of one device.
  void add_up(const std::map<int, Local>& holders, const std::set<Axis>& replicated) {
    for (const auto& [rank, local] : holders) {
      const bool repeats = std::any_of(replicated.begin(), replicated.end(), [&, rank = rank](Axis axis) {
        return schedule_.mesh.coordinate(rank, axis) > 0;
      });
      const Real& whole = reference_.gradient.at(local.home.tensor);
      Real& sum = sums_.try_emplace(local.home.tensor, Real(whole.rows(), whole.cols())).first->second;
      if (!repeats) sum.add_to_block(local.home.row, local.home.column, local.gradient);
    }
  }

  const Schedule& schedule_;
  Config config_;
  Data data_;
  RoundedGradient reference_;
  std::map<std::string, std::map<int, Local>> locals_;  ///< by parameter and rank
  Tensors<double> sums_;
  PlacementReport report_;
};

}  // namespace

}  // namespace transformer

bool PlacementReport::agrees() const {
  return incomplete.empty() && std::all_of(placements.begin(), placements.end(),
                                           [](const ObservedPlacement& placement) { return placement.agrees; });
}

PlacementReport observe_placements(const Scenario& scenario, const TransformerOptions& options) {
  try {
    return transformer::Observer(scenario, options).observe();
  } catch (const transformer::CommunicationError& error) {
    throw InputError(
        {{scenario.preset->place, fmt::format("the model itself cannot go on, so that there are no gradients to look "
                                              "at: {}; `lockstep check` says more",
                                              error.what())}});
  }
}

}  // namespace lockstep
