// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/lost_ties.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <set>
#include <vector>

#include "lockstep/edit.h"
#include "lockstep/scenario.h"
#include "src/base/at.h"

namespace lockstep::diagnosis {

namespace {

/// Whether a rank holds several copies of a logical parameter, which without the lost tie would be one buffer.
bool share_a_rank(const Model& model, int original) {
  return std::any_of(model.locals().begin(), model.locals().end(), [&](const std::unique_ptr<LocalModel>& local) {
    return std::count_if(local->buffers.begin(), local->buffers.end(),
                         [&](const LocalBuffer& buffer) { return model.original(buffer.logical) == original; }) > 1;
  });
}

/// A selector of this parameter alone, whatever its name is: what would be a pattern or a kind of selector in it stands
/// in brackets.
std::string selector_of(const std::string& name) {
  std::string text;
  const bool reads_as_another = name.find(':') != std::string::npos || name.find_first_of("<>=") != std::string::npos;
  for (const char c : name) {
    const bool first = text.empty();
    const bool meant = c != '*' && c != '?' && c != '[' && !(first && (c == '!' || reads_as_another));
    text += meant ? std::string(1, c) : "[" + std::string(1, c) + "]";
  }
  return text;
}

/// The originals of what is wrong and has several copies on a rank.
std::set<int> wrong_with_copies(const CheckResult& result) {
  const Model& model = result.scenario->schedule->model;
  std::set<int> found;
  int number = 0;
  const bool any = std::any_of(model.logicals().begin(), model.logicals().end(),
                               [&](const Logical& logical) { return logical.original != number++; });
  if (!any) return found;
  for (const int parameter : wrong_set(result).parameters) {
    const int original = model.original(model.logical_of(parameter));
    if (model.copies(original).size() > 1 && share_a_rank(model, original)) found.insert(original);
  }
  return found;
}

/// After which all sites of a logical parameter are one copy, as the first is.
void add_ties(const Model& model, int original, std::vector<Edit>& edits) {
  const std::vector<int> sites = model.sites(original);
  const std::string& copy = model.parameters()[at(sites.front())].copy;
  for (const int site : sites) {
    const Parameter& parameter = model.parameters()[at(site)];
    if (parameter.copy == copy) continue;
    edits.push_back(
        Edit::set_parameter(selector_of(parameter.name), {{"copy", {}, copy.empty() ? Json() : Json::string(copy)}}));
  }
}

/// "" where that is not known.
std::string verdict_with(const CheckResult& result, const std::vector<Edit>& edits) {
  const auto tied = read_if_allowed(*result.scenario, {.edits = edits});
  if (tied == nullptr) return "";
  const Verdict verdict = check_scenario(tied, CheckOptions::verdict_alone()).verdict;
  return verdict == Verdict::error ? "" : verdict == Verdict::match ? "right" : "not right either";
}

}  // namespace

std::string lost_ties(const CheckResult& result) {
  if (result.scenario == nullptr || result.scenario->schedule == nullptr || result.verdict != Verdict::mismatch)
    return "";
  const Model& model = result.scenario->schedule->model;
  std::vector<std::string> groups, ties;
  std::vector<Edit> edits;
  for (const int original : wrong_with_copies(result)) {
    std::vector<std::string> names;
    for (const int copy : model.copies(original)) names.push_back(model.logicals()[at(copy)].name);
    groups.push_back(fmt::format("{} ({})", model.logicals()[at(original)].tied, fmt::join(names, ", ")));
    add_ties(model, original, edits);
  }
  if (groups.empty()) return "";
  const auto in_line = [](const Json& value) {
    std::string text = write_json(value);
    text.pop_back();  // the end of the line
    return text;
  };
  for (const Edit& edit : edits)
    ties.push_back(fmt::format(R"({{ "parameter": {}, "copy": {} }})", in_line(edit.parameters),
                               in_line(edit.parameter_values.front().value)));
  const std::string verdict = verdict_with(result, edits);
  return fmt::format(
      "What is tied has several copies, each of which gets the gradient of its own uses alone: {}. With {} they are "
      "one "
      "again{}.",
      fmt::join(groups, "; "), fmt::join(ties, ", "), verdict.empty() ? "" : ", and the schedule is " + verdict);
}

}  // namespace lockstep::diagnosis
