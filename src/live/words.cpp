// SPDX-License-Identifier: Apache-2.0
#include "src/live/words.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>

namespace lockstep::live {

std::string numbers_words(const std::vector<int>& numbers) {
  constexpr std::size_t most = 8;
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    if (parts.size() == most) {
      parts.push_back(fmt::format("{} more", numbers.size() - i));
      break;
    }
    if (end - i >= 3) {
      parts.push_back(fmt::format("{} to {}", numbers[i], numbers[end - 1]));
    } else {
      end = i + 1;
      parts.push_back(std::to_string(numbers[i]));
    }
    i = end;
  }
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i)
    text += (i == 0 ? "" : i + 1 == parts.size() ? " and " : ", ") + parts[i];
  return text;
}

std::string rank_words(const std::vector<int>& ranks) {
  return (ranks.size() == 1 ? "rank " : "ranks ") + numbers_words(ranks);
}

std::string site_of(const std::string& call) {
  std::string site = call.substr(0, call.find(" in "));
  return site.substr(site.rfind('/') == std::string::npos ? 0 : site.rfind('/') + 1);
}

std::vector<std::string> axes_of(const CapturedRun& run, const std::vector<int>& ranks) {
  std::vector<std::string> axes;
  for (std::size_t axis = 0; axis < run.header.axes.size(); ++axis) {
    std::set<int> coordinates;
    for (const int rank : ranks) {
      if (rank < run.header.world) coordinates.insert(run.coordinates(rank, std::uint32_t{1} << axis));
    }
    if (coordinates.size() > 1) axes.push_back(run.header.axes[axis]);
  }
  return axes;
}

std::string recorded_step(const CapturedRun& run, const CapturedCollective& call) {
  const std::string site = site_of(call.call);
  return fmt::format("{}_{}{}", fmt::join(axes_of(run, call.group), "_"), call.op, site.empty() ? "" : "/" + site);
}

std::string piece_words(const std::vector<Interval>& piece) {
  std::string text;
  for (const Interval& interval : piece)
    text += fmt::format("{}[{}, {})", text.empty() ? "" : " × ", interval.begin, interval.end);
  return text;
}

std::string percent(double part) {
  const double hundredths = 100 * part;
  return hundredths >= 10 ? fmt::format("{:.0f} %", hundredths) : fmt::format("{:.2g} %", hundredths);
}

