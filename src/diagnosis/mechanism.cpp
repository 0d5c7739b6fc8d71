// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/mechanism.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "lockstep/operation.h"
#include "src/diagnosis/formulas.h"
#include "src/diagnosis/other_tests.h"
#include "src/diagnosis/stale.h"
#include "src/diagnosis/step_list.h"

namespace lockstep {

namespace {

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

/// The size of the groups of an "over"; 0 where it cannot be told.
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
  const int ranks = ranks_over(schedule, over);
  return fmt::format("{} ({} rank{})", text_of_value(over), ranks, ranks == 1 ? "" : "s");
}

/// "1 / (dp * cp) = 1/4"
std::string factor_text(const Schedule& schedule, const std::string& expression) {
  try {
    Environment environment;
    environment.mesh = &schedule.mesh;
    const auto value = Expression::parse(expression).constant(environment);
    if (value && std::holds_alternative<Rational>(*value)) {
      const std::string number = std::get<Rational>(*value).to_string();
      if (number != expression) return fmt::format("{} = {}", expression, number);
    }
  } catch (const ExpressionError&) {
    // Tokens or micro-batches stand in it: as written.
  }
  return expression;
}

/// What a step does, after "nothing" or after its own name.
std::string deed_of(const Schedule& schedule, const Json& step) {
  const std::string op = text_of(step, "op");
  const Json* over = step.find("over");
  const bool average = text_of(step, "reduce") == "avg";
  const std::string of =
      step.find("params") == nullptr ? "" : fmt::format(" of {}", text_of_value(step.find("params")));
  if (op == "all_reduce" || op == "reduce" || op == "reduce_scatter")
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

/// "rank 1 gets g3 + (g0+g1)/2 of NAME where (g0+g1+g2+g3)/2 is right"
std::string numbers_of_first(const CheckResult& result) {
  if (!result.symbolic || result.verdict != Verdict::mismatch) return "";
  const Schedule& schedule = *result.scenario->schedule;
  Formulas formulas(schedule, *result.engine);
  const auto name = [&](int rank, int buffer) {
    const LocalBuffer& local = schedule.model.local(rank).buffers[static_cast<std::size_t>(buffer)];
    return schedule.model.parameters()[static_cast<std::size_t>(local.parameters.front())].name;
  };
  for (const BufferResult& buffer : result.symbolic->buffers) {
    for (const PieceResult& piece : buffer.pieces) {
      if (piece.right) continue;
      const std::string words =
          describe_difference(schedule, result.engine->terms(piece.form, buffer.rank, buffer.buffer),
                              result.engine->terms(piece.reference, buffer.rank, buffer.buffer));
      return fmt::format("rank {} gets {} of {} where {} is right{}", buffer.rank,
                         formulas.formula(piece.form, buffer.rank, buffer.buffer, result.step),
                         name(buffer.rank, buffer.buffer),
                         formulas.formula(piece.reference, buffer.rank, buffer.buffer, result.step),
                         words.empty() ? "" : fmt::format(" ({})", words));
    }
  }
  if (!result.symbolic->unowned.empty()) {
    const UnownedResult& unowned = result.symbolic->unowned.front();
    return fmt::format("nobody owns elements of {} that rank {} holds", name(unowned.rank, unowned.buffer),
                       unowned.rank);
  }
  if (result.symbolic->norm.empty()) return "";
  const NormResult& norm = result.symbolic->norm.front();
  return fmt::format("rank {} counts {} in the norm {} times instead of {}", norm.rank,
                     schedule.model.parameters()[static_cast<std::size_t>(norm.parameter)].name, norm.counted,
                     norm.expected);
}

/// Where a step goes, seen from where it stands.
std::string move_words(const std::vector<ListedStep>& steps, const Json& edit, const std::string& name) {
  const Json* before = edit.find("before");
  const std::string other = text_of(edit, before != nullptr ? "before" : "after");
  const auto at = [&](const std::string& wanted) {
    return std::find_if(steps.begin(), steps.end(), [&](const ListedStep& step) { return step.name == wanted; });
  };
  const bool later = at(other) > at(name);
  return fmt::format("comes too {}: it belongs {} {}", later ? "early" : "late", before != nullptr ? "before" : "after",
                     other);
}

std::string words_of(const CheckResult& result, const Candidate& candidate) {
  const Schedule& schedule = *result.scenario->schedule;
  const Json& edit = candidate.edit;
  const std::vector<ListedStep> steps = listed_steps(*result.scenario->resolved.find("schedule")->find("steps"));
  if (const Json* inserted = edit.find("insert")) {
    const char* where = edit.find("before") != nullptr ? "before" : "after";
    return fmt::format("is missing {} {}: nothing {}", where, text_of(edit, where), deed_of(schedule, *inserted));
  }
  const ListedStep* step = find_listed(steps, candidate.step);
  if (step == nullptr) return "is at fault";
  if (const Json* dropped = edit.find("drop")) {
    const std::string& target = dropped->text();
    if (target.ends_with(']'))
      return fmt::format("runs in micro-batch {} as well and should not", target.substr(target.find('[')));
    return fmt::format("is a step too many: it {}", deed_of(schedule, step->step));
  }
  if (edit.find("duplicate") != nullptr)
    return fmt::format("should be there twice: it {}", deed_of(schedule, step->step));
  if (edit.find("move") != nullptr) return move_words(steps, edit, candidate.step);
  const SetWords words(schedule, step->step);
  std::vector<std::string> parts;
  for (const Json::Member& member : edit.members()) {
    if (member.key != "set") parts.push_back(words.of(member));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace

std::string mechanism_of(const CheckResult& result, const Candidate& edit) {
  std::string text = words_of(result, edit);
  for (const Turn& turn : result.turns) {
    const std::string stale = stale_slices(result, turn);
    if (turn.point.step != edit.step || stale.empty()) continue;
    text = fmt::format("{}; {}", stale, text);
    break;
  }
  const std::string numbers = numbers_of_first(result);
  return numbers.empty() ? text : fmt::format("{}; {}", text, numbers);
}

std::vector<std::string> who_would_not_notice(const CheckResult& result) {
  std::vector<std::string> sentences;
  if (!result.symbolic || result.verdict != Verdict::mismatch) return sentences;
  const Model& model = result.scenario->schedule->model;
  std::vector<char> wrong(model.logicals().size());
  for (const int parameter : wrong_set(result).parameters)
    wrong[static_cast<std::size_t>(model.logical_of(parameter))] = 1;
  bool all = true;
  for (std::size_t logical = 0; logical < wrong.size(); ++logical)
    all = all && (wrong[logical] != 0 || model.logicals()[logical].frozen);
  const std::optional<Rational> ratio = overall_ratio(result);
  if (ratio && !ratio->is_one() && !ratio->is_zero()) {
    const std::string factor = ratio->to_string();
    sentences.push_back(
        all ? fmt::format("Every gradient is {} times the right one, and so is the gradient norm.", factor)
            : fmt::format("What is wrong is {} times the right gradient; the gradient norm changes by less.", factor));
    sentences.push_back(
        "Adam does not notice a factor that stays: its update does not depend on the size of the gradient.");
    if (all) sentences.push_back("Where the norm is clipped, the factor is gone after the clip.");
  }
  if (within_tolerance(result, Rational(8, 100)))
    sentences.push_back("A comparison with one device that accepts 8 % passes.");
  if (result.symbolic->norm_squared_factor)
    sentences.push_back(fmt::format("The square of the gradient norm is {} times the right one.",
                                    *result.symbolic->norm_squared_factor));
  return sentences;
}

}  // namespace lockstep
