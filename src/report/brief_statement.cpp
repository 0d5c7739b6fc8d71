// SPDX-License-Identifier: Apache-2.0
//
// A statement that something is wrong at some sizes is a union: each of its clauses is true without the others. An
// exception is not, so that of a list of exceptions it has to be said that there are more.
#include "src/report/brief_statement.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string_view>
#include <vector>

#include "src/base/counted.h"

namespace lockstep::report {

namespace {

/// A list with more than `most_clauses` is cut to `told_clauses`.
constexpr std::size_t most_clauses = 8, told_clauses = 4;

constexpr std::string_view as_soon_as = " as soon as ", for_every = " for every ", for_some = " for ",
                           next_range = "; for ", next_clause = ", or ", next_exception = " or ", but_at = " but ",
                           but_not_at = ", but not at ", next_sentence = "; also ";

std::vector<std::string> clauses_of(std::string_view text, std::string_view between) {
  std::vector<std::string> clauses;
  std::size_t begin = 0;
  for (std::size_t end; (end = text.find(between, begin)) != std::string_view::npos; begin = end + between.size())
    clauses.emplace_back(text.substr(begin, end - begin));
  clauses.emplace_back(text.substr(begin));
  return clauses;
}

/// The shortest of `parts` in their order, and then "N more NOUNs" between `before` and `behind`.
std::string cut_list(std::string_view text, std::string_view between, std::string_view before, std::string_view noun,
                     std::string_view behind) {
  const std::vector<std::string> parts = clauses_of(text, between);
  if (parts.size() <= most_clauses) return std::string(text);
  std::vector<std::size_t> order(parts.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return parts[a].size() < parts[b].size(); });
  order.resize(told_clauses);
  std::sort(order.begin(), order.end());
  std::string result;
  for (const std::size_t index : order) result += parts[index] + std::string(between);
  return fmt::format("{}{}{}{}", result, before, counted(parts.size() - told_clauses, noun), behind);
}

std::string brief_exceptions(std::string_view text) {
  return cut_list(text, next_exception, "at one of ", "more size", "");
}

/// "A, or B unless C": of the ranges that share an exception.
std::string brief_range(const std::string& text) {
  std::size_t end = std::min(text.find(" unless "), text.find(" where "));
  end = std::min(end, text.size());
  return cut_list(std::string_view(text).substr(0, end), next_clause, "one of ", "more range",
                  end == text.size() ? "" : ",") +
         text.substr(end);
}

/// One sentence about where something is wrong, without what is said behind it.
std::string brief_sentence(const std::string& text) {
  if (const std::size_t head = text.find(as_soon_as); head != std::string::npos) {
    const std::size_t begin = head + as_soon_as.size(), end = std::min(text.find(but_not_at), text.size());
    const std::string rest =
        end == text.size()
            ? ""
            : std::string(but_not_at) + brief_exceptions(std::string_view(text).substr(end + but_not_at.size()));
    return text.substr(0, begin) +
           cut_list(std::string_view(text).substr(begin, end - begin), next_clause, "one of ", "more condition",
                    " holds") +
           rest;
  }
  const std::size_t head = text.find(for_some);
  if (head == std::string::npos) return text;
  const bool is_range = text.find(" unless ") != std::string::npos || text.find(" where ") != std::string::npos ||
                        text.find(next_range) != std::string::npos;
  const std::size_t exception = text.find(but_at);
  if (!is_range && text.find(for_every) == head && exception != std::string::npos)
    return text.substr(0, exception + but_at.size()) +
           brief_exceptions(std::string_view(text).substr(exception + but_at.size()));
  std::string ranges;
  for (const std::string& each : clauses_of(std::string_view(text).substr(head + for_some.size()), next_range))
    ranges += (ranges.empty() ? "" : std::string(next_range)) + brief_range(each);
  return text.substr(0, head + for_some.size()) + cut_list(ranges, next_range, "", "more range", " of sizes");
}

}  // namespace

std::string brief_statement(const std::string& statement) {
  if (statement.starts_with("right")) return statement;
  std::string brief;
  for (const std::string& part : clauses_of(statement, next_sentence)) {
    std::size_t end = part.size();
    for (const std::string_view behind : {", wherever ", ", and perhaps ", ", of the sizes ", ", with "})
      end = std::min(end, part.find(behind));
    brief += (brief.empty() ? "" : std::string(next_sentence)) + brief_sentence(part.substr(0, end)) + part.substr(end);
  }
  return brief == statement ? statement : brief + " (-v prints all)";
}

}  // namespace lockstep::report
