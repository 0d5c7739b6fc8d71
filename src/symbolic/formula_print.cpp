// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "src/base/budget.h"
#include "src/symbolic/formula_items.h"

namespace lockstep {
namespace {

using formula::Item;
using formula::Names;

std::string name_of_item(Names& names, const Item& item) {
  std::string text;
  if (!item.leftover.empty()) {
    text = formula::quoted_unless_plain(item.leftover);
    if (item.rank >= 0) text += "." + std::to_string(item.rank);
  } else {
    text = "g";
    if (item.axes.empty() || item.base_named) text += std::to_string(item.rank);
    if (item.micro_batch >= 0) text += "." + std::to_string(item.micro_batch);
    if (!item.use.empty()) text += "." + formula::quoted_unless_plain(item.use);
  }
  if (item.site >= 0) {
    // In a sum the piece is the one that the rank which stands for the fixed coordinates has.
    const int source = item.axes.empty() || item.base_named ? item.rank : names.rank();
    text += names.bracket(item.frame, item.site, source);
  }
  if (item.axes.empty()) return text;
  text = "sum(" + text;
  for (const Axis axis : item.axes) text += ", " + std::string(name_of(axis));
  const Batch& batch = names.schedule().batch;
  const bool all_micro_batches = item.micro_batch < 0 && batch.micro_batches(names.own_step().value_or(0)) > 1;
  return text + (all_micro_batches ? ", micro_batch)" : ")");
}

/// "2*" for 2, "" for 1; signs apart.
std::string factor(const Rational& number) {
  const Rational absolute = number.is_negative() ? -number : number;
  return absolute.is_one() ? "" : absolute.to_string() + "*";
}

/// "g0 + 2*g1 - g2".
std::string spaced_sum(Names& names, const std::vector<Item>& items) {
  std::string text;
  for (const Item& item : items) {
    const Rational numerator = item.coefficient.numerator();
    if (text.empty()) {
      text += numerator.is_negative() ? "-" : "";
    } else {
      text += numerator.is_negative() ? " - " : " + ";
    }
    text += factor(numerator) + name_of_item(names, item);
  }
  return text;
}

/// Summands with one denominator; begins with "-" where the whole is subtracted.
std::string with_denominator(Names& names, const Rational& denominator, const std::vector<Item>& items) {
  const Rational first = items.front().coefficient.numerator();
  const bool all_equal =
      std::all_of(items.begin(), items.end(), [&](const Item& i) { return i.coefficient.numerator() == first; });
  const bool all_one = all_equal && factor(first).empty();
  const std::string divisor = denominator.is_one() ? "" : "/" + denominator.to_string();
  const std::string sign = first.is_negative() ? "-" : "";
  if (items.size() == 1) return sign + factor(first) + name_of_item(names, items.front()) + divisor;
  if (denominator.is_one() && (all_one || !all_equal)) return spaced_sum(names, items);
  if (!all_equal) return "(" + spaced_sum(names, items) + ")" + divisor;
  std::string inside;
  for (const Item& item : items) inside += (inside.empty() ? "" : "+") + name_of_item(names, item);
  return sign + factor(first) + "(" + inside + ")" + divisor;
}

void append_summand(std::string& text, const std::string& summand) {
  if (text.empty()) {
    text = summand;
  } else {
    text += summand[0] == '-' ? " - " + summand.substr(1) : " + " + summand;
  }
}

/// Terms that are multiplied by the same clipping factors, these left out.
std::string without_clips(Names& names, const std::vector<Term>& terms) {
  std::map<Rational, std::vector<Item>> by_denominator;
  for (Item& item : formula::fold_ranks(names, formula::collect_items(names, terms))) {
    by_denominator[item.coefficient.denominator()].push_back(std::move(item));
  }
  std::string text;
  for (const auto& [denominator, items] : by_denominator)
    append_summand(text, with_denominator(names, denominator, items));
  return text;
}

}  // namespace

std::string print_formula(const Schedule& schedule, int rank, int buffer, const std::vector<Term>& terms,
                          const std::vector<Term>& support) {
  Budget::spend(8 * static_cast<std::int64_t>(terms.size() + support.size()));
  Names names(schedule, rank, buffer, support);
  std::map<std::vector<ClipFactor>, std::vector<Term>> by_clips;
  for (const Term& term : terms) by_clips[term.clips].push_back(term);
  std::string text;
  for (const auto& [clips, clipped] : by_clips) {
    std::string summand = without_clips(names, clipped);
    if (summand.empty()) continue;
    for (const ClipFactor& factor : clips) summand = name_of(factor, names.own_step()) + "(" + summand + ")";
    append_summand(text, summand);
  }
  return text.empty() ? "0" : text;
}

}  // namespace lockstep
