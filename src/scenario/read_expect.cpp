// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <charconv>

#include "src/scenario/reading.h"

namespace lockstep::scenario {

namespace {

std::optional<std::int64_t> read_digits(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty() || text[0] == '-') return std::nullopt;
  return value;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

/// "[40,115)".
std::optional<Interval> read_elements(std::string_view text) {
  const std::size_t comma = text.find(',');
  if (text.size() < 5 || text.front() != '[' || text.back() != ')' || comma == std::string_view::npos)
    return std::nullopt;
  const auto begin = read_digits(trimmed(text.substr(1, comma - 1)));
  const auto end = read_digits(trimmed(text.substr(comma + 1, text.size() - comma - 2)));
  if (!begin || !end || *begin >= *end) return std::nullopt;
  return Interval{*begin, *end};
}

void check_rank(std::int64_t rank, const Place& place, Reading& reading) {
  if (!reading.all_known() || rank < reading.mesh->world()) return;
  reading.diagnostics.add(place,
                          fmt::format("rank {} does not exist: the world size is {}", rank, reading.mesh->world()));
}

void read_formulas(const Json& formula, Expect& expect, Reading& reading) {
  for (const Json::Member& parameter : formula.members()) {
    for (const Json::Member& rank : parameter.value.members()) {
      const std::optional<std::int64_t> number = read_digits(rank.key);
      if (!number) {
        reading.diagnostics.add(key_place(rank), fmt::format("expected a rank such as \"0\", found \"{}\"", rank.key));
        continue;
      }
      check_rank(*number, key_place(rank), reading);
      if (rank.value.is_string()) {
        expect.formulas.push_back({parameter.key, rank.key, std::nullopt, rank.value.text(), rank.value.place()});
      }
      for (const Json::Member& piece : rank.value.members()) {
        const std::optional<Interval> elements = read_elements(piece.key);
        if (elements) {
          expect.formulas.push_back({parameter.key, rank.key, elements, piece.value.text(), piece.value.place()});
        } else {
          reading.diagnostics.add(key_place(piece),
                                  fmt::format("expected elements such as \"[40,115)\", found \"{}\"", piece.key));
        }
      }
    }
  }
}

}  // namespace

Expect read_expect(const Json& object, Reading& reading) {
  const Fields fields(object, Object::expect, "", "in \"expect\"", reading.diagnostics);
  Expect expect;
  expect.place = object.place();
  expect.verdict = fields.text("verdict");
  if (const Json* parameters = fields.find("parameters"))
    expect.parameters = read_selectors(*parameters, reading).items();
  if (const Json* ranks = fields.find("ranks")) {
    expect.ranks.emplace();
    for (const Json& item : ranks->items()) {
      const std::int64_t rank = *whole_number(item);
      check_rank(rank, item.place(), reading);
      expect.ranks->push_back(static_cast<int>(std::min<std::int64_t>(rank, 1 << 30)));
    }
  }
  if (const Json* formula = fields.find("formula")) read_formulas(*formula, expect, reading);
  if (const Json* ratio = fields.find("ratio")) expect.ratio = Rational::parse(ratio->text());
  if (fields.find("replicas_agree") != nullptr) expect.replicas_agree = fields.boolean("replicas_agree");
  if (const Json* norm = fields.find("norm")) {
    for (const Json::Member& member : norm->members()) {
      if (!member.value.is_boolean()) expect.norm[member.key] = member.value.text();
    }
  }
  if (const Json* factor = fields.find("norm_squared_factor"))
    expect.norm_squared_factor = Rational::parse(factor->text());
  if (const Json* step = fields.find("step")) {
    const std::int64_t number = *whole_number(*step);
    if (number >= reading.batch.steps()) {
      reading.diagnostics.add(
          step->place(), fmt::format("optimizer step {} does not exist: \"steps\" of the batch is {}, counted from 0",
                                     number, reading.batch.steps()));
    }
    expect.step = static_cast<int>(std::min<std::int64_t>(number, 1 << 30));
  }
  if (fields.find("stuck") != nullptr) expect.stuck = fields.texts("stuck");
  if (fields.find("blame") != nullptr) expect.blame = fields.texts("blame");
  return expect;
}

}  // namespace lockstep::scenario
