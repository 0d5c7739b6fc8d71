// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "src/base/budget.h"
#include "src/base/counted.h"
#include "src/scenario/reading.h"

namespace lockstep::scenario {

namespace {

constexpr std::int64_t count_limit = 1 << 20;
constexpr std::int64_t step_limit = 256;  // what goes wrong does so in the first few

/// Whether all micro-batches together are as few as engines can number.
bool check_total(const std::vector<std::int64_t>& counts, const Place& place, Reading& reading) {
  std::int64_t total = 0;
  for (const std::int64_t count : counts) {
    total = count > count_limit ? count_limit + 1 : total + count;
    if (total <= count_limit) continue;
    reading.diagnostics.add(
        place, fmt::format("expected at most {} micro-batches in all optimizer steps together; a few show every fault",
                           count_limit));
    return false;
  }
  return true;
}

void read_counts(const Fields& fields, const Json& object, Reading& reading) {
  const std::int64_t steps = fields.integer("steps", 1);
  const Json* value = fields.find("micro_batches");
  if (steps > step_limit) {
    reading.diagnostics.add(
        fields.find("steps")->place(),
        fmt::format(
            "expected at most {} optimizer steps, found {}; what goes wrong from one step to the next shows in 2 or 3",
            step_limit, steps));
    return;
  }
  std::vector<std::int64_t> counts;
  reading.any_micro_batches = value != nullptr && value->is_string();
  if (value == nullptr || !value->is_array()) {
    counts.assign(static_cast<std::size_t>(steps), value == nullptr ? 2 : whole_number(*value).value_or(2));
  } else {
    for (const Json& item : value->items()) counts.push_back(whole_number(item).value_or(1));
    if (counts.size() != static_cast<std::size_t>(steps)) {
      reading.diagnostics.add(
          value->place(), fmt::format("\"micro_batches\" has {} counts, but \"steps\" is {}: expected one count for "
                                      "each optimizer step",
                                      counts.size(), steps));
    }
  }
  if (!check_total(counts, value != nullptr ? value->place() : object.place(), reading)) return;
  reading.batch.micro_batch_counts.assign(counts.begin(), counts.end());
}

std::string entries(std::size_t count) { return counted(count, "entry"); }

/// Checks one level of a token list: `expected` entries, one for each `what`.
bool check_length(const Json& list, std::size_t expected, const std::string& at, std::string_view what,
                  Reading& reading) {
  if (!list.is_array()) {
    reading.diagnostics.add(list.place(), fmt::format("tokens{}: expected a list with an entry for each {}, found {}; "
                                                      "the counts stand as [micro-batch][dp][cp][sp]",
                                                      at, what, list.describe()));
    return false;
  }
  if (list.items().size() == expected) return true;
  reading.diagnostics.add(list.place(), fmt::format("tokens{} has {}, expected {}: one for each {}", at,
                                                    entries(list.items().size()), expected, what));
  return false;
}

std::optional<std::int64_t> read_token_count(const Json& value, const std::string& at, Reading& reading) {
  constexpr std::int64_t limit = std::int64_t{1} << 40;
  const std::optional<std::int64_t> count = whole_number(value);
  if (count && *count >= 0 && *count <= limit) return count;
  reading.diagnostics.add(
      value.place(), fmt::format("tokens{}: expected an integer from 0 to {}, found {}", at, limit, value.describe()));
  return std::nullopt;
}

/// [dp][cp][sp] of one micro-batch.
std::vector<std::vector<std::vector<std::int64_t>>> read_micro_batch(const Json& value, const std::string& at,
                                                                     Reading& reading) {
  const auto size = [&](Axis axis) { return static_cast<std::size_t>(reading.mesh->size(axis)); };
  std::vector<std::vector<std::vector<std::int64_t>>> counts;
  if (!check_length(value, size(Axis::dp), at, "dp rank", reading)) return counts;
  for (std::size_t d = 0; d < value.items().size(); ++d) {
    const Json& of_dp = value.items()[d];
    const std::string at_dp = fmt::format("{}[{}]", at, d);
    auto& counts_of_dp = counts.emplace_back();
    if (!check_length(of_dp, size(Axis::cp), at_dp, "cp rank", reading)) continue;
    for (std::size_t c = 0; c < of_dp.items().size(); ++c) {
      const Json& of_cp = of_dp.items()[c];
      const std::string at_cp = fmt::format("{}[{}]", at_dp, c);
      auto& counts_of_cp = counts_of_dp.emplace_back();
      if (!check_length(of_cp, size(Axis::sp), at_cp, "sp rank", reading)) continue;
      for (std::size_t s = 0; s < of_cp.items().size(); ++s) {
        const auto count = read_token_count(of_cp.items()[s], fmt::format("{}[{}]", at_cp, s), reading);
        counts_of_cp.push_back(count.value_or(1));
      }
    }
  }
  return counts;
}

Batch::Tokens read_token_list(const Json& value, Reading& reading) {
  Batch::Tokens tokens;
  if (value.is_string()) {
    if (check_type(value, Type::one_of, "uneven even", reading.diagnostics)) {
      tokens.kind = value.text() == "even" ? Batch::Tokens::Kind::even : Batch::Tokens::Kind::uneven;
    }
    return tokens;
  }
  if (reading.any_micro_batches) {
    reading.diagnostics.add(value.place(),
                            "a list of tokens has an entry for each micro-batch, and \"micro_batches\" is \"any\": "
                            "expected \"uneven\" or \"even\", or a number of micro-batches");
    return tokens;
  }
  // Without sizes there is nothing to hold the list against.
  if (!reading.size_known(Axis::dp) || !reading.size_known(Axis::cp) || !reading.size_known(Axis::sp)) return tokens;
  const std::size_t before = reading.diagnostics.size();
  const std::size_t all = static_cast<std::size_t>(reading.batch.total_micro_batches()), found = value.items().size();
  const auto& counts = reading.batch.micro_batch_counts;
  const bool equal = std::equal(counts.begin() + 1, counts.end(), counts.begin());
  const bool one_step = equal && found == static_cast<std::size_t>(counts[0]);
  if (found != all && !one_step) {
    reading.diagnostics.add(value.place(),
                            fmt::format("tokens has {}, expected {}: one for each micro-batch{}", entries(found), all,
                                        equal && counts.size() > 1
                                            ? fmt::format(" of all optimizer steps, or {} for those of one", counts[0])
                                            : std::string()));
    return tokens;
  }
  TokenTable::Lists list;
  bool any_token = false;
  for (std::size_t m = 0; m < found; ++m) {
    list.push_back(read_micro_batch(value.items()[m], fmt::format("[{}]", m), reading));
    for (const auto& of_dp : list.back()) {
      for (const auto& of_cp : of_dp)
        any_token |= std::any_of(of_cp.begin(), of_cp.end(), [](std::int64_t n) { return n > 0; });
    }
  }
  if (reading.diagnostics.size() != before) return tokens;
  if (!any_token) {
    reading.diagnostics.add(value.place(), "all token counts are 0: expected at least one token");
    return tokens;
  }
  tokens.kind = Batch::Tokens::Kind::list;
  tokens.list = TokenTable(list);
  return tokens;
}

/// The name of local_mean in files from before captures had the same names.
constexpr std::string_view old_local_mean = "piece_mean";

std::optional<Loss> read_loss(const Json& value, Reading& reading) {
  static constexpr std::pair<std::string_view, Loss::Kind> kinds[] = {
      {"token_mean", Loss::Kind::token_mean},
      {"micro_batch_mean", Loss::Kind::micro_batch_mean},
      {"local_mean", Loss::Kind::local_mean},
      {"sum", Loss::Kind::sum}};
  Loss loss;
  if (value.is_object()) {
    const Json* weight = value.find("weight");
    if (weight == nullptr || value.members().size() != 1) {
      reading.diagnostics.add(
          value.place(), fmt::format("expected {}, found {}", type_row(Type::loss_item).expected, value.describe()));
      return std::nullopt;
    }
    if (!check_type(*weight, Type::expression, "", reading.diagnostics)) return std::nullopt;
    const std::optional<Expression> expression = read_expression(*weight, {.in_each = true}, reading);
    if (!expression) return std::nullopt;
    loss.kind = Loss::Kind::weight;
    loss.weight = *expression;
    loss.place = weight->place();
    return loss;
  }
  if (value.is_string() && value.text() == old_local_mean) {
    loss.kind = Loss::Kind::local_mean;
    return loss;
  }
  if (!check_type(value, Type::one_of, "token_mean micro_batch_mean local_mean sum", reading.diagnostics))
    return std::nullopt;
  for (const auto& [name, kind] : kinds) {
    if (name == value.text()) loss.kind = kind;
  }
  return loss;
}

}  // namespace

void read_batch(const Json& object, Reading& reading) {
  const Fields fields(object, Object::batch, "", "in \"batch\"", reading.diagnostics);
  reading.batch = Batch();
  read_counts(fields, object, reading);
  if (const Json* tokens = fields.find("tokens")) {
    if (tokens->is_object()) {
      for (const Json::Member& member : tokens->members()) {
        reading.batch.tokens_of_use[member.key] = read_token_list(member.value, reading);
      }
    } else {
      reading.batch.tokens_of_use["main"] = read_token_list(*tokens, reading);
    }
  }
  if (const Json* loss = fields.find("loss")) {
    const bool by_use = loss->is_object() && loss->find("weight") == nullptr;
    const std::vector<Json::Member> members = by_use ? loss->members() : std::vector<Json::Member>{{"main", {}, *loss}};
    for (const Json::Member& member : members) {
      if (!check_type(member.value, Type::loss_item, "", reading.diagnostics)) continue;
      if (const std::optional<Loss> read = read_loss(member.value, reading))
        reading.batch.loss_of_use[member.key] = *read;
    }
  }
  if (const Json* weights = fields.find("weight")) {
    for (const Json::Member& member : weights->members()) {
      reading.batch.weight_of_use[member.key] = *Rational::parse(member.value.text());
    }
  }
}

namespace {

/// Whether the batch lists counts of this name.
bool is_counted(const std::string& name, const Reading& reading) {
  const auto found = reading.batch.tokens_of_use.find(name);
  return found != reading.batch.tokens_of_use.end() && found->second.kind == Batch::Tokens::Kind::list;
}

/// Each NAME of `tokens.NAME` in an expression, and where it begins.
template <class Found>
void each_tokens_name(const std::string& text, const Found& found) {
  constexpr std::string_view word = "tokens.";
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    const std::size_t begin = at + word.size();
    std::size_t end = begin;
    while (end < text.size() && (std::isalnum(static_cast<unsigned char>(text[end])) != 0 || text[end] == '_')) ++end;
    found(text.substr(begin, end - begin), begin);
  }
}

}  // namespace

