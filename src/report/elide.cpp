// SPDX-License-Identifier: Apache-2.0
#include "src/report/elide.h"

#include <fmt/format.h>

#include <algorithm>

#include "src/base/counted.h"
#include "src/report/style.h"

namespace lockstep::report {

namespace {

bool is_sign(const std::string& formula, std::size_t at) {
  if (formula[at] != '+' && formula[at] != '-') return false;
  // Not the sign of the first term, whether of the formula or of a bracket.
  return at > 0 && formula[at - 1] != '(' && !(at > 1 && formula[at - 1] == ' ' && formula[at - 2] == '(');
}

/// `formula` cut after a term within `room` columns, with what closes the brackets that are open there:
/// "(g0+g1+…)/2".
std::string cut_to(const std::string& formula, std::size_t room) {
  std::size_t cut = 0, boundary = 0;
  for (std::size_t width = 0; cut < formula.size(); ++cut) {
    if (is_sign(formula, cut)) boundary = cut;
    const bool begins_character = (static_cast<unsigned char>(formula[cut]) & 0xC0U) != 0x80U;
    if (begins_character && width++ == room) break;
  }
  std::string kept = formula.substr(0, boundary > 0 ? boundary : cut);
  int depth = 0;
  for (const char c : kept) depth += c == '(' ? 1 : c == ')' ? -1 : 0;
  while (!kept.empty() && kept.back() == ' ') kept.pop_back();
  if (depth == 0) return kept + " …";
  std::string tail(static_cast<std::size_t>(depth - 1), ')');
  std::size_t at = kept.size();
  for (; at < formula.size() && depth > 0; ++at) depth += formula[at] == '(' ? 1 : formula[at] == ')' ? -1 : 0;
  const std::size_t close = at - 1;
  while (at < formula.size() && !is_sign(formula, at) && formula[at] != ' ') ++at;
  tail += formula.substr(close, at - close);
  return kept + "+…" + tail + (at < formula.size() ? " …" : "");
}

}  // namespace

std::string elided(const std::string& formula, std::size_t most) {
  if (formula.size() <= most || text_width(formula) <= most) return formula;
  std::size_t terms = 1;
  for (std::size_t at = 0; at < formula.size(); ++at) terms += is_sign(formula, at) ? 1 : 0;
  const std::string ending = " (" + counted(terms, "term") + ")";
  // What closes the brackets is known once it is cut, and takes room itself.
  std::size_t room = most - std::min(most, text_width(ending) + 2);
  std::string text = cut_to(formula, room) + ending;
  while (room > 0 && text_width(text) > most) text = cut_to(formula, --room) + ending;
  return text;
}

}  // namespace lockstep::report
