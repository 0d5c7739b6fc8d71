// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "lockstep/expression.h"
#include "lockstep/schedule.h"
#include "src/symbolic/parametric/diagrams.h"

namespace lockstep::parametric {

/// A schedule does something that this engine has no name for. `step` is "" where it is the scenario as a whole.
struct OutOfReach : std::runtime_error {
  OutOfReach(std::string the_step, const std::string& why) : std::runtime_error(why), step(std::move(the_step)) {}
  std::string step;
};

/// Whether a condition on sizes holds depends on those that are open: in parts of the case it may be decided. Where
/// that condition has no such parts, those of the next one may be enough.
struct DependsOnSizes : OutOfReach {
  using Conditions = std::vector<std::shared_ptr<const Expression::Node>>;
  DependsOnSizes(std::string the_step, const std::string& why, Conditions the_conditions)
      : OutOfReach(std::move(the_step), why), conditions(std::move(the_conditions)) {}
  DependsOnSizes(std::string the_step, const std::string& why, const Expression::Node& the_condition);
  Conditions conditions;
};

/// What a proof leaves open: these axes have every size from the given one on, some of them up to a largest one; the
/// schedule at hand shows one.
struct Open {
  std::map<Axis, int> least;               ///< tp, cp, sp, dp, pp
  std::map<Axis, int> most;                ///< of axes in `least`, where there is an end
  std::optional<int> least_micro_batches;  ///< none: as many as the schedule has
  std::optional<int> most_micro_batches;
  bool for_every_size = false;  ///< a case of a proof, also where it has one size of each axis
};

/// Ranks that a step brings together: all along some levels, and picked coordinates along others.
struct Group {
  struct Picked {
    int level = 0;
    std::vector<int> coordinates;  ///< ascending; of them at least 2
  };
  std::vector<int> levels;
  std::vector<Picked> picked;
  /// Ranks with other coordinates than these take no part.
  std::vector<std::pair<int, std::vector<int>>> members;
  bool expert = false;  ///< over axes of the expert mesh
  bool single() const { return levels.empty() && picked.empty(); }
};

/// The layout of a schedule in digits of the rank's number, in which both meshes can be written, and its names for
/// sizes and tokens. Shared by all classes of parameters.
class World {
 public:
  /// Whether parameters or steps of a schedule speak of axes of the expert mesh.
  static bool uses_expert_mesh(const Schedule& schedule);

  World(const Schedule& schedule, Open open);

  const Schedule& schedule() const { return schedule_; }
  const Open& open() const { return open_; }
  Polynomials& polynomials() { return polynomials_; }
  const Polynomials& polynomials() const { return polynomials_; }
  /// Without names: these differ from class to class. The pipeline first.
  const std::vector<Level>& levels() const { return levels_; }
  /// The levels that make up an axis, slowest first; none where it has one rank.
  std::vector<int> levels_of(Axis axis, const std::string& step) const;
  int pp_level() const { return pp_level_; }
  /// The coordinate on each of the axis's levels.
  std::vector<std::pair<int, int>> digits(Axis axis, int coordinate, const std::string& step) const;
  Group group(const Step& step) const;

  /// Number of the polynomial of an axis's size, of the number of micro-batches, of the world size.
  int size(Axis axis, const std::string& step);
  int micro_batches(int optimizer_step);
  int world_size();
  /// Tokens of the piece of a contribution, summed over `axes` (bits, and all_micro_batches): a polynomial.
  int tokens(const std::string& use, unsigned axes, int micro_batch, int optimizer_step);
  int coordinate(Axis axis);
  /// The levels on which the contributor's coordinate matters for a variable.
  std::vector<int> depends_on(const Variable& variable) const;
  /// The use under which the batch has the tokens of a use.
  std::string entry(const std::string& use) const;
  /// Whether the batch gives each piece 1 token under this name, "even" or listed one by one.
  bool are_even(const std::string& entry) const { return even_.count(entry) > 0; }
  /// The values that a variable has in the proof.
  Span span(const Variable& variable) const;
  /// Its value for the contributor with these coordinates (by level), where the sizes are those of the schedule.
  Rational value(const Variable& variable, const std::vector<int>& contributor, int micro_batch) const;

  /// A rank of each pipeline stage, which stands for all: they hold alike buffers.
  const std::vector<int>& ranks_of_stages() const { return ranks_of_stages_; }
  /// The coordinates, by level, of the ranks that hold a piece of the parameter; -1 for any.
  std::vector<int> holders(int logical, int piece) const;
  /// Those of a rank.
  std::vector<int> coordinates(int rank) const;
  /// Whether all pieces of the parameter have equal shapes.
  bool even(int logical) const;

 private:
  int least(const Variable& variable) const;
  int least_listed(const Variable& variable) const;
  int size_of_unused_expert_mesh(Axis axis, const std::string& step);
  void make_levels();

  const Schedule& schedule_;
  Open open_;
  Polynomials polynomials_;
  std::vector<Level> levels_;
  int pp_level_ = -1;
  bool expert_ = false;
  std::vector<int> ranks_of_stages_;
  std::set<std::string> even_;
};

}  // namespace lockstep::parametric
