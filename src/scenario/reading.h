// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lockstep/scenario.h"
#include "src/scenario/fields.h"

namespace lockstep::scenario {

/// What the parts of one scenario are read with and against. Where a part has mistakes, what
/// depends on it is not checked, so that one mistake is reported once.
struct Reading {
  Diagnostics diagnostics;
  std::filesystem::path folder;  ///< of the scenario: its own framework and model files are relative to it
  Layout layout;
  bool layout_known = false;         ///< the layout had no mistake
  std::shared_ptr<const Mesh> mesh;  ///< of `layout`, all sizes 1 while that is not known
  Batch batch;
  std::set<std::string> uses;                  ///< of all parameters
  std::set<std::string> counted;               ///< lists of tokens of other names that factors or losses ask for
  std::set<std::string> counted_before_edits;  ///< that factors ask for before edits
  bool parameters_known = false;               ///< the parameters had no mistake
  std::optional<Preset> preset;                ///< where one was expanded without a mistake
  bool keep_sizes = false;                     ///< numbers that a framework derives from sizes stay expressions
  bool decided_by_numel = false;               ///< Schedule::decided_by_numel
  bool any_micro_batches = false;              ///< their number is "any"; `batch` has one example
  Expressions decided_conditions;              ///< Scenario::decided_conditions
  TextsOfExpressions refusing;                 ///< RefusedSizes::rules
  TextsOfExpressions rules;                    ///< Scenario::rules

  /// Whether the size of `axis` is a number that coordinates can be checked against.
  bool size_known(Axis axis) const;
  /// Whether the whole layout is known and no axis is "any".
  bool all_known() const { return layout_known && layout.any.empty(); }
  /// The same, and the numbers of micro-batches are known as well.
  bool sizes_known() const { return all_known() && !any_micro_batches; }
  /// What constant expressions are worked out in.
  Environment environment() const;
};

/// Parameters that a model may have.
inline constexpr std::size_t parameter_limit = 250'000;

/// How an expression may be used.
struct ExpressionUse {
  bool truth = false;        ///< a condition; else a number
  bool in_each = false;      ///< micro_batch and tokens have a meaning
  bool in_geometry = false;  ///< n has one
};

// Each reads one part of the resolved document and adds its mistakes to `reading.diagnostics`.

/// Fills `reading.layout` and what follows from it.
void read_layout(const Json& layout, Reading& reading);
/// Fills `reading.batch`. The uses that it names are checked by check_uses(), once they are known.
void read_batch(const Json& batch, Reading& reading);
/// Fills `reading.uses` by the way.
std::vector<Parameter> read_parameters(const Json& parameters, Reading& reading);
std::optional<Parameter> read_parameter(const Json& parameter, Reading& reading);
std::vector<Step> read_steps(const Json& steps, Reading& reading);
/// What is wrong with a step of which each key by itself is right. `place_of`: where a key of it was written.
void check_step(const Step& step, bool in_each, Reading& reading,
                const std::function<Place(const char* key)>& place_of);
/// What can be read of the keys of a step that an edit inserts or sets; mistakes are left to those who read the step.
void read_values(const std::vector<Json::Member>& members, const Reading& reading, Edit& edit);
Expect read_expect(const Json& expect, Reading& reading);
/// Adds a mistake where no parameter has this use.
void check_use(const std::string& use, const Place& place, Reading& reading);
/// The same for each `tokens.USE` of an expression, where the batch does not list counts of that name.
void check_tokens_of_uses(const Json& value, Reading& reading);
/// The uses that a batch names, but for lists of tokens of other names.
void check_uses(const Json& batch, Reading& reading);
/// Adds a mistake for each list of tokens of a name that neither a parameter nor an expression has, before edits or
/// after them.
void check_counts(const Json& batch, Reading& reading);
/// What these steps ask for, which edits may change.
void note_counts_before_edits(const Json& steps, Reading& reading);
/// Without the lists for which nothing asks any more, and with the names of today.
Json batch_after_edits(const Json& written, const Reading& reading);

std::optional<Expression> read_expression(const Json& value, const ExpressionUse& use, Reading& reading);
Over read_over(const Json& value, Reading& reading);
Root read_root(const Json& value, Reading& reading);
/// Axes with coordinates: "only" of steps and parameters.
std::vector<Only> read_only(const Json& value, Reading& reading);
Geometry read_geometry(const Json& value, Reading& reading);
/// The axis that a member's key names; a mistake is added where it names none.
std::optional<Axis> read_axis_key(const Json::Member& member, Reading& reading);
/// A selector or a list of them, each of which can be read.
Selectors read_selectors(const Json& value, Reading& reading);

/// `place` narrowed to bytes of the string that was written there, where it has no escapes.
Place inside_string(const Json& value, std::size_t offset, std::size_t length);

}  // namespace lockstep::scenario
