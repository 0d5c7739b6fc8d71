// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "src/scenario/other_words.h"
#include "src/scenario/reading.h"

namespace lockstep::scenario {

namespace {

bool is_dense_only(Axis axis) { return !is_expert_axis(axis) && axis != Axis::pp; }

/// Axes of one mesh, each once.
void check_axes(const std::vector<std::pair<Axis, Place>>& axes, Reading& reading) {
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const auto& [axis, place] = axes[i];
    const Layout& layout = reading.mesh->layout();
    if (is_part_of(axis, Axis::edp) && reading.all_known() && !layout.splits_edp()) {
      reading.diagnostics.add(
          place, fmt::format("\"{}\" needs edp in dp_replicate equal parts, but edp is {} and dp_replicate {}",
                             name_of(axis), layout.edp(), layout.dp_replicate));
    }
    for (std::size_t j = 0; j < i; ++j) {
      const Axis other = axes[j].first;
      if (axis == other) {
        reading.diagnostics.add(place, fmt::format("axis \"{}\" is named twice", name_of(axis)));
      } else if (is_part_of(axis, other) || is_part_of(other, axis)) {
        const Axis whole = is_part_of(axis, other) ? other : axis;
        reading.diagnostics.add(
            place, fmt::format("\"{0}\" names the product of {0}_shard and {0}_replicate, so it cannot stand beside "
                               "\"{1}\"",
                               name_of(whole), name_of(whole == axis ? other : axis)));
      } else if ((is_dense_only(axis) && is_expert_axis(other)) || (is_expert_axis(axis) && is_dense_only(other))) {
        reading.diagnostics.add(
            place, fmt::format("\"{}\" and \"{}\" are axes of different meshes: the dense mesh has tp, cp, sp, dp and "
                               "pp, the expert mesh etp, ep, edp and pp",
                               name_of(other), name_of(axis)));
      } else {
        continue;
      }
      break;
    }
  }
}

/// A coordinate or a list of them.
struct Coordinates {
  std::vector<Coordinate> written;
  std::vector<int> numbers;  ///< ascending; where the axis has no known size, without those counted from the end
};

Coordinate read_coordinate(const Json& value) {
  if (value.is_string()) return {value.text() == "last" ? Coordinate::Kind::last : Coordinate::Kind::first};
  constexpr std::int64_t most = 1 << 30;
  return {Coordinate::Kind::number,
          static_cast<int>(std::clamp<std::int64_t>(whole_number(value).value_or(0), -most, most))};
}

Coordinates read_coordinates(const Json& value, Axis axis, Reading& reading) {
  const bool known = reading.size_known(axis);
  const int size = reading.mesh->size(axis);
  const std::vector<Json> items = value.is_array() ? value.items() : std::vector<Json>{value};
  Coordinates coordinates;
  for (const Json& item : items) {
    const Coordinate written = read_coordinate(item);
    coordinates.written.push_back(written);
    if (!known && (written.kind == Coordinate::Kind::last || written.number < 0)) continue;
    const std::int64_t number = written.on(size);
    if (known && (number < 0 || number >= size)) {
      reading.diagnostics.add(item.place(), fmt::format("coordinate {} is not on axis \"{}\", which has size {}",
                                                        item.text(), name_of(axis), size));
      continue;
    }
    coordinates.numbers.push_back(static_cast<int>(number));
  }
  // "first" and "last" of an axis of size 1 are one coordinate and no mistake.
  std::vector<int>& numbers = coordinates.numbers;
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  return coordinates;
}

}  // namespace

std::optional<Axis> read_axis_key(const Json::Member& member, Reading& reading) {
  const std::optional<Axis> axis = axis_named(member.key);
  if (!axis) {
    reading.diagnostics.add(key_place(member), fmt::format("unknown axis \"{}\"{}", member.key,
                                                           did_you_mean_here(member.key, axis_names())));
  }
  return axis;
}

Over read_over(const Json& value, Reading& reading) {
  Over over;
  std::vector<std::pair<Axis, Place>> axes;
  const auto add_axis = [&](const Json& item) {
    if (!check_type(item, Type::axis, "", reading.diagnostics)) return;
    axes.emplace_back(*axis_named(item.text()), item.place());
    over.picks.push_back({axes.back().first, std::nullopt});
  };
  if (value.is_string()) add_axis(value);
  for (const Json& item : value.items()) add_axis(item);
  for (const Json::Member& member : value.members()) {
    const std::optional<Axis> axis = read_axis_key(member, reading);
    if (!axis) continue;
    axes.emplace_back(*axis, key_place(member));
    over.picks.push_back({*axis, std::nullopt});
    if (member.value.is_string() && member.value.text() == "all") continue;
    if (member.value.is_array() && member.value.items().empty()) {
      reading.diagnostics.add(member.value.place(),
                              fmt::format("expected at least one coordinate on axis \"{}\"", name_of(*axis)));
      continue;
    }
    Coordinates coordinates = read_coordinates(member.value, *axis, reading);
    over.picks.back().coordinates = std::move(coordinates.numbers);
    over.picks.back().written = std::move(coordinates.written);
  }
  check_axes(axes, reading);
  return over;
}

Root read_root(const Json& value, Reading& reading) {
  Root root;
  if (value.is_number()) {
    root.position = static_cast<int>(std::min<std::int64_t>(whole_number(value).value_or(0), 1 << 30));
    return root;
  }
  for (const Json::Member& member : value.members()) {
    const std::optional<Axis> axis = read_axis_key(member, reading);
    if (!axis) continue;
    const Coordinates coordinates = read_coordinates(member.value, *axis, reading);
    root.written.emplace_back(*axis, coordinates.written[0]);
    if (!coordinates.numbers.empty()) root.coordinates.emplace_back(*axis, coordinates.numbers[0]);
  }
  return root;
}

std::vector<Only> read_only(const Json& value, Reading& reading) {
  std::vector<Only> list;
  for (const Json::Member& member : value.members()) {
    const std::optional<Axis> axis = read_axis_key(member, reading);
    if (!axis) continue;
    Coordinates coordinates = read_coordinates(member.value, *axis, reading);
    list.push_back({*axis, std::move(coordinates.numbers), std::move(coordinates.written)});
  }
  return list;
}

}  // namespace lockstep::scenario
