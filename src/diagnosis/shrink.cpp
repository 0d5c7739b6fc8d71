// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/shrink.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>

#include "src/base/at.h"
#include "src/diagnosis/fold_names.h"
#include "src/schedule/selector_list.h"

namespace lockstep::diagnosis {

namespace {

/// Axes that the file gives a size above 1, as its layout (or its framework's) has them.
std::vector<std::pair<std::string, int>> written_axes(const Scenario& scenario) {
  std::vector<std::pair<std::string, int>> axes;
  const Json* layout = scenario.document.find("layout");
  const auto written = [&](const char* key) { return layout != nullptr && layout->find(key) != nullptr; };
  const Layout& sizes = scenario.layout;
  const std::pair<const char*, int> all[] = {{"tp", sizes.tp},
                                             {"cp", sizes.cp},
                                             {"sp", sizes.sp},
                                             {"dp", sizes.dp},
                                             {"dp_shard", sizes.dp_shard},
                                             {"dp_replicate", sizes.dp_replicate},
                                             {"pp", sizes.pp},
                                             {"ep", sizes.ep},
                                             {"etp", sizes.etp}};
  for (const auto& [key, size] : all) {
    if (written(key) && size > 1) axes.emplace_back(key, size);
  }
  return axes;
}

/// Selector items of steps, nested ones too.
void collect_selectors(const std::vector<Step>& steps, std::set<std::string>& items) {
  for (const Step& step : steps) {
    items.insert(step.params.items().begin(), step.params.items().end());
    if (const auto& separate = step.geometry->separate)
      items.insert(separate->items().begin(), separate->items().end());
    collect_selectors(step.steps, items);
  }
}

/// How a parameter is placed, tied and used: all that is written of it but its name and its shape.
std::string text_of_class(Parameter parameter) {
  parameter.name.clear();
  parameter.shape.clear();
  return write_json(to_json(parameter));
}

}  // namespace

std::string FileSizes::to_string() const {
  std::string text;
  for (const auto& [axis, size] : axes) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", axis, size);
  if (micro_batches > 0) text += fmt::format("{}micro-batches {}", text.empty() ? "" : ", ", micro_batches);
  return text;
}

Sizes sizes_of(const Scenario& scenario, const FileSizes& sizes) {
  Sizes all;
  for (const auto& [axis, size] : sizes.axes) all.axes[*axis_named(axis)] = size;
  if (sizes.micro_batches > 0) all.micro_batches = sizes.micro_batches;
  // Beside another size of a part, dp stays as it is written.
  const Json* layout = scenario.document.find("layout");
  if ((all.axes.contains(Axis::dp_shard) || all.axes.contains(Axis::dp_replicate)) && layout != nullptr &&
      layout->find("dp") != nullptr)
    all.axes.try_emplace(Axis::dp, scenario.layout.dp);
  return all;
}

bool reads_tokens_otherwise(const Scenario& before, const Scenario& after) {
  if (before.schedule == nullptr || after.schedule == nullptr) return false;
  const Batch &then = before.schedule->batch, &now = after.schedule->batch;
  if (then.micro_batch_counts == now.micro_batch_counts) return false;
  return std::any_of(now.tokens_of_use.begin(), now.tokens_of_use.end(), [&](const auto& entry) {
    const auto& [use, tokens] = entry;
    const auto old = then.tokens_of_use.find(use);
    return tokens.kind == Batch::Tokens::Kind::list && old != then.tokens_of_use.end() && old->second == tokens;
  });
}

std::shared_ptr<const Scenario> read_at(const Scenario& scenario, const FileSizes& sizes) {
  auto there = read_if_allowed(scenario, {sizes_of(scenario, sizes)});
  return there == nullptr || reads_tokens_otherwise(scenario, *there) ? nullptr : there;
}

int most_micro_batches(const Scenario& scenario) {
  const Batch& batch = scenario.schedule->batch;
  return *std::max_element(batch.micro_batch_counts.begin(), batch.micro_batch_counts.end());
}

std::vector<Parameter> one_of_each_class(const Schedule& schedule) {
  std::set<std::string> selectors;
  collect_selectors(schedule.steps, selectors);
  // Long lists are of plain names.
  std::unordered_map<std::string, std::string> of_name;  // the items that are the name of one parameter, as text
  std::vector<schedule::SelectorItem> others;
  for (const std::string& text : selectors) {
    schedule::SelectorItem item = schedule::SelectorItem::read(text);
    if (item.is_plain_name()) {
      of_name[item.pattern] += "\n" + text;
    } else {
      others.push_back(std::move(item));
    }
  }
  std::set<std::string> classes, tied;
  std::vector<Parameter> kept;
  for (const Parameter& parameter : schedule.model.parameters()) {
    std::string key = folded_name(parameter.name) + text_of_class(parameter);
    if (const auto found = of_name.find(parameter.name); found != of_name.end()) key += found->second;
    for (const schedule::SelectorItem& item : others)
      key += item.fits(parameter, parameter.numel(), parameter.chunk) ? '1' : '0';
    const bool together = !parameter.tied.empty() && tied.contains(parameter.tied);
    if (!classes.insert(key).second && !together) continue;
    if (!parameter.tied.empty()) tied.insert(parameter.tied);
    kept.push_back(parameter);
  }
  return kept;
}

std::vector<Parameter> few_of(const std::vector<Parameter>& parameters, const std::set<std::string>& wrong) {
  constexpr std::size_t few = 4;
  std::set<std::string> placements, tied;
  std::vector<Parameter> kept;
  for (const Parameter& parameter : parameters) {
    if (!wrong.contains(parameter.name)) continue;
    Parameter placement = parameter;
    placement.tags.clear();
    if (placements.size() == few || !placements.insert(text_of_class(placement)).second) continue;
    tied.insert(parameter.tied);
    kept.push_back(parameter);
  }
  const auto is_tied = [](const Parameter& parameter) { return !parameter.tied.empty(); };
  for (const Parameter& parameter : parameters) {
    const bool known = std::find(kept.begin(), kept.end(), parameter) != kept.end();
    if (is_tied(parameter) && tied.contains(parameter.tied) && !known) kept.push_back(parameter);
  }
  // Steps and losses name uses, which somebody must have.
  std::set<std::string> uses;
  const auto has_others = [&](const Parameter& parameter) {
    const std::size_t before = uses.size();
    uses.insert(parameter.uses.begin(), parameter.uses.end());
    return uses.size() > before;
  };
  for (const Parameter& parameter : kept) has_others(parameter);
  for (const Parameter& parameter : parameters) {
    if (!is_tied(parameter) && has_others(parameter)) kept.push_back(parameter);
  }
  return kept;
}

std::set<std::string> folded_wrong_names(const CheckResult& result) {
  std::set<std::string> names = {std::string(name_of(result.verdict))};
  for (const int parameter : wrong_set(result).parameters)
    names.insert(folded_name(result.scenario->schedule->model.parameters()[at(parameter)].name));
  return names;
}

std::shared_ptr<const CheckResult> check_at(const Scenario& scenario, const FileSizes& sizes) {
  const std::shared_ptr<const Scenario> small = read_at(scenario, sizes);
  if (small == nullptr) return nullptr;
  CheckOptions options = CheckOptions::verdict_alone();
  options.parametric_where_large = false;
  return std::make_shared<const CheckResult>(check_scenario(small, options));
}

SmallLayout smallest_layout(const CheckResult& result) {
  const Scenario& scenario = *result.scenario;
  const std::set<std::string> wanted = folded_wrong_names(result);
  SmallLayout found;
  const auto shows = [&](const FileSizes& sizes) {
    std::shared_ptr<const CheckResult> small = check_at(scenario, sizes);
    if (small == nullptr || folded_wrong_names(*small) != wanted) return false;
    found = {sizes, std::move(small)};
    return true;
  };
  constexpr int few = 2, small_world = 64;
  const std::vector<std::pair<std::string, int>> written = written_axes(scenario);
  const auto all_at = [&](int size) {
    FileSizes all;
    for (const auto& [axis, of_file] : written) {
      if (of_file > size) all.axes.emplace_back(axis, size);
    }
    if (most_micro_batches(scenario) > few) all.micro_batches = few;
    return all;
  };
  const FileSizes least = all_at(few);
  if (least.empty() || shows(least)) return found;
  // What goes wrong as soon as an axis passes some number; each trial at a large size would replay all ranks.
  if (scenario.schedule == nullptr || scenario.schedule->mesh.world() > small_world) {
    for (const int more : {3, 4, 5, 8}) {
      if (shows(all_at(more))) break;
    }
  }
  if (found.sizes.empty() && least.micro_batches > 0) shows({{}, few});
  for (const auto& [axis, size] : written) {
    for (int fewer = few; fewer <= few + 1 && fewer < size; ++fewer) {
      FileSizes next = found.sizes;
      std::erase_if(next.axes, [&name = axis](const auto& entry) { return entry.first == name; });
      next.axes.emplace_back(axis, fewer);
      if (shows(next)) break;
    }
  }
  return found;
}

std::vector<OtherSize> sizes_around(const Scenario& scenario, const FileSizes& smallest,
                                    const std::vector<std::string>& more_axes) {
  constexpr int most = 4;
  std::map<std::string, int> now;
  for (const std::string& axis : more_axes) now[axis] = 1;
  for (const auto& [axis, size] : written_axes(scenario)) now[axis] = size;
  for (const auto& [axis, size] : smallest.axes) now[axis] = size;
  std::vector<OtherSize> list;
  for (const auto& [axis, size] : now) {
    for (int other = 1; other <= most; ++other) {
      if (other == size) continue;
      FileSizes sizes = smallest;
      std::erase_if(sizes.axes, [&name = axis](const auto& entry) { return entry.first == name; });
      sizes.axes.emplace_back(axis, other);
      list.push_back({axis, std::move(sizes)});
    }
  }
  const int micro_batches = smallest.micro_batches > 0 ? smallest.micro_batches : most_micro_batches(scenario);
  for (int other = 1; other < most; ++other) {
    if (other == micro_batches) continue;
    FileSizes sizes = smallest;
    sizes.micro_batches = other;
    list.push_back({"micro_batches", std::move(sizes)});
  }
  return list;
}

}  // namespace lockstep::diagnosis
