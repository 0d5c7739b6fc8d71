// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>

#include "lockstep/timeline.h"
#include "src/base/at.h"

namespace lockstep {

namespace {

// Everything about a site that its contributions depend on, apart from the rank.
std::string site_key(const Model& model, int parameter) {
  const Parameter& site = model.parameters()[at(parameter)];
  std::string key = std::to_string(model.site_use(parameter, site.uses.front())) + "|";
  for (const std::string& use : site.uses) key += use + ",";
  key += "|";
  for (const Shard& shard : site.shard) key += std::string(name_of(shard.axis)) + ",";
  key += "|";
  for (Axis axis : site.partial) key += std::string(name_of(axis)) + ",";
  key += "|";
  for (Axis axis : site.dispatch) key += std::string(name_of(axis)) + ",";
  key += "|";
  if (site.micro_batches) {
    key += "m";
    for (int micro_batch : *site.micro_batches) key += std::to_string(micro_batch) + ",";
  }
  for (const Parameter::Only& only : site.only) {
    key += "|" + std::string(name_of(only.axis));
    for (int coordinate : only.coordinates) key += "," + std::to_string(coordinate);
  }
  return key + (site.frozen ? "|frozen;" : ";");
}

}  // namespace

Contributions::Contributions(const Schedule& schedule) : schedule_(&schedule) {
  const Model& model = schedule.model;
  std::map<std::vector<int>, int> dispatch_lists;
  for (const Parameter& parameter : model.parameters()) {
    if (parameter.dispatch.empty()) {
      dispatch_of_.push_back(-1);
      continue;
    }
    std::vector<int> key;
    for (Axis axis : parameter.dispatch) key.push_back(static_cast<int>(axis));
    std::sort(key.begin(), key.end());
    const auto [found, is_new] = dispatch_lists.emplace(key, static_cast<int>(dispatch_groups_.size()));
    if (is_new) {
      Over over;
      for (Axis axis : parameter.dispatch) over.picks.push_back({axis, std::nullopt});
      dispatch_groups_.push_back(schedule.mesh.groups(over));
    }
    dispatch_of_.push_back(found->second);
  }
  // A class stands for one rank at a time, so pieces count only where they decide who names a
  // contribution: the shard axes in the key do that.
  std::map<std::string, int> sites;
  std::vector<int> sites_of(model.parameters().size(), -1);  // by parameter, looked at once however many hold it
  const auto site_of = [&](int parameter) {
    int& site = sites_of[at(parameter)];
    if (site < 0) site = sites.emplace(site_key(model, parameter), static_cast<int>(sites.size())).first->second;
    return site;
  };
  std::map<std::vector<int>, int> classes;
  std::vector<int> key;
  for (const auto& local : model.locals()) {
    std::vector<int>& of_buffer = class_of_.emplace_back();
    for (const LocalBuffer& buffer : local->buffers) {
      key.clear();
      for (const int parameter : buffer.parameters) key.push_back(site_of(parameter));
      of_buffer.push_back(classes.emplace(key, static_cast<int>(classes.size())).first->second);
    }
  }
  class_count_ = static_cast<int>(classes.size());
}

int Contributions::class_of(int rank, int buffer) const {
  return class_of_[at(schedule_->model.local(rank).id)][at(buffer)];
}

// Replicate: every rank along tp computes the same value, and the lowest gives it its name.
int Contributions::named_by(int rank, int buffer, int parameter, int micro_batch) const {
  const Mesh& mesh = schedule_->mesh;
  const Model& model = schedule_->model;
  const Parameter& site = model.parameters()[at(parameter)];
  if (mesh.size(Axis::tp) == 1) return rank;
  for (const Shard& shard : site.shard) {
    if (shard.axis == Axis::tp) return rank;
  }
  if (std::find(site.partial.begin(), site.partial.end(), Axis::tp) != site.partial.end()) return rank;
  const LocalBuffer& own = model.local(rank).buffers[at(buffer)];
  int stride = 1;
  for (Axis axis : mesh.layout().order) {
    if (axis == Axis::tp) break;
    if (!is_expert_axis(axis)) stride *= mesh.size(axis);
  }
  for (int other = rank - mesh.coordinate(rank, Axis::tp) * stride; other < rank; other += stride) {
    const int held = model.buffer_of(other, own.logical);
    if (held < 0 || model.local(other).buffers[at(held)].piece != own.piece) continue;
    if (!model.takes_part(mesh, parameter, other, micro_batch)) continue;
    const bool same_share = std::all_of(site.partial.begin(), site.partial.end(), [&](Axis axis) {
      return mesh.coordinate(other, axis) == mesh.coordinate(rank, axis);
    });
    if (same_share) return other;
  }
  return rank;
}

std::vector<Contribution> Contributions::of(int rank, int buffer, int optimizer_step, int micro_batch,
                                            const std::vector<std::string>& uses) const {
  const Mesh& mesh = schedule_->mesh;
  const Model& model = schedule_->model;
  const Batch& batch = schedule_->batch;
  const int counted = batch.first_micro_batch(optimizer_step) + micro_batch;
  const auto has_tokens = [&](const std::string& use, int source) {
    return batch.tokens(use, counted, mesh.coordinate(source, Axis::dp), mesh.coordinate(source, Axis::cp),
                        mesh.coordinate(source, Axis::sp)) > 0;
  };
  std::vector<Contribution> result;
  for (int parameter : model.local(rank).buffers[at(buffer)].parameters) {
    const Parameter& site = model.parameters()[at(parameter)];
    if (site.frozen || !model.takes_part(mesh, parameter, rank, micro_batch)) continue;
    for (const std::string& use : site.uses) {
      if (!uses.empty() && std::find(uses.begin(), uses.end(), use) == uses.end()) continue;
      const int site_use = model.site_use(parameter, use);
      const int dispatch = dispatch_of_[at(parameter)];
      if (dispatch < 0) {
        if (has_tokens(use, rank)) result.push_back({named_by(rank, buffer, parameter, micro_batch), rank, site_use});
        continue;
      }
      const Groups& groups = dispatch_groups_[at(dispatch)];
      const int group = groups.group_of[at(rank)];
      for (int source : groups.members[at(group)]) {
        if (has_tokens(use, source)) result.push_back({source, source, site_use});
      }
    }
  }
  return result;
}

std::int64_t Contributions::most(int rank, int buffer) const {
  const Model& model = schedule_->model;
  std::int64_t most = 0;
  for (const int parameter : model.local(rank).buffers[at(buffer)].parameters) {
    const int dispatch = dispatch_of_[at(parameter)];
    const std::size_t sources = dispatch < 0 ? 1 : dispatch_groups_[at(dispatch)].members.front().size();
    most += static_cast<std::int64_t>(sources * model.parameters()[at(parameter)].uses.size());
  }
  return most;
}

Rational Factors::by(const Step& step, int rank, int optimizer_step, int micro_batch) const {
  if (!step.by) return Rational(1);
  Environment environment;
  environment.mesh = &schedule_->mesh;
  environment.counts = &schedule_->batch;
  environment.rank = rank;
  environment.step = optimizer_step;
  if (micro_batch >= 0) environment.micro_batch = micro_batch;
  return step.by->number(environment);
}

}  // namespace lockstep
