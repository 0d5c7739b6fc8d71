// SPDX-License-Identifier: Apache-2.0
#include "src/symbolic/parametric/classes.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "lockstep/operation.h"
#include "src/base/at.h"
#include "src/expression/node.h"
#include "src/schedule/selector_list.h"
#include "src/symbolic/parametric/alignment.h"
#include "src/symbolic/parametric/named_coordinates.h"

namespace lockstep::parametric {

namespace {

/// The local shape of a buffer as a function of the sizes of the axes.
std::string shape_key(const Model& model, const LocalBuffer& buffer) {
  const Parameter& parameter = model.parameters()[at(buffer.parameters.front())];
  std::string key;
  for (const std::int64_t extent : parameter.shape) key += std::to_string(extent) + "x";
  for (const Shard& shard : parameter.shard)
    key += std::string(name_of(shard.axis)) + (shard.uneven ? "~" : "/") + std::to_string(shard.dim);
  return key;
}

/// A cut that cannot be made is a mistake where ranks come to it, and some may meet another one before.
GeometryLayout lay_out_for(const Step& step, const std::vector<GeometryItem>& items, int n,
                           const Environment& environment) {
  try {
    return lay_out(*step.geometry, items, n, environment);
  } catch (const InputError& mistake) {
    throw OutOfReach(step.name, mistake.diagnostics().front().message);
  }
}

}  // namespace

StepSelections::StepSelections(const World& world, std::shared_ptr<Contents> contents, std::string side)
    : world_(world), contents_(std::move(contents)), side_(std::move(side)) {
  visit_named(world.schedule(), [&](const NamedCoordinates& named) {
    if (named.axis) refuse_uneven_shards(*named.axis);
    if (named.axis && *named.axis != Axis::pp) return;
    all_stages_ = all_stages_ || named.all;
    (named.compared ? compared_stages_ : named_stages_).insert(named.coordinates.begin(), named.coordinates.end());
  });
  if (world.schedule().decided_by_numel) refuse_open_shards("", "parameters or steps are chosen");
  for (const Step& step : world.schedule().steps) {
    read(step);
    for (const Step& inner : step.steps) read(inner);
  }
  find_by_stage();
  make_classes();
}

int StepSelections::buffer(int stage, int logical) const {
  return world_.schedule().model.buffer_of(world_.ranks_of_stages()[at(stage)], logical);
}

void StepSelections::refuse_uneven_shards(Axis axis) const {
  const auto is_over = [&](Axis other) { return other == axis || is_part_of(axis, other) || is_part_of(other, axis); };
  const auto& open = world_.open().least;
  if (std::none_of(open.begin(), open.end(), [&](const auto& one) { return is_over(one.first); })) return;
  for (const Parameter& parameter : world_.schedule().model.parameters()) {
    for (const Shard& shard : parameter.shard) {
      if (!shard.uneven || !is_over(shard.axis)) continue;
      throw OutOfReach("",
                       "coordinates of " + std::string(name_of(axis)) + " are singled out, and \"" + parameter.name +
                           "\" is cut unevenly along it: which of them hold nothing depends on sizes that are open");
    }
  }
}

void StepSelections::refuse_open_shards(const std::string& step, const std::string& what) const {
  for (const auto& [axis, least] : world_.open().least) {
    for (const Parameter& parameter : world_.schedule().model.parameters()) {
      const auto is_cut = [&, open = axis](const Shard& shard) {
        const std::vector<int> levels = world_.levels_of(shard.axis, step);
        const bool any =
            std::any_of(levels.begin(), levels.end(), [&](int level) { return world_.levels()[at(level)].open; });
        return any || shard.axis == open || is_part_of(open, shard.axis) || is_part_of(shard.axis, open);
      };
      if (std::any_of(parameter.shard.begin(), parameter.shard.end(), is_cut))
        throw OutOfReach(step, what + " by their local number of elements, which depends on sizes that are open");
    }
  }
}

std::set<Axis> StepSelections::unequal_along(int logical) const {
  std::set<Axis> axes;
  const Model& model = world_.schedule().model;
  const auto& open = world_.open().least;
  for (const int parameter : model.logicals()[at(logical)].parameters) {
    for (const Shard& shard : model.parameters()[at(parameter)].shard) {
      const bool is_open = std::any_of(open.begin(), open.end(), [&](const auto& one) {
        return one.first == shard.axis || is_part_of(one.first, shard.axis) || is_part_of(shard.axis, one.first);
      });
      const bool is_cut = is_open || world_.schedule().mesh.size(shard.axis) > 1;
      if (shard.uneven && is_cut && !world_.even(logical)) axes.insert(shard.axis);
    }
  }
  return axes;
}

void StepSelections::require_equal_places(const Step& step, const LocalModel& local,
                                          const std::vector<std::size_t>& chosen,
                                          const std::function<std::string(std::size_t)>& container) const {
  std::map<std::string, std::pair<int, std::set<Axis>>> first_of;
  for (std::size_t item = 0; item < chosen.size(); ++item) {
    const int logical = local.buffers[chosen[item]].logical;
    const std::set<Axis> axes = unequal_along(logical);
    const auto [found, is_new] = first_of.try_emplace(container(item), logical, axes);
    const auto& [other, axes_of_other] = found->second;
    if (is_new || axes == axes_of_other) continue;
    const auto& logicals = world_.schedule().model.logicals();
    throw OutOfReach(step.name,
                     fmt::format("it cuts \"{}\" and \"{}\" in one buffer, of which ranks hold different numbers of "
                                 "elements, so that each of these ranks cuts them at other places",
                                 logicals[at(other)].name, logicals[at(logical)].name));
  }
}

void StepSelections::read(const Step& step) {
  if (step.op == Op::each || step.op == Op::wait) return;
  if (operation(step.op).clips())
    throw OutOfReach(step.name, "it clips, and which norm decides its factor is not followed for all ranks together");
  const Schedule& schedule = world_.schedule();
  const Model& model = schedule.model;
  steps_.push_back(&step);
  std::vector<OfStage>& of_stages = of_step_[&step];
  const bool cuts = operation(step.op).cuts != Operation::Cuts::nothing;
  const bool by_size = std::any_of(step.params.items().begin(), step.params.items().end(), Selectors::compares_numel) ||
                       (cuts && step.geometry->separate &&
                        std::any_of(step.geometry->separate->items().begin(), step.geometry->separate->items().end(),
                                    Selectors::compares_numel));
  for (int logical = 0; by_size && logical < static_cast<int>(model.logicals().size()); ++logical) {
    if (!world_.even(logical))
      throw OutOfReach(step.name,
                       "it chooses parameters by their local number of elements, which differs from rank to rank");
  }
  if (by_size) refuse_open_shards(step.name, "it chooses parameters");
  int n = 1;
  std::string over;
  if (cuts && step.over) {
    for (const Over::Pick& pick : step.over->picks) {
      over += std::string(name_of(pick.axis)) + ",";
      n *= pick.coordinates ? static_cast<int>(pick.coordinates->size()) : schedule.mesh.size(pick.axis);
    }
  }
  const Alignment alignments(world_, step, cuts);
  const bool is_open = alignments.is_open();
  Environment environment;
  environment.mesh = &schedule.mesh;
  environment.counts = &schedule.batch;
  for (const int rank : world_.ranks_of_stages()) {
    OfStage& here = of_stages.emplace_back();
    const LocalModel& local = model.local(rank);
    std::vector<GeometryItem> items;
    std::vector<std::size_t> chosen;
    const schedule::SelectorList selectors(step.params.items());
    for (std::size_t i = 0; i < local.buffers.size(); ++i) {
      const LocalBuffer& buffer = local.buffers[i];
      here.chosen.push_back(selectors.chooses(model, buffer) ? 1 : 0);
      if (here.chosen.back() == 0 || !cuts) continue;
      chosen.push_back(i);
      const bool separate = step.geometry->separate && step.geometry->separate->chooses(model, buffer);
      items.push_back({buffer.numel, buffer.rows, 0, buffer.chunk, buffer.dtype, separate});
    }
    here.cut_keys.resize(cuts ? local.buffers.size() : 0);
    if (chosen.empty()) continue;
    const Geometry& geometry = *step.geometry;
    if (geometry.kind == Geometry::Kind::counts) throw OutOfReach(step.name, "its \"counts\" fit groups of one size");
    if (geometry.kind == Geometry::Kind::parameter || geometry.kind == Geometry::Kind::rows) {
      for (const std::size_t i : chosen)
        here.cut_keys[i] = (geometry.kind == Geometry::Kind::rows ? "rows of " : "parameter of ") + over;
      continue;
    }
    const bool flat = geometry.kind == Geometry::Kind::flat;
    const auto& alignment = flat ? geometry.align : geometry.align_bucket;  // by default one that n divides
    const bool everywhere = world_.open().for_every_size;
    if ((is_open || everywhere) && alignment && !alignments.is_multiple_of_n(*alignment)) {
      throw OutOfReach(step.name,
                       fmt::format("it cuts a {} whose length is a multiple of \"{}\" into n equal slices, and "
                                   "whether that comes out even depends on sizes that are open",
                                   flat ? "buffer" : "bucket", alignment->to_string()));
    }
    if (!flat && everywhere) Alignment::require_whole_and_positive(step);
    if (everywhere) alignments.require_countable(step);
    // Which parameters share a bucket, in which order: that decides where each of them lies in it.
    const GeometryLayout layout = lay_out_for(step, items, n, environment);
    std::string rule = flat ? "flat" : "bucket";
    if (geometry.align) rule += "," + geometry.align->to_string();
    if (geometry.kind == Geometry::Kind::bucket) {
      rule += "," + geometry.align_parameter.to_string();
      if (geometry.align_bucket) rule += "," + geometry.align_bucket->to_string();
    }
    const bool by_bucket =
        geometry.kind == Geometry::Kind::bucket && !geometry.size && alignments.begins_aligned(geometry);
    if (geometry.kind == Geometry::Kind::bucket && geometry.size) rule += ",size " + geometry.size->to_string();
    std::map<std::string, std::string> contents;
    const auto container = [&](std::size_t item) {
      const GeometryItem& own = items[item];
      std::string name = std::to_string(own.chunk) + "," + std::to_string(static_cast<int>(own.dtype));
      if (by_bucket) name += "," + std::to_string(layout.bucket_of[item]);
      return name;
    };
    if (is_open || n > 1) require_equal_places(step, local, chosen, container);
    for (std::size_t item = 0; item < chosen.size(); ++item) {
      contents[container(item)] +=
          shape_key(model, local.buffers[chosen[item]]) + (items[item].separate && !by_bucket ? "!" : "") + ";";
    }
    std::map<std::string, std::string> numbers;  // a bucket's contents are long, and each buffer names its bucket
    for (const auto& [name, content] : contents)
      numbers[name] = std::to_string(contents_->emplace(content, static_cast<int>(contents_->size())).first->second);
    std::map<std::string, int> position;
    for (std::size_t item = 0; item < chosen.size(); ++item) {
      const std::string name = container(item);
      here.cut_keys[chosen[item]] = fmt::format("{} of {} {} in {}", rule, over, position[name]++, numbers.at(name));
    }
  }
}

bool StepSelections::chooses(const Step& step, int stage, int logical) const {
  const OfStage& here = of_step_.at(&step)[at(stage)];
  const int index = buffer(stage, logical);
  return index >= 0 && here.chosen[at(index)] != 0;
}

const std::string& StepSelections::cut_key(const Step& step, int stage, int logical) const {
  return of_step_.at(&step)[at(stage)].cut_keys[at(buffer(stage, logical))];
}

void StepSelections::check_lists(const Step& step) const {
  if (!step.over) return;
  const int stages = static_cast<int>(world_.ranks_of_stages().size());
  for (const Over::Pick& pick : step.over->picks) {
    if (pick.axis != Axis::pp || stages == 1) continue;
    const std::vector<int>* first = nullptr;
    std::vector<std::vector<int>> lists(static_cast<std::size_t>(stages));
    for (int stage = 0; stage < stages; ++stage) {
      if (pick.coordinates &&
          std::find(pick.coordinates->begin(), pick.coordinates->end(), stage) == pick.coordinates->end())
        continue;
      std::vector<int>& list = lists[at(stage)];
      const LocalModel& local = world_.schedule().model.local(world_.ranks_of_stages()[at(stage)]);
      const OfStage& here = of_step_.at(&step)[at(stage)];
      for (std::size_t i = 0; i < local.buffers.size(); ++i) {
        if (here.chosen[i] != 0) list.push_back(local.buffers[i].logical);
      }
      if (first == nullptr) first = &list;
      if (list != *first)
        throw OutOfReach(step.name,
                         "the stages that it brings together do not bring the same parameters in the same order");
    }
  }
}

void StepSelections::find_by_stage() {
  const Schedule& schedule = world_.schedule();
  if (loss_tells_stages_apart(schedule)) all_by_stage_ = "";
  for (const Step& step : schedule.steps) {
    Step alone = step;
    alone.steps.clear();
    if (step.op == Op::each && tells_stages_apart(schedule, alone)) all_by_stage_ = step.name;
  }
  for (const Step* step : steps_) {
    if (tells_stages_apart(schedule, *step)) by_stage_.push_back(step);
  }
}

std::optional<int> StepSelections::only_stage(int logical) const {
  std::optional<int> found;
  for (int stage = 0; stage < static_cast<int>(world_.ranks_of_stages().size()); ++stage) {
    if (buffer(stage, logical) < 0) continue;
    if (found) return std::nullopt;
    found = stage;
  }
  return found;
}

std::optional<std::string> StepSelections::step_by_stage(int logical, int stage) const {
  const auto step =
      std::find_if(by_stage_.begin(), by_stage_.end(), [&](const Step* one) { return chooses(*one, stage, logical); });
  return step == by_stage_.end() ? all_by_stage_ : std::optional((*step)->name);
}

std::string StepSelections::stage_name(int stage) const {
  const int stages = static_cast<int>(world_.ranks_of_stages().size());
  if (stage == 0) return "first";
  if (stage == stages - 1) return "last";
  const auto compared = [&](int with) { return compared_stages_.contains(with); };
  if (all_stages_ || named_stages_.contains(stage) || compared(stage - 1) || compared(stage) || compared(stage + 1))
    return std::to_string(stage);
  // `rank.pp > 3` holds on all stages behind 3, and on none before it.
  const auto before = std::distance(compared_stages_.begin(), compared_stages_.lower_bound(stage));
  return before == 0 ? "middle" : "middle behind " + std::to_string(*std::next(compared_stages_.begin(), before - 1));
}

Class StepSelections::alone(int logical, std::map<std::string, int>& cut_number) const {
  const Model& model = world_.schedule().model;
  const int stages = static_cast<int>(world_.ranks_of_stages().size());
  Class own;
  own.logicals = {logical};
  own.sites.resize(static_cast<std::size_t>(stages));
  std::string& key = own.key;
  std::map<int, int> site_number;
  int held = 0;
  for (int stage = 0; stage < stages; ++stage) held += buffer(stage, logical) >= 0 ? 1 : 0;
  for (int stage = 0; stage < stages; ++stage) {
    const int index = buffer(stage, logical);
    if (index < 0) continue;
    const LocalBuffer& local = model.local(world_.ranks_of_stages()[at(stage)]).buffers[at(index)];
    own.sites[at(stage)] = local.parameters;
    // A parameter of one stage may stand for one of another stage; those of several are told apart.
    key += held == 1 || stage == 0 || stage == stages - 1 ? stage_name(stage) : std::to_string(stage);
    key += ":";
    for (const int parameter : local.parameters) {
      const Parameter& site = model.parameters()[at(parameter)];
      key += std::to_string(site_number.emplace(parameter, static_cast<int>(site_number.size())).first->second) + "{";
      for (const std::string& use : site.uses) key += use + ",";
      for (const Shard& shard : site.shard) key += "|s" + std::string(name_of(shard.axis)) + (shard.uneven ? "~" : "");
      for (const Axis axis : site.partial) key += "|p" + std::string(name_of(axis));
      for (const Axis axis : site.dispatch) key += "|d" + std::string(name_of(axis));
      if (site.micro_batches) {
        key += "|m";
        for (const int micro_batch : *site.micro_batches) key += std::to_string(micro_batch) + ",";
      }
      for (const Parameter::Only& only : site.only) {
        key += "|o" + std::string(name_of(only.axis));
        for (const int coordinate : only.coordinates) key += "," + std::to_string(coordinate);
      }
      key += site.stage ? "}" : "*}";
    }
    for (const Step* step : steps_) {
      if (!chooses(*step, stage, logical)) {
        key += "0";
        continue;
      }
      key += "1";
      const std::string& cut =
          of_step_.at(step)[at(stage)].cut_keys.empty() ? std::string() : cut_key(*step, stage, logical);
      if (!cut.empty())
        key += "c" + std::to_string(cut_number.emplace(cut, static_cast<int>(cut_number.size())).first->second);
    }
  }
  return own;
}

void StepSelections::make_classes() {
  const Model& model = world_.schedule().model;
  std::map<std::string, std::size_t> numbers;
  for (int logical = 0; logical < static_cast<int>(model.logicals().size()); ++logical) {
    if (model.original(logical) != logical)
      throw OutOfReach("", fmt::format("\"{}\" has several copies, a lost tie, and those are not followed",
                                       model.logicals()[at(logical)].tied));
  }
  for (int logical = 0; logical < static_cast<int>(model.logicals().size()); ++logical) {
    if (model.logicals()[at(logical)].frozen) continue;
    std::map<std::string, int> cut_numbers;
    Class own = alone(logical, cut_numbers);
    if (std::all_of(own.sites.begin(), own.sites.end(), [](const auto& sites) { return sites.empty(); })) continue;
    const auto [found, is_new] = numbers.emplace(own.key + (world_.even(logical) ? "" : "uneven"), classes_.size());
    if (is_new) {
      classes_.push_back(std::move(own));
    } else {
      classes_[found->second].logicals.push_back(logical);
    }
  }
  // Calls of a norm bring no parameter with them, and ranks may leave them out: they are followed beside a class.
  if (classes_.empty() && !model.logicals().empty())
    throw OutOfReach("", "no rank trains a parameter, and what steps do without one is not followed");
}

}  // namespace lockstep::parametric
