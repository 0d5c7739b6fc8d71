// SPDX-License-Identifier: Apache-2.0
#include "lockstep/scenario.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <tuple>
#include <utility>

#include "src/base/budget.h"
#include "src/base/utf8.h"
#include "src/scenario/changed_keys.h"
#include "src/scenario/checks.h"
#include "src/scenario/edit_mistakes.h"
#include "src/scenario/edits.h"
#include "src/scenario/expand.h"
#include "src/scenario/known_models.h"
#include "src/scenario/open_sizes.h"
#include "src/scenario/step_tree.h"
#include "src/scenario/what_if.h"

namespace lockstep {

namespace {

/// The name of a scenario that gives none; on one line, and in the log of a GitHub job no command, which begins with
/// "::".
std::string name_of_file(const std::string& file) {
  std::string name;
  for (const char c : std::filesystem::path(file).stem().string())
    name += is_control_character({&c, 1}) ? std::string("\xEF\xBF\xBD") : std::string(1, c);
  return name.substr(std::min(name.find_first_not_of(" :"), name.size()));
}

/// Reads one file, part by part, each against those before it. A part with mistakes leaves what
/// depends on it unread, so that every mistake is reported once.
class ScenarioReader {
 public:
  /// `what_if`: null for the file as it is.
  explicit ScenarioReader(std::string file, const WhatIf* what_if = nullptr, bool keep_sizes = false,
                          scenario::KnownModels* known = nullptr)
      : file_(std::move(file)), is_what_if_(what_if != nullptr), known_models_(known) {
    if (is_what_if_) what_if_ = *what_if;
    reading_.keep_sizes = keep_sizes;
    reading_.folder = std::filesystem::path(file_).parent_path();
  }

  /// `document`: what was parsed, whether or not it is refused.
  Scenario read_text(std::shared_ptr<const Source> source, Json& document) {
    document = parse_json(std::move(source), reading_.diagnostics);
    if (document.is_null() && !reading_.diagnostics.empty()) fail();
    return read(document);
  }

  Scenario read(const Json& document) {
    Scenario scenario;
    scenario.file = file_;
    scenario.document = document;
    if (is_what_if_) scenario.document.remove("expect");  // which is of the file as it is
    refuse_other_files(scenario.document);
    const scenario::Fields fields(scenario.document, scenario::Object::scenario, "", "at the top level of the scenario",
                                  reading_.diagnostics);
    read_heads(fields, scenario);
    read_framework(fields.find("schedule"));
    const Json layout = read_layout_part(fields.find("layout"));
    const Json batch = read_batch_part(fields.find("batch"));
    edits_ = scenario::read_edits(written_edits_, reading_);
    const Json parameters = read_model_part(fields.find("model"));
    scenario::check_uses(batch, reading_);
    const Json steps = read_schedule_part();
    if (!steps.is_null()) scenario::check_counts(batch, reading_);
    if (const Json* expect = fields.find("expect")) {
      scenario.expect = scenario::read_expect(*expect, reading_);
      if (!steps.is_null()) scenario::check_expect(*expect, names_, missing_, model_.get(), reading_);
    }
    if (!reading_.diagnostics.empty()) fail();
    if (reading_.sizes_known()) {
      scenario.schedule = std::make_shared<const Schedule>(Schedule{
          *reading_.mesh, std::move(*model_), reading_.batch, std::move(steps_), result_, reading_.decided_by_numel});
    }
    scenario.layout = reading_.layout;
    scenario.preset = reading_.preset;
    for (const scenario::WrittenEdit& one : edits_) scenario.edits.push_back(one.edit);
    scenario.decided_conditions = reading_.decided_conditions;
    scenario.rules = reading_.rules;
    scenario.resolved =
        resolved(scenario.document, layout, scenario::batch_after_edits(batch, reading_), parameters, steps);
    if (is_what_if_) scenario.document = scenario::document_with(document, what_if_);
    return scenario;
  }

