// SPDX-License-Identifier: Apache-2.0
#include "src/symbolic/parametric/world.h"

#include <algorithm>

#include "src/base/at.h"
#include "src/expression/node.h"

namespace lockstep::parametric {

namespace {

constexpr Axis token_axes[] = {Axis::dp_replicate, Axis::dp_shard, Axis::cp, Axis::sp};

bool names_expert_axis(const Expression::Node& node) {
  using Kind = Expression::Node::Kind;
  if (node.kind == Kind::rank_axis && is_expert_axis(node.axis)) return true;
  if (node.kind == Kind::name) {
    const auto axis = axis_named(node.text);
    if (axis && is_expert_axis(*axis)) return true;
  }
  return std::any_of(node.children.begin(), node.children.end(),
                     [](const auto& child) { return names_expert_axis(*child); });
}

bool uses_expert_axis(const Step& step) {
  const auto expert = [](const auto& item) { return is_expert_axis(item.axis); };
  if (step.over && std::any_of(step.over->picks.begin(), step.over->picks.end(), expert)) return true;
  if (std::any_of(step.only.begin(), step.only.end(), expert)) return true;
  for (const auto* expression : {&step.by, &step.when, &step.count}) {
    if (*expression && names_expert_axis((*expression)->tree())) return true;
  }
  return std::any_of(step.steps.begin(), step.steps.end(), uses_expert_axis);
}

bool all_are_one(const Schedule& schedule, const Batch::Tokens& tokens) {
  if (tokens.kind != Batch::Tokens::Kind::list) return tokens.kind == Batch::Tokens::Kind::even;
  const Mesh& mesh = schedule.mesh;
  for (int micro_batch = 0; micro_batch < schedule.batch.total_micro_batches(); ++micro_batch) {
    for (int dp = 0; dp < mesh.size(Axis::dp); ++dp) {
      for (int cp = 0; cp < mesh.size(Axis::cp); ++cp) {
        for (int sp = 0; sp < mesh.size(Axis::sp); ++sp) {
          if (tokens.list.at(micro_batch, dp, cp, sp) != 1) return false;
        }
      }
    }
  }
  return true;
}

}  // namespace

DependsOnSizes::DependsOnSizes(std::string the_step, const std::string& why, const Expression::Node& the_condition)
    : DependsOnSizes(std::move(the_step), why, Conditions{std::make_shared<const Expression::Node>(the_condition)}) {}

bool World::uses_expert_mesh(const Schedule& schedule) {
  for (const Parameter& parameter : schedule.model.parameters()) {
    const auto expert = [](const auto& item) { return is_expert_axis(item.axis); };
    if (!parameter.dispatch.empty() || std::any_of(parameter.shard.begin(), parameter.shard.end(), expert) ||
        std::any_of(parameter.partial.begin(), parameter.partial.end(), is_expert_axis) ||
        std::any_of(parameter.only.begin(), parameter.only.end(), expert))
      return true;
  }
  return std::any_of(schedule.steps.begin(), schedule.steps.end(), uses_expert_axis);
}

World::World(const Schedule& schedule, Open open) : schedule_(schedule), open_(std::move(open)) {
  // Also where nothing of the expert mesh is left at these sizes, as of parameters that larger ones have: what is open
  // are its digits, and those of the other mesh would stand for the one size that they have here.
  expert_ = uses_expert_mesh(schedule) || std::any_of(open_.least.begin(), open_.least.end(),
                                                      [](const auto& one) { return is_expert_axis(one.first); });
  for (const auto& [axis, least] : open_.least) {
    // These are products of digits; the digits are what can be open.
    if (expert_ && axis != Axis::tp && axis != Axis::pp && !is_expert_axis(axis))
      throw OutOfReach("", "the two meshes share the digits of " + std::string(lockstep::name_of(axis)));
  }
  make_levels();
  const Mesh& mesh = schedule_.mesh;
  ranks_of_stages_.reserve(at(mesh.size(Axis::pp)));
  for (int stage = 0; stage < mesh.size(Axis::pp); ++stage) ranks_of_stages_.push_back(stage * mesh.stride(Axis::pp));
  for (const auto& [use, tokens] : schedule_.batch.tokens_of_use) {
    if (all_are_one(schedule_, tokens)) even_.insert(use);
  }
}

void World::make_levels() {
  const Mesh& mesh = schedule_.mesh;
  const Layout& layout = mesh.layout();
  // Where a digit may end: at the ends of every axis of either mesh.
  struct Places {
    Axis axis;
    int begin, end;
  };
  std::vector<Places> stretches;
  std::set<int> ends = {1};
  const auto add = [&](Axis axis, int begin, int size) {
    if (size == 1) return;
    stretches.push_back({axis, begin, begin * size});
    ends.insert({begin, begin * size});
  };
  std::vector<Axis> order = layout.order;
  for (const Axis axis : {Axis::tp, Axis::cp, Axis::sp, Axis::ep, Axis::dp, Axis::pp}) {
    if (std::find(order.begin(), order.end(), axis) == order.end()) order.push_back(axis);
  }
  int next = 1;
  for (const Axis axis : order) {
    if (axis == Axis::ep) continue;
    if (axis == Axis::dp) {
      add(Axis::dp, next, layout.dp);
      add(Axis::dp_shard, next, layout.dp_shard);
      add(Axis::dp_replicate, next * layout.dp_shard, layout.dp_replicate);
    } else {
      add(axis, next, mesh.size(axis));
    }
    next *= mesh.size(axis);
  }
  if (expert_) {
    if (!mesh.pipeline_groups_agree()) throw OutOfReach("", "the pipeline groups of the two meshes differ");
    int at = 1;
    for (const Axis axis : order) {
      if (axis == Axis::tp) {
        add(Axis::etp, at, layout.etp);
        at *= layout.etp;
      } else if (axis == Axis::ep) {
        add(Axis::ep, at, layout.ep);
        at *= layout.ep;
      } else if (axis == Axis::dp) {
        const int replicate = layout.edp_replicate(), shard = layout.edp() / replicate;
        add(Axis::edp, at, layout.edp());
        add(Axis::edp_shard, at, shard);
        add(Axis::edp_replicate, at * shard, replicate);
        at *= layout.edp();
      } else if (axis == Axis::pp) {
        at *= layout.pp;
      }
    }
  }
  const std::vector<int> marks(ends.begin(), ends.end());
  for (std::size_t i = 0; i + 1 < marks.size(); ++i) {
    Level level;
    level.stride = marks[i];
    if (marks[i + 1] % marks[i] != 0)
      throw OutOfReach("", "the two meshes cut the ranks in ways that have no common digits");
    level.size = marks[i + 1] / marks[i];
    for (const Places& stretch : stretches) {
      if (stretch.begin <= marks[i] && marks[i + 1] <= stretch.end) level.axes.push_back(stretch.axis);
    }
    levels_.push_back(std::move(level));
  }
  std::reverse(levels_.begin(), levels_.end());
  std::stable_sort(levels_.begin(), levels_.end(),
                   [](const Level& a, const Level& b) { return a.is_of(Axis::pp) && !b.is_of(Axis::pp); });
  for (const Level& level : levels_) {
    // tp is etp, and dp is ep and edp: else the digits are others at other sizes.
    const bool common =
        level.is_of(Axis::pp) ||
        (level.is_of(Axis::tp) ? level.is_of(Axis::etp) : level.is_of(Axis::dp) && !level.is_of(Axis::etp));
    if (expert_ && !open_.least.empty() && !common)
      throw OutOfReach("", "in this order of the axes the two meshes share other digits at other sizes");
  }
  for (std::size_t i = 0; i < levels_.size(); ++i) {
    Level& level = levels_[i];
    if (level.is_of(Axis::pp)) pp_level_ = static_cast<int>(i);
    level.axis = level.axes.front();
    if (level.axis == Axis::dp && layout.dp_replicate > 1)
      level.axis = level.is_of(Axis::dp_shard) ? Axis::dp_shard : Axis::dp_replicate;
    for (const auto& [axis, least] : open_.least) {
      if (!level.is_of(axis)) continue;
      level.open = true;
      level.least = least;
      if (const auto most = open_.most.find(axis); most != open_.most.end()) level.most = most->second;
      level.axis = axis;
    }
    if (!level.open) {
      level.least = level.size;
      level.polynomial = polynomials_.constant(Rational(level.size));
      continue;
    }
    Variable size;
    size.axis = level.axis;
    level.polynomial = polynomials_.variable(size);
  }
}

std::vector<int> World::levels_of(Axis axis, const std::string& step) const {
  if (is_expert_axis(axis) && !expert_) throw OutOfReach(step, "it speaks of the expert mesh");
  std::vector<int> result;
  for (std::size_t i = 0; i < levels_.size(); ++i) {
    if (levels_[i].is_of(axis)) result.push_back(static_cast<int>(i));
  }
  return result;
}

std::vector<std::pair<int, int>> World::digits(Axis axis, int coordinate, const std::string& step) const {
  std::vector<std::pair<int, int>> result;
  const std::vector<int> levels = levels_of(axis, step);
  for (auto level = levels.rbegin(); level != levels.rend(); ++level) {
    const int size = levels_[at(*level)].size;
    result.emplace_back(*level, coordinate % size);
    coordinate /= size;
  }
  if (coordinate != 0)
    throw OutOfReach(step, "it names a coordinate of " + std::string(lockstep::name_of(axis)) + " that does not exist");
  return result;
}

Group World::group(const Step& step) const {
  Group group;
  if (!step.over) return group;
  for (const Over::Pick& pick : step.over->picks) {
    const std::vector<int> levels = levels_of(pick.axis, step.name);
    group.expert = group.expert || is_expert_axis(pick.axis);
    if (!pick.coordinates) {
      group.levels.insert(group.levels.end(), levels.begin(), levels.end());
      continue;
    }
    if (levels.empty()) {
      if (std::find(pick.coordinates->begin(), pick.coordinates->end(), 0) == pick.coordinates->end())
        throw OutOfReach(step.name, "no rank is in its group");
      continue;
    }
    std::vector<int> coordinates = *pick.coordinates;
    std::sort(coordinates.begin(), coordinates.end());
    coordinates.erase(std::unique(coordinates.begin(), coordinates.end()), coordinates.end());
    if (levels.size() > 1)
      throw OutOfReach(step.name, "it picks coordinates of an axis that the two meshes, or replicas, cut");
    group.members.emplace_back(levels.front(), coordinates);
    if (coordinates.size() > 1) group.picked.push_back({levels.front(), coordinates});
  }
  std::sort(group.levels.begin(), group.levels.end());
  return group;
}

int World::size(Axis axis, const std::string& step) {
  if (is_expert_axis(axis) && !expert_) {
    if (open_.least.empty()) return polynomials_.constant(Rational(schedule_.mesh.size(axis)));
    return size_of_unused_expert_mesh(axis, step);
  }
  int product = 1;
  for (const int level : levels_of(axis, step)) product = polynomials_.multiply(product, levels_[at(level)].polynomial);
  return product;
}

/// Nothing lies on the expert mesh, so that its digits do not matter; a condition may still ask for its sizes.
int World::size_of_unused_expert_mesh(Axis axis, const std::string& step) {
  const Mesh& mesh = schedule_.mesh;
  if (axis == Axis::ep) return polynomials_.constant(Rational(mesh.size(Axis::ep)));
  // A framework may set it to tp. Where it is by accident the same, another layout of the case tells.
  if (axis == Axis::etp) {
    return mesh.size(Axis::etp) == mesh.size(Axis::tp) ? size(Axis::tp, step)
                                                       : polynomials_.constant(Rational(mesh.size(Axis::etp)));
  }
  if (axis != Axis::edp) throw OutOfReach(step, "it speaks of the expert mesh");
  int size = world_size();
  for (const Axis other : {Axis::etp, Axis::ep, Axis::pp})
    size = polynomials_.multiply(size, *polynomials_.inverse(this->size(other, step)));
  return size;
}

int World::world_size() {
  int product = 1;
  for (const Level& level : levels_) product = polynomials_.multiply(product, level.polynomial);
  return product;
}

int World::micro_batches(int optimizer_step) {
  if (!open_.least_micro_batches) return polynomials_.constant(Rational(schedule_.batch.micro_batches(optimizer_step)));
  Variable count;
  count.kind = Variable::Kind::micro_batches;
  return polynomials_.variable(count);
}

std::string World::entry(const std::string& use) const {
  return schedule_.batch.tokens_of_use.count(use) != 0 ? use : "main";
}

int World::tokens(const std::string& use, unsigned axes, int micro_batch, int optimizer_step) {
  const Batch& batch = schedule_.batch;
  const std::string listed = this->entry(use);
  const auto entry = batch.tokens_of_use.find(listed);
  const bool given = entry != batch.tokens_of_use.end();
  Variable tokens;
  tokens.kind = Variable::Kind::tokens;
  tokens.entry = listed;
  tokens.step = optimizer_step;
  // Where there is one micro-batch, it and all of them are the same. With several optimizer steps it is that of the
  // step in which a factor is evaluated, while the contribution that is multiplied by it may come from an earlier one.
  const bool single = !open_.least_micro_batches && batch.micro_batches(optimizer_step) == 1;
  int pieces = 1;
  for (const Axis axis : token_axes) {
    const bool summed = (axes & bit(axis)) != 0 || ((axes & bit(Axis::dp)) != 0 && is_part_of(axis, Axis::dp));
    if (!summed || schedule_.mesh.size(axis) == 1) continue;
    tokens.summed |= bit(axis);
    pieces = polynomials_.multiply(pieces, size(axis, ""));
  }
  if ((axes & all_micro_batches) != 0) {
    if (!single) tokens.summed |= all_micro_batches;
    pieces = polynomials_.multiply(pieces, micro_batches(optimizer_step));
  } else if (!single) {
    tokens.micro_batch = micro_batch;
  }
  if (single && batch.steps() > 1) tokens.micro_batch = batch.first_micro_batch(optimizer_step);
  if (are_even(listed)) return pieces;
  // A list is of one layout, so that the sum of all of it is a number.
  if (given && entry->second.kind == Batch::Tokens::Kind::list && depends_on(tokens).empty() &&
      (single || (axes & all_micro_batches) != 0 || micro_batch >= 0))
    return polynomials_.constant(
        value(tokens, std::vector<int>(levels_.size(), 0), batch.first_micro_batch(optimizer_step)));
  return polynomials_.variable(tokens);
}

int World::coordinate(Axis axis) {
  if (schedule_.mesh.size(axis) == 1) return 0;
  Variable coordinate;
  coordinate.kind = Variable::Kind::coordinate;
  coordinate.axis = axis;
  return polynomials_.variable(coordinate);
}

std::vector<int> World::depends_on(const Variable& variable) const {
  if (variable.kind == Variable::Kind::coordinate) return levels_of(variable.axis, "");
  std::vector<int> result;
  if (variable.kind != Variable::Kind::tokens) return result;
  for (const Axis axis : token_axes) {
    if ((variable.summed & bit(axis)) != 0 || schedule_.mesh.size(axis) == 1) continue;
    const std::vector<int> levels = levels_of(axis, "");
    result.insert(result.end(), levels.begin(), levels.end());
  }
  return result;
}

Span World::span(const Variable& variable) const {
  Span span{least(variable)};
  if (variable.kind == Variable::Kind::micro_batches) span.most = open_.most_micro_batches;
  for (const Level& level : levels_) {
    if (variable.kind == Variable::Kind::size && level.open && level.axis == variable.axis) span.most = level.most;
  }
  return span;
}

int World::least(const Variable& variable) const {
  switch (variable.kind) {
    case Variable::Kind::size:
      for (const Level& level : levels_) {
        if (level.open && level.axis == variable.axis) return level.least;
      }
      return 1;
    case Variable::Kind::micro_batches:
      return open_.least_micro_batches.value_or(1);
    case Variable::Kind::tokens: {
      const auto entry = schedule_.batch.tokens_of_use.find(variable.entry);
      const bool listed =
          entry != schedule_.batch.tokens_of_use.end() && entry->second.kind == Batch::Tokens::Kind::list;
      if (listed) return least_listed(variable);
      // A piece may have none, and so may all that are added up here. An optimizer step without any trains nothing.
      const bool single = !open_.least_micro_batches && schedule_.batch.micro_batches(variable.step) == 1;
      const bool all = depends_on(variable).empty() && (single || (variable.summed & all_micro_batches) != 0);
      return all ? 1 : 0;
    }
    case Variable::Kind::coordinate:
      break;
  }
  return 0;
}

/// A piece in a list may have no tokens. 0 or 1: more is not asked for.
int World::least_listed(const Variable& variable) const {
  const std::vector<int> levels = depends_on(variable);
  const Batch& batch = schedule_.batch;
  for (int micro_batch = 0; micro_batch < batch.total_micro_batches(); ++micro_batch) {
    std::vector<int> contributor(levels_.size(), 0);
    for (std::size_t digit = 0; digit < levels.size();) {
      if (value(variable, contributor, micro_batch).is_zero()) return 0;
      for (digit = 0; digit < levels.size(); ++digit) {
        int& coordinate = contributor[at(levels[digit])];
        if (++coordinate < levels_[at(levels[digit])].size) break;
        coordinate = 0;
      }
    }
    if (levels.empty() && value(variable, contributor, micro_batch).is_zero()) return 0;
  }
  return 1;
}

Rational World::value(const Variable& variable, const std::vector<int>& contributor, int micro_batch) const {
  const Batch& batch = schedule_.batch;
  const Mesh& mesh = schedule_.mesh;
  const auto coordinate = [&](Axis axis) {
    int value = 0;
    for (std::size_t i = 0; i < levels_.size(); ++i) {
      if (levels_[i].is_of(axis)) value = value * levels_[i].size + contributor[i];
    }
    return value;
  };
  switch (variable.kind) {
    case Variable::Kind::size:
      return Rational(mesh.size(variable.axis));
    case Variable::Kind::micro_batches:
      return Rational(batch.micro_batches(variable.step));
    case Variable::Kind::coordinate:
      return Rational(coordinate(variable.axis));
    case Variable::Kind::tokens:
      break;
  }
  using Range = TokenCounts::Range;
  const auto range = [&](Axis axis) {
    return (variable.summed & bit(axis)) != 0 ? Range{0, mesh.size(axis), 1} : Range{coordinate(axis), 1, 1};
  };
  const Range shard = range(Axis::dp_shard), replicate = range(Axis::dp_replicate);
  const int shards = mesh.size(Axis::dp_shard);
  Range dp{replicate.first * shards + shard.first, 1, 1};
  if (shard.count > 1 && replicate.count > 1) {
    dp = {0, shards * replicate.count, 1};
  } else if (shard.count > 1) {
    dp.count = shard.count;
  } else {
    dp.count = replicate.count;
    dp.stride = shards;
  }
  Range micro_batches{variable.micro_batch >= 0 ? variable.micro_batch : micro_batch, 1, 1};
  if ((variable.summed & all_micro_batches) != 0)
    micro_batches = {batch.first_micro_batch(variable.step), batch.micro_batches(variable.step), 1};
  return batch.sum(variable.entry, micro_batches, dp, range(Axis::cp), range(Axis::sp));
}

std::vector<int> World::holders(int logical, int piece) const {
  std::vector<int> result(levels_.size(), -1);
  const Model& model = schedule_.model;
  const Parameter& parameter = model.parameters()[at(model.logicals()[at(logical)].parameters.front())];
  for (auto shard = parameter.shard.rbegin(); shard != parameter.shard.rend(); ++shard) {
    const int size = schedule_.mesh.size(shard->axis);
    for (const auto& [level, digit] : digits(shard->axis, piece % size, "")) result[at(level)] = digit;
    piece /= size;
  }
  return result;
}

std::vector<int> World::coordinates(int rank) const {
  std::vector<int> result;
  result.reserve(levels_.size());
  for (const Level& level : levels_) result.push_back(rank / level.stride % level.size);
  return result;
}

bool World::even(int logical) const {
  if (!open_.least.empty()) {
    for (const int parameter : schedule_.model.logicals()[at(logical)].parameters) {
      const auto& shards = schedule_.model.parameters()[at(parameter)].shard;
      if (std::any_of(shards.begin(), shards.end(), [](const Shard& shard) { return shard.uneven; })) return false;
    }
    return true;
  }
  const std::vector<Piece>& pieces = schedule_.model.pieces(logical);
  return std::all_of(pieces.begin(), pieces.end(), [&](const Piece& piece) {
    for (std::size_t d = 0; d < piece.dims.size(); ++d) {
      if (piece.dims[d].size() != pieces.front().dims[d].size()) return false;
    }
    return true;
  });
}

}  // namespace lockstep::parametric
