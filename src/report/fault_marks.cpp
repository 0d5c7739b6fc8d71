// SPDX-License-Identifier: Apache-2.0
#include "src/report/fault_marks.h"

#include <algorithm>
#include <set>

#include "lockstep/scenario.h"
#include "lockstep/timeline.h"
#include "src/base/private_files.h"
#include "src/report/step_place.h"

namespace lockstep::report {

namespace {

FaultMark mark_of(const Place& place, std::string what) {
  Place last = place;
  last.begin = std::max(place.begin, place.end - std::min<std::size_t>(1, place.end));
  return {line_column(place).line, std::max(line_column(place).line, line_column(last).line), std::move(what)};
}

/// The steps that a result names as what is wrong.
std::set<std::string> steps_at_fault(const CheckResult& result) {
  std::set<std::string> names;
  for (const Blame& blame : result.blame) names.insert(blame.step);
  if (result.verdict == Verdict::mismatch || result.timeline == nullptr) return names;
  const Outcome& outcome = result.timeline->outcome;
  for (const Outcome::Stuck& stuck : outcome.stuck) names.insert(stuck.waits_in);
  for (const Outcome::MemberCall& call : outcome.member_calls) names.insert(call.calls);
  for (const Outcome::Race& race : outcome.races) names.insert({race.step, race.in_flight});
  return names;
}

class Marker {
 public:
  Marker(const CheckResult& result, const Source* source)
      : scenario_(*result.scenario), source_(source), names_(steps_at_fault(result)) {}

  std::vector<FaultMark> marks() {
    if (scenario_.schedule != nullptr) steps(scenario_.schedule->steps);
    const Json* schedule = scenario_.document.find("schedule");
    const Json* edits = schedule == nullptr ? nullptr : schedule->find("edits");
    if (edits != nullptr) this->edits(*edits);
    if (marks_.empty() && edits != nullptr && !edits->items().empty()) {
      for (const Json& edit : edits->items()) marks_.push_back(mark_of(edit.place(), "edit"));
    }
    if (marks_.empty() && schedule != nullptr && !names_.empty()) {
      if (const Json* framework = schedule->find("framework"); framework != nullptr)
        marks_.push_back(mark_of(framework->place(), "the step at fault is this framework's"));
    }
    return marks_;
  }

 private:
  void steps(const std::vector<Step>& list) {
    for (const Step& step : list) {
      if (names_.contains(step.name) && step.place.source.get() == source_ && source_ != nullptr)
        marks_.push_back(mark_of(step.place, "step at fault"));
      steps(step.steps);
    }
  }

  void edits(const Json& list) {
    for (const Json& edit : list.items()) {
      const bool speaks_of_one =
          std::any_of(names_.begin(), names_.end(), [&](const std::string& name) { return is_about(edit, name); });
      if (speaks_of_one) marks_.push_back(mark_of(edit.place(), "edit of the step at fault"));
    }
  }

  const Scenario& scenario_;
  const Source* source_;
  std::set<std::string> names_;
  std::vector<FaultMark> marks_;
};

const Source* source_of(const CheckResult& result) {
  if (result.scenario != nullptr) return result.scenario->document.place().source.get();
  for (const Diagnostic& error : result.errors) {
    if (error.place.source != nullptr && error.place.source->name == result.file) return error.place.source.get();
  }
  return nullptr;
}

}  // namespace

std::vector<FaultMark> fault_marks(const CheckResult& result) {
  const Source* source = source_of(result);
  std::vector<FaultMark> marks;
  if (source == nullptr || result.verdict == Verdict::match) return marks;
  if (result.verdict == Verdict::error) {
    for (const Diagnostic& error : result.errors) {
      if (error.place.source.get() == source) marks.push_back(mark_of(error.place, "mistake"));
    }
  } else {
    marks = Marker(result, source).marks();
  }
  const auto order = [](const FaultMark& mark) { return std::make_pair(mark.line, mark.last_line); };
  std::sort(marks.begin(), marks.end(), [&](const auto& a, const auto& b) { return order(a) < order(b); });
  marks.erase(
      std::unique(marks.begin(), marks.end(), [&](const auto& a, const auto& b) { return order(a) == order(b); }),
      marks.end());
  return marks;
}

const std::string* scenario_text(const CheckResult& result) {
  const Source* source = source_of(result);
  return source == nullptr || is_private(source->name) ? nullptr : &source->text;
}

}  // namespace lockstep::report
