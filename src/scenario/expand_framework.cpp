// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "src/expression/node.h"
#include "src/scenario/expand.h"
#include "src/scenario/selector_matches.h"
#include "src/scenario/template.h"

namespace lockstep::scenario {

namespace {

/// Members of `defaults` for what `object` does not have, behind its own.
Json with_defaults(const Json& object, const Json& defaults) {
  Json merged = object.is_object() ? object : Json::object({}, object.place());
  for (const Json::Member& member : defaults.members()) {
    if (merged.find(member.key) == nullptr) set_member(merged, member);
  }
  return merged;
}

/// Replaces defined names in every expression of a value: those of steps, geometries and losses.
Json with_values(const Json& value, Template& values) {
  if (value.is_array()) {
    std::vector<Json> items;
    for (const Json& item : value.items()) items.push_back(with_values(item, values));
    return Json::array(std::move(items), value.place());
  }
  if (!value.is_object()) return value;
  std::vector<Json::Member> members;
  for (const Json::Member& member : value.members()) {
    const ObjectKey* row = find_key(object_row(Object::step), member.key);
    if (row == nullptr) row = find_key(object_row(Object::geometry), member.key);
    const bool expression = member.key == "weight" || (row != nullptr && row->type == Type::expression);
    const bool text = expression && member.value.is_string();
    members.push_back(
        {member.key, member.key_place, text ? values.substitute(member.value) : with_values(member.value, values)});
  }
  return Json::object(std::move(members), value.place());
}

}  // namespace

std::unique_ptr<Framework> Framework::load(const Json& reference, const Json* options, Reading& reading) {
  std::optional<NamedFile> file =
      load_named_file(reference, FileKind::framework, reading.folder, reading.folder, reading.diagnostics);
  if (!file) return nullptr;
  const std::size_t before = reading.diagnostics.size();
  std::unique_ptr<Framework> framework(new Framework(std::move(*file), reference.place()));
  const Fields fields(framework->file_.document, Object::framework_file, "", "in the framework file",
                      reading.diagnostics);
  if (reading.diagnostics.size() != before) return nullptr;
  framework->name_ = reference.text();
  framework->read_options(options, reading);
  return reading.diagnostics.size() == before ? std::move(framework) : nullptr;
}

void Framework::read_options(const Json* options, Reading& reading) {
  if (const Json* known = file_.document.find("options")) {
    for (const Json::Member& member : known->members()) {
      if (!check_defined_name(member, reading.diagnostics)) continue;
      const Fields fields(member.value, Object::option, "", fmt::format("in option \"{}\"", member.key),
                          reading.diagnostics);
      const Json* value = fields.find("default");
      if (value == nullptr) continue;
      const Json* allowed = fields.find("allowed");
      options_.emplace_back(member.key,
                            OptionValue{*value, fields.text("type"), allowed != nullptr ? *allowed : Json(), false});
      check_default(member.key, options_.back().second, reading);
    }
  }
  if (options == nullptr) return;
  for (const Json::Member& member : options->members()) {
    set_option(options_, member, fmt::format("option of framework \"{}\"", name_), reading);
  }
}

Json Framework::with_layout_defaults(const Json& layout, Reading& reading) const {
  const Json* defaults = file_.document.find("layout");
  if (defaults == nullptr) return layout;
  Template values({}, reading.diagnostics);
  if (reading.keep_sizes) values.keep_sizes();
  for (const auto& [name, option] : options_) values.define(name, option.value);
  for (const std::string& axis : axis_names()) {
    const Json* size = layout.find(axis);
    values.define_size(axis, size != nullptr && size->is_number() ? *size : Json::number("1"));
  }
  Json plain = Json::object({}, defaults->place());
  // What the layout gives itself hangs on nothing.
  Json missing = Json::object({}, defaults->place());
  for (const Json::Member& member : defaults->members()) {
    if (layout.find(member.key) == nullptr) set_member(missing, member);
  }
  const std::optional<Json> resolved = values.resolve(missing);
  for (const Json::Member& member : resolved ? resolved->members() : std::vector<Json::Member>()) {
    // A layout that gives the parts of dp gives dp.
    if (member.key == "dp" && (layout.find("dp_shard") != nullptr || layout.find("dp_replicate") != nullptr)) continue;
    const ObjectKey* row = find_key(object_row(Object::layout), member.key);
    const bool number = row != nullptr && (row->type == Type::axis_size || row->type == Type::count);
    if (!number || !member.value.is_string()) {
      set_member(plain, member);
    } else if (const Json* same = layout.find(member.value.text())) {
      // Also where that is "any".
      set_member(plain, {member.key, member.key_place, same->at(member.value.place())});
    } else if (const std::optional<std::int64_t> size = values.whole(member.value)) {
      values.note_value(member.value, Rational(*size));
      set_member(plain, {member.key, member.key_place, Json::number(std::to_string(*size), member.value.place())});
    }
  }
  reading.decided_conditions.insert(values.decided().begin(), values.decided().end());
  return with_defaults(layout, plain);
}

Json Framework::with_batch_defaults(const Json& batch, Reading& reading) const {
  const Json* defaults = file_.document.find("batch");
  if (defaults == nullptr) return batch;
  Environment environment;
  environment.mesh = reading.mesh.get();
  Template values(environment, reading.diagnostics);
  if (reading.keep_sizes) values.keep_sizes();
  for (const auto& [name, option] : options_) values.define(name, option.value);
  std::optional<Json> resolved = values.resolve(*defaults);
  reading.decided_conditions.insert(values.decided().begin(), values.decided().end());
  if (resolved && resolved->find("loss") != nullptr)
    resolved->set("loss", with_values(*resolved->find("loss"), values));
  if (!resolved) return batch;
  Json merged = with_defaults(batch, *resolved);
  // A loss by use leaves `main` to the framework.
  const Json* loss = merged.find("loss");
  const Json* framework_loss = resolved->find("loss");
  const auto by_use = [](const Json& value) { return value.is_object() && value.find("weight") == nullptr; };
  if (loss != nullptr && framework_loss != nullptr && by_use(*loss) && loss->find("main") == nullptr) {
    const Json* main = by_use(*framework_loss) ? framework_loss->find("main") : framework_loss;
    if (main != nullptr) {
      Json with_main = *loss;
      with_main.set("main", *main);
      merged.set("loss", with_main);
    }
  }
  return merged;
}

/// A rule may ask for as many micro-batches as there are stages: the first number that no rule refuses is the example.
void Framework::choose_micro_batches(Reading& reading) const {
  constexpr int most = 64;
  Batch& batch = reading.batch;
  const std::vector<int> first = batch.micro_batch_counts;
  for (int count = 1; count <= most; ++count) {
    batch.micro_batch_counts.assign(first.size(), count);
    Diagnostics refusals;
    Template values(file_environment(reading), refusals);
    define_and_apply_rules(values, refusals);
    if (refusals.empty()) return;
  }
  batch.micro_batch_counts = first;
}

void Framework::define_and_apply_rules(Template& values, const Diagnostics& diagnostics) const {
  const std::size_t before = diagnostics.size();
  for (const auto& [name, option] : options_) values.define(name, option.value);
  if (const Json* let = file_.document.find("let")) values.define_all(*let);
  const Json* rules = file_.document.find("rules");
  if (diagnostics.size() != before || rules == nullptr) return;
  values.apply_rules(*rules,
                     [&](const std::set<std::string>& names) { return place_of_rule(options_, names, place_); });
}

Json Framework::steps(Reading& reading) {
  Diagnostics& diagnostics = reading.diagnostics;
  const std::size_t before = diagnostics.size();
  if (reading.any_micro_batches) choose_micro_batches(reading);
  Template values(file_environment(reading), diagnostics);
  if (reading.keep_sizes || reading.any_micro_batches) values.keep_sizes();
  define_and_apply_rules(values, diagnostics);
  reading.refusing.insert(values.refusing().begin(), values.refusing().end());
  reading.rules.insert(values.rules().begin(), values.rules().end());
  if (diagnostics.size() != before) return {};
  Json plain = expand_framework_steps(*file_.document.find("steps"), values, absent_, reading);
  reading.decided_conditions.insert(values.decided().begin(), values.decided().end());
  return diagnostics.size() == before ? plain : Json();
}

void Framework::note_absence(const std::vector<WrittenEdit>& edits, Reading& reading) const {
  Diagnostics ignored;
  Template values(file_environment(reading), ignored);
  values.keep_sizes();
  for (const auto& [name, option] : options_) values.define(name, option.value);
  if (const Json* let = file_.document.find("let")) values.define_all(*let);
  // Where every step of the name hangs on a condition, it is absent where none of these holds.
  const std::function<bool(const Json&, const std::string&, expression::NodePointer&)> add =
      [&](const Json& steps, const std::string& name, expression::NodePointer& rule) {
        return std::all_of(steps.items().begin(), steps.items().end(), [&](const Json& step) {
          if (step.find("if") != nullptr) return false;
          const Json* body = step.find("steps");
          if (body != nullptr && !(body->is_array() && add(*body, name, rule))) return false;
          const Json* own = step.find("name");
          if (own == nullptr || !own->is_string() || own->text() != name) return true;
          const Json* when = step.find("when");
          if (when == nullptr || !when->is_string()) return false;
          const std::optional<Expression> plain = values.plain(*when);
          if (!plain) return false;  // whoever reads the step says so
          const expression::NodePointer absent = expression::not_node(plain->root());
          rule = rule == nullptr ? absent : expression::binary_node("and", rule, absent);
          return true;
        });
      };
  for (const WrittenEdit& one : edits) {
    for (const EditTarget* target : {&one.edit.step, &one.edit.beside}) {
      expression::NodePointer rule;
      if (absent_.count(target->name) != 0 && add(*file_.document.find("steps"), target->name, rule) && rule != nullptr)
        reading.refusing.emplace(Expression::of(rule),
                                 fmt::format("an edit names step \"{}\", which is not there", target->name));
    }
  }
}

Json Framework::with_options(const Json& value, Reading& reading) const {
  Template values({}, reading.diagnostics);
  for (const auto& [name, option] : options_) values.define(name, option.value);
  return with_values(value, values);
}

Json Framework::without_unmatched(const Json& steps, SelectorMatches& matches, Reading& reading) {
  std::vector<Json> list;
  // Items that fit nothing change nothing, but a plain step must not have them.
  const auto fitting = [&](const Json& selectors) {
    std::vector<Json> items;
    for (const Json& item : selectors.is_string() ? std::vector<Json>{selectors} : selectors.items()) {
      const bool readable = item.is_string() && !Selectors::check(item.text());
      if (readable && Selectors::compares_numel(item.text())) reading.decided_by_numel = true;
      if (!readable || matches.fits_any(item.text())) items.push_back(item);
    }
    return Json::array(std::move(items), selectors.place());
  };
  for (Json step : steps.items()) {
    const Json* params = step.find("params");
    const Json* name = step.find("name");
    if (params != nullptr) {
      const Json kept = fitting(*params);
      std::vector<std::string> items = strings_of(*params);
      const bool readable = std::none_of(items.begin(), items.end(),
                                         [](const std::string& item) { return Selectors::check(item).has_value(); });
      if (readable && !matches.chooses_any(items)) {
        if (name != nullptr) absent_.emplace(name->text(), "it selects nothing in this model");
        continue;
      }
      if (kept.items().empty()) {
        step.remove("params");
      } else if (params->is_array()) {
        step.set("params", kept);
      }
    }
    const Json* geometry = step.find("geometry");
    const Json* separate = geometry != nullptr ? geometry->find("separate") : nullptr;
    if (separate != nullptr && (separate->is_array() || separate->is_string())) {
      Json changed = *geometry;
      changed.set("separate", fitting(*separate));
      step.set("geometry", changed);
    }
    if (const Json* body = step.find("steps")) step.set("steps", without_unmatched(*body, matches, reading));
    list.push_back(step);
  }
  return without_idle_waits(Json::array(std::move(list), steps.place()), absent_);
}

}  // namespace lockstep::scenario
