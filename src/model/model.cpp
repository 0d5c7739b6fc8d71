// SPDX-License-Identifier: Apache-2.0
#include "lockstep/model.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "src/base/at.h"
#include "src/model/placement.h"

namespace lockstep {
namespace {

/// A buffer that every rank of a pipeline stage has; the piece depends on the rank.
struct BufferTemplate {
  int logical = 0;
  std::vector<int> parameters;
};

/// The buffers of one pipeline stage in model order, and the axes on which their pieces depend.
struct StageTemplate {
  std::vector<BufferTemplate> buffers;
  std::vector<Axis> axes;
};

std::vector<StageTemplate> stage_templates(const Mesh& mesh, const std::vector<Parameter>& parameters,
                                           const std::vector<int>& logical_of, std::size_t logicals) {
  std::vector<std::vector<int>> parameters_of(at(mesh.size(Axis::pp)));
  for (int p = 0; p < static_cast<int>(parameters.size()); ++p) {
    const Parameter& parameter = parameters[at(p)];
    if (parameter.frozen) continue;
    if (parameter.stage) {
      parameters_of[at(*parameter.stage)].push_back(p);
    } else {
      for (std::vector<int>& of_stage : parameters_of) of_stage.push_back(p);
    }
  }
  std::vector<StageTemplate> stages(parameters_of.size());
  std::vector<int> buffer_of(logicals, -1);
  for (std::size_t s = 0; s < stages.size(); ++s) {
    StageTemplate& stage = stages[s];
    for (const int p : parameters_of[s]) {
      const int logical = logical_of[at(p)];
      int& buffer = buffer_of[at(logical)];
      if (buffer < 0) {
        buffer = static_cast<int>(stage.buffers.size());
        stage.buffers.push_back({logical, {}});
        for (const Shard& shard : parameters[at(p)].shard) stage.axes.push_back(shard.axis);
      }
      stage.buffers[at(buffer)].parameters.push_back(p);
    }
    for (const BufferTemplate& buffer : stage.buffers) buffer_of[at(buffer.logical)] = -1;
    std::sort(stage.axes.begin(), stage.axes.end());
    stage.axes.erase(std::unique(stage.axes.begin(), stage.axes.end()), stage.axes.end());
  }
  return stages;
}

}  // namespace

std::string_view name_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::float32:
      return "float32";
    case Dtype::float64:
      return "float64";
    case Dtype::bfloat16:
      return "bfloat16";
    case Dtype::float16:
      return "float16";
  }
  return "";
}

std::int64_t Parameter::numel() const {
  std::int64_t product = 1;
  for (const std::int64_t extent : shape) product *= extent;
  return product;
}

Model::Model(const Mesh& mesh, std::vector<Parameter> parameters, Diagnostics& diagnostics)
    : Model(mesh, std::make_shared<const std::vector<Parameter>>(std::move(parameters)), diagnostics, {}) {}

void Model::check(const Mesh& mesh, Diagnostics& diagnostics) const {
  if (parameters_->empty()) diagnostics.add({}, "the model has no parameter; it needs at least one");
  std::unordered_set<std::string_view> names;
  struct Tie {
    const Parameter* first = nullptr;
    std::set<std::string_view> copies;
  };
  constexpr std::size_t most_copies = 100;
  std::unordered_map<std::string_view, Tie> ties;
  for (const Parameter& parameter : *parameters_) {
    model::check_placement(mesh, parameter, diagnostics);
    if (!names.insert(parameter.name).second) {
      diagnostics.add(parameter.place,
                      "the parameter name \"" + parameter.name + "\" is given twice; names are unique");
    }
    if (parameter.tied.empty()) continue;
    Tie& tie = ties[parameter.tied];
    if (tie.first == nullptr)
      tie.first = &parameter;
    else
      model::check_tie(*tie.first, parameter, diagnostics);
    if (tie.copies.insert(parameter.copy).second && tie.copies.size() > most_copies) {
      diagnostics.add(parameter.place, "\"" + parameter.tied + "\" has more than " + std::to_string(most_copies) +
                                           " copies; expected at most that many");
      return;
    }
  }
}

