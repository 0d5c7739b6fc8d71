// SPDX-License-Identifier: Apache-2.0
#include "src/report/findings.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "lockstep/numeric.h"
#include "lockstep/parametric.h"
#include "lockstep/scenario.h"
#include "src/base/at.h"

namespace lockstep::report {

namespace {

/// What makes two ranks' content equal, as bytes to look up by.
class Key {
 public:
  void add(std::int64_t value) { bytes_.append(reinterpret_cast<const char*>(&value), sizeof value); }
  void add(const Intervals& intervals) {
    add(static_cast<std::int64_t>(intervals.size()));
    for (const Interval& interval : intervals) {
      add(interval.begin);
      add(interval.end);
    }
  }
  void add(const GradientHash& hash) {
    for (const std::uint64_t lane : hash.lanes) add(static_cast<std::int64_t>(lane));
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

/// `hashed`: the hashes are those of all that a rank owns, and not of a sample.
std::string key_of(const LocalBuffer& local, const RankGroup& group, bool hashed) {
  Key key;
  key.add(local.piece);
  // Formulas name uses as the rank's own stage does.
  for (const int parameter : local.parameters) key.add(parameter);
  key.add(group.unowned);
  if (group.symbolic != nullptr) {
    key.add(group.symbolic->owned);
    for (const PieceResult& piece : group.symbolic->pieces) {
      key.add(piece.elements.begin);
      key.add(piece.elements.end);
      key.add(piece.form);
      key.add(piece.reference);
    }
  }
  if (group.host != nullptr) {
    key.add(hashed ? group.host->hash : GradientHash{});
    key.add(hashed ? group.host->expected_hash : GradientHash{});
    key.add(group.host->right);
  }
  return key.take();
}

class Collector {
 public:
  Collector(const CheckResult& result, bool all)
      : result_(result),
        exact_(exact_of(result)),
        numbers_(numbers_of(result)),
        model_(result.scenario->schedule->model),
        all_(all),
        findings_(model_.parameters().size()),
        index_(model_.parameters().size()) {
    for (std::size_t parameter = 0; parameter < findings_.size(); ++parameter) {
      findings_[parameter].parameter = static_cast<int>(parameter);
    }
  }

  std::vector<ParameterFinding> collect() {
    if (exact_ != nullptr) {
      for (const UnownedResult& unowned : exact_->unowned) {
        Intervals& elements = unowned_[{unowned.rank, unowned.buffer}];
        elements = unite(elements, unowned.elements);
      }
      for (const NormResult& norm : exact_->norm) findings_[at(norm.parameter)].wrong = true;
    }
    const std::size_t count = exact_ != nullptr     ? exact_->buffers.size()
                              : numbers_ != nullptr ? numbers_->buffers.size()
                                                    : 0;
    for (std::size_t position = 0; position < count; ++position) add(position);
    if (const ParametricSample* sample = sample_of(result_); sample != nullptr) {
      for (const auto& [parameter, other] : sample->like) {
        findings_[at(parameter)].wrong = true;
        findings_[at(parameter)].like = other;
      }
      for (const auto& [parameter, why] : sample->not_shown) {
        findings_[at(parameter)].wrong = true;
        findings_[at(parameter)].not_shown = why;
      }
    }
    std::vector<ParameterFinding> listed;
    for (ParameterFinding& finding : findings_) {
      if (all_ || finding.wrong) listed.push_back(std::move(finding));
    }
    return listed;
  }

 private:
  /// The numeric engine's finding at a place in the list of all buffers, if it is about the reported step.
  const HostBuffer* host_at(std::size_t position) const {
    if (numbers_ == nullptr || numbers_->step != result_.step || position >= numbers_->buffers.size()) return nullptr;
    return &numbers_->buffers[position];
  }

  void add(std::size_t position) {
    RankGroup group;
    group.host = host_at(position);
    int rank = 0;
    if (exact_ != nullptr) {
      group.symbolic = &exact_->buffers[position];
      rank = group.symbolic->rank;
      group.buffer = group.symbolic->buffer;
      group.wrong = std::any_of(group.symbolic->pieces.begin(), group.symbolic->pieces.end(),
                                [](const PieceResult& piece) { return !piece.right; });
    } else {
      if (group.host == nullptr) return;
      rank = group.host->rank;
      group.buffer = group.host->buffer;
      group.wrong = !group.host->right;
    }
    const auto unowned = unowned_.find({rank, group.buffer});
    if (unowned != unowned_.end()) {
      group.unowned = unowned->second;
      group.wrong = true;
    }
    const LocalBuffer& buffer = model_.local(rank).buffers[at(group.buffer)];
    const std::size_t parameter = at(buffer.parameters.front());
    ParameterFinding& finding = findings_[parameter];
    if (group.wrong) finding.wrong = true;
    finding.unowned = unite(finding.unowned, group.unowned);
    if (!group.wrong && !all_) return;
    const auto [place, fresh] = index_[parameter].emplace(
        key_of(buffer, group, numbers_ != nullptr && !numbers_->sampled), finding.groups.size());
    if (fresh) finding.groups.push_back(std::move(group));
    finding.groups[place->second].ranks.push_back(rank);
  }

  const CheckResult& result_;
  const SymbolicResult* exact_;
  const HostResult* numbers_;
  const Model& model_;
  bool all_;
  std::vector<ParameterFinding> findings_;
  std::vector<std::unordered_map<std::string, std::size_t>> index_;
  std::map<std::pair<int, int>, Intervals> unowned_;
};

}  // namespace

std::vector<ParameterFinding> collect_findings(const CheckResult& result, bool all) {
  if (result.timeline == nullptr && sample_of(result) == nullptr) return {};
  if (result.verdict != Verdict::mismatch && !all) return {};
  return Collector(result, all).collect();
}

bool has_expert_mesh(const Layout& layout) { return layout.ep > 1 || (layout.etp > 1 && layout.etp != layout.tp); }

std::vector<std::pair<std::string, int>> coordinates(const Mesh& mesh, int rank) {
  std::vector<std::pair<std::string, int>> at;
  const Layout& layout = mesh.layout();
  std::vector<Axis> axes = {Axis::pp, Axis::dp};
  if (layout.dp_replicate > 1) axes.insert(axes.end(), {Axis::dp_replicate, Axis::dp_shard});
  axes.insert(axes.end(), {Axis::sp, Axis::cp, Axis::tp});
  if (has_expert_mesh(layout)) axes.insert(axes.end(), {Axis::edp, Axis::ep, Axis::etp});
  for (const Axis axis : axes) {
    if (mesh.size(axis) > 1) at.emplace_back(std::string(name_of(axis)), mesh.coordinate(rank, axis));
  }
  return at;
}

}  // namespace lockstep::report
