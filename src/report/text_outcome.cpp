// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "src/base/at.h"
#include "src/diagnosis/fold_names.h"
#include "src/report/elide.h"
#include "src/report/text_report.h"

namespace lockstep::report {

namespace {

constexpr std::size_t most_lines = 12;

std::size_t limit(const ReportOptions& options) { return options.verbose ? static_cast<std::size_t>(-1) : most_lines; }

/// What is said of a rank: "waits in `x`", or of several: "wait in `x`".
struct Words {
  std::string of_one, of_several;
};

/// Lines of one kind, ranks with equal lines together, by first rank.
std::string lines_by_words(const std::vector<std::pair<int, Words>>& lines, const ReportOptions& options) {
  std::vector<std::pair<Words, std::vector<int>>> groups;
  std::map<std::string, std::size_t> index;
  for (const auto& [rank, words] : lines) {
    const auto [place, fresh] = index.emplace(words.of_one, groups.size());
    if (fresh) groups.emplace_back(words, std::vector<int>());
    groups[place->second].second.push_back(rank);
  }
  std::string text;
  for (std::size_t shown = 0; shown < groups.size(); ++shown) {
    if (shown == limit(options)) {
      text += fmt::format("    and {} more\n", groups.size() - shown);
      break;
    }
    std::vector<int> ranks = groups[shown].second;
    std::sort(ranks.begin(), ranks.end());
    ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
    const Words& words = groups[shown].first;
    const std::string line =
        fmt::format("    {} {}", rank_list(ranks), ranks.size() == 1 ? words.of_one : words.of_several);
    text += (options.verbose ? line : wrapped(line, 6)) + "\n";
  }
  return text;
}

std::string deadlock_text(const Outcome& outcome, const ReportOptions& options) {
  std::vector<std::pair<int, Words>> lines;
  for (const Outcome::Stuck& stuck : outcome.stuck) {
    std::string rest = fmt::format(" in `{}`", stuck.waits_in);
    if (!stuck.for_ranks.empty()) rest += " for " + rank_list(stuck.for_ranks);
    lines.emplace_back(stuck.rank, Words{"waits" + rest, "wait" + rest});
  }
  return "  deadlock: ranks wait for calls that never come\n" + lines_by_words(lines, options);
}

std::string invalid_text(const Outcome& outcome, const ReportOptions& options) {
  std::vector<std::pair<int, Words>> lines;
  for (const Outcome::MemberCall& call : outcome.member_calls) {
    const std::string rest = fmt::format(" `{}`: {}", call.calls, call.brings);
    lines.emplace_back(call.rank, Words{"calls" + rest, "call" + rest});
  }
  return fmt::format("  invalid collective: {}\n", outcome.why) + lines_by_words(lines, options);
}

std::string race_text(const Outcome& outcome, const ReportOptions& options) {
  std::vector<std::pair<int, Words>> lines;
  for (const Outcome::Race& race : outcome.races) {
    const std::string what = race.touches.empty() ? "" : fmt::format("the buffer {} is touched ", race.touches);
    const std::string rest = fmt::format(": {}while `{}` is in flight", what, race.in_flight);
    const std::string in_step = fmt::format("in `{}`", race.step);
    lines.emplace_back(race.rank, race.step.empty()
                                      ? Words{"at the end of its list" + rest, "at the end of their lists" + rest}
                                      : Words{in_step + rest, in_step + rest});
  }
  return "  race: a buffer is touched before the `wait`\n" + lines_by_words(lines, options);
}

/// "2" of 4, "√2" of 2.
std::string square_root(int number) {
  for (int root = 0; root * root <= number; ++root) {
    if (root * root == number) return std::to_string(root);
  }
  return fmt::format("√{}", number);
}

}  // namespace

std::string outcome_text(const CheckResult& result, const ReportOptions& options) {
  // What the ranks of the model itself wait for stands with the transformer engine's finding.
  if (result.timeline == nullptr || result.timeline->outcome.kind == Outcome::Kind::complete) return "";
  switch (result.verdict) {
    case Verdict::deadlock:
      return deadlock_text(result.timeline->outcome, options);
    case Verdict::invalid_collective:
      return invalid_text(result.timeline->outcome, options);
    case Verdict::race:
      return race_text(result.timeline->outcome, options);
    default:
      return "";
  }
}

std::string norm_text(const CheckResult& result, const ReportOptions& options) {
  const SymbolicResult* exact = exact_of(result);
  if (exact == nullptr || result.verdict != Verdict::mismatch || exact->norm.empty()) return "";
  const std::vector<Parameter>& parameters = result.scenario->schedule->model.parameters();
  // By pattern, counts and the ranks concerned.
  // What is the same but for the parameter and the rank.
  using Count = std::tuple<std::string, std::string, std::string>;
  std::map<std::pair<int, Count>, std::vector<int>> ranks_of;
  for (const NormResult& norm : exact->norm) {
    const std::string part = norm.elements == norm.of ? ""
                             : norm.elements == 0     ? "elements of "
                                                      : fmt::format("{} of {} elements of ", norm.elements, norm.of);
    ranks_of[{norm.parameter, {norm.counted, norm.expected, part}}].push_back(norm.rank);
  }
  struct Line {
    std::vector<int> parameters;
    std::string counted, expected, part;
    std::vector<int> ranks;
  };
  std::vector<Line> lines;
  std::map<std::tuple<std::string, Count, std::vector<int>>, std::size_t> index;
  for (auto& [key, ranks] : ranks_of) {
    const auto& [parameter, count] = key;
    const auto& [counted, expected, part] = count;
    const std::string pattern = diagnosis::folded_name(parameters[at(parameter)].name);
    const auto [place, fresh] = index.emplace(std::make_tuple(pattern, count, ranks), lines.size());
    if (fresh) lines.push_back({{}, counted, expected, part, ranks});
    lines[place->second].parameters.push_back(parameter);
  }
  std::string text = "  gradient norm\n";
  for (std::size_t shown = 0; shown < lines.size(); ++shown) {
    if (shown == limit(options)) {
      text += fmt::format("    and {} more\n", lines.size() - shown);
      break;
    }
    const Line& line = lines[shown];
    const std::string& name = parameters[at(line.parameters.front())].name;
    const std::string names =
        line.part + (line.parameters.size() == 1
                         ? name
                         : fmt::format("{} ({} parameters)", diagnosis::folded_name(name), line.parameters.size()));
    if (line.counted == line.expected) {
      text += fmt::format("    {} counted too early, before it is what the optimizer gets, on {}\n", names,
                          rank_list(line.ranks));
    } else if (line.counted == "mean_of_norms") {
      text += fmt::format("    {} enters a mean of norms, which is no norm of the whole, on {}\n", names,
                          rank_list(line.ranks));
    } else {
      text += fmt::format("    {} counted {} times instead of {} on {}\n", names, line.counted, line.expected,
                          rank_list(line.ranks));
    }
  }
  if (const auto times = exact->norm_squared_factor) {
    text += fmt::format("    every element is counted {} times: the norm is {} times the right one\n", *times,
                        square_root(*times));
  }
  return text;
}

}  // namespace lockstep::report
