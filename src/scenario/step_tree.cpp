// SPDX-License-Identifier: Apache-2.0
#include "src/scenario/step_tree.h"

#include <fmt/format.h>

#include <algorithm>

#include "src/scenario/fields.h"
#include "src/scenario/step_keys.h"

namespace lockstep::scenario {

namespace {

/// "" where it is not there or no text.
std::string text_at(const Json& step, std::string_view key) {
  const Json* value = step.find(key);
  return value != nullptr && value->is_string() ? value->text() : "";
}

void add_suffix(std::string& name, const std::vector<std::string>& names, const std::string& suffix) {
  if (std::find(names.begin(), names.end(), name) != names.end()) name += suffix;
}

}  // namespace

std::string name_of(const Json& step) { return text_at(step, "name"); }
const std::string& name_of(const Step& step) { return step.name; }

Place place_of_name(const Json& step) {
  const Json* name = step.find("name");
  return name != nullptr ? name->place() : step.place();
}
Place place_of_name(const Step& step) { return step.place; }

std::string waited_by(const Json& step) { return text_at(step, "op") == "wait" ? text_at(step, "for") : ""; }
const std::string& waited_by(const Step& step) { return step.wait_for; }

void rename(Json& step, const std::vector<std::string>& names, const std::string& suffix) {
  for (const char* key : {"name", "for"}) {
    const Json* written = step.find(key);
    if (written == nullptr || !written->is_string()) continue;
    std::string name = written->text();
    add_suffix(name, names, suffix);
    step.set(key, Json::string(name, written->place()));
  }
}
void rename(Step& step, const std::vector<std::string>& names, const std::string& suffix) {
  for (std::string* name : {&step.name, &step.wait_for}) add_suffix(*name, names, suffix);
}

Json with_condition(const Json& step, const std::string& condition, const Place& place) {
  const Json* own = step.find("when");
  std::string joined = condition;
  if (own != nullptr && own->is_string()) joined = fmt::format("{} and ({})", condition, own->text());
  if (own != nullptr && own->is_boolean() && !own->as_boolean()) return step;
  Json changed = step;
  changed.set("when", Json::string(joined, place));
  return changed;
}
Step with_condition(const Step& step, const std::string& condition, const Place& place) {
  Step changed = step, with;
  const bool is_constant = step.when && !step.when->was_parsed();  // true or false
  if (is_constant && step.when->text() == "false") return step;
  with.when = Expression::parse(step.when && !is_constant ? fmt::format("{} and ({})", condition, step.when->text())
                                                          : condition);
  set_key(changed, "when", with);
  changed.places.own().when = place;
  return changed;
}

StepNode<Json> node_of(const Json& step) {
  const Json* body = step.find("steps");
  if (body == nullptr || !body->is_array()) return {step, false, {}, {}, ""};
  StepNode<Json> node{step, true, body->place(), nodes_of(body->items()), ""};
  node.step.remove("steps");
  return node;
}
StepNode<Step> node_of(const Step& step) {
  StepNode<Step> node{step, step.op == Op::each, {}, nodes_of(step.steps), ""};
  node.step.steps.clear();
  return node;
}

void set_body(Json& step, std::vector<Json> body, const Place& place) {
  step.set("steps", Json::array(std::move(body), place));
}
void set_body(Step& step, std::vector<Step> body, const Place& /*place*/) { step.steps = std::move(body); }

}  // namespace lockstep::scenario
