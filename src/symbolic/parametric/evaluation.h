// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "lockstep/parametric.h"
#include "src/symbolic/parametric/class_run.h"
#include "src/symbolic/parametric/stretches.h"

namespace lockstep::parametric {

/// A place where something is wrong at given sizes.
struct Example {
  const Cell* cell = nullptr;
  int logical = 0;
};

/// Whether what a class finds wrong exists at the sizes of a schedule: whether there are ranks, contributors and
/// elements that are related so, and whether the value is wrong there. `target` is the schedule that the class went
/// through, or the same scenario at other sizes for which the class was left open.
class Evaluation {
 public:
  Evaluation(const World& world, const World& target, const ClassResult& result, const Class& members);

  /// Throws OutOfReach where that cannot be seen.
  std::optional<Example> example(const Cell& cell);
  /// The first optimizer step with a race, and the first that ends with something wrong; nothing where there is none.
  struct First {
    std::optional<int> race, wrong;
  };
  First first();
  /// Whether a cell is there in elements of this parameter of the class. Throws OutOfReach.
  bool applies(const Cell& cell, int logical);

  /// Some elements: their owners, where the ranks are that hold the piece in which they lie, and the rank that is asked
  /// about; -1 for anywhere. That rank holds the piece, but where it is a norm that counts the elements on other ranks.
  struct Elements {
    std::vector<Coordinates> owners;
    Coordinates piece, rank;
    auto operator<=>(const Elements&) const = default;
  };
  /// Whether a cell is there in these elements; null: in any, where they do not matter.
  bool exists(const Cell& cell, const Elements* elements);
  /// Whether it is what a report says of them: of a count that is wrong it does not say that it came too early.
  bool tells(const Cell& cell, const Elements& elements);

 private:
  /// Coordinates from `first` to `end`, but for those that are taken.
  struct Places {
    int first = 0, end = 0;
    std::set<int> taken;
    int next(int coordinate) const {
      do ++coordinate;
      while (taken.count(coordinate) != 0);
      return coordinate;
    }
  };

  Coordinates anywhere() const;
  /// One of each kind.
  const std::set<Elements>& elements(int logical);
  std::vector<std::pair<int, Coordinates>> pieces(int logical) const;
  std::optional<std::vector<Places>> contributors(const Cell& cell, const Elements* elements);
  bool depends_on_elements(const Cell& cell) const;
  /// Whether it matters who exactly owns the elements, as that may be the contributor, whose coordinates matter.
  bool depends_on_owners(const Cell& cell) const;
  /// The levels on which it matters who the contributor is.
  std::set<int> contributor_matters(const Cell& cell) const;
  bool wrong(const Cell& cell, const std::vector<Places>& contributors);
  std::string entry_of(const Atom& atom) const;
  bool is_listed(const std::string& entry) const;

  const World& world_;
  const World& target_;
  const ClassResult& result_;
  const Class& members_;
  Stretches stretches_;
  std::map<int, std::set<Elements>> elements_;
};

/// Puts together what the classes of a schedule find: what is reached first in time decides.
class Verdicts {
 public:
  explicit Verdicts(int optimizer_steps) : steps_(optimizer_steps), race_(optimizer_steps), wrong_(optimizer_steps) {}
  void add(const Evaluation::First& first, int logical);
  void write(ParametricResult& result) const;

 private:
  int steps_, race_, wrong_;
  std::vector<int> logicals_;
};

}  // namespace lockstep::parametric
