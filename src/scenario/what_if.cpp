// SPDX-License-Identifier: Apache-2.0
#include "src/scenario/what_if.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "src/base/counted.h"

namespace lockstep {

std::string describe(const Sizes& sizes) {
  std::vector<std::string> parts;
  parts.reserve(sizes.axes.size() + 1);
  for (const auto& [axis, size] : sizes.axes) parts.push_back(fmt::format("{} {}", name_of(axis), size));
  if (sizes.micro_batches) parts.push_back(counted(*sizes.micro_batches, "micro-batch"));
  return fmt::format("{}", fmt::join(parts, ", "));
}

namespace scenario {

namespace {

Json number_at(int number, const Json* old) {
  return Json::number(std::to_string(number), old != nullptr ? old->place() : Place());
}

}  // namespace

Json layout_with(const Json* layout, const Sizes& sizes) {
  Json result = layout != nullptr ? *layout : Json::object();
  const auto set = [&](Axis axis, int size) { result.set(name_of(axis), number_at(size, result.find(name_of(axis)))); };
  const auto remove = [&](Axis axis) { result.remove(name_of(axis)); };
  const auto gives = [&](Axis axis) { return sizes.axes.contains(axis); };
  for (const auto& [axis, size] : sizes.axes) {
    if (axis != Axis::edp) set(axis, size);
  }
  if ((gives(Axis::dp_shard) || gives(Axis::dp_replicate)) && !gives(Axis::dp)) remove(Axis::dp);
  if (gives(Axis::edp)) {
    remove(Axis::dp_shard);
    remove(Axis::dp_replicate);
    if (gives(Axis::tp) && result.find("etp") != nullptr) set(Axis::etp, sizes.axes.at(Axis::tp));
    set(Axis::dp, (gives(Axis::ep) ? sizes.axes.at(Axis::ep) : 1) * sizes.axes.at(Axis::edp));
  }
  for (const Axis axis : sizes.any) {
    const Json* old = result.find(name_of(axis));
    result.set(name_of(axis), Json::string("any", old != nullptr ? old->place() : Place()));
  }
  return result;
}

Json batch_with(const Json* batch, const Sizes& sizes) {
  Json result = batch != nullptr ? *batch : Json::object();
  if (!sizes.micro_batches) return result;
  result.set("micro_batches", number_at(*sizes.micro_batches, result.find("micro_batches")));
  return result;
}

Json schedule_with(const Json& schedule, const WhatIf& what_if) {
  Json result = schedule;
  if (!what_if.edits.empty() || !what_if.left_out.empty()) {
    const Json* written = schedule.find("edits");
    std::vector<Json> edits = written != nullptr ? written->items() : std::vector<Json>();
    for (auto one = what_if.left_out.rbegin(); one != what_if.left_out.rend(); ++one)
      edits.erase(edits.begin() + static_cast<std::ptrdiff_t>(*one));
    for (const Edit& edit : what_if.edits) edits.push_back(to_json(edit));
    result.set("edits", Json::array(std::move(edits), written != nullptr ? written->place() : schedule.place()));
  }
  if (!what_if.options.empty()) {
    const Json* written = schedule.find("options");
    Json options = written != nullptr ? *written : Json::object({}, schedule.place());
    for (const Json::Member& member : what_if.options) options.set(member.key, member.value);
    result.set("options", options);
  }
  return result;
}

Json document_with(const Json& document, const WhatIf& what_if) {
  Json result = document;
  result.remove("expect");
  result.set("layout", layout_with(document.find("layout"), what_if.sizes));
  if (what_if.sizes.micro_batches) result.set("batch", batch_with(document.find("batch"), what_if.sizes));
  if (const Json* schedule = document.find("schedule")) result.set("schedule", schedule_with(*schedule, what_if));
  return result;
}

}  // namespace scenario

}  // namespace lockstep