namespace {

/// All columns that entered have the property, and some that did not lack it.
template <class Property>
bool alone(const Explanation& found, Property property) {
  bool others = false;
  for (const ColumnCoefficient& entry : found.entered) {
    const bool zero = entry.exact->is_zero();
    if (!zero && !property(*entry.column)) return false;
    others = others || (zero && !property(*entry.column));
  }
  return others;
}

/// ", with 1 where 1/2 was expected"; "" where those that entered have what was expected, or no one coefficient.
std::string with_coefficient(const Explanation& found) {
  std::optional<Rational> got, expected;
  for (const ColumnCoefficient& entry : found.entered) {
    if (entry.exact->is_zero() || !entry.column->expected) continue;
    if ((got && *got != *entry.exact) || (expected && *expected != *entry.column->expected)) return "";
    got = entry.exact;
    expected = entry.column->expected;
  }
  if (!got || *got == *expected) return "";
  return fmt::format(", with {} where {} was expected", got->to_string(), expected->to_string());
}

/// Micro-batches of which nobody else's contributions arrived, where those of all others came as they should: what
/// went on to accumulate after the reduction, or without it. "" where it is not so.
std::string not_reduced_words(const Explanation& found, const std::function<bool(const Column&)>& own) {
  std::map<int, std::vector<const ColumnCoefficient*>> of_micro_batch;
  for (const ColumnCoefficient& entry : found.entered) of_micro_batch[entry.column->micro_batch].push_back(&entry);
  std::vector<int> without;
  Explanation part;
  for (const auto& [micro_batch, entered] : of_micro_batch) {
    const bool as_expected = std::all_of(entered.begin(), entered.end(), [](const ColumnCoefficient* entry) {
      return entry->exact == entry->column->expected;
    });
    if (as_expected) continue;
    const bool own_alone = std::all_of(entered.begin(), entered.end(), [&](const ColumnCoefficient* entry) {
      return entry->exact->is_zero() != own(*entry->column);
    });
    if (!own_alone) return "";
    without.push_back(micro_batch);
    for (const ColumnCoefficient* entry : entered) part.entered.push_back(*entry);
  }
  if (without.empty() || without.size() == of_micro_batch.size()) return "";
  // Where nobody else contributes, there is nothing to reduce.
  const bool some_others = std::any_of(part.entered.begin(), part.entered.end(),
                                       [&](const ColumnCoefficient& entry) { return !own(*entry.column); });
  if (!some_others) {
    const std::string coefficient = with_coefficient(part);
    return fmt::format("micro-batch{} {} came{}", without.size() == 1 ? "" : "es", numbers_words(without),
                       coefficient.empty() ? " with other coefficients than expected" : coefficient.substr(1));
  }
  return fmt::format("micro-batch{} {} {} not reduced: only the data-parallel rank's own contribution is in it{}",
                     without.size() == 1 ? "" : "es", numbers_words(without), without.size() == 1 ? "was" : "were",
                     with_coefficient(part));
}

/// What all coefficients are times the expected ones, if there is one such number.
std::optional<Rational> factor_of(const Explanation& found) {
  std::optional<Rational> factor;
  for (const ColumnCoefficient& entry : found.entered) {
    if (!entry.column->expected || entry.column->expected->is_zero()) return std::nullopt;
    const Rational own = *entry.exact / *entry.column->expected;
    if (factor && *factor != own) return std::nullopt;
    factor = own;
  }
  return factor;
}

std::string uniform_words(const Explanation& found, const Rational& factor) {
  const std::string scope = factor > 0 ? ", invisible to Adam" : "";
  // Contributions that are the same on several ranks are one column, which has the coefficients of all.
  const auto each = [](const ColumnCoefficient& entry, const Rational& all) {
    return all / Rational(std::max(1, entry.column->different));
  };
  const ColumnCoefficient& first = found.entered.front();
  const Rational got = each(first, *first.exact), expected = each(first, *first.column->expected);
  const bool alike = std::all_of(found.entered.begin(), found.entered.end(), [&](const ColumnCoefficient& entry) {
    return each(entry, *entry.exact) == got && each(entry, *entry.column->expected) == expected;
  });
  if (alike)
    return fmt::format("every contribution came with {} where {} was expected: uniform factor {}{}", got.to_string(),
                       expected.to_string(), factor.to_string(), scope);
  return fmt::format("every contribution came with {} of its weight: uniform factor {}{}", factor.to_string(),
                     factor.to_string(), scope);
}

}  // namespace

std::string mistake_words(const CapturedRun& run, const Explanation& found, const std::string& difference,
                          const std::vector<int>& ranks) {
  if (std::all_of(found.entered.begin(), found.entered.end(),
                  [](const ColumnCoefficient& entry) { return entry.exact->is_zero(); }))
    return "nothing arrived";
  if (found.stale) return stale_words;
  if (const std::optional<Rational> factor = factor_of(found)) return uniform_words(found, *factor);
  if (found.uniform && found.exact_factor)
    return fmt::format("every contribution came with {}, whatever its tokens", found.exact_factor->to_string());
  std::set<int> own;  // whose data are the optimizer's own
  for (const int rank : ranks) own.insert(run.data_coordinate(rank));
  const auto is_own = [&](const Column& column) {
    return std::all_of(column.members.begin(), column.members.end(),
                       [&](const auto& member) { return own.contains(run.data_coordinate(member.first)); });
  };
  if (own.size() == 1 && alone(found, is_own)) {
    const std::string coefficient = with_coefficient(found);
    return "no other data-parallel rank's contribution arrived" +
           (coefficient.empty() ? "" : ", and its own came" + coefficient.substr(1));  // without the comma
  }
  int last = 0;
  for (const ColumnCoefficient& entry : found.entered) last = std::max(last, entry.column->micro_batch);
  if (alone(found, [&](const Column& column) { return column.micro_batch == last; }))
    return "the last micro-batch alone arrived" + with_coefficient(found);
  if (!difference.empty()) return difference;
  if (own.size() == 1) {
    if (std::string text = not_reduced_words(found, is_own); !text.empty()) return text;
  }
  return "contributions come with other coefficients than expected";
}

}  // namespace lockstep::live