 private:
  [[noreturn]] void fail() {
    if (reading_.keep_sizes) throw scenario::RefusedSizes(reading_.diagnostics.sorted(), reading_.refusing);
    throw InputError(reading_.diagnostics.sorted());
  }

  /// Files of other kinds are easily given in place of a scenario, and each of their keys would be unknown.
  void refuse_other_files(const Json& document) {
    const std::string file = std::filesystem::path(file_).filename().string();
    for (const auto& [mark, kind, part] :
         {std::tuple("lockstep_framework", "framework", "schedule"), std::tuple("lockstep_model", "preset", "model")}) {
      const Json* found = document.find(mark);
      if (found == nullptr) continue;
      reading_.diagnostics.add(
          found->place(),
          fmt::format("expected a scenario, found a file that scenarios name: \"{}\": {{ \"{}\": \"./{}\" }}", part,
                      kind, file));
      fail();
    }
    if (const Json* found = document.find("lockstep_extract")) {
      reading_.diagnostics.add(found->place(),
                               "expected a scenario, found what `lockstep extract` has written; `lockstep check` and "
                               "`lockstep diff` read it");
      fail();
    }
    // A framework's configuration may hold secrets, so nothing of it is shown.
    const auto has = [&](const char* key) { return document.find(key) != nullptr; };
    if (!document.is_object() || document.members().empty() || has("lockstep") || has("layout") || has("schedule"))
      return;
    reading_.diagnostics.add(
        Place{}, fmt::format("{}: expected a scenario, found an object with none of \"lockstep\", \"layout\" and "
                             "\"schedule\"; `lockstep import` reads the configurations of frameworks",
                             file_));
    fail();
  }

  void read_heads(const scenario::Fields& fields, Scenario& scenario) {
    scenario.name = fields.text("name", name_of_file(file_));
    scenario.title = fields.text("title");
    scenario.source_reference = fields.text("source");
  }

  void read_framework(const Json* written) {
    if (written == nullptr) return;
    const Json changed = scenario::schedule_with(*written, what_if_), *schedule = &changed;
    const scenario::Fields fields(changed, scenario::Object::schedule, "", "in \"schedule\"", reading_.diagnostics);
    const Json* framework = schedule->find("framework");
    const Json* steps = schedule->find("steps");
    if ((framework != nullptr) == (steps != nullptr)) {
      reading_.diagnostics.add(
          schedule->place(),
          framework != nullptr
              ? "a schedule has a \"framework\" or \"steps\", not both"
              : fmt::format("missing key \"framework\" or \"steps\" in \"schedule\": name one of {}, or list the steps",
                            scenario::quoted_alternatives(builtin_frameworks())));
      return;
    }
    if (framework == nullptr && schedule->find("options") != nullptr) {
      reading_.diagnostics.add(schedule->find("options")->place(),
                               "\"options\" are those of a \"framework\", and this schedule has none");
    }
    if (const Json* edits = fields.find("edits")) {
      written_edits_ = *edits;
      constexpr std::size_t limit = 1000;
      if (edits->items().size() > limit) {
        reading_.diagnostics.add(edits->place(),
                                 fmt::format("expected at most {} edits, found {}", limit, edits->items().size()));
        written_edits_ = Json::array();
      }
    }
    if (const Json* result = fields.find("result")) written_result_ = *result;
    if (const Json* list = fields.find("steps")) written_steps_ = *list;
    if (fields.find("framework") != nullptr)
      framework_ = scenario::Framework::load(*framework, fields.find("options"), reading_);
    if (framework_) written_edits_ = framework_->with_options(written_edits_, reading_);
  }

  Json read_layout_part(const Json* written) {
    Json layout = scenario::layout_with(written, what_if_.sizes);
    if (framework_) layout = framework_->with_layout_defaults(layout, reading_);
    scenario::read_layout(layout, reading_);
    return layout;
  }

  Json read_batch_part(const Json* written) {
    Json batch = scenario::batch_with(written, what_if_.sizes);
    if (framework_) batch = framework_->with_batch_defaults(framework_->with_options(batch, reading_), reading_);
    scenario::read_batch(batch, reading_);
    return batch;
  }

