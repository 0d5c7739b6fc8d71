// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lockstep/prove.h"
#include "src/scenario/known_models.h"
#include "src/symbolic/parametric/size_ranges.h"

namespace lockstep::parametric {

/// A condition on sizes by which a framework or a model file refuses (Scenario::rules).
struct RefusingRule {
  Expression condition;
  std::string text;  ///< of the condition; a long one ends in "…"
  std::string why;
  std::set<std::string> names;
  std::set<int> numbers;  ///< whole and positive
};
using RefusingRules = std::map<Expression, RefusingRule, ExpressionOrder>;

/// A scenario at other sizes than its own: which of them a proof leaves open, which the scenario allows, and the
/// scenario read at each.
class Layouts {
 public:
  explicit Layouts(const Scenario& scenario, const Prover::Options& options = {});

  /// Finds out which sizes are allowed. Half a sentence where the scenario is out of reach as a whole. Throws
  /// InputError where the scenario cannot be read at all.
  std::optional<std::string> enter();

  const std::vector<Axis>& axes() const { return axes_; }        ///< that are open
  bool micro_batches() const { return micro_batches_; }          ///< whether their number is open as well
  bool any_micro_batches() const { return any_micro_batches_; }  ///< whether the file says so
  /// Some that are not refused while the sizes are those of base(); ascending.
  const std::vector<int>& allowed_micro_batches() const { return allowed_micro_batches_; }
  /// From now on their number is the one that is given, because of what a step does.
  void give_micro_batches(const std::string& step, const std::string& why) {
    micro_batches_ = false;
    why_micro_batches_ = step.empty() ? why : step + ": " + why;
  }
  const std::vector<Proof::Refused>& refused() const { return refused_; }
  const std::vector<Proof::Refused>& refused_beside() const { return refused_beside_; }  ///< Proof::refused_beside
  const std::vector<Proof::RefusedTogether>& refused_together() const { return refused_together_; }
  /// Proof::rules. `unwritten`: those whose conditions are too long as texts are added there.
  std::vector<Proof::Rule> unlisted_rules(std::vector<Proof::Limit>& unwritten) const;
  /// Sizes of an open axis that were tried while the others are those of base(), and not refused; ascending.
  const std::vector<int>& allowed(Axis axis) const { return allowed_.at(axis); }

  /// Sizes above 1 that divide a dimension of a parameter that is cut over the axis, as it is in base().
  std::set<int> dividing(Axis axis) const;

  /// A layout that stands for all: the file's, with 1 or 2 for open axes.
  const Sizes& base() const { return base_; }
  /// The sizes of the file itself, 1 for an axis of size "any".
  const Sizes& own() const { return own_; }
  /// base() with some sizes in the place of its own.
  Sizes with(const Sizes& sizes) const;
  Sizes with(Axis axis, int size) const;
  /// The scenario, kept, with a `resolved` that has no model; nothing where it refuses these sizes. `sizes` names every
  /// axis that base() does.
  std::shared_ptr<const Scenario> read(const Sizes& sizes) const;
  /// Whether the scenario itself refuses all of these sizes: as one of its rules, a coordinate that it names or a shape
  /// that it lists shows for every one. `sizes` has ranges of open axes, and of the micro-batches; the others are any.
  bool refuses_all(const std::map<Axis, SizeRange>& sizes, const std::optional<SizeRange>& micro_batches) const;
  /// The smallest size of an axis from which on all are refused, whatever the others are; nothing where none is known.
  std::optional<int> refused_from(Axis axis) const;
  /// Whether a condition on sizes holds at all of these sizes (true) or at none (false); nothing where that is not
  /// seen.
  std::optional<bool> truth(const Expression::Node& condition, const std::map<Axis, SizeRange>& sizes,
                            const std::optional<SizeRange>& micro_batches) const;
  /// Conditions under which the scenario refused sizes that were read, in the order of their texts.
  std::vector<RefusingRule> refusing() const { return by_text(rules_); }
  /// Where it could not be entered: so that axes() are those that it would have been about.
  void leave_unnamed();
  /// Axes that would be open, but are not: other sizes than that of base() are neither read nor known to be refused.
  const std::vector<Proof::Limit>& limits() const { return limits_; }
  /// Axes that stay as they are: other sizes are out of reach, or refused beside some sizes of the others. The file
  /// says nothing of them, or experts stand beside them.
  const std::vector<Proof::Kept>& kept() const { return kept_; }
  /// Why read() gave nothing; "" where it gave something, or was not asked for these sizes.
  std::string refusal(const Sizes& sizes) const;
  /// The same whole, read anew and not kept.
  std::shared_ptr<Scenario> read_whole(const Sizes& sizes) const { return read_anew(sizes, nullptr); }

 private:
  /// Sizes up to this one are tried to see which an axis allows, until there are enough.
  static constexpr int most_tried = 8;
  /// Sizes up to this one are listed where arithmetic shows that they are refused.
  static constexpr int most_listed = 64;
  /// A scenario that was read. A large one is not kept for good, and read again where it is needed.
  struct Read {
    bool is_allowed = false;
    std::shared_ptr<const Scenario> small;
    std::weak_ptr<const Scenario> large;
  };

