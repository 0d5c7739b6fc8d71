// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/edit.h"
#include "lockstep/json.h"
#include "lockstep/schedule.h"
#include "lockstep/sizes.h"

namespace lockstep {

/// What a file says must come out. Absent members are not checked.
struct Expect {
  struct Formula {
    std::string parameter;
    std::string rank;                  ///< as written: "1"
    std::optional<Interval> elements;  ///< local elements; none: every wrong element of that rank
    std::string formula;
    Place place;
  };
  Place place;
  std::string verdict;                                 ///< always set
  std::optional<std::vector<std::string>> parameters;  ///< selectors
  std::optional<std::vector<int>> ranks;
  std::vector<Formula> formulas;
  std::optional<Rational> ratio;
  std::optional<bool> replicas_agree;
  std::map<std::string, std::string> norm;  ///< parameter name → counted
  std::optional<Rational> norm_squared_factor;
  std::optional<int> step;
  std::optional<std::vector<std::string>> stuck;
  std::optional<std::vector<std::string>> blame;
};

/// A change to what a model communicates, for the transformer engine.
struct ModelEdit {
  enum class Action { drop, duplicate, over };
  Action action = Action::drop;
  std::string site;
  Axis axis = Axis::tp;  ///< over: the axis to communicate along instead
  Place place;
};

/// The model file that a scenario's parameters come from, and the sizes that were chosen or kept.
struct Preset {
  std::string family;  ///< name of the model file at the bottom, which has no "base"
  std::map<std::string, Json> sizes;
  std::vector<ModelEdit> edits;
  Place place;  ///< where the scenario names it
};

/// A scenario file, read, checked and expanded to plain parameters and steps.
struct Scenario {
  std::string file;
  std::string name, title, source_reference;
  Layout layout;
  std::optional<Expect> expect;
  std::shared_ptr<const Schedule> schedule;  ///< null where an axis, or micro-batches, are "any"
  Json document;                             ///< as written
  Json resolved;                             ///< plain parameters and steps: itself a valid scenario
  std::vector<std::string> changes;          ///< KEY=VALUE, that --set made in `document`
  std::vector<Edit> edits;                   ///< of the schedule and its parameters, with their places
  std::optional<Preset> preset;              ///< none where the scenario lists its parameters
  /// Only where it was read for open sizes: the conditions on sizes by which the framework file came to these steps and
  /// this loss, as expressions of nothing else. At other sizes at which they come out alike it comes to the same.
  Expressions decided_conditions;
  /// Only where it was read for open sizes: the conditions of rules of its framework and its model, as expressions of
  /// sizes, that hold at other sizes and refuse these.
  TextsOfExpressions rules;
};

/// What a file would say in another way: a value, which takes the place of what it says.
struct WhatIf {
  Sizes sizes = {};
  std::vector<Edit> edits = {};            ///< behind those that it has
  std::set<std::size_t> left_out = {};     ///< of the edits that it has, by their places in the list
  std::vector<Json::Member> options = {};  ///< of its framework
};

/// Reads a scenario. Throws InputError with every mistake of the file.
Scenario read_scenario(const std::shared_ptr<const Source>& source);
/// The same of a document, perhaps changed since it was read: as if `file` said it, in whose folder the frameworks and
/// models that it names are. Mistakes have the places that its values have.
Scenario read_scenario(const Json& document, const std::string& file);
/// The same as it would be with some changes, and without what it expects, which is of the file as it is. Mistakes keep
/// their places; `document` is then one that says all of it.
Scenario read_scenario(const Json& document, const std::string& file, const WhatIf& what_if);
/// A scenario that was read, with some changes; null where it is refused.
std::shared_ptr<const Scenario> read_if_allowed(const Scenario& scenario, const WhatIf& what_if);
/// The path that stands for standard input, and what messages and reports call it. A file of that name is "./<stdin>".
inline constexpr std::string_view standard_input_name = "<stdin>";
/// How a command line names the file: "-" for standard input, quoted, on one line, where a shell would take it apart.
std::string argument_for(const std::string& file);
/// The same behind a command that reads scenarios: with --set where this process has it.
std::string arguments_for(const std::string& file);
/// Reads the file, or standard input, with the changes of --set; one that cannot be read is an InputError as well.
Scenario read_scenario_file(const std::filesystem::path& path);

/// A schedule as a scenario file would say it: plain parameters and steps, coordinates as numbers. What it says reads
/// back to an equal schedule.
Json to_json(const Schedule& schedule);
Json to_json(const Step& step);
Json to_json(const Parameter& parameter);

/// The JSON Schema (2020-12) of scenario files, from the key tables that the parser uses.
Json scenario_schema();
/// The keys as Markdown tables, from the same tables: docs/scenario-keys.md.
std::string scenario_key_tables();

/// The text of a framework or model file that is compiled in; null where there is none of that name.
const std::string* builtin_framework(std::string_view name);
const std::string* builtin_model(std::string_view name);
std::vector<std::string> builtin_frameworks();
std::vector<std::string> builtin_models();

}  // namespace lockstep
