// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "src/symbolic/parametric/world.h"

namespace lockstep::parametric {

/// Parameters that behave alike: the same placements, flags and uses, chosen by the same steps, cut by geometries of
/// which the same ones are equal, on stages that no step tells apart.
struct Class {
  std::vector<int> logicals;  ///< ascending; the first stands for all
  std::string key;            ///< equal in schedules of other sizes for parameters that behave alike
  /// By stage: the sites of the first one's buffer there, as parameters; empty where it has none.
  std::vector<std::vector<int>> sites;
};

/// What the steps of a schedule choose and how they cut it, stage by stage, worked out once for all classes.
class StepSelections {
 public:
  /// What buckets hold, numbered: equal numbers are equal contents.
  using Contents = std::map<std::string, int>;

  explicit StepSelections(const World& world) : StepSelections(world, std::make_shared<Contents>(), "") {}
  /// Of one of two schedules that are compared: with common contents equal cut keys are equal cuts, but of those that
  /// depend on what the schedule did before, which are told apart by its `side`.
  StepSelections(const World& world, std::shared_ptr<Contents> contents, std::string side);

  const std::vector<Class>& classes() const { return classes_; }
  /// A class of this parameter alone; no sites where no rank has a buffer of it. `cut_numbers` tells cuts apart in the
  /// key: with those of another schedule it says which cuts are one in both.
  Class alone(int logical, std::map<std::string, int>& cut_numbers) const;
  const std::string& side() const { return side_; }
  /// Whether a step chooses the buffer of the logical parameter on a stage that holds one.
  bool chooses(const Step& step, int stage, int logical) const;
  const Schedule& schedule() const { return world_.schedule(); }
  /// A name that stages have in common which no step tells apart.
  std::string stage_name(int stage) const;
  /// The stage that alone holds a parameter; nothing where several do, or none.
  std::optional<int> only_stage(int logical) const;
  /// The name of a step that takes part of the parameter there and does not do the same on all stages ("" where it is
  /// the loss).
  std::optional<std::string> step_by_stage(int logical, int stage) const;
  /// What decides how the step cuts the buffer there: where two of these are equal, so are the cuts, for every size.
  const std::string& cut_key(const Step& step, int stage, int logical) const;
  /// Throws OutOfReach where the ranks of several stages that a step brings together do not bring the same parameters
  /// in the same order.
  void check_lists(const Step& step) const;

 private:
  struct OfStage {
    std::vector<char> chosen;           ///< by buffer
    std::vector<std::string> cut_keys;  ///< by buffer; empty where nothing is cut
  };
  void read(const Step& step);
  /// Throws OutOfReach where a parameter is cut unevenly over this axis, and it is open.
  void refuse_uneven_shards(Axis axis) const;
  /// Throws OutOfReach where a parameter is sharded over an open axis; `what` is the beginning of the reason.
  void refuse_open_shards(const std::string& step, const std::string& what) const;
  /// Axes along which the ranks hold different numbers of its elements, or may at some size that is open.
  std::set<Axis> unequal_along(int logical) const;
  /// Throws OutOfReach where a buffer that is cut, by its `container`, holds shards that differ along some axes beside
  /// parameters that do not differ along these: where those are cut is another place on each of these ranks.
  void require_equal_places(const Step& step, const LocalModel& local, const std::vector<std::size_t>& chosen,
                            const std::function<std::string(std::size_t)>& container) const;
  void find_by_stage();
  void make_classes();
  int buffer(int stage, int logical) const;

  const World& world_;
  std::map<const Step*, std::vector<OfStage>> of_step_;
  std::vector<const Step*> steps_;
  std::shared_ptr<Contents> contents_;
  std::string side_;
  // Stages that a schedule tells apart: those that it names, and those that a rank's own is compared with.
  std::set<int> named_stages_, compared_stages_;
  bool all_stages_ = false;
  std::optional<std::string> all_by_stage_;  ///< of all parameters: a step around others, or the loss
  std::vector<const Step*> by_stage_;        ///< in the order of the schedule: the first one is named
  std::vector<Class> classes_;
};

}  // namespace lockstep::parametric