  void hold(Read& read, const std::shared_ptr<const Scenario>& scenario) const;
  std::shared_ptr<Scenario> read_anew(const Sizes& sizes, scenario::KnownModels* known) const;
  bool is_written(Axis axis) const;
  bool is_named(Axis axis) const;
  void add_asked(bool parts);
  void find_open(const Scenario& scenario);
  void keep_unnamed();
  void keep(Axis axis, const std::string& why, bool is_unnamed);
  void find_allowed_micro_batches();
  void shrink();
  void keep_given();
  void keep_listed_tp_rank();
  bool find_base();
  std::optional<std::string> enter_expert_mesh();
  void keep_beside_experts();
  void add_rule_of_expert_mesh();
  std::optional<std::string> open_digits(const std::vector<Axis>& any);
  void find_allowed();
  void try_sizes(Axis axis, std::vector<int>& sizes, Proof::Refused& refused);
  void find_rules(Axis axis) const;
  void list_refused(Proof::Refused& refused) const;
  std::optional<Proof::Refused> refused_beside(const Proof::Refused& read_as) const;
  void add_far(Proof::Refused& refused) const;
  void find_refused_together();
  bool refuses_together(const RefusingRule& rule, const Sizes& pair) const;
  std::optional<Sizes> first_refused_pair(const RefusingRule& rule) const;
  bool is_allowed_beside(const Sizes& one, const Sizes& other) const;
  bool holds_at(const RefusingRule& rule, const Sizes& sizes) const;
  std::set<std::string> open_sizes_of(const RefusingRule& rule) const;
  static void add_rules(const TextsOfExpressions& rules, RefusingRules& known);
  static std::vector<RefusingRule> by_text(const RefusingRules& rules);
  std::vector<RefusingRule> all_rules() const;
  void close(Axis axis, const Proof::Refused& refused);
  bool is_refused_at(Axis axis, int size) const;
  std::string why_refused_alone(Axis axis, int size) const;
  bool is_known_to_refuse(const Sizes& sizes) const;
  bool is_decided_by(const RefusingRule& rule, const Sizes& sizes) const;
  std::optional<SizeRange> range_of(const std::string& name, const std::map<Axis, SizeRange>& sizes,
                                    const std::optional<SizeRange>& micro_batches) const;

  Prover::Options options_;
  std::string file_;
  Json document_;
  Sizes base_;
  std::vector<Axis> axes_;
  std::vector<Axis> any_;      ///< that the file, or who asks, leaves open by name where some size is "any"
  std::vector<Axis> unnamed_;  ///< that the layout does not name, and would be open
  bool micro_batches_ = false;
  bool any_given_ = false;            ///< the file says which sizes are open
  bool lists_one_tp_rank_ = false;    ///< parameters for the steps of a framework, which may act over tp
  std::vector<Axis> listed_by_rank_;  ///< axes of which each rank has tokens of its own in the file
  std::string why_micro_batches_;     ///< are given though they would be open; "" where they are not
  bool lists_micro_batches_ = false;  ///< so has each micro-batch, and else their number would be open
  bool any_axes_ = false;             ///< axes are among them
  bool any_of_experts_ = false;       ///< and of those some of the expert mesh
  bool any_micro_batches_ = false;    ///< the number of micro-batches is among them
  bool expert_ = false;
  bool edits_model_ = false;
  std::set<std::string> facts_;  ///< of the layout, those that no size changes
  Layout file_layout_;
  Sizes own_;
  std::map<Axis, std::vector<int>> allowed_;
  std::set<Axis> closed_;  ///< that were found to have one size, and count as open where it is asked what is refused
  std::vector<int> allowed_micro_batches_;
  std::vector<Proof::Refused> refused_, refused_beside_;
  std::vector<Proof::RefusedTogether> refused_together_;
  mutable std::map<Sizes, Read> scenarios_;
  /// Whether all that were read have what the file's own layout has; a framework may set these by sizes.
  struct Same {
    bool virtual_stages = true, sequence_parallel = true, ep = true, dp_replicate = true;
  };
  mutable Same same_;
  mutable std::list<std::shared_ptr<const Scenario>> large_;  ///< those that were asked for last, the first the oldest
  mutable scenario::KnownModels known_models_;
  std::vector<Proof::Limit> limits_;
  std::vector<Proof::Kept> kept_;
  mutable std::map<Sizes, std::string> refusals_;
  mutable std::set<Sizes> out_of_reach_;  ///< of refusals_, those that the scenario itself allows
  /// Of rules that did not refuse yet: they say where to look.
  mutable RefusingRules other_rules_;
  /// Conditions under which the scenario refuses.
  mutable RefusingRules rules_;
  mutable std::map<Axis, std::set<int>> refused_with_any_count_;
};

/// ", with cp = 1 and tp = 1": what a statement says of axes that stay, each named once; "" where none does.
std::string sizes_kept(const std::vector<Proof::Kept>& kept);

/// `sizes` with the first number of micro-batches that `allowed` takes, of a few and of `more`: a pipeline may ask for
/// as many as it has stages, or for a multiple. `sizes` itself where it is allowed, or none is.
Sizes with_allowed_count(const Sizes& sizes, const std::vector<int>& more,
                         const std::function<bool(const Sizes&)>& allowed);

}  // namespace lockstep::parametric
