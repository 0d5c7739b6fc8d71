// SPDX-License-Identifier: Apache-2.0
#include "src/report/differing_gradients.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>

#include "src/base/counted.h"
#include "src/diagnosis/fold_names.h"
#include "src/report/clean_text.h"
#include "src/report/elide.h"

namespace lockstep::report {

namespace {

constexpr std::size_t most_gradients = 12, most_places = 4;

/// Differences of parameters whose names differ in numbers alone: one line.
struct FoldedDifference {
  const GradientDifference* first = nullptr;
  std::string name;
  std::size_t parameters = 0;
  std::int64_t more = 0;
  std::vector<int> ranks, new_ranks;  ///< for any elements of any of them
};

std::vector<FoldedDifference> fold(const std::vector<GradientDifference>& differences) {
  std::vector<FoldedDifference> folded;
  std::map<std::tuple<std::string, std::string, std::string>, std::size_t> places;
  for (const GradientDifference& difference : differences) {
    std::string name = diagnosis::folded_name(difference.parameter);
    const auto [found, is_new] = places.try_emplace({name, difference.before, difference.after}, folded.size());
    if (is_new) folded.push_back({&difference, std::move(name), 0, 0, {}, {}});
    FoldedDifference& here = folded[found->second];
    ++here.parameters;
    here.more += difference.more;
    for (const DifferingElements& each : difference.where) {
      const std::vector<int>& new_ranks = each.new_ranks.empty() ? each.ranks : each.new_ranks;
      here.ranks.insert(here.ranks.end(), each.ranks.begin(), each.ranks.end());
      here.new_ranks.insert(here.new_ranks.end(), new_ranks.begin(), new_ranks.end());
    }
  }
  for (FoldedDifference& each : folded) {
    for (std::vector<int>* ranks : {&each.ranks, &each.new_ranks}) {
      std::sort(ranks->begin(), ranks->end());
      ranks->erase(std::unique(ranks->begin(), ranks->end()), ranks->end());
    }
    if (each.parameters == 1) each.name = each.first->parameter;
  }
  return folded;
}

std::string owners_text(const std::vector<int>& ranks, const std::vector<int>& new_ranks, bool verbose,
                        const SideNames& names) {
  const auto list = [&](const std::vector<int>& of) { return rank_list(of, verbose ? of.size() : 8); };
  if (new_ranks.empty() || new_ranks == ranks) return list(ranks);
  return (ranks.empty() ? "" : list(ranks) + ", ") + fmt::format("{} ", names.in_after) + list(new_ranks);
}

std::string more_text(std::int64_t elements) {
  return elements == 0 ? "" : fmt::format("; and {}", counted(elements, "more element"));
}

/// Parameters whose names differ in numbers alone, each with elements of its own.
std::string several_text(const FoldedDifference& folded, bool verbose, const SideNames& names) {
  return fmt::format("{} ({})  {}{}", folded.name, folded.parameters,
                     owners_text(folded.ranks, folded.new_ranks, verbose, names), more_text(folded.more));
}

std::string one_text(const GradientDifference& difference, bool verbose, const SideNames& names) {
  std::string text = difference.parameter;
  std::int64_t more = difference.more;
  for (std::size_t i = 0; i < difference.where.size(); ++i) {
    const DifferingElements& here = difference.where[i];
    if (i >= most_places && !verbose)
      more += here.elements.size();
    else
      text += fmt::format("{}{}  {}", i == 0 ? " " : "; ", interval_text(here.elements),
                          owners_text(here.ranks, here.new_ranks, verbose, names));
  }
  return text + more_text(more);
}

}  // namespace

void differing_gradients(const std::vector<GradientDifference>& differences, const std::string& when, bool verbose,
                         const Style& style, const Write& write, const SideNames& names) {
  if (differences.empty()) return;
  write(fmt::format("\n{} that optimizers get{}\n", style.bold("gradients"), when));
  const std::vector<FoldedDifference> folded = fold(differences);
  std::size_t shown = 0;
  for (const FoldedDifference& each : folded) {
    if (!verbose && shown == most_gradients) {
      write(fmt::format("  and {} more (-v shows all)\n", folded.size() - shown));
      break;
    }
    ++shown;
    write(fmt::format(
        "  {}\n", each.parameters > 1 ? several_text(each, verbose, names) : one_text(*each.first, verbose, names)));
    const std::size_t widest = verbose ? unlimited_width : widest_line;
    const std::size_t width = std::max(names.before.size(), names.after.size());
    for (const auto& [name, formula, by] : {std::tuple(names.before, &each.first->before, &each.first->before_by),
                                            std::tuple(names.after, &each.first->after, &each.first->after_by)}) {
      write(fmt::format("    {:{}}  {}\n", name, width, shortened(*formula, widest)));
      if (!by->empty()) write(fmt::format("    {:{}}  by {}\n", "", width, one_line_text(listed_words(*by))));
    }
  }
}

void differing_elements(const DifferingElements& where, bool with_elements, JsonWriter& json) {
  json.key("ranks").numbers(where.ranks);
  if (!where.new_ranks.empty()) json.key("new_ranks").numbers(where.new_ranks);
  if (with_elements) json.key("elements").interval(where.elements);
}

void differing_gradients(const std::vector<GradientDifference>& differences, JsonWriter& json) {
  json.key("gradients").begin_array();
  for (const GradientDifference& each : differences) {
    json.begin_object();
    json.key("parameter").string(each.parameter);
    differing_elements(each.where.front(), true, json);
    if (each.where.size() > 1) {
      json.key("also").begin_array();
      for (std::size_t i = 1; i < each.where.size(); ++i) {
        json.begin_object(true);
        differing_elements(each.where[i], true, json);
        json.end_object();
      }
      json.end_array();
    }
    if (each.more > 0) json.key("more").number(each.more);
    json.key("old").string(each.before);
    json.key("new").string(each.after);
    if (!each.before_by.empty()) json.key("old_by").strings(each.before_by);
    if (!each.after_by.empty()) json.key("new_by").strings(each.after_by);
    json.end_object();
  }
  json.end_array();
}

}  // namespace lockstep::report
