// SPDX-License-Identifier: Apache-2.0
#include "src/scenario/expand.h"
#include "src/scenario/template.h"

namespace lockstep::scenario {

namespace {

/// Turns the steps of a framework file into plain ones.
class StepExpander {
 public:
  StepExpander(Template& values, std::map<std::string, std::string>& absent, Reading& reading)
      : values_(values), absent_(absent), reading_(reading) {}

  Json expand(const Json& steps) {
    std::vector<Json> list;
    for (const Json& written : steps.items()) {
      note_absent(written);
      const Json* chosen = values_.chosen(written);
      std::optional<Json> step = chosen != nullptr ? expand_step(*chosen) : std::nullopt;
      if (step) list.push_back(std::move(*step));
    }
    return Json::array(std::move(list), steps.place());
  }

  /// Names of the steps that are there.
  const std::vector<std::string>& present() const { return present_; }

 private:
  /// Steps count as switched off until they are found to be there.
  void note_absent(const Json& written, const std::string& around = "") {
    const auto reason = [&](const char* key) {
      const Json* condition = written.find(key);
      return condition == nullptr || !condition->is_string() ? around : "; it is there where " + condition->text();
    };
    if (written.find("if") != nullptr) {
      if (const Json* step = written.find("then")) note_absent(*step, reason("if"));
      if (const Json* step = written.find("else")) note_absent(*step, around);
    }
    const Json* name = written.find("name");
    if (name != nullptr && name->is_string())
      absent_.emplace(name->text(), "the options switched it off" + reason("when"));
    if (const Json* body = written.find("steps")) {
      for (const Json& step : body->items()) note_absent(step, reason("when"));
    }
  }

  std::optional<Json> expand_step(const Json& step) {
    if (!step.is_object()) return step;
    std::vector<Json::Member> members;
    // First of all: what a step that is left out would be is not asked.
    const Json when = condition_of(step);
    if (when.is_boolean() && !when.as_boolean()) return std::nullopt;
    for (const Json::Member& member : step.members()) {
      if (member.key == "when") {
        if (!when.is_boolean()) members.push_back({member.key, member.key_place, when});
      } else if (member.key == "steps") {
        const Json* body = values_.chosen(member.value);
        if (body != nullptr) members.push_back({member.key, member.key_place, expand(*body)});
      } else if (const std::optional<Json> value = values_.resolve(member.value)) {
        members.push_back({member.key, member.key_place, expand_value(Object::step, member.key, *value)});
      }
    }
    const Json* name = step.find("name");
    if (name != nullptr && name->is_string()) present_.push_back(name->text());
    return Json::object(std::move(members), step.place());
  }

  Json condition_of(const Json& step) {
    const Json* written = step.find("when");
    const std::optional<Json> when = written != nullptr ? values_.resolve(*written) : std::nullopt;
    if (!when) return Json::boolean(true);
    if (const std::optional<bool> known = known_truth(*when)) return Json::boolean(*known, when->place());
    return values_.substitute(*when);
  }

  /// Of a condition that the layout and the batch decide.
  std::optional<bool> known_truth(const Json& when) {
    if (!when.is_string() || !reading_.sizes_known()) return std::nullopt;
    const std::optional<Expression> condition = values_.plain(when);
    if (!condition) return std::nullopt;
    // The number of micro-batches is one example of many then.
    if (reading_.keep_sizes && condition->names().count("micro_batches") != 0) return std::nullopt;
    try {
      const auto value = condition->constant(file_environment(reading_));
      if (!value || !std::holds_alternative<bool>(*value)) return std::nullopt;
      values_.note_decided(*condition);
      return std::get<bool>(*value);
    } catch (const ExpressionError&) {
      return std::nullopt;  // the reader of the plain step reports it
    }
  }

  Json expand_value(Object object, const std::string& key, const Json& value) {
    const ObjectKey* row = find_key(object_row(object), key);
    if (row != nullptr && row->type == Type::expression) return values_.substitute(value);
    if (key == "geometry" && value.is_object()) {
      std::vector<Json::Member> members;
      for (const Json::Member& member : value.members()) {
        members.push_back({member.key, member.key_place, expand_value(Object::geometry, member.key, member.value)});
      }
      return Json::object(std::move(members), value.place());
    }
    // A step may be called like an option.
    return key == "name" || key == "op" || key == "for" ? value : replace_all(value);
  }

  Json replace_all(const Json& value) {
    if (value.is_string()) return values_.replace(value);
    if (value.is_array()) {
      std::vector<Json> items;
      for (const Json& item : value.items()) items.push_back(replace_all(item));
      return Json::array(std::move(items), value.place());
    }
    if (!value.is_object()) return value;
    std::vector<Json::Member> members;
    for (const Json::Member& member : value.members())
      members.push_back({member.key, member.key_place, replace_all(member.value)});
    return Json::object(std::move(members), value.place());
  }

  Template& values_;
  std::map<std::string, std::string>& absent_;
  Reading& reading_;
  std::vector<std::string> present_;
};

}  // namespace

Json without_idle_waits(const Json& steps, const std::map<std::string, std::string>& absent) {
  std::vector<Json> list;
  for (const Json& step : steps.items()) {
    const Json* waited = step.find("for");
    if (waited == nullptr || !waited->is_string() || absent.count(waited->text()) == 0) list.push_back(step);
  }
  return Json::array(std::move(list), steps.place());
}

Json expand_framework_steps(const Json& steps, Template& values, std::map<std::string, std::string>& absent,
                            Reading& reading) {
  StepExpander expander(values, absent, reading);
  Json plain = expander.expand(steps);
  for (const std::string& name : expander.present()) absent.erase(name);
  return without_idle_waits(plain, absent);
}

}  // namespace lockstep::scenario