  /// Null where it was read before at a layout that is another in nothing that it names.
  Json read_model_part(const Json* written) {
    if (written == nullptr) return {};
    const bool edited = std::any_of(edits_.begin(), edits_.end(), [](const scenario::WrittenEdit& one) {
      return one.edit.action == Edit::Action::parameter;
    });
    std::optional<std::string> key;
    if (known_models_ != nullptr && !edited && reading_.diagnostics.empty())
      key = known_models_->key_of(*written, reading_);
    if (scenario::KnownModel* known = key ? known_models_->find(*key) : nullptr) {
      take(*known);
      return {};
    }
    auto decided = std::exchange(reading_.decided_conditions, {});
    auto refusing = std::exchange(reading_.refusing, {}), rules = std::exchange(reading_.rules, {});
    Json parameters = expand_parameters(*written, key);
    reading_.decided_conditions.merge(decided);
    reading_.refusing.merge(refusing);
    reading_.rules.merge(rules);
    return parameters;
  }

  Json expand_parameters(const Json& written, const std::optional<std::string>& key) {
    Json parameters = scenario::expand_model(written, reading_);
    if (parameters.is_null()) return {};
    parameters = scenario::apply_parameter_edits(parameters, edits_, reading_);
    const std::size_t before = reading_.diagnostics.size();
    const auto list = std::make_shared<const std::vector<Parameter>>(scenario::read_parameters(parameters, reading_));
    // With what comes of each later, where it is not kept for other sizes: its text, its place in the model.
    constexpr std::int64_t units_of_a_parameter = 550;
    if (known_models_ == nullptr) Budget::spend(units_of_a_parameter * static_cast<std::int64_t>(list->size()));
    if (reading_.diagnostics.size() != before || !reading_.layout_known) return parameters;
    if (!key) {
      place(list, {});
      return parameters;
    }
    scenario::KnownModel& known = known_models_->add(*key, {list,
                                                            reading_.uses,
                                                            reading_.decided_conditions,
                                                            reading_.refusing,
                                                            reading_.rules,
                                                            reading_.decided_by_numel,
                                                            reading_.preset,
                                                            {}});
    place(list, {});
    if (model_) known.models.push_back(*model_);
    return parameters;
  }

  /// What reading it once more would find.
  void take(scenario::KnownModel& known) {
    reading_.uses = known.uses;
    reading_.parameters_known = true;
    reading_.decided_conditions.insert(known.decided_conditions.begin(), known.decided_conditions.end());
    reading_.refusing.insert(known.refusing.begin(), known.refusing.end());
    reading_.rules.insert(known.rules.begin(), known.rules.end());
    reading_.decided_by_numel = reading_.decided_by_numel || known.decided_by_numel;
    reading_.preset = known.preset;
    place(known.parameters, known.models);
    if (model_ && std::none_of(known.models.begin(), known.models.end(),
                               [&](const Model& other) { return other.shares_with(*model_); }))
      known.models.push_back(*model_);
  }

  void place(const Model::Parameters& list, const std::vector<Model>& others) {
    const std::size_t before = reading_.diagnostics.size();
    model_ = std::make_unique<Model>(*reading_.mesh, list, reading_.diagnostics, others);
    if (reading_.diagnostics.size() != before) model_.reset();
  }

