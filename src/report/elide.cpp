// SPDX-License-Identifier: Apache-2.0
#include "src/report/elide.h"

#include <fmt/format.h>

#include <algorithm>

#include "src/report/style.h"

namespace lockstep {

namespace {

bool is_sign(const std::string& formula, std::size_t at) {
  if (formula[at] != '+' && formula[at] != '-') return false;
  // Not the sign of the first term, whether of the formula or of a bracket.
  return at > 0 && formula[at - 1] != '(' && !(at > 1 && formula[at - 1] == ' ' && formula[at - 2] == '(');
}

}  // namespace

std::string elided(const std::string& formula, std::size_t most) {
  if (formula.size() <= most || text_width(formula) <= most) return formula;
  std::size_t terms = 1;
  for (std::size_t at = 0; at < formula.size(); ++at) terms += is_sign(formula, at) ? 1 : 0;
  const std::string ending = fmt::format(" … ({} term{})", terms, terms == 1 ? "" : "s");
  const std::size_t room = most - std::min(most, text_width(ending));
  std::size_t cut = 0, boundary = 0;
  for (std::size_t width = 0; cut < formula.size(); ++cut) {
    if (is_sign(formula, cut)) boundary = cut;
    const bool begins_character = (static_cast<unsigned char>(formula[cut]) & 0xC0U) != 0x80U;
    if (begins_character && width++ == room) break;
  }
  std::string kept = formula.substr(0, boundary > 0 ? boundary : cut);
  while (!kept.empty() && kept.back() == ' ') kept.pop_back();
  return kept + ending;
}

}  // namespace lockstep
