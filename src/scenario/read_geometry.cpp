// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "src/scenario/reading.h"

namespace lockstep::scenario {

Selectors read_selectors(const Json& value, Reading& reading) {
  std::vector<std::string> items;
  const std::vector<Json> list = value.is_string() ? std::vector<Json>{value} : value.items();
  for (const Json& item : list) {
    if (const std::optional<std::string> mistake = Selectors::check(item.text())) {
      reading.diagnostics.add(item.place(), *mistake);
    } else {
      items.push_back(item.text());
    }
  }
  return Selectors(std::move(items));
}

namespace {

/// Of which together there is at least one.
std::vector<std::int64_t> read_parts(const Json& value, Reading& reading) {
  constexpr std::int64_t most = std::int64_t{1} << 31;
  std::vector<std::int64_t> counts;
  std::int64_t all = 0;
  for (const Json& item : value.items()) {
    counts.push_back(std::min(*whole_number(item), most));
    all = std::min(all + counts.back(), most);
  }
  if (all == 0)
    reading.diagnostics.add(value.place(), "expected a count above 0 in \"counts\": nobody would get anything");
  if (all == most) reading.diagnostics.add(value.place(), "expected fewer than 2^31 parts in \"counts\" together");
  return counts;
}

}  // namespace

Geometry read_geometry(const Json& object, Reading& reading) {
  Geometry geometry;
  geometry.place = object.place();
  const ObjectKey& kind_row = *find_key(object_row(Object::geometry), "kind");
  const Json* kind = object.find("kind");
  if (kind == nullptr) {
    reading.diagnostics.add(object.place(), fmt::format("missing key \"kind\" in \"geometry\": expected {}",
                                                        quoted_alternatives(split_words(kind_row.allowed))));
    return geometry;
  }
  if (!check_type(*kind, Type::one_of, kind_row.allowed, reading.diagnostics)) return geometry;
  const Fields fields(object, Object::geometry, kind->text(), "in \"geometry\"", reading.diagnostics);
  const std::vector<std::string> kinds = split_words(kind_row.allowed);
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    if (kinds[i] == kind->text()) geometry.kind = static_cast<Geometry::Kind>(i);
  }
  const auto expression = [&](std::string_view key) -> std::optional<Expression> {
    const Json* value = fields.find(key);
    return value != nullptr ? read_expression(*value, {.in_geometry = true}, reading) : std::nullopt;
  };
  geometry.align = expression("align");
  geometry.size = expression("size");
  if (const auto align = expression("align_parameter")) geometry.align_parameter = *align;
  geometry.align_bucket = expression("align_bucket");
  const Json* separate = fields.find("separate");
  // A Selectors without items would choose everything.
  if (separate != nullptr && !(separate->is_array() && separate->items().empty())) {
    geometry.separate = read_selectors(*separate, reading);
  }
  if (const Json* counts = fields.find("counts")) geometry.counts = read_parts(*counts, reading);
  return geometry;
}

}  // namespace lockstep::scenario