  /// Plain steps after all edits, or null where there are none to speak of.
  Json read_schedule_part() {
    Json steps = written_steps_;
    std::optional<scenario::SelectorMatches> matches;
    if (model_) matches.emplace(*model_);
    if (framework_) {
      steps = reading_.layout_known ? framework_->steps(reading_) : Json();
      if (!steps.is_null() && matches) steps = framework_->without_unmatched(steps, *matches, reading_);
    }
    if (steps.is_null()) return {};
    static const std::map<std::string, std::string> none;
    missing_ = scenario::names_in(scenario::nodes_of(steps.items()));
    for (const auto& [name, why] : framework_ ? framework_->absent() : none) missing_.push_back(name);
    constexpr std::int64_t units_of_a_step = 300, units_of_an_edit = 30;
    const auto count = static_cast<std::int64_t>(steps.items().size() + edits_.size());
    Budget::spend(units_of_a_step * count + units_of_an_edit * count * static_cast<std::int64_t>(edits_.size()));
    if (!edits_.empty()) {
      scenario::note_counts_before_edits(steps, reading_);
      scenario::note_counts_before_edits(written_edits_, reading_);  // one may take away what another has put there
    }
    const std::size_t before = reading_.diagnostics.size();
    steps = scenario::apply_step_edits(steps, edits_, framework_ ? framework_->absent() : none, reading_.diagnostics);
    if (framework_ && reading_.keep_sizes && reading_.diagnostics.size() != before)
      framework_->note_absence(edits_, reading_);
    names_ = scenario::check_step_names(steps, reading_);
    steps_ = scenario::read_steps(steps, reading_);
    if (matches) scenario::check_step_selectors(steps, *matches, reading_);
    if (framework_ && framework_->result() != nullptr && framework_->result()->is_string())
      result_ = framework_->result()->text();
    if (written_result_.is_string()) result_ = written_result_.text();
    return steps;
  }

  Json resolved(const Json& document, const Json& layout, const Json& batch, const Json& parameters,
                const Json& steps) const {
    Json result = Json::object({}, document.place());
    result.set("lockstep", Json::number("1"));
    for (const char* key : {"name", "title", "source"}) {
      if (const Json* value = document.find(key)) result.set(key, *value);
    }
    result.set("layout", resolved_layout(layout));
    result.set("model", resolved_model(document, parameters));
    if (!batch.members().empty()) result.set("batch", batch);
    Json schedule = Json::object({{"steps", {}, steps}});
    if (result_ != "grad") schedule.set("result", Json::string(result_));
    result.set("schedule", schedule);
    if (const Json* expect = document.find("expect")) {
      Json kept = *expect;
      // What is at fault is named after what the edits changed, and they are gone; or it is a step that the framework
      // has and this scenario leaves out.
      const auto is_missing = [&](const Json& name) {
        const auto in = [&](const std::vector<std::string>& names) {
          return std::find(names.begin(), names.end(), name.text()) != names.end();
        };
        return name.is_string() && in(missing_) && !in(names_);
      };
      const Json* blame = kept.find("blame");
      const bool names_missing =
          blame != nullptr && std::any_of(blame->items().begin(), blame->items().end(), is_missing);
      if (!edits_.empty() || names_missing) kept.remove("blame");
      result.set("expect", kept);
    }
    return result;
  }

  /// Edits of the model need to know what it is.
  Json resolved_model(const Json& document, const Json& parameters) const {
    Json model = Json::object({{"parameters", {}, parameters}});
    const Json* written = document.find("model");
    const Json* edits = written == nullptr ? nullptr : written->find("edits");
    if (!reading_.preset || edits == nullptr) return model;
    Json architecture = Json::object({{"family", {}, Json::string(reading_.preset->family)}});
    for (const auto& [name, value] : reading_.preset->sizes) architecture.set(name, value);
    model.set("architecture", architecture);
    model.set("edits", *edits);
    return model;
  }

  /// What differs from the defaults, and the order in any case.
  static Json resolved_layout(const Json& layout) {
    Json plain = Json::object({}, layout.place());
    for (const Json::Member& member : layout.members()) {
      // Where "dp_shard" is not written it is all of "dp".
      const bool one = scenario::whole_number(member.value) == 1 && member.key != "dp_shard";
      if (!one && !(member.value.is_boolean() && !member.value.as_boolean())) scenario::set_member(plain, member);
    }
    const scenario::ObjectKey& order = *scenario::find_key(scenario::object_row(scenario::Object::layout), "order");
    if (plain.find("order") == nullptr) plain.set("order", Json::string(std::string(order.fallback)));
    return plain;
  }

