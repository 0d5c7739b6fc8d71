// SPDX-License-Identifier: Apache-2.0
#include "src/report/geometry_classes.h"

#include <algorithm>
#include <map>
#include <set>

#include "src/base/at.h"

namespace lockstep::report {

namespace {

/// What a geometry cuts on the first member: the whole buffers, or of each what is owned.
std::vector<GeometryItem> items_of(const Schedule& schedule, const Call& call) {
  std::vector<GeometryItem> items;
  for (std::size_t position = 0; position < call.buffers->size(); ++position) {
    const LocalBuffer& buffer = schedule.model.local(call.rank).buffers[at((*call.buffers)[position])];
    GeometryItem item;
    item.numel = buffer.numel;
    item.rows = buffer.rows;
    item.chunk = buffer.chunk;
    item.dtype = buffer.dtype;
    if (!call.owned.empty()) item.numel = size(call.owned[position]);
    const Geometry& geometry = *call.step->geometry;
    item.separate = geometry.separate && geometry.separate->chooses(schedule.model, buffer);
    items.push_back(item);
  }
  return items;
}

GeometryClass make_class(const Schedule& schedule, const Event& event) {
  const Call& call = event.calls.front();
  const Geometry& geometry = *call.step->geometry;
  const int members = static_cast<int>(event.calls.size());
  GeometryClass made;
  made.step = call.step;
  GeometryLayout layout;
  if (geometry.kind == Geometry::Kind::flat || geometry.kind == Geometry::Kind::bucket) {
    Environment environment;
    environment.mesh = &schedule.mesh;
    environment.counts = &schedule.batch;
    environment.rank = call.rank;
    environment.step = event.optimizer_step;
    layout = lay_out(geometry, items_of(schedule, call), members, environment);
    made.buckets = layout.buckets;
  }
  const std::vector<LocalBuffer>& buffers = schedule.model.local(call.rank).buffers;
  for (std::size_t position = 0; position < event.cuts.size(); ++position) {
    GeometryClass::Slices slices;
    slices.parameter = buffers[at((*call.buffers)[position])].parameters.front();
    slices.numel = event.cuts[position].numel;
    if (!made.buckets.empty()) {
      slices.bucket = layout.bucket_of[position];
      slices.position = layout.position[position];
    }
    for (int member = 0; member < members; ++member) {
      Interval slice = event.cuts[position].slice(member);
      if (slice.empty()) slice = {0, 0};
      slices.slices.push_back(slice);
    }
    made.parameters.push_back(std::move(slices));
  }
  std::stable_sort(made.parameters.begin(), made.parameters.end(),
                   [](const GeometryClass::Slices& a, const GeometryClass::Slices& b) {
                     return std::make_pair(a.bucket, a.position) < std::make_pair(b.bucket, b.position);
                   });
  return made;
}

}  // namespace

std::vector<GeometryClass> geometry_classes(const Schedule& schedule, const Timeline& timeline) {
  std::vector<GeometryClass> classes;
  // Groups are cut alike where their first members hold the same model and select the same of it.
  std::map<std::tuple<const Step*, std::size_t, int, std::vector<int>, std::vector<std::int64_t>>, std::size_t> index;
  std::set<std::pair<const Step*, int>> seen;
  for (const Event& event : timeline.events) {
    if (operation(event.op).ownership != Operation::Ownership::intersects_own_slice || event.optimizer_step > 0 ||
        event.calls.empty())
      continue;
    const Call& call = event.calls.front();
    if (!seen.emplace(call.step, call.rank).second) continue;
    std::vector<std::int64_t> cuts;
    for (const Cut& cut : event.cuts)
      cuts.insert(cuts.end(), {cut.offset, cut.length, cut.numel});  // the step, which is in the key, says the counts
    const auto key = std::make_tuple(call.step, event.calls.size(), schedule.model.local(call.rank).id, *call.buffers,
                                     std::move(cuts));
    const auto [place, fresh] = index.emplace(key, classes.size());
    if (fresh) classes.push_back(make_class(schedule, event));
    std::vector<int>& group = classes[place->second].groups.emplace_back();
    for (const Call& member : event.calls) group.push_back(member.rank);
  }
  return classes;
}

}  // namespace lockstep::report
