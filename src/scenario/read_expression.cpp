// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "src/scenario/other_words.h"
#include "src/scenario/reading.h"

namespace lockstep::scenario {

namespace {

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

/// Where `word` stands by itself in `text`; 0 where it does not.
std::size_t find_word(const std::string& text, const std::string& word) {
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    if ((at == 0 || (!is_word(text[at - 1]) && text[at - 1] != '.')) && (end == text.size() || !is_word(text[end])))
      return at;
  }
  return 0;
}

std::vector<std::string> known_names(const ExpressionUse& use) {
  std::vector<std::string> names = axis_names();
  for (const char* name : {"world", "sequence_parallel", "pipeline_groups_agree", "instance_groups_agree",
                           "virtual_stages", "micro_batches", "steps", "step", "tokens", "rank"}) {
    names.emplace_back(name);
  }
  if (use.in_each) names.emplace_back("micro_batch");
  if (use.in_geometry) names.emplace_back("n");
  return names;
}

/// The expression that a JSON value is, unchecked. Throws ExpressionError.
Expression parse(const Json& value) {
  if (value.is_boolean()) return Expression(value.as_boolean());
  if (value.is_string()) return Expression::parse(value.text());
  const std::optional<Rational> number = Rational::parse(value.text());
  if (!number) throw ExpressionError(fmt::format("{} is too large or too small a number", value.text()), 0);
  return Expression(*number);
}

/// Names without a meaning and words outside `each`. False where one was found.
bool check_names(const Json& value, const Expression& expression, const ExpressionUse& use, Reading& reading) {
  if (!value.is_string()) return true;
  const std::string& text = value.text();
  const std::vector<std::string> known = known_names(use);
  bool good = true;
  for (const std::string& name : expression.names()) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    const std::string near = did_you_mean_here(name, known);
    reading.diagnostics.add(
        inside_string(value, find_word(text, name), name.size()),
        fmt::format("unknown name \"{}\" in an expression{}", name,
                    near.empty() ? "; there are numbers, axis sizes such as dp, world, micro_batches, "
                                   "steps, rank.AXIS and sum(tokens, AXES)"
                                 : near));
    good = false;
  }
  if (good && !use.in_each && expression.uses_micro_batch()) {
    const std::string word =
        find_word(text, "micro_batch") != 0 || text.rfind("micro_batch", 0) == 0 ? "micro_batch" : "tokens";
    reading.diagnostics.add(
        inside_string(value, find_word(text, word), word.size()),
        fmt::format("\"{}\" has a meaning only inside an \"each\"{}", word,
                    word == "tokens" ? "; outside it, write sum(tokens, dp, cp, sp, micro_batch)" : ""));
    good = false;
  }
  return good;
}

/// Whether the value that the expression has, as far as it is known now, is of the right type.
bool check_value(const Json& value, const Expression& expression, const ExpressionUse& use, Reading& reading) {
  std::optional<ExpressionValue> constant;
  if (use.in_geometry && expression.names().count("n") > 0) return true;
  try {
    constant = expression.constant(reading.environment());
  } catch (const ExpressionError& error) {
    // A division by zero is a mistake only where a rank evaluates it, which the walk finds out.
    return true;
  }
  if (!constant) return true;
  if (use.truth ? std::holds_alternative<bool>(*constant) : std::holds_alternative<Rational>(*constant)) return true;
  const std::string expected = use.truth ? "a condition" : "a number";
  if (!value.is_string()) {
    reading.diagnostics.add(value.place(), fmt::format("expected {}, found {}", expected, value.describe()));
    return false;
  }
  const std::string found = std::holds_alternative<bool>(*constant)       ? "a condition"
                            : std::holds_alternative<Rational>(*constant) ? "a number"
                                                                          : "a string";
  reading.diagnostics.add(value.place(), fmt::format("expected {}, but {} is {}", expected, value.describe(), found));
  return false;
}

}  // namespace

Place inside_string(const Json& value, std::size_t offset, std::size_t length) {
  Place place = value.place();
  const std::size_t written = place.end - place.begin;
  if (!place.source || !value.is_string() || written != value.text().size() + 2) return place;
  place.begin = std::min(place.begin + 1 + offset, place.end - 1);
  place.end = std::min(place.begin + length, place.end);
  return place;
}

Environment Reading::environment() const {
  Environment environment;
  environment.mesh = mesh.get();
  environment.counts = &batch;
  return environment;
}

std::optional<Expression> read_expression(const Json& value, const ExpressionUse& use, Reading& reading) {
  try {
    const Expression expression = parse(value);
    if (!check_names(value, expression, use, reading) || !check_value(value, expression, use, reading))
      return std::nullopt;
    return expression;
  } catch (const ExpressionError& error) {
    reading.diagnostics.add(inside_string(value, error.offset, error.length), error.what());
    return std::nullopt;
  }
}

}  // namespace lockstep::scenario