void check_use(const std::string& use, const Place& place, Reading& reading) {
  if (!reading.parameters_known || reading.uses.count(use) > 0) return;
  const std::vector<std::string> known(reading.uses.begin(), reading.uses.end());
  const std::string near = did_you_mean(use, known);
  reading.diagnostics.add(place, fmt::format("no parameter has the use \"{}\"{}", use,
                                             near.empty() ? "; the uses are " + quoted_alternatives(known) : near));
}

void check_tokens_of_uses(const Json& value, Reading& reading) {
  each_tokens_name(value.text(), [&](const std::string& name, std::size_t begin) {
    if (is_counted(name, reading)) {
      reading.counted.insert(name);
    } else {
      check_use(name, inside_string(value, begin, name.size()), reading);
    }
  });
}

void note_counts_before_edits(const Json& steps, Reading& reading) {
  if (steps.is_string()) {
    each_tokens_name(steps.text(), [&](const std::string& name, std::size_t) {
      if (is_counted(name, reading)) reading.counted_before_edits.insert(name);
    });
  }
  if (steps.is_array()) {
    for (const Json& item : steps.items()) note_counts_before_edits(item, reading);
  }
  if (steps.is_object()) {
    for (const Json::Member& member : steps.members()) note_counts_before_edits(member.value, reading);
  }
}

