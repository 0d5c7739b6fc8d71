// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "src/scenario/reading.h"

namespace lockstep::scenario {

namespace {

constexpr std::int64_t world_limit = std::int64_t{1} << 20;

/// The size that `key` gives; 1 where it is absent or "any".
std::int64_t read_size(const Fields& fields, Axis axis, Layout& layout, Diagnostics& diagnostics) {
  const Json* value = fields.find(name_of(axis));
  if (value == nullptr) return 1;
  if (value->is_string()) {
    layout.any.push_back(axis);
    return 1;
  }
  const std::int64_t size = fields.integer(name_of(axis), 1);
  if (size <= world_limit) return size;
  diagnostics.add(value->place(), fmt::format("axis \"{}\" has {} ranks, more than the {} that a layout may have",
                                              name_of(axis), size, world_limit));
  return 1;
}

void read_order(const Json& value, Layout& layout, Diagnostics& diagnostics) {
  const std::vector<std::string> known = {"tp", "cp", "sp", "ep", "dp", "pp"};
  std::vector<Axis> order;
  const std::string& text = value.text();
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('-', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    const Place place = inside_string(value, begin, std::max<std::size_t>(end - begin, 1));
    if (std::find(known.begin(), known.end(), word) == known.end()) {
      diagnostics.add(place, fmt::format("\"order\" names \"{}\"; its axes are {}, separated by \"-\"", word,
                                         quoted_alternatives(known)));
    } else if (std::find(order.begin(), order.end(), *axis_named(word)) != order.end()) {
      diagnostics.add(place, fmt::format("\"order\" names \"{}\" twice", word));
    } else {
      order.push_back(*axis_named(word));
    }
    begin = end + 1;
  }
  layout.order = order;
}

/// Axes in the order string that must stand there: tp also stands for etp, dp for edp.
void check_order(const Json* value, const Json& object, const Layout& layout, Diagnostics& diagnostics) {
  const auto is_any = [&](std::initializer_list<Axis> axes) {
    return std::any_of(axes.begin(), axes.end(), [&](Axis axis) {
      return std::find(layout.any.begin(), layout.any.end(), axis) != layout.any.end();
    });
  };
  const auto require = [&](Axis axis, Axis by, bool larger, std::string_view size) {
    if (!larger || std::find(layout.order.begin(), layout.order.end(), axis) != layout.order.end()) return;
    const Place& place = value != nullptr ? value->place() : object.place();
    const std::string reason =
        axis == by ? "" : fmt::format(" (the expert mesh reads \"{}\" as \"{}\")", name_of(axis), name_of(by));
    diagnostics.add(place,
                    fmt::format("\"order\" does not name \"{}\", which must then have size 1, but \"{}\" is {}{}",
                                name_of(axis), name_of(by), size, reason));
  };
  const auto size_text = [](int size) { return size > 1 ? std::to_string(size) : std::string("\"any\""); };
  require(Axis::tp, Axis::tp, layout.tp > 1 || is_any({Axis::tp}), size_text(layout.tp));
  require(Axis::tp, Axis::etp, layout.etp > 1 || is_any({Axis::etp}), size_text(layout.etp));
  require(Axis::cp, Axis::cp, layout.cp > 1 || is_any({Axis::cp}), size_text(layout.cp));
  require(Axis::sp, Axis::sp, layout.sp > 1 || is_any({Axis::sp}), size_text(layout.sp));
  require(Axis::ep, Axis::ep, layout.ep > 1 || is_any({Axis::ep}), size_text(layout.ep));
  require(Axis::dp, Axis::dp, layout.dp > 1 || is_any({Axis::dp, Axis::dp_shard, Axis::dp_replicate}),
          size_text(layout.dp));
  require(Axis::pp, Axis::pp, layout.pp > 1 || is_any({Axis::pp}), size_text(layout.pp));
  // A dp above 1 is the mistake already.
  if (layout.any.empty() && layout.dp == 1) require(Axis::dp, Axis::edp, layout.edp() > 1, size_text(layout.edp()));
}

/// dp, dp_shard and dp_replicate, of which any may be given.
void read_dp(const Fields& fields, const Json& object, Layout& layout, Diagnostics& diagnostics) {
  const std::int64_t dp = read_size(fields, Axis::dp, layout, diagnostics);
  const std::int64_t shard = read_size(fields, Axis::dp_shard, layout, diagnostics);
  const std::int64_t replicate = read_size(fields, Axis::dp_replicate, layout, diagnostics);
  const Json* given = fields.find("dp");
  const bool has_shard = fields.find("dp_shard") != nullptr, has_replicate = fields.find("dp_replicate") != nullptr;
  std::int64_t whole = shard * replicate, shard_size = shard;
  const bool any = std::any_of(layout.any.begin(), layout.any.end(), [](Axis axis) {
    return axis == Axis::dp || axis == Axis::dp_shard || axis == Axis::dp_replicate;
  });
  if (given != nullptr && any && (has_shard || has_replicate)) {
    const bool open = given->is_string();
    diagnostics.add(
        given->place(),
        fmt::format("\"dp\" is {}, and its part \"{}\" is {}: where one of them is \"any\", give dp alone, or "
                    "dp_shard and dp_replicate without it",
                    open ? "\"any\"" : std::to_string(dp), has_shard ? "dp_shard" : "dp_replicate",
                    fields.find(has_shard ? "dp_shard" : "dp_replicate")->is_string()
                        ? "\"any\""
                        : std::to_string(has_shard ? shard : replicate)));
  }
  if (given != nullptr && !any) {
    whole = dp;
    if (!has_shard) shard_size = dp / replicate;
    if (has_shard && has_replicate && shard * replicate != dp) {
      diagnostics.add(given->place(), fmt::format("\"dp\" is {}, but dp_shard * dp_replicate is {} * {} = {}", dp,
                                                  shard, replicate, shard * replicate));
    } else if (dp % (shard * replicate) != 0) {
      diagnostics.add(given->place(), fmt::format("\"dp\" is {}, which \"{}\" = {} does not divide", dp,
                                                  has_shard ? "dp_shard" : "dp_replicate", shard * replicate));
      whole = shard_size = 1;
    }
  }
  if (whole > world_limit) {
    diagnostics.add(object.place(),
                    fmt::format("dp_shard * dp_replicate is {}, more than the {} ranks that a layout may have", whole,
                                world_limit));
    whole = shard_size = 1;
  }
  layout.dp = static_cast<int>(whole);
  layout.dp_shard = static_cast<int>(shard_size);
  layout.dp_replicate = static_cast<int>(whole / std::max<std::int64_t>(shard_size, 1));
}

void check_world(const Json& object, const Layout& layout, Diagnostics& diagnostics) {
  std::int64_t world = 1;
  for (const int size : {layout.tp, layout.cp, layout.sp, layout.dp, layout.pp}) {
    world *= size;
    if (world <= world_limit) continue;
    diagnostics.add(
        object.place(),
        fmt::format("the world size tp * cp * sp * dp * pp is above {}, the most that a layout may have", world_limit));
    return;
  }
  std::int64_t expert = 1;
  for (const int size : {layout.etp, layout.ep, layout.pp}) {
    expert *= size;
    if (expert <= world_limit) continue;
    diagnostics.add(object.place(), fmt::format("the expert mesh etp * ep * pp = {} * {} * {} is above {}, the most "
                                                "ranks that a layout may have",
                                                layout.etp, layout.ep, layout.pp, world_limit));
    return;
  }
  if (!layout.any.empty() || world % expert == 0) return;
  diagnostics.add(object.place(), fmt::format("the expert mesh needs etp * ep * pp = {} * {} * {} = {} to divide the "
                                              "world size {}, which is tp * cp * sp * dp * pp",
                                              layout.etp, layout.ep, layout.pp, expert, world));
}

}  // namespace

bool Reading::size_known(Axis axis) const {
  if (!layout_known) return false;
  if (layout.any.empty()) return true;
  // edp is a quotient of the others; dp and its two parts hang together.
  const bool dp_like = axis == Axis::dp || axis == Axis::dp_shard || axis == Axis::dp_replicate;
  return axis != Axis::edp && std::none_of(layout.any.begin(), layout.any.end(), [&](Axis any) {
           return any == axis || (dp_like && (any == Axis::dp || any == Axis::dp_shard || any == Axis::dp_replicate));
         });
}

void read_layout(const Json& object, Reading& reading) {
  Diagnostics& diagnostics = reading.diagnostics;
  const std::size_t before = diagnostics.size();
  const Fields fields(object, Object::layout, "", "in \"layout\"", diagnostics);
  Layout layout;
  layout.tp = static_cast<int>(read_size(fields, Axis::tp, layout, diagnostics));
  layout.cp = static_cast<int>(read_size(fields, Axis::cp, layout, diagnostics));
  layout.sp = static_cast<int>(read_size(fields, Axis::sp, layout, diagnostics));
  layout.pp = static_cast<int>(read_size(fields, Axis::pp, layout, diagnostics));
  layout.ep = static_cast<int>(read_size(fields, Axis::ep, layout, diagnostics));
  layout.etp = static_cast<int>(read_size(fields, Axis::etp, layout, diagnostics));
  read_dp(fields, object, layout, diagnostics);
  if (const Json* order = fields.find("order")) read_order(*order, layout, diagnostics);
  layout.sequence_parallel = fields.boolean("sequence_parallel");
  const std::int64_t virtual_stages = fields.integer("virtual_stages", 1);
  if (virtual_stages > world_limit) {
    diagnostics.add(fields.find("virtual_stages")->place(),
                    fmt::format("expected at most {} virtual stages, found {}", world_limit, virtual_stages));
  } else {
    layout.virtual_stages = static_cast<int>(virtual_stages);
  }
  if (diagnostics.size() == before) check_world(object, layout, diagnostics);
  if (diagnostics.size() == before) check_order(fields.find("order"), object, layout, diagnostics);
  reading.layout_known = diagnostics.size() == before;
  reading.layout = reading.layout_known ? layout : Layout();
  reading.mesh = std::make_shared<const Mesh>(reading.layout);
}

}  // namespace lockstep::scenario
