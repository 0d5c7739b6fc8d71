// SPDX-License-Identifier: Apache-2.0
#include "src/symbolic/parametric/compare_classes.h"

#include <algorithm>
#include <set>

namespace lockstep::parametric {

namespace {

/// The names of both, in one order.
Names together(const Names& a, const Names& b) {
  Names all = a;
  for (const Owner& owner : b.owners) {
    if (std::none_of(all.owners.begin(), all.owners.end(), [&](const Owner& one) { return one.key == owner.key; }))
      all.owners.push_back(owner);
  }
  for (std::size_t level = 0; level < all.constants.size(); ++level) {
    std::set<int> both(all.constants[level].begin(), all.constants[level].end());
    both.insert(b.constants[level].begin(), b.constants[level].end());
    all.constants[level].assign(both.begin(), both.end());
  }
  return all;
}

bool same(const Names& a, const Names& b) {
  return a.constants == b.constants &&
         std::equal(a.owners.begin(), a.owners.end(), b.owners.begin(), b.owners.end(),
                    [](const Owner& one, const Owner& other) { return one.key == other.key; });
}

/// What both hand over in one optimizer step, as functions of the old one's diagrams.
class StepComparison {
 public:
  StepComparison(const World& world, ClassResult& result, const ClassResult& other, int step)
      : world_(world), result_(result), other_(other), diagrams_(*result.diagrams), step_(step) {}

  void run(const Handed& before, const Handed& after) {
    old_owned_ = diagrams_.multiply(before.owned, result_.domain);
    new_owned_ = diagrams_.multiply(diagrams_.import(*other_.diagrams, after.owned), result_.domain);
    std::map<Atom, int> values;
    for (std::size_t i = 0; i < other_.atoms.size(); ++i)
      values[other_.atoms[i]] = i < after.held.size() ? diagrams_.import(*other_.diagrams, after.held[i]) : 0;
    for (const auto& [atom, value] : values) {
      if (std::find(result_.atoms.begin(), result_.atoms.end(), atom) == result_.atoms.end())
        result_.atoms.push_back(atom);
    }
    for (std::size_t i = 0; i < result_.atoms.size(); ++i) {
      const auto found = values.find(result_.atoms[i]);
      compare(static_cast<int>(i), i < before.held.size() ? before.held[i] : 0,
              found == values.end() ? 0 : found->second);
    }
  }

 private:
  void compare(int atom, int old_value, int new_value) {
    const int both = diagrams_.multiply(old_owned_, new_owned_);
    add(atom, diagrams_.multiply(both, diagrams_.subtract(old_value, new_value)));
    if (old_owned_ == new_owned_) return;
    // Somebody owns an element in one of them alone: whoever owns it in either must have the same. Copies on several
    // stages may hold different values in both: where each has an owner in both, they are compared by stage.
    const std::vector<int> all = levels_of_owners(true), of_a_stage = levels_of_owners(false);
    for (const std::vector<int>* levels : {&all, &of_a_stage}) {
      if (levels == &of_a_stage && has_owner(old_owned_, of_a_stage) != has_owner(new_owned_, of_a_stage)) break;
      if (alike(old_owned_, old_value, *levels))
        return add(atom, from_mean(new_owned_, new_value, old_owned_, old_value, *levels));
      if (alike(new_owned_, new_value, *levels))
        return add(atom, from_mean(old_owned_, old_value, new_owned_, new_value, *levels));
    }
    throw OutOfReach("",
                     "ranks that own the same elements do not hold the same in either, and they are others in each");
  }

  /// By how much each owner's value differs from the mean of the others' owners, times the number of these.
  int from_mean(int owned, int value, int of_owned, int of_value, const std::vector<int>& levels) {
    const int total = sum(diagrams_.multiply(of_owned, of_value), levels), count = sum(of_owned, levels);
    return diagrams_.multiply(owned, diagrams_.subtract(diagrams_.multiply(value, count), total));
  }