void check_uses(const Json& batch, Reading& reading) {
  for (const char* key : {"tokens", "loss", "weight"}) {
    const Json* value = batch.find(key);
    // {"weight": EXPR} is a loss for all uses.
    if (value == nullptr || (key == std::string_view("loss") && value->find("weight") != nullptr)) continue;
    for (const Json::Member& member : value->members()) {
      // What the uses without an entry of their own take.
      if (member.key == "main" || (key == std::string_view("tokens") && is_counted(member.key, reading))) continue;
      check_use(member.key, key_place(member), reading);
    }
  }
  const Json* loss = batch.find("loss");
  const auto check_weight = [&](const Json& of) {
    const Json* weight = of.is_object() ? of.find("weight") : nullptr;
    if (weight != nullptr && weight->is_string()) check_tokens_of_uses(*weight, reading);
  };
  if (loss == nullptr || !loss->is_object()) return;
  check_weight(*loss);
  for (const Json::Member& member : loss->members()) check_weight(member.value);
}

void check_counts(const Json& batch, Reading& reading) {
  const Json* tokens = batch.find("tokens");
  if (tokens == nullptr || !reading.parameters_known) return;
  for (const Json::Member& member : tokens->members()) {
    if (is_counted(member.key, reading) && member.key != "main" && !reading.counted.contains(member.key) &&
        !reading.counted_before_edits.contains(member.key))
      check_use(member.key, key_place(member), reading);
  }
}

namespace {

/// The batch with its losses by their names of today.
Json with_names_of_today(const Json& batch) {
  const Json* loss = batch.find("loss");
  const auto is_old = [](const Json& one) { return one.is_string() && one.text() == old_local_mean; };
  if (loss == nullptr) return batch;
  Json result = batch;
  if (is_old(*loss)) result.set("loss", Json::string("local_mean"));
  Json by_use = *loss;
  for (const Json::Member& member : loss->members()) {
    if (is_old(member.value)) by_use.set(member.key, Json::string("local_mean"));
  }
  if (loss->is_object()) result.set("loss", by_use);
  return result;
}

}  // namespace

Json batch_after_edits(const Json& written, const Reading& reading) {
  const Json batch = with_names_of_today(written);
  const Json* tokens = batch.find("tokens");
  if (tokens == nullptr || !tokens->is_object()) return batch;
  Json left = *tokens;
  for (const std::string& name : reading.counted_before_edits) {
    if (name != "main" && !reading.counted.contains(name) && !reading.uses.contains(name)) left.remove(name);
  }
  Json result = batch;
  if (left.members().empty()) {
    result.remove("tokens");
  } else {
    result.set("tokens", left);
  }
  return result;
}

}  // namespace lockstep::scenario
