// SPDX-License-Identifier: Apache-2.0
#include "src/live/declarations.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "src/base/counted.h"

namespace lockstep::live {

namespace {

constexpr std::int64_t most_chunks = 1024;
constexpr std::int64_t most_elements_of_one = INT64_MAX / 4;

std::string did_you_mean_loss(const std::string& loss) {
  const std::string near = did_you_mean(loss, captured_loss_names());
  return near.empty() ? fmt::format("; expected {} or null", fmt::join(captured_loss_names(), ", ")) : near;
}

/// "tokens" of a step of so many micro-batches; none where nobody told any.
std::vector<std::optional<std::int64_t>> read_tokens(const Event& event, int micro_batches) {
  std::vector<std::optional<std::int64_t>> all;
  const Json* tokens = event.find("tokens");
  if (tokens == nullptr || tokens->is_null()) return all;
  if (!tokens->is_array() || tokens->items().size() != static_cast<std::size_t>(micro_batches)) {
    event.mistake(
        *tokens,
        fmt::format("\"tokens\": expected a number or null for each of {} micro-batches, found {}", micro_batches,
                    tokens->is_array() ? fmt::format("{}", tokens->items().size()) : tokens->describe()));
    return all;
  }
  for (const Json& item : tokens->items()) {
    const std::optional<std::int64_t> number = whole_number_of(item);
    if (!item.is_null() && (!number || *number < 0 || *number > std::int64_t{1} << 40))
      event.mistake(item,
                    fmt::format("\"tokens\": expected a whole number from 0 on or null, found {}", item.describe()));
    all.push_back(item.is_null() ? std::nullopt : number);
  }
  return all;
}

}  // namespace

std::optional<CapturedLoss> read_loss(const Event& event) {
  const std::optional<std::string> name = event.text_or_null("loss");
  if (!name) return std::nullopt;
  const std::optional<CapturedLoss> loss = loss_named(*name);
  if (!loss) event.mistake(*event.find("loss"), fmt::format("unknown loss \"{}\"{}", *name, did_you_mean_loss(*name)));
  return loss;
}

std::vector<Interval> read_piece(const Event& event, const Json& piece, const DeclaredParameter& parameter) {
  std::int64_t numel = 1;
  for (const std::int64_t size : parameter.shape) numel *= size;
  const Json* range = piece.find("range");
  const Json* box = piece.find("box");
  const auto interval = [&](const Json& pair, std::int64_t most) -> Interval {
    if (pair.items().size() == 2) {
      const auto begin = whole_number_of(pair.items()[0]), end = whole_number_of(pair.items()[1]);
      if (begin && end && 0 <= *begin && *begin <= *end && *end <= most) return {*begin, *end};
    }
    event.mistake(pair,
                  fmt::format("expected [first, end) of a piece of \"{}\" within 0 and {}", parameter.name, most));
    return {0, 0};
  };
  std::vector<Interval> result;
  if (range != nullptr) {
    result.push_back(interval(*range, numel));
  } else if (box != nullptr && box->items().size() == parameter.shape.size()) {
    for (std::size_t i = 0; i < parameter.shape.size(); ++i)
      result.push_back(interval(box->items()[i], parameter.shape[i]));
    if (parameter.shape.empty()) result.push_back({0, 1});
  } else {
    event.mistake(piece,
                  fmt::format("a piece of \"{}\": expected \"range\" with two numbers, or \"box\" with a pair for "
                              "each of {} dimensions",
                              parameter.name, parameter.shape.size()));
  }
  return result;
}

std::vector<std::pair<std::string, std::string>> read_versions(const Event& event) {
  std::vector<std::pair<std::string, std::string>> all;
  const Json* versions = event.find("versions");
  if (versions == nullptr) return all;
  for (const Json::Member& member : versions->members()) {
    if (member.value.is_string()) all.emplace_back(member.key, member.value.text());
  }
  return all;
}

void read_mesh(const Event& event, Header& header, bool ranks_given) {
  const Json* mesh = event.required("mesh");
  if (mesh == nullptr) return;
  if (!mesh->is_object())
    return event.mistake(*mesh, fmt::format("\"mesh\": expected an object, found {}", mesh->describe()));
  const Event inner = event.inner(*mesh);
  header.axes = inner.texts("axes");
  for (const std::int64_t size : inner.wholes("sizes", 1, 1 << 20)) header.sizes.push_back(static_cast<int>(size));
  std::vector<int> all(static_cast<std::size_t>(header.world));
  std::iota(all.begin(), all.end(), 0);
  if (ranks_given || inner.find("ranks") != nullptr) {
    for (const std::int64_t rank : inner.wholes("ranks", 0, 1 << 20))
      header.mesh_ranks.push_back(static_cast<int>(rank));
  } else {
    header.mesh_ranks = all;
  }
  if (header.axes.size() >= most_axes)
    return inner.mistake(fmt::format("the mesh has {} axes; at most {} are read", header.axes.size(), most_axes - 1));
  if (header.axes.size() != header.sizes.size())
    return inner.mistake(fmt::format("the mesh has {} and {}", counted(header.axes.size(), "axis"),
                                     counted(header.sizes.size(), "size")));
  for (std::size_t axis = 0; axis < header.axes.size(); ++axis) {
    const auto end = header.axes.begin() + static_cast<std::ptrdiff_t>(axis);
    if (std::find(header.axes.begin(), end, header.axes[axis]) != end)
      return inner.mistake(fmt::format("the mesh has two axes \"{}\"", header.axes[axis]));
  }
  std::int64_t product = 1;
  for (const int size : header.sizes) product = std::min<std::int64_t>(product * size, 1 << 21);
  if (product != header.world)
    return inner.mistake(
        fmt::format("the sizes of the mesh make {} ranks, and \"world\" is {}", product, header.world));
  std::vector<int> sorted = header.mesh_ranks;
  std::sort(sorted.begin(), sorted.end());
  if (sorted != all)
    return inner.mistake(fmt::format("\"ranks\" of the mesh: expected each rank from 0 to {} once", header.world - 1));
  header.data_axes = event.texts("data_axes");
  for (const std::string& axis : header.data_axes) {
    if (std::find(header.axes.begin(), header.axes.end(), axis) == header.axes.end())
      event.mistake(fmt::format("\"data_axes\" names \"{}\", which is no axis of the mesh{}", axis,
                                did_you_mean(axis, header.axes)));
  }
}

std::optional<DeclaredParameter> read_declared(const Event& event) {
  DeclaredParameter parameter;
  parameter.name = event.required_text("name");
  parameter.aliases = event.texts("aliases");
  parameter.shape = event.wholes("shape");
  parameter.dtype = event.text("dtype", "");
  parameter.frozen = event.boolean("frozen", false);
  if (event.find("chunk") != nullptr) parameter.chunk = static_cast<int>(event.whole("chunk", 0, most_chunks));
  if (event.find("group") != nullptr) parameter.group = static_cast<int>(event.whole("group"));
  parameter.placed = event.texts("placed");
  parameter.sampled = event.boolean("sampled", false);
  if (event.find("start") != nullptr) parameter.start = event.hash("start");
  parameter.starts_constant = event.boolean("constant", false);
  std::int64_t numel = 1;
  for (const std::int64_t size : parameter.shape) {
    if (size > 0 && numel > most_elements_of_one / size) {
      event.mistake(fmt::format("the shape of \"{}\" has too many elements", parameter.name));
      return std::nullopt;
    }
    numel *= size;
  }
  if (const Json* pieces = event.required("pieces"); pieces != nullptr) {
    if (!pieces->is_array()) {
      event.mistake(*pieces, fmt::format("\"pieces\": expected a list, found {}", pieces->describe()));
      return std::nullopt;
    }
    for (const Json& piece : pieces->items()) parameter.pieces.push_back(read_piece(event, piece, parameter));
  }
  return parameter;
}

CaptureGap read_gap(const Event& event) {
  CaptureGap gap;
  if (const Json* step = event.required("step"); step != nullptr && !step->is_null())
    gap.step = static_cast<int>(event.whole("step"));
  gap.of_all = event.find("parameters") == nullptr;
  gap.why = event.required_text("why");
  if (const Json* why = event.find("why"); why != nullptr && gap.why.empty())
    event.mistake(*why, fmt::format("\"why\" of a {}: expected a sentence without a period, found {}", event.words(),
                                    why->describe()));
  return gap;
}

void read_micro_batches(const Event& event, RankStep& step) {
  const auto count = static_cast<int>(event.whole("micro_batches", 0, 1 << 20));
  if (count < step.micro_batches) {
    event.mistake(fmt::format("the step has {} micro-batches, and micro-batch {} yielded a contribution", count,
                              step.micro_batches - 1));
  }
  step.micro_batches = std::max(step.micro_batches, count);
  step.tokens = read_tokens(event, count);
}

std::uint32_t read_partial(const Event& event, const std::vector<std::string>& axes) {
  std::uint32_t partial = 0;
  for (const std::string& axis : event.texts("partial")) {
    const auto found = std::find(axes.begin(), axes.end(), axis);
    if (found == axes.end()) {
      event.mistake(
          fmt::format("\"partial\" names \"{}\", which is no axis of the mesh{}", axis, did_you_mean(axis, axes)));
      return partial;
    }
    partial |= std::uint32_t{1} << (found - axes.begin());
  }
  return partial;
}

}  // namespace lockstep::live