Model::Model(const Mesh& mesh, Parameters shared, Diagnostics& diagnostics, const std::vector<Model>& others)
    : parameters_(std::move(shared)), content_(std::make_shared<const Content>()) {
  const std::size_t mistakes = diagnostics.size();
  check(mesh, diagnostics);
  if (diagnostics.size() != mistakes) return;
  const std::vector<Parameter>& parameters = *parameters_;
  Content own;
  std::unordered_map<std::string_view, int> original_tied;
  for (int p = 0; p < static_cast<int>(parameters.size()); ++p) {
    const Parameter& parameter = parameters[at(p)];
    int original = static_cast<int>(own.logicals.size());
    if (!parameter.tied.empty()) original = original_tied.emplace(parameter.tied, original).first->second;
    int logical = static_cast<int>(own.logicals.size());
    if (original < logical) {
      for (const int copy : own.copies[at(original)]) {
        if (parameters[at(own.logicals[at(copy)].parameters.front())].copy == parameter.copy) logical = copy;
      }
    }
    if (logical == static_cast<int>(own.logicals.size())) {
      own.logicals.push_back({parameter.name,
                              parameter.tied,
                              original,
                              {},
                              {},
                              parameter.shape,
                              parameter.dtype,
                              parameter.numel(),
                              true});
      own.copies.emplace_back();
      own.copies[at(original)].push_back(logical);
    }
    own.logicals[at(logical)].parameters.push_back(p);
    Logical& whole = own.logicals[at(original)];
    whole.frozen = whole.frozen && parameter.frozen;
    if (!parameter.frozen) {
      for (const std::string& use : parameter.uses) whole.uses.push_back({p, use});
    }
    own.logical_of.push_back(logical);
  }
  for (Logical& logical : own.logicals) logical.frozen = own.logicals[at(logical.original)].frozen;

  // Ranks of a stage that agree on all axes over which something on it is sharded share a local model.
  const std::vector<StageTemplate> stages = stage_templates(mesh, parameters, own.logical_of, own.logicals.size());
  std::set<Axis> axes = {Axis::pp};
  for (const StageTemplate& stage : stages) axes.insert(stage.axes.begin(), stage.axes.end());
  for (const Axis axis : axes) own.sizes.emplace_back(axis, mesh.size(axis));
  index_ = CoordinateIndex(mesh, {axes.begin(), axes.end()});
  local_of_.resize(at(index_.size()));
  std::map<Place, int> local_at;
  std::vector<int> ranks;  // the first of each local model
  for (int number = 0; number < index_.size(); ++number) {
    const int rank = index_.first_rank(number);
    if (rank >= mesh.world()) break;  // of an expert mesh that an axis of size "any" leaves too few ranks for
    const int stage = mesh.coordinate(rank, Axis::pp);
    std::int64_t key = 0;
    for (const Axis axis : stages[at(stage)].axes) key = key * mesh.size(axis) + mesh.coordinate(rank, axis);
    const auto [found, added] = local_at.emplace(Place(stage, key), static_cast<int>(own.places.size()));
    local_of_[at(number)] = found->second;
    if (!added) continue;
    own.places.push_back(found->first);
    ranks.push_back(rank);
  }
  for (const Model& other : others) {
    if (other.parameters_ != parameters_ || other.content_->sizes != own.sizes || other.content_->places != own.places)
      continue;
    content_ = other.content_;
    return;
  }

  for (const Logical& logical : own.logicals)
    own.pieces.push_back(model::cut_into_pieces(mesh, parameters[at(logical.parameters.front())]));
  for (const int rank : ranks) {
    const StageTemplate& stage = stages[at(mesh.coordinate(rank, Axis::pp))];
    auto local = std::make_unique<LocalModel>();
    local->id = static_cast<int>(own.locals.size());
    local->buffers.reserve(stage.buffers.size());
    int lowest = 0, highest = -1;
    for (const BufferTemplate& buffer : stage.buffers) {
      const Parameter& first = parameters[at(buffer.parameters.front())];
      const int piece = model::piece_index(mesh, first, rank);
      const Piece& box = own.pieces[at(buffer.logical)][at(piece)];
      local->buffers.push_back({buffer.logical, piece, buffer.parameters, box.numel,
                                box.dims.empty() ? 1 : box.dims.front().size(), first.chunk, first.dtype});
      lowest = highest < 0 ? buffer.logical : std::min(lowest, buffer.logical);
      highest = std::max(highest, buffer.logical);
    }
    // The lowest logical parameter, then the buffer of each from there to the highest.
    std::vector<int> index(at(highest < 0 ? 1 : highest - lowest + 2), -1);
    index[0] = lowest;
    for (std::size_t b = 0; b < local->buffers.size(); ++b) {
      index[at(local->buffers[b].logical - lowest + 1)] = static_cast<int>(b);
    }
    own.buffer_of.push_back(std::move(index));
    own.locals.push_back(std::move(local));
  }
  content_ = std::make_shared<const Content>(std::move(own));
}