  std::string file_;
  bool is_what_if_;
  WhatIf what_if_;
  scenario::KnownModels* known_models_;
  scenario::Reading reading_;
  std::unique_ptr<scenario::Framework> framework_;
  Json written_edits_ = Json::array();
  std::vector<scenario::WrittenEdit> edits_;
  Json written_steps_, written_result_;
  std::unique_ptr<Model> model_;
  std::vector<std::string> names_, missing_;
  std::vector<Step> steps_;
  std::string result_ = "grad";
};

/// What was found in steps that edits have made is the edits' mistake.
InputError with_places_of_edits(const InputError& error, const Json& document, const std::string& file) {
  return InputError(scenario::at_their_edits(error.diagnostics(), document, [&](const WhatIf& fewer) {
    try {
      read_scenario(document, file, fewer);
    } catch (const InputError& again) {
      return again.diagnostics();
    }
    return std::vector<Diagnostic>();
  }));
}

}  // namespace

Scenario read_scenario(const std::shared_ptr<const Source>& source) {
  Json document;
  try {
    return ScenarioReader(source->name).read_text(source, document);
  } catch (const InputError& error) {
    throw with_places_of_edits(error, document, source->name);
  }
}

Scenario read_scenario(const Json& document, const std::string& file) { return ScenarioReader(file).read(document); }

Scenario read_scenario(const Json& document, const std::string& file, const WhatIf& what_if) {
  return ScenarioReader(file, &what_if).read(document);
}

std::shared_ptr<const Scenario> read_if_allowed(const Scenario& scenario, const WhatIf& what_if) {
  try {
    return std::make_shared<const Scenario>(read_scenario(scenario.document, scenario.file, what_if));
  } catch (const InputError&) {
    return nullptr;
  }
}

namespace scenario {

bool has_any_micro_batches(const Scenario& scenario) {
  const Json* batch = scenario.resolved.find("batch");
  const Json* count = batch == nullptr ? nullptr : batch->find("micro_batches");
  return count != nullptr && count->is_string();
}

bool has_one_value_at_all_sizes(const Scenario& scenario, std::string_view key) {
  const auto given = [&](const Json& document) {
    const Json* layout = document.find("layout");
    return layout == nullptr ? nullptr : layout->find(key);
  };
  const auto is_plain = [](const Json& value) { return value.is_number() || value.is_boolean(); };
  if (const Json* written = given(scenario.document)) return is_plain(*written);
  const Json* schedule = scenario.document.find("schedule");
  const Json* framework = schedule == nullptr ? nullptr : schedule->find("framework");
  if (framework == nullptr) return true;
  Diagnostics ignored;
  const std::filesystem::path folder = std::filesystem::path(scenario.file).parent_path();
  const std::optional<NamedFile> file = load_named_file(*framework, FileKind::framework, folder, folder, ignored);
  if (!file) return false;
  const Json* of_framework = given(file->document);
  return of_framework == nullptr || is_plain(*of_framework);
}

Scenario read_scenario_of_open_sizes(const Json& document, const std::string& file, const WhatIf& what_if,
                                     KnownModels* known) {
  return ScenarioReader(file, &what_if, true, known).read(document);
}

}  // namespace scenario

Scenario read_scenario_file(const std::filesystem::path& path) {
  std::string error;
  std::optional<Source> read = scenario::read_scenario_text(path, error);
  if (!read) {
    const auto source = std::make_shared<const Source>(Source{path.string(), ""});
    throw InputError({{Place{source, 0, 0, ""}, "cannot read the file: " + error}});
  }
  const auto source = std::make_shared<const Source>(std::move(*read));
  const std::vector<std::string>& changes = scenario::changes_of_every_scenario();
  if (changes.empty()) return read_scenario(source);
  Diagnostics diagnostics;
  const Json written = parse_json(source, diagnostics);
  if (!diagnostics.empty()) throw InputError(diagnostics.sorted());
  const Json document = scenario::with_changes(written, source->name, changes, "--set");
  Scenario changed;
  try {
    changed = read_scenario(document, source->name);
  } catch (const InputError& error) {
    throw with_places_of_edits(error, document, source->name);
  }
  changed.changes = changes;
  return changed;
}

}  // namespace lockstep
