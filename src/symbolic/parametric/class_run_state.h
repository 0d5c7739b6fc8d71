// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>

#include "src/symbolic/parametric/class_run.h"

namespace lockstep::parametric {

/// An owner that diagrams have no name for yet.
struct NeedsOwner {
  Owner owner;
};

/// One pass of a class through the schedule, with the names that are known. Throws NeedsConstant, NeedsOwner and
/// NeedsUnrolling where it must begin again.
class ClassRun {
 public:
  ClassRun(World& world, const StepSelections& selections, const Class& members, const Names& names, bool unrolled,
           bool record);
  ClassResult run();

 private:
  struct Place {  ///< a step in one iteration
    const Step* step = nullptr;
    const Step* each = nullptr;
    EvaluationContext context;
  };
  struct Scattered {
    int owner = 0;
    int where = 0;            ///< condition on the rank
    std::optional<int> view;  ///< what it cut, where that was not the whole buffer
    Group group;
  };
  struct Flight {
    const Step* step = nullptr;
    int where = 0;
  };
  struct NormCall {
    const Step* step = nullptr;
    int where = 0;    ///< ranks that call
    int counted = 0;  ///< ranks whose own elements count, with what they owned
    std::vector<int> held;
    Group group;
  };
  using Values = std::vector<int>;  ///< by atom

  // class_run.cpp
  std::vector<Place> unroll(int step) const;
  void optimizer_step(int step, const std::vector<Place>& places);
  void execute(const Place& place);
  int runs(const Place& place);
  int chosen(const Step& step);
  struct LocalChange;
  void local(const Place& place, int where);
  void backward(const Place& place, int where);
  /// `where`: ranks that call the step; `touches`: those of them on which it has a buffer.
  void check_races(const Place& place, int where, int touches);
  void fly(const Place& place, int where);
  void record(const Place& place, int on);
  void keep_record();

  // class_run_collectives.cpp
  struct Members;
  struct OwningClass;
  void in_group(const Place& place, int where);
  void check_shards(const Step& step, const Group& group);
  /// The owners of whose slices a step speaks, the ranks on which they are the ones, and the elements that are cut.
  std::vector<Recorded::Cut> cuts(const Place& place, int where, const Group& group);
  std::vector<Recorded::Cut> cuts_of_scatters(const Place& place, int where, const Group& group);
  void norm(const Place& place, int runs);
  int membership(const Group& group);
  /// Whether the condition holds for a member of the rank's group.
  int for_any(int condition, const Group& group);
  void check_uniform(const Place& place, int where, const Group& group);
  int summed(int a, const Group& group);
  int size_of(const Group& group);
  int reduced(int a, const Place& place, const Group& group);
  std::vector<std::pair<int, int>> root(const Step& step, const Group& group);
  int is_root(const Step& step, const Group& group);
  int view(const Place& place, const Group& group);
  int slice(int owner, const Group& group);
  /// For each stage of the class that cuts differently: the owner and where it is the one.
  std::vector<std::pair<int, int>> owners(const Place& place, const Group& group);

  // class_run_verdict.cpp
  void find_faults(int step);
  void find_unowned(int step);
  void find_norm_faults(int step);
  int reference(const Atom& atom);
  int contribution_levels_mask(int parameter, bool of_reference);
  std::vector<int> contributor_levels(int parameter) const;
  std::vector<int> cut_levels() const;
  int loss_weight(const std::string& use, const EvaluationContext& context);
  void add_cells(Fault fault, int step, int atom, int diagram);

  Values& buffer(const std::string& name);
  int& value(Values& values, std::size_t atom);
  int atom(const Atom& wanted);
  int is_stage(int stage);
  void check_factor(int factor, int values, const Place& place);
  int rank_is_contributor(const std::vector<int>& levels);

  World& world_;
  const Schedule& schedule_;
  const StepSelections& selections_;
  const Class& members_;
  bool unrolled_;
  bool recording_;
  ClassResult result_;
  Recorded record_;      ///< of the step at hand
  StepOutcome outcome_;  ///< of the optimizer step at hand
  std::unique_ptr<Evaluator> evaluator_;
  int domain_ = 1;
  std::map<std::string, Values> buffers_;
  int own_ = 1;
  std::vector<Scattered> scattered_;
  std::vector<Flight> flights_;
  std::vector<NormCall> norms_;
  std::set<std::pair<int, std::vector<int>>> joined_;  ///< families: where, and the levels joined
  std::map<Atom, int> atom_numbers_;
  bool ended_ = false;  ///< by a race: there is one at the only sizes that are looked at
};

}  // namespace lockstep::parametric
