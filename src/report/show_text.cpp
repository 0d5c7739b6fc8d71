// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "lockstep/operation.h"
#include "lockstep/report.h"
#include "src/diagnosis/fold_names.h"
#include "src/report/clean_text.h"
#include "src/report/placements.h"
#include "src/report/text_report.h"

namespace lockstep {

namespace {

constexpr std::size_t most_parts = 4, most_members = 8;

std::string group_text(const std::vector<int>& group, bool verbose) {
  if (verbose || group.size() <= most_members) return fmt::format("[{}]", fmt::join(group, ", "));
  const std::vector<int> first(group.begin(), group.begin() + most_members);
  return fmt::format("[{}, … {} ranks]", fmt::join(first, ", "), group.size());
}

std::string groups_text(const Groups& groups, bool verbose) {
  std::vector<std::string> parts;
  for (const std::vector<int>& group : groups.members) {
    if (!verbose && parts.size() == most_parts) {
      parts.push_back(fmt::format("… {} groups", groups.members.size()));
      break;
    }
    parts.push_back(group_text(group, verbose));
  }
  return fmt::format("{}", fmt::join(parts, " "));
}

void write_groups(const Mesh& mesh, bool verbose, const Write& write) {
  write("\nprocess groups\n");
  bool any = false;
  for (const std::string& name : axis_names()) {
    const Axis axis = *axis_named(name);
    const Layout& layout = mesh.layout();
    const bool dense_again = (is_expert_axis(axis) && layout.ep * layout.etp == 1) ||
                             (layout.dp_replicate == 1 && (axis == Axis::dp_shard || axis == Axis::edp_shard));
    if (mesh.size(axis) == 1 || (dense_again && !verbose)) continue;
    any = true;
    write(fmt::format("  {}{}\n", report::padded(name, 14),
                      groups_text(mesh.groups(Over{{{axis, std::nullopt}}}), verbose)));
  }
  if (!any) write("  none: one rank\n");
}

std::string parameter_line(const Mesh& mesh, const Parameter& parameter) {
  std::string line = fmt::format("[{}]", fmt::join(parameter.shape, ", "));
  if (parameter.dtype != Dtype::float32) line += fmt::format(" {}", name_of(parameter.dtype));
  for (const auto& [axis, placement] : report::placements(mesh, parameter)) {
    if (placement != "R" || axis == "tp") line += fmt::format("  {} {}", axis, placement);
  }
  if (!parameter.tied.empty()) line += fmt::format("  tied: {}", parameter.tied);
  if (!parameter.copy.empty()) line += fmt::format("  copy: {}", parameter.copy);
  if (parameter.frozen) line += "  frozen";
  if (parameter.uses.size() > 1) line += fmt::format("  uses: {}", fmt::join(parameter.uses, ", "));
  if (!parameter.tags.empty()) line += fmt::format("  tags: {}", fmt::join(parameter.tags, ", "));
  return line;
}

struct ShownSection {
  const Parameter* first = nullptr;
  std::string line;
  std::size_t count = 0;
  int from = 0, to = 0;  ///< stages
};

void write_parameters(const Schedule& schedule, bool verbose, const Write& write) {
  const std::vector<Parameter>& parameters = schedule.model.parameters();
  std::vector<ShownSection> sections;
  std::map<std::pair<std::string, std::string>, std::size_t> numbers;  // by folded name and line
  for (const Parameter& parameter : parameters) {
    std::string line = parameter_line(schedule.mesh, parameter);
    const int stage = parameter.stage.value_or(0);
    const bool is_new =
        verbose || numbers.emplace(std::pair(diagnosis::folded_name(parameter.name), line), sections.size()).second;
    if (is_new) {
      sections.push_back({&parameter, std::move(line), 1, stage, stage});
    } else {
      ShownSection& same = sections[numbers.at({diagnosis::folded_name(parameter.name), line})];
      ++same.count;
      same.from = std::min(same.from, stage);
      same.to = std::max(same.to, stage);
    }
  }
  std::size_t width = 0;
  const auto name_of_section = [](const ShownSection& section) {
    return section.count == 1 ? section.first->name
                              : fmt::format("{} ({})", diagnosis::folded_name(section.first->name), section.count);
  };
  for (const ShownSection& section : sections) width = std::max(width, report::text_width(name_of_section(section)));
  write(fmt::format("\nparameters ({})\n", parameters.size()));
  for (const ShownSection& section : sections) {
    std::string stage;
    if (schedule.mesh.size(Axis::pp) > 1) {
      stage = !section.first->stage        ? "pp all   "
              : section.from == section.to ? fmt::format("pp {}   ", section.from)
                                           : fmt::format("pp {}-{}   ", section.from, section.to);
    }
    write(fmt::format("  {}   {}{}\n", report::padded(name_of_section(section), width), stage, section.line));
  }
}

std::string geometry_text(const Geometry& geometry) {
  switch (geometry.kind) {
    case Geometry::Kind::parameter:
      return "cut: parameter";
    case Geometry::Kind::rows:
      return "cut: rows";
    case Geometry::Kind::flat:
      return "cut: flat";
    case Geometry::Kind::counts:
      return fmt::format("cut: counts [{}]", fmt::join(geometry.counts, ", "));
    case Geometry::Kind::bucket:
      break;
  }
  std::string text = "cut: bucket";
  if (geometry.size) text += fmt::format(" of {}", geometry.size->to_string());
  if (geometry.separate && !geometry.separate->items().empty()) {
    text += fmt::format(", separate [{}]", fmt::join(geometry.separate->items(), ", "));
  }
  return text;
}

std::string step_text(const Step& step) {
  std::string text(operation(step.op).name);
  if (step.over && !step.over->picks.empty()) text += " over " + report::over_text(*step.over);
  if (step.reduction == Reduction::average) text += " (avg)";
  if (!step.wait_for.empty()) text += " for " + step.wait_for;
  if (step.by) text += " by " + step.by->to_string();
  if (!step.params.items().empty()) text += fmt::format("; params [{}]", fmt::join(step.params.items(), ", "));
  if (operation(step.op).cuts == Operation::Cuts::its_own) text += "; " + geometry_text(*step.geometry);
  if (!step.from.empty())
    text += fmt::format("; {} to {}", step.from, step.buffer);
  else if (step.buffer != "grad")
    text += "; buffer " + step.buffer;
  if (step.count) text += "; count " + step.count->to_string();
  if (step.mean_of_norms) text += "; mean of norms";
  if (!step.what.empty()) text += "; " + step.what;
  if (step.on_owned) text += "; on owned";
  if (step.async) text += "; async";
  if (step.when) text += "; when " + step.when->to_string();
  for (const Only& only : step.only)
    text += fmt::format("; only {} [{}]", name_of(only.axis), fmt::join(only.coordinates, ", "));
  return text;
}

std::string edit_text(const ModelEdit& edit) {
  switch (edit.action) {
    case ModelEdit::Action::drop:
      return "drop " + edit.site;
    case ModelEdit::Action::duplicate:
      return "duplicate " + edit.site;
    case ModelEdit::Action::over:
      break;
  }
  return fmt::format("set {} over {}", edit.site, name_of(edit.axis));
}

std::size_t widest_name(const std::vector<Step>& steps, std::size_t indent) {
  std::size_t width = 0;
  for (const Step& step : steps)
    width = std::max({width, indent + report::text_width(step.name), widest_name(step.steps, indent + 2)});
  return width;
}

void write_steps(const std::vector<Step>& steps, std::size_t indent, std::size_t width, const Write& write) {
  for (const Step& step : steps) {
    write(fmt::format("{}   {}\n", report::padded(std::string(indent, ' ') + step.name, width), step_text(step)));
    write_steps(step.steps, indent + 2, width, write);
  }
}

}  // namespace

void show_text(const Scenario& scenario, bool verbose, const Write& write) {
  write(scenario.name.empty() ? report::one_line_text(scenario.file) : scenario.name);
  write(report::changes_text(scenario));
  if (!scenario.title.empty()) write("  " + scenario.title);
  if (!scenario.source_reference.empty()) write(fmt::format(" ({})", scenario.source_reference));
  std::vector<std::string> order;
  order.reserve(scenario.layout.order.size());
  for (const Axis axis : scenario.layout.order) order.emplace_back(name_of(axis));
  write(fmt::format("\n\nlayout\n  {}; order {}, the first varies fastest\n", report::layout_text(scenario),
                    fmt::join(order, "-")));
  if (scenario.schedule == nullptr) return;
  write_groups(scenario.schedule->mesh, verbose, write);
  write_parameters(*scenario.schedule, verbose, write);
  write("\nsteps\n");
  write_steps(scenario.schedule->steps, 2, widest_name(scenario.schedule->steps, 2), write);
  if (scenario.schedule->result != "grad")
    write(fmt::format("  the optimizer reads the buffer {}\n", scenario.schedule->result));
  if (!scenario.preset || scenario.preset->edits.empty()) return;
  write("\nedits of the model\n");
  for (const ModelEdit& edit : scenario.preset->edits) write(fmt::format("  {}\n", edit_text(edit)));
}

}  // namespace lockstep
