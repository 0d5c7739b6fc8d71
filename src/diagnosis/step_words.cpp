// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/step_words.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lockstep/operation.h"
#include "src/base/counted.h"
#include "src/scenario/step_keys.h"

namespace lockstep::diagnosis {

namespace {

std::string text_of_value(const Json& value) {
  if (value.is_null()) return "";
  if (value.is_string() || value.is_number()) return value.text();
  if (value.is_boolean()) return value.as_boolean() ? "true" : "false";
  std::vector<std::string> parts;
  for (const Json& item : value.items()) parts.push_back(text_of_value(item));
  for (const Json::Member& member : value.members())
    parts.push_back(fmt::format("{} {}", member.key, text_of_value(member.value)));
  return fmt::format("{}", fmt::join(parts, value.is_array() && !parts.empty() ? ", " : " "));
}

/// Words for one key that an edit sets.
class SetWords {
 public:
  SetWords(const Schedule& schedule, const Step& step, const Edit& edit)
      : schedule_(schedule), step_(step), edit_(edit) {}

  std::string of(std::string_view key) const {
    const std::string before = words_of_key(step_, key), after = words_of_key(edit_.values, key);
    if (key == "by")
      return fmt::format("multiplies by {} where {} is right", factor_text(schedule_, step_.by),
                         factor_text(schedule_, edit_.values.by));
    if (key == "reduce") {
      const std::string group = group_text(schedule_, step_);
      return after == "avg" ? fmt::format("sums over {} what should be averaged", group)
                            : fmt::format("averages over {} what should be summed", group);
    }
    if (key == "over")
      return fmt::format("runs over {} and should run over {}", group_text(schedule_, step_),
                         group_text(schedule_, edit_.values));
    if (key == "op")
      return fmt::format("is {} {} and should be {} {}{}", article(before), before, article(after), after, how());
    if (key == "params") return fmt::format("acts on {} and should act on {}", all(before), all(after));
    if (key == "uses")
      return fmt::format("takes the uses {} and should take {}", before.empty() ? "all" : before,
                         after.empty() ? "all" : after);
    if (key == "buffer" || key == "from" || key == "to")
      return fmt::format("has \"{}\": {} and should have {}", key, before.empty() ? "grad" : before,
                         after.empty() ? "grad" : after);
    if (key.starts_with("geometry")) return "cuts the gradients in other places than the steps that use its slices";
    if (key == "when" || key == "only") {
      if (after.empty()) return fmt::format("runs only where {} and should run everywhere", before);
      return before.empty() ? fmt::format("runs everywhere and should run only where {}", after)
                            : fmt::format("runs where {} and should run where {}", before, after);
    }
    if (key == "async")
      return after == "true" ? "should be asynchronous" : "is still in flight when its buffers are touched";
    if (after.empty()) return fmt::format("should have no \"{}\"", key);
    return before.empty() ? fmt::format("should have \"{}\": {}", key, after)
                          : fmt::format("has \"{}\": {} and should have {}", key, before, after);
  }

 private:
  static std::string all(const std::string& words) { return words.empty() ? "all parameters" : words; }
  /// Of what becomes another op, what that did not have before.
  std::string how() const {
    std::string text;
    for (const char* key : {"from", "to", "over", "by"}) {
      if (!edit_.changes(key) || scenario::says(step_, key) || !scenario::says(edit_.values, key)) continue;
      text += fmt::format(" {} {}", key,
                          std::string_view(key) == "over" ? group_text(schedule_, edit_.values)
                          : std::string_view(key) == "by" ? factor_text(schedule_, edit_.values.by)
                                                          : words_of_key(edit_.values, key));
    }
    return text;
  }
  static const char* article(const std::string& word) {
    return !word.empty() && std::string_view("aeiou").find(word.front()) != std::string_view::npos ? "an" : "a";
  }

  const Schedule& schedule_;
  const Step& step_;
  const Edit& edit_;
};

}  // namespace

std::string words_of_key(const Step& step, std::string_view key) {
  return scenario::says(step, key) ? text_of_value(scenario::step_key(key).write(step)) : "";
}

int ranks_over(const Schedule& schedule, const std::optional<Over>& over) {
  if (!over) return 0;
  int size = 1;
  for (const Over::Pick& pick : over->picks)
    size *= !pick.coordinates      ? schedule.mesh.size(pick.axis)
            : pick.written.empty() ? static_cast<int>(pick.coordinates->size())
                                   : static_cast<int>(pick.written.size());
  return size;
}

std::string group_text(const Schedule& schedule, const Step& step) {
  if (!step.over) return "no axis";
  return fmt::format("{} ({})", words_of_key(step, "over"), counted(ranks_over(schedule, step.over), "rank"));
}

std::optional<Rational> constant_of(const Schedule& schedule, const Expression& expression) {
  try {
    Environment environment;
    environment.mesh = &schedule.mesh;
    const auto value = expression.constant(environment);
    if (value && std::holds_alternative<Rational>(*value)) return std::get<Rational>(*value);
  } catch (const ExpressionError&) {
    // Tokens or micro-batches stand in it.
  }
  return std::nullopt;
}

std::string factor_text(const Schedule& schedule, const std::optional<Expression>& expression) {
  if (!expression) return "1";
  const std::optional<Rational> value = constant_of(schedule, *expression);
  if (!value || value->to_string() == expression->text()) return expression->text();
  return fmt::format("{} = {}", expression->text(), value->to_string());
}

std::string deed_of(const Schedule& schedule, const Step& step) {
  const auto of = [&](std::string_view key, const char* words) {
    return scenario::says(step, key) ? words + words_of_key(step, key) : "";
  };
  return fmt::format(fmt::runtime(operation(step.op).deed),
                     fmt::arg("sums", step.reduction == Reduction::average ? "averages" : "sums"),
                     fmt::arg("of", of("params", " of ")), fmt::arg("of_uses", of("uses", " of the use ")),
                     fmt::arg("group", group_text(schedule, step)), fmt::arg("by", factor_text(schedule, step.by)),
                     fmt::arg("from", step.from), fmt::arg("to", step.buffer), fmt::arg("for", step.wait_for));
}

std::string words_for_key(const Schedule& schedule, const Step& step, const Edit& edit, std::string_view key) {
  return SetWords(schedule, step, edit).of(key);
}

}  // namespace lockstep::diagnosis