  /// Along which the ranks that hold the same piece differ.
  std::vector<int> levels_of_owners(bool across_stages) const {
    std::vector<int> levels;
    for (int level = 0; level < static_cast<int>(diagrams_.levels().size()); ++level) {
      const bool apart = (level == world_.pp_level() && !across_stages) ||
                         std::count(result_.cut_levels.begin(), result_.cut_levels.end(), level) != 0;
      if (!apart) levels.push_back(level);
    }
    return levels;
  }
  int sum(int value, const std::vector<int>& levels) {
    for (const int level : levels) value = diagrams_.sum(value, level);
    return value;
  }
  int has_owner(int owned, const std::vector<int>& levels) { return diagrams_.nonzero(sum(owned, levels)); }
  /// Whether all owners hold the same: each as much as their mean.
  bool alike(int owned, int value, const std::vector<int>& levels) {
    const int own = diagrams_.multiply(owned, value);
    return diagrams_.multiply(own, sum(owned, levels)) == diagrams_.multiply(owned, sum(own, levels));
  }

  void add(int atom, int diagram) {
    constexpr std::size_t most_cells = 200000;
    diagrams_.visit(diagram, false, [&](const Diagrams::Path& path) {
      if (result_.cells.size() >= most_cells) throw OutOfReach("", "they differ in more ways than are followed");
      result_.cells.push_back({Fault::value, step_, atom, path.partitions, path.value});
      return true;
    });
  }

  const World& world_;
  ClassResult& result_;
  const ClassResult& other_;
  Diagrams& diagrams_;
  int step_, old_owned_ = 0, new_owned_ = 0;
};

bool has_race(const ClassResult& result) {
  return std::any_of(result.cells.begin(), result.cells.end(),
                     [](const Cell& cell) { return cell.fault == Fault::race; });
}

bool has_wrong_norm(const ClassResult& result) {
  return std::any_of(result.cells.begin(), result.cells.end(), [](const Cell& cell) { return is_of_norm(cell.fault); });
}

}  // namespace

void check_levels(const World& before, const World& after) {
  const bool alike = std::equal(before.levels().begin(), before.levels().end(), after.levels().begin(),
                                after.levels().end(), [](const Level& a, const Level& b) {
                                  return a.axis == b.axis && a.axes == b.axes && a.stride == b.stride &&
                                         a.size == b.size && a.open == b.open && a.least == b.least && a.most == b.most;
                                });
  if (!alike) throw OutOfReach("", "the two number their ranks by other axes");
}

ClassResult compare_classes(const SizedSchedule& before, const Class& old_class, const SizedSchedule& after,
                            const Class& new_class) {
  Names names;
  bool unrolled = false;
  for (int round = 0; round < 8; ++round) {
    ClassResult old_result = run_class(before.world, before.selections, old_class, false, names, unrolled);
    names = old_result.names;
    ClassResult new_result =
        run_class(after.world, after.selections, new_class, false, names, unrolled || old_result.unrolled);
    names = together(names, new_result.names);
    unrolled = unrolled || old_result.unrolled || new_result.unrolled;
    const bool settled = same(names, old_result.names) && same(names, new_result.names) &&
                         old_result.unrolled == unrolled && new_result.unrolled == unrolled;
    if (!settled) continue;
    if (has_race(old_result) || has_race(new_result)) throw OutOfReach("", "one of them has a race");
    if (has_wrong_norm(old_result) || has_wrong_norm(new_result))
      throw OutOfReach("", "a gradient norm counts some elements otherwise than once, and such norms are not compared");
    old_result.cells.clear();
    for (std::size_t step = 0; step < std::min(old_result.handed.size(), new_result.handed.size()); ++step) {
      StepComparison(before.world, old_result, new_result, static_cast<int>(step))
          .run(old_result.handed[step], new_result.handed[step]);
    }
    return old_result;
  }
  throw OutOfReach("", "the two tell more coordinates apart than are followed");
}

}  // namespace lockstep::parametric
