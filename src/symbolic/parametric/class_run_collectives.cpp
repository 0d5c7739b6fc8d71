// SPDX-License-Identifier: Apache-2.0
//
// Steps that bring ranks together. Each works on the functions of all ranks at once: a sum over the group takes the
// rank out of a function, a gather or a broadcast puts another one in its place.
#include <algorithm>

#include "lockstep/collective.h"
#include "src/base/at.h"
#include "src/symbolic/parametric/class_run_state.h"

namespace lockstep::parametric {

namespace {

bool same(const Group& a, const Group& b) { return a.levels == b.levels && a.picked.empty() && b.picked.empty(); }

}  // namespace

int ClassRun::membership(const Group& group) {
  Diagrams& diagrams = *result_.diagrams;
  int all = 1;
  for (const auto& [level, coordinates] : group.members) {
    int one = 0;
    for (const int coordinate : coordinates)
      one = diagrams.either(one, diagrams.equal(level, rank_name, evaluator_->constant_name(level, coordinate)));
    all = diagrams.multiply(all, one);
  }
  return all;
}

int ClassRun::for_any(int condition, const Group& group) {
  Diagrams& diagrams = *result_.diagrams;
  for (const int level : group.levels) condition = diagrams.any(condition, level);
  for (const Group::Picked& picked : group.picked) {
    int any = 0;
    for (const int coordinate : picked.coordinates)
      any = diagrams.either(any,
                            diagrams.at(condition, picked.level, evaluator_->constant_name(picked.level, coordinate)));
    condition = any;
  }
  return condition;
}

/// Every member of each group must come, and bring a buffer of this class.
void ClassRun::check_uniform(const Place& place, int where, const Group& group) {
  Diagrams& diagrams = *result_.diagrams;
  if (diagrams.multiply(for_any(where, group), membership(group)) == where) return;
  throw OutOfReach(place.step->name, "not all ranks of a group reach it with the same parameters");
}

int ClassRun::summed(int a, const Group& group) {
  Diagrams& diagrams = *result_.diagrams;
  for (const int level : group.levels) a = diagrams.sum(a, level);
  for (const Group::Picked& picked : group.picked) {
    int total = 0;
    for (const int coordinate : picked.coordinates)
      total = diagrams.add(total, diagrams.at(a, picked.level, evaluator_->constant_name(picked.level, coordinate)));
    a = total;
  }
  return a;
}

int ClassRun::size_of(const Group& group) {
  Polynomials& polynomials = world_.polynomials();
  int size = 1;
  for (const int level : group.levels) size = polynomials.multiply(size, result_.diagrams->at_level(level).polynomial);
  for (const Group::Picked& picked : group.picked)
    size = polynomials.multiply(size,
                                polynomials.constant(Rational(static_cast<std::int64_t>(picked.coordinates.size()))));
  return size;
}

int ClassRun::reduced(int a, const Place& place, const Group& group) {
  const int total = summed(a, group);
  if (place.step->reduction == Reduction::sum) return total;
  return result_.diagrams->times(total, *world_.polynomials().inverse(size_of(group)));
}

/// The coordinates of the root on the levels of the group.
std::vector<std::pair<int, int>> ClassRun::root(const Step& step, const Group& group) {
  std::vector<std::pair<int, int>> result;
  if (!step.root || group.single()) return result;
  // Members by level, fastest first, with the coordinates that they can have.
  std::vector<std::pair<int, std::vector<int>>> members;
  for (const int level : group.levels) members.emplace_back(level, std::vector<int>{});
  for (const Group::Picked& picked : group.picked) members.emplace_back(picked.level, picked.coordinates);
  std::sort(members.begin(), members.end(), [&](const auto& a, const auto& b) {
    return world_.levels()[at(a.first)].stride < world_.levels()[at(b.first)].stride;
  });
  if (step.root->position) {
    int position = *step.root->position;
    const bool open = std::any_of(members.begin(), members.end(), [&](const auto& member) {
      return member.second.empty() && world_.levels()[at(member.first)].open;
    });
    if (open && position != 0 && members.size() > 1)
      throw OutOfReach(step.name, "which rank its \"root\" is depends on sizes that are open");
    for (const auto& [level, coordinates] : members) {
      const int size = coordinates.empty() ? world_.levels()[at(level)].size : static_cast<int>(coordinates.size());
      const int digit = position % size;
      result.emplace_back(level, coordinates.empty() ? digit : coordinates[at(digit)]);
      position /= size;
    }
    if (position != 0) throw OutOfReach(step.name, "its \"root\" is no member of the group");
    return result;
  }
  for (const auto& [axis, coordinate] : step.root->coordinates) {
    for (const auto& [level, digit] : world_.digits(axis, coordinate, step.name)) {
      const auto member =
          std::find_if(members.begin(), members.end(), [level = level](const auto& one) { return one.first == level; });
      const bool fits = member != members.end() &&
                        (member->second.empty() ||
                         std::find(member->second.begin(), member->second.end(), digit) != member->second.end());
      if (!fits) throw OutOfReach(step.name, "its \"root\" is not a member of every group");
      result.emplace_back(level, digit);
    }
  }
  if (result.size() != members.size()) throw OutOfReach(step.name, "its \"root\" does not single out one member");
  return result;
}

/// Elements that the step acts on. All members must own the same ones for them to meet.
int ClassRun::view(const Place& place, const Group& group) {
  if (!place.step->on_owned) return 1;
  Diagrams& diagrams = *result_.diagrams;
  const int members = membership(group);
  if (diagrams.multiply(for_any(own_, group), members) != diagrams.multiply(own_, members))
    throw OutOfReach(place.step->name, "its ranks do not own the same elements");
  return own_;
}

std::vector<std::pair<int, int>> ClassRun::owners(const Place& place, const Group& group) {
  if (group.single()) return {{-1, 1}};
  const Step& step = *place.step;
  if (!group.picked.empty()) throw OutOfReach(step.name, "it cuts for ranks that are picked along an axis");
  const int logical = members_.logicals.front();
  std::vector<std::pair<std::string, std::vector<int>>> stages_of;
  for (std::size_t stage = 0; stage < members_.sites.size(); ++stage) {
    if (members_.sites[stage].empty() || !selections_.chooses(step, static_cast<int>(stage), logical)) continue;
    std::string key = selections_.cut_key(step, static_cast<int>(stage), logical);
    // Parts of buffers are cut by what the others own too.
    if (step.on_owned)
      key += " of what is owned at " + step.name + " on stage " + std::to_string(stage) + selections_.side();
    auto found = std::find_if(stages_of.begin(), stages_of.end(), [&](const auto& one) { return one.first == key; });
    if (found == stages_of.end()) found = stages_of.insert(stages_of.end(), {key, {}});
    found->second.push_back(static_cast<int>(stage));
  }
  if (stages_of.size() > 1 &&
      std::find(group.levels.begin(), group.levels.end(), world_.pp_level()) != group.levels.end())
    throw OutOfReach(step.name, "the stages that it brings together cut the parameters differently");
  std::vector<std::pair<int, int>> result;
  for (const auto& [key, stages] : stages_of) {
    const auto known = std::find_if(result_.owners.begin(), result_.owners.end(),
                                    [&, wanted = key](const Owner& owner) { return owner.key == wanted; });
    if (known == result_.owners.end()) {
      Owner owner{key, &step, stages.front(), group.levels, ""};
      if (step.on_owned) owner.inside = "owned";
      throw NeedsOwner{owner};
    }
    int where = 1;
    if (stages_of.size() > 1) {
      where = 0;
      for (const int stage : stages) where = result_.diagrams->either(where, is_stage(stage));
    }
    result.emplace_back(static_cast<int>(known - result_.owners.begin()), where);
  }
  return result;
}

int ClassRun::slice(int owner, const Group& group) {
  Diagrams& diagrams = *result_.diagrams;
  int all = 1;
  if (owner < 0) return all;
  for (const int level : group.levels)
    all = diagrams.multiply(all, diagrams.equal(level, rank_name, diagrams.at_level(level).owner_name(owner)));
  return all;
}

/// All groups at once, for apply_collective(): what the ranks of a class hold of one contribution.
struct ClassRun::Members {
  ClassRun& run;
  const Place& place;
  const Group& group;
  int owner;  ///< of the slices; -1: there is none
  int acts;   ///< ranks that take part, and elements that meet
  int& value;