std::vector<int> Model::sites(int logical) const {
  std::vector<int> found;
  for (const int copy : copies(logical)) {
    const std::vector<int>& own = logicals()[at(copy)].parameters;
    found.insert(found.end(), own.begin(), own.end());
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::vector<int> Model::trained(int logical) const {
  std::vector<int> found = sites(logical);
  std::erase_if(found, [&](int parameter) { return parameters()[at(parameter)].frozen; });
  return found;
}

int Model::buffer_of(int rank, int logical) const {
  const std::vector<int>& index = content_->buffer_of[at(local_id(rank))];
  const int place = logical - index[0] + 1;
  return place >= 1 && place < static_cast<int>(index.size()) ? index[at(place)] : -1;
}

int Model::buffer_of_copy(int rank, int logical) const {
  for (const int copy : copies(logical)) {
    if (const int buffer = buffer_of(rank, copy); buffer >= 0) return buffer;
  }
  return -1;
}

int Model::site_use(int parameter, std::string_view use) const {
  // They stand site by site, the sites in model order.
  const std::vector<SiteUse>& uses = logicals()[at(original(logical_of(parameter)))].uses;
  const auto first = std::lower_bound(uses.begin(), uses.end(), parameter,
                                      [](const SiteUse& one, int wanted) { return one.parameter < wanted; });
  for (auto found = first; found != uses.end() && found->parameter == parameter; ++found) {
    if (found->use == use) return static_cast<int>(found - uses.begin());
  }
  return -1;
}

std::int64_t Model::global_index(int logical, int piece, std::int64_t local) const {
  const std::vector<std::int64_t>& shape = logicals()[at(logical)].shape;
  const Piece& box = pieces(logical)[at(piece)];
  std::int64_t index = 0, stride = 1;
  for (std::size_t d = shape.size(); d-- > 0;) {
    index += (box.dims[d].begin + local % box.dims[d].size()) * stride;
    local /= box.dims[d].size();
    stride *= shape[d];
  }
  return index;
}

bool Model::takes_part(const Mesh& mesh, int parameter, int rank, int micro_batch) const {
  const Parameter& own = parameters()[at(parameter)];
  const auto contains = [](const std::vector<int>& list, int value) {
    return std::find(list.begin(), list.end(), value) != list.end();
  };
  if (own.frozen) return false;
  if (own.micro_batches && !contains(*own.micro_batches, micro_batch)) return false;
  return std::all_of(own.only.begin(), own.only.end(), [&](const Parameter::Only& only) {
    return contains(only.coordinates, mesh.coordinate(rank, only.axis));
  });
}

}  // namespace lockstep
