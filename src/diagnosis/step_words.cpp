// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/step_words.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>

#include "src/base/counted.h"
#include "src/diagnosis/step_list.h"

namespace lockstep {

std::string text_of_value(const Json* value) {
  if (value == nullptr || value->is_null()) return "";
  if (value->is_string() || value->is_number()) return value->text();
  if (value->is_boolean()) return value->as_boolean() ? "true" : "false";
  std::vector<std::string> parts;
  for (const Json& item : value->items()) parts.push_back(text_of_value(&item));
  for (const Json::Member& member : value->members())
    parts.push_back(fmt::format("{} {}", member.key, text_of_value(&member.value)));
  return fmt::format("{}", fmt::join(parts, value->is_array() && !parts.empty() ? ", " : " "));
}

int ranks_over(const Schedule& schedule, const Json* over) {
  if (over == nullptr) return 0;
  int size = 1;
  const auto axis_size = [&](const std::string& name) {
    const std::optional<Axis> axis = axis_named(name);
    return axis ? schedule.mesh.size(*axis) : 1;
  };
  if (over->is_string()) return axis_size(over->text());
  for (const Json& item : over->items()) size *= axis_size(item.text());
  for (const Json::Member& member : over->members())
    size *= member.value.is_array() ? static_cast<int>(member.value.items().size()) : axis_size(member.key);
  return size;
}

std::string group_text(const Schedule& schedule, const Json* over) {
  return fmt::format("{} ({})", text_of_value(over), counted(ranks_over(schedule, over), "rank"));
}

std::optional<Rational> constant_of(const Schedule& schedule, const std::string& expression) {
  try {
    Environment environment;
    environment.mesh = &schedule.mesh;
    const auto value = Expression::parse(expression).constant(environment);
    if (value && std::holds_alternative<Rational>(*value)) return std::get<Rational>(*value);
  } catch (const ExpressionError&) {
    // Tokens or micro-batches stand in it.
  }
  return std::nullopt;
}

std::string factor_text(const Schedule& schedule, const std::string& expression) {
  const std::optional<Rational> value = constant_of(schedule, expression);
  if (!value || value->to_string() == expression) return expression;
  return fmt::format("{} = {}", expression, value->to_string());
}

std::string deed_of(const Schedule& schedule, const Json& step) {
  const std::string op = text_of(step, "op");
  const Json* over = step.find("over");
  const bool average = text_of(step, "reduce") == "avg";
  const std::string of =
      step.find("params") == nullptr ? "" : fmt::format(" of {}", text_of_value(step.find("params")));
  if (op == "all_reduce" || op == "reduce" || op == "reduce_scatter" || op == "reduce_scatter_v")
    return fmt::format("{} the gradients{} over {}", average ? "averages" : "sums", of, group_text(schedule, over));
  if (op == "all_gather" || op == "broadcast")
    return fmt::format("hands on the gradients{} over {}", of, group_text(schedule, over));
  if (op == "scale")
    return fmt::format("multiplies the gradients{} by {}", of, factor_text(schedule, text_of_value(step.find("by"))));
  if (op == "zero") return "clears the buffer";
  if (op == "backward")
    return fmt::format("adds the gradients{}",
                       step.find("uses") == nullptr ? "" : " of the use " + text_of_value(step.find("uses")));
  if (op == "norm") return fmt::format("counts the gradients{} in the norm", of);
  if (op == "wait") return fmt::format("waits for {}", text_of(step, "for"));
  if (op == "copy")
    return fmt::format("copies {} to {}", text_of(step, "from"),
                       step.find("to") == nullptr ? "grad" : text_of(step, "to"));
  if (op == "accumulate")
    return fmt::format("adds {} to {}", text_of(step, "from"),
                       step.find("to") == nullptr ? "grad" : text_of(step, "to"));
  return fmt::format("does this ({})", op);
}

namespace {

/// Words for one key that an edit sets.
class SetWords {
 public:
  SetWords(const Schedule& schedule, const Json& step) : schedule_(schedule), step_(step) {}

  std::string of(const Json::Member& member) const {
    const Json* old = step_.find(member.key);
    const Json& value = member.value;
    const std::string before = text_of_value(old), after = text_of_value(&value);
    if (member.key == "by")
      return fmt::format("multiplies by {} where {} is right", factor_text(schedule_, before.empty() ? "1" : before),
                         factor_text(schedule_, after.empty() ? "1" : after));
    if (member.key == "reduce") {
      const std::string group = group_text(schedule_, step_.find("over"));
      return after == "avg" ? fmt::format("sums over {} what should be averaged", group)
                            : fmt::format("averages over {} what should be summed", group);
    }
    if (member.key == "over")
      return fmt::format("runs over {} and should over {}", group_text(schedule_, old), group_text(schedule_, &value));
    if (member.key == "op")
      return fmt::format("is {} {} and should be {} {}", article(before), before, article(after), after);
    if (member.key == "params")
      return fmt::format("acts on {} and should on {}", before.empty() ? "all parameters" : before,
                         after.empty() ? "all parameters" : after);
    if (member.key == "uses")
      return fmt::format("takes the uses {} and should take {}", before.empty() ? "all" : before,
                         after.empty() ? "all" : after);
    if (member.key == "buffer" || member.key == "from" || member.key == "to")
      return fmt::format("has the buffer {} as \"{}\" and should have {}", before.empty() ? "grad" : before, member.key,
                         after.empty() ? "grad" : after);
    if (member.key == "geometry") return "cuts the gradients otherwise than the steps that go with it";
    if (member.key == "when" || member.key == "only") {
      if (value.is_null()) return fmt::format("runs only where {}, and should everywhere", before);
      return before.empty() ? fmt::format("runs everywhere and should only where {}", after)
                            : fmt::format("runs where {} and should where {}", before, after);
    }
    if (member.key == "async")
      return after == "true" ? "should be asynchronous" : "is still in flight when its buffers are touched";
    if (value.is_null()) return fmt::format("should have no \"{}\"", member.key);
    return before.empty() ? fmt::format("should have \"{}\": {}", member.key, after)
                          : fmt::format("has {} as \"{}\" where {} is right", before, member.key, after);
  }

 private:
  static const char* article(const std::string& word) {
    return !word.empty() && std::string_view("aeiou").find(word.front()) != std::string_view::npos ? "an" : "a";
  }

  const Schedule& schedule_;
  const Json& step_;
};

}  // namespace

std::string words_for_key(const Schedule& schedule, const Json& step, const Json::Member& set) {
  return SetWords(schedule, step).of(set);
}

}  // namespace lockstep
