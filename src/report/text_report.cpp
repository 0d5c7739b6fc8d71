// SPDX-License-Identifier: Apache-2.0
#include "src/report/text_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "lockstep/numeric.h"
#include "lockstep/operation.h"
#include "lockstep/parametric.h"
#include "src/base/counted.h"
#include "src/diagnosis/other_tests.h"
#include "src/report/blame_text.h"
#include "src/report/clean_text.h"
#include "src/report/findings.h"
#include "src/report/text_parameters.h"
#include "src/report/transformer_report.h"
#include "src/scenario/open_sizes.h"

namespace lockstep::report {

namespace {

/// "8 processes"; with how many of them hold no rank.
std::string processes_text(const CheckResult& result, int processes) {
  const int world = result.scenario->schedule->mesh.world();
  std::string text = counted(processes, "process");
  if (processes > world) text += fmt::format(", {} of them without a rank", processes - world);
  return text;
}

/// "on GPU 0 (…)", "in 8 processes", "in 2 processes with a GPU each"; "" for the processors of this machine.
std::string where_text(const CheckResult& result, const EngineResult& engine) {
  if (engine.processes == 0) return engine.device.empty() ? "" : " on " + engine.device;
  const std::string devices = engine.device.empty() ? "" : fmt::format(" with {} each", engine.device);
  return fmt::format(" in {}{}", processes_text(result, engine.processes), devices);
}

std::string engines_text(const CheckResult& result, bool verbose) {
  // Norms and unowned elements are no values: without a word the engines seem to disagree.
  const SymbolicResult* symbolic = symbolic_of(result);
  const bool values_right = symbolic != nullptr && !symbolic->match && !diagnosis::any_value_wrong(*symbolic);
  std::vector<std::string> engines;
  for (const EngineResult& engine : result.engines) {
    if (!engine.ran()) continue;
    std::string text = fmt::format("{} {}", engine.name, name_of(engine.verdict));
    if (const HostResult* numbers = engine.numbers.get(); numbers != nullptr) {
      if (numbers->sampled) text += fmt::format(" (sampled {} of {} elements)", numbers->elements, numbers->of);
      if (values_right && numbers->match) text += " (compares values only)";
    }
    if (verbose) text += fmt::format(" ({:.3f} s)", engine.seconds);
    engines.push_back(text + where_text(result, engine));
  }
  return fmt::format("{}", fmt::join(engines, ", "));
}

/// How much was looked at: a match must not be an empty one.
std::string extent_text(const CheckResult& result) {
  const Schedule& schedule = *result.scenario->schedule;
  const std::string parameters = counted(schedule.model.parameters().size(), "parameter"),
                    steps = counted(schedule.batch.steps(), "optimizer step");
  if (result.timeline == nullptr)
    return fmt::format("{} in {}, {}", parameters, counted(parametric_of(result)->classes, "class"), steps);
  const std::vector<Event>& events = result.timeline->events;
  const auto collectives = std::count_if(events.begin(), events.end(), [](const Event& event) {
    return operation(event.op).collective && event.calls.size() > 1;
  });
  return fmt::format("{}, {}, {}", parameters, counted(collectives, "collective"), steps);
}

/// What the right gradient depends on: "loss local_mean over uneven tokens".
std::string loss_text(const Batch& batch) {
  static const std::map<Loss::Kind, std::string> names = {{Loss::Kind::token_mean, "token_mean"},
                                                          {Loss::Kind::micro_batch_mean, "micro_batch_mean"},
                                                          {Loss::Kind::local_mean, "local_mean"},
                                                          {Loss::Kind::sum, "sum"},
                                                          {Loss::Kind::weight, "with a weight of its own"}};
  static const std::map<Batch::Tokens::Kind, std::string> tokens = {{Batch::Tokens::Kind::uneven, "uneven"},
                                                                    {Batch::Tokens::Kind::even, "even"},
                                                                    {Batch::Tokens::Kind::list, "given"}};
  const auto found = batch.tokens_of_use.find("main");
  const auto kind = found == batch.tokens_of_use.end() ? Batch::Tokens::Kind::uneven : found->second.kind;
  return fmt::format("loss {} over {} tokens", names.at(batch.loss("main").kind), tokens.at(kind));
}

}  // namespace

std::string changes_text(const Scenario& scenario) {
  if (scenario.changes.empty()) return "";
  return one_line_text(fmt::format(" with {}", fmt::join(scenario.changes, ", ")));
}

std::string verdict_line(const CheckResult& result, const Style& style) {
  std::string line = fmt::format("{}  {}", style.verdict(result.verdict), one_line_text(result.file));
  if (result.scenario == nullptr) return line + "\n";
  const Scenario& scenario = *result.scenario;
  line += changes_text(scenario);
  if (!scenario.title.empty()) {
    line += "  " + scenario.title;
  } else if (!scenario.name.empty()) {
    line += "  " + scenario.name;
  }
  if (!scenario.source_reference.empty()) line += fmt::format(" ({})", scenario.source_reference);
  return line + "\n";
}

std::string layout_text(const Scenario& scenario) {
  const Layout& layout = scenario.layout;
  std::vector<std::string> axes;
  const auto add = [&](std::string_view name, int size) {
    if (size > 1) axes.push_back(fmt::format("{} {}", name, size));
  };
  add("pp", layout.pp);
  if (layout.dp_replicate > 1) {
    add("dp_replicate", layout.dp_replicate);
    add("dp_shard", layout.dp_shard);
  } else {
    add("dp", layout.dp);
  }
  add("sp", layout.sp);
  add("cp", layout.cp);
  add("tp", layout.tp);
  std::string text = axes.empty() ? "1 rank" : fmt::format("{} = {} ranks", fmt::join(axes, " × "), layout.world());
  if (has_expert_mesh(layout)) text += fmt::format(", ep {} × etp {} × edp {}", layout.ep, layout.etp, layout.edp());
  if (layout.virtual_stages > 1) text += fmt::format(", {} virtual stages", layout.virtual_stages);
  if (layout.sequence_parallel) text += ", sequence parallel";
  if (scenario::has_any_micro_batches(scenario)) text += ", any number of micro-batches";
  if (scenario.schedule == nullptr) return text;
  const Batch& batch = scenario.schedule->batch;
  const std::vector<int>& counts = batch.micro_batch_counts;
  if (counts.size() > 1) text += fmt::format(", {} optimizer steps", counts.size());
  const bool same = std::all_of(counts.begin(), counts.end(), [&](int count) { return count == counts.front(); });
  text += !same               ? fmt::format(" of {} micro-batches", fmt::join(counts, ", "))
          : counts.size() > 1 ? " of " + counted(counts.front(), "micro-batch")
                              : ", " + counted(counts.front(), "micro-batch");
  return text + ", " + loss_text(batch);
}

void TextReporter::add(const CheckResult& result) {
  if (!first_ && !options_.quiet) write_("\n");
  first_ = false;
  write_(verdict_line(result, style_));
  if (result.verdict == Verdict::error) {
    for (const Diagnostic& error : result.errors) write_(render(error));
    return;
  }
  if (!result.disagreement.empty()) write_(style_.bad("engines disagree") + "  " + result.disagreement + "\n");
  if (options_.quiet) return;
  write_(fmt::format("  {}\n  {}; {}\n", layout_text(*result.scenario), engines_text(result, options_.verbose),
                     extent_text(result)));
  write_(transformer_text(result, options_));
  for (const std::string& note : result.notes) write_("  note: " + note + "\n");
  for (const EngineResult& engine : result.engines) {
    if (!engine.ran()) write_("  note: " + engine.left_out + "\n");
  }
  if (const HostResult* numbers = numbers_of(result); numbers != nullptr) {
    for (const std::string& note : numbers->notes) write_("  note: " + note + "\n");
  }
  if (result.scenario->schedule->batch.steps() > 1 && result.verdict != Verdict::match) {
    write_(fmt::format("  first wrong in optimizer step {}\n", result.step));
  }
  if (result.verdict == Verdict::match && !options_.all) return;
  const std::string outcome = outcome_text(result, options_);
  if (!outcome.empty()) write_("\n" + outcome);
  write_text_parameters(result, options_, style_, write_);
  const std::string norm = norm_text(result, options_);
  if (!norm.empty()) write_("\n" + norm);
  write_(blame_text(result, options_.verbose, style_));
}

}  // namespace lockstep::report
