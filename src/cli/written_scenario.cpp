// SPDX-License-Identifier: Apache-2.0
#include "src/cli/written_scenario.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <memory>
#include <utility>

#include "src/cli/options.h"
#include "src/scenario/open_sizes.h"

namespace lockstep::cli {

namespace {

/// "match, right for every size": what is compared, in words.
std::string verdict_text(const CheckResult& result) {
  std::string text(name_of(result.verdict));
  if (result.verdict == Verdict::error && !result.errors.empty()) text += ": " + result.errors.front().message;
  for (const std::string& note : result.notes) text += "; " + note;
  return text;
}

}  // namespace

CheckResult quick_check(const std::string& file, const std::string& text) {
  CheckResult result;
  result.file = file;
  try {
    auto scenario = std::make_shared<Scenario>(read_scenario(std::make_shared<const Source>(Source{file, text})));
    return check_scenario(std::move(scenario), CheckOptions::verdict_alone());
  } catch (const InputError& error) {
    result.verdict = Verdict::error;
    result.errors = error.diagnostics();
  }
  return result;
}

std::string why_no_scenario(const std::string& file, const std::string& text) {
  const CheckResult result = quick_check(file, text);
  return result.verdict == Verdict::error && !result.errors.empty() ? result.errors.front().message : "";
}

std::string scenario_at(const std::string& path, const std::string& file) {
  std::error_code error;
  const bool is_device = std::filesystem::exists(path, error) && !std::filesystem::is_regular_file(path, error);
  return path.empty() || is_device ? file : path;
}

void want_same_verdict(const Scenario& scenario) {
  if (scenario.layout.any.empty() && !scenario::has_any_micro_batches(scenario)) return;
  const std::string written =
      verdict_text(check_scenario(std::make_shared<const Scenario>(scenario), CheckOptions::verdict_alone()));
  const std::string plain = verdict_text(quick_check(scenario.file, write_json(scenario.resolved)));
  if (written == plain) return;
  usage_error(
      fmt::format("{} has sizes that are \"any\", and as plain steps it would not be the same: it is {}, and they are "
                  "{}; give numbers in place of \"any\"",
                  scenario.file, written, plain));
}

}  // namespace lockstep::cli