  Diagrams& diagrams() const { return *run.result_.diagrams; }

  int reduce() const { return run.reduced(value, place, group); }
  int root() const {
    int held = value;
    for (const auto& [level, coordinate] : run.root(*place.step, group))
      held = diagrams().at(held, level, run.evaluator_->constant_name(level, coordinate));
    return held;
  }
  int slices() const {
    int held = value;
    for (const int level : group.levels)
      held = diagrams().at(held, level, diagrams().at_level(level).owner_name(owner));
    return held;
  }
  void write(int where, int fresh) { value = diagrams().choose(where, fresh, value); }
  void write_everywhere(int fresh) { write(acts, fresh); }
  void write_own_slices(int fresh) { write(diagrams().multiply(acts, run.slice(owner, group)), fresh); }
  void write_every_slice(int fresh) { write(acts, fresh); }
  void write_root(int fresh) { write(diagrams().multiply(acts, run.is_root(*place.step, group)), fresh); }
};

/// For owned_after(): conditions on the rank and the element.
struct ClassRun::OwningClass {
  ClassRun& run;
  const Step& step;
  const Group& group;
  const Recorded::Cut& cut;

  int multiply(int a, int b) const { return run.result_.diagrams->multiply(a, b); }

  int owned() const { return run.own_; }
  int slice() const { return multiply(cut.elements, run.slice(cut.owner, group)); }
  int in_slice() const { return multiply(run.own_, slice()); }
  int and_view() const { return run.result_.diagrams->either(run.own_, cut.elements); }
  int if_root() const { return multiply(run.own_, run.is_root(step, group)); }
};

int ClassRun::is_root(const Step& step, const Group& group) {
  Diagrams& diagrams = *result_.diagrams;
  int all = 1;
  for (const auto& [level, coordinate] : root(step, group))
    all = diagrams.multiply(all, diagrams.equal(level, rank_name, evaluator_->constant_name(level, coordinate)));
  return all;
}

void ClassRun::check_shards(const Step& step, const Group& group) {
  const auto in_group = [&](int level) {
    return std::find(group.levels.begin(), group.levels.end(), level) != group.levels.end() ||
           std::any_of(group.picked.begin(), group.picked.end(),
                       [&](const auto& picked) { return picked.level == level; });
  };
  const bool even = world_.even(members_.logicals.front());
  for (const int parameter : schedule_.model.logicals()[at(members_.logicals.front())].parameters) {
    const Parameter& site = schedule_.model.parameters()[at(parameter)];
    std::vector<int> dispatched;
    for (const Axis axis : site.dispatch) {
      for (const int level : world_.levels_of(axis, step.name)) dispatched.push_back(level);
    }
    for (const Shard& shard : site.shard) {
      for (const int level : world_.levels_of(shard.axis, step.name)) {
        if (!in_group(level)) continue;
        if (!even) throw OutOfReach(step.name, "it brings together shards of different sizes");
        // The contributor's name would have to stand for its shard as well.
        if (std::find(dispatched.begin(), dispatched.end(), level) != dispatched.end())
          throw OutOfReach(step.name, "it brings together shards to which the same tokens contribute");
      }
    }
  }
}

std::vector<Recorded::Cut> ClassRun::cuts(const Place& place, int where, const Group& group) {
  const Operation& row = operation(place.step->op);
  if (row.cuts == Operation::Cuts::those_of_the_scatter) return cuts_of_scatters(place, where, group);
  const int seen = view(place, group);
  if (row.cuts == Operation::Cuts::nothing) return {{-1, where, seen}};
  std::vector<Recorded::Cut> result;
  for (const auto& [owner, stage] : owners(place, group))
    result.push_back({owner, result_.diagrams->multiply(where, stage), seen});
  return result;
}

std::vector<Recorded::Cut> ClassRun::cuts_of_scatters(const Place& place, int where, const Group& group) {
  Diagrams& diagrams = *result_.diagrams;
  for (const Scattered& scattered : scattered_) {
    if (diagrams.multiply(where, scattered.where) != 0 && !same(scattered.group, group))
      throw OutOfReach(place.step->name, "it gathers over another group than the last reduce-scatter");
  }
  std::vector<Recorded::Cut> result;
  if (group.single()) return result;
  int left = where;
  for (const Scattered& scattered : scattered_) {
    const int here = diagrams.multiply(where, scattered.where);
    if (here == 0) continue;
    check_uniform(place, here, group);
    result.push_back({scattered.owner, here, scattered.view.value_or(1)});
    left = diagrams.multiply(left, diagrams.complement(scattered.where));
  }
  if (left == 0) return result;
  check_uniform(place, left, group);
  for (const auto& [owner, stage] : owners(place, group)) result.push_back({owner, diagrams.multiply(left, stage), 1});
  return result;
}

void ClassRun::in_group(const Place& place, int where) {
  const Step& step = *place.step;
  const Operation& row = operation(step.op);
  Diagrams& diagrams = *result_.diagrams;
  const Group group = world_.group(step);
  record_.group = group;
  check_uniform(place, where, group);
  if (!row.acts()) return;
  record_.root = root(step, group);
  if (row.changes()) check_shards(step, group);
  for (const Recorded::Cut& cut : cuts(place, where, group)) {
    if (row.changes()) {
      const int acts = diagrams.multiply(cut.on, cut.elements);
      Values& target = buffer(step.buffer);
      for (std::size_t i = 0; i < result_.atoms.size(); ++i) {
        Members members{*this, place, group, cut.owner, acts, value(target, i)};
        apply_collective(row, members);
      }
    }
    if (row.ownership == Operation::Ownership::intersects_own_slice) {
      for (Scattered& earlier : scattered_)
        earlier.where = diagrams.multiply(earlier.where, diagrams.complement(cut.on));
      // A group of one is the identity; a gather still finds it.
      std::optional<int> part;
      if (step.on_owned && !group.single()) part = own_;
      scattered_.push_back({cut.owner, cut.on, part, group});
    }
    if (row.cuts != Operation::Cuts::nothing) record_.cuts.push_back(cut);
    if (row.collective && group.single()) continue;
    const OwningClass owning{*this, step, group, cut};
    own_ = diagrams.choose(cut.on, owned_after(row, owning), own_);
  }
  if (!row.joins_family || group.single()) return;
  if (!group.picked.empty()) throw OutOfReach(step.name, "it leaves elements to one of the ranks that it picks");
  joined_.emplace(where, group.levels);
}

}  // namespace lockstep::parametric
