// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "src/base/at.h"
#include "src/base/budget.h"
#include "src/live/read_program.h"
#include "src/live/words.h"

namespace lockstep::live {

namespace {

/// Where a box is one stretch of row-major indices: its first.
std::optional<std::int64_t> first_index(const std::vector<Interval>& piece, const std::vector<std::int64_t>& shape) {
  if (piece.size() != shape.size() || shape.size() < 2)
    return piece.empty() ? std::int64_t{0} : piece.front().begin;  // a range, or a box of one dimension
  std::int64_t index = 0;
  bool one_place = true, whole = true;  // of all dimensions so far; of all after the first that has several places
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    index = index * shape[dim] + piece[dim].begin;
    if (!one_place) whole = whole && piece[dim].size() == shape[dim];
    one_place = one_place && piece[dim].size() == 1;
  }
  return whole ? std::optional(index) : std::nullopt;
}

}  // namespace

ExtractionTables::ExtractionTables(Extraction& extraction) : extraction_(extraction) {}

std::optional<int> ExtractionTables::parameter(const Event& event, const DeclaredParameter& declared) {
  std::vector<RunParameter>& all = extraction_.run.parameters;
  std::optional<int> number;
  std::vector<std::string> names = declared.aliases;
  names.insert(names.begin(), declared.name);
  for (const std::string& name : names) {
    const auto found = by_name_.find(name);
    if (found == by_name_.end()) continue;
    if (number && *number != found->second) {
      event.mistake(fmt::format("\"{}\" has the names of two parameters of programs before, {} and {}", declared.name,
                                all[at(*number)].declared.name, all[at(found->second)].declared.name));
      return std::nullopt;
    }
    number = found->second;
  }
  if (!number) {
    number = static_cast<int>(all.size());
    all.push_back({declared});
    all.back().declared.aliases.clear();
    all.back().declared.pieces.clear();  // each program names parts of its own
  }
  DeclaredParameter& known = all[at(*number)].declared;
  if (known.shape != declared.shape) {
    event.mistake(
        fmt::format("parameter \"{}\" has the shape [{}], and in another program it is [{}]; expected that of the "
                    "whole tensor",
                    declared.name, fmt::join(declared.shape, ", "), fmt::join(known.shape, ", ")));
    return std::nullopt;
  }
  known.frozen = known.frozen && declared.frozen;
  std::erase_if(known.placed, [&](const std::string& axis) {
    return std::find(declared.placed.begin(), declared.placed.end(), axis) == declared.placed.end();
  });
  for (const std::string& name : names) {
    if (by_name_.emplace(name, *number).second && name != known.name) known.aliases.push_back(name);
  }
  return number;
}

int ExtractionTables::region(int parameter, const DeclaredParameter& declared, const std::vector<Interval>& piece) {
  std::vector<std::pair<std::int64_t, std::int64_t>> key;
  Region region;
  region.parameter = parameter;
  region.piece = piece;
  region.elements = 1;
  for (const Interval& interval : region.piece) {
    key.emplace_back(interval.begin, interval.end);
    region.elements *= interval.size();
  }
  region.begin = first_index(region.piece, declared.shape);
  const auto [found, is_new] =
      region_numbers_.try_emplace({parameter, std::move(key)}, static_cast<int>(extraction_.regions.size()));
  if (is_new) extraction_.regions.push_back(std::move(region));
  return found->second;
}

int ExtractionTables::members(std::vector<int> ranks, std::int64_t communicator) {
  std::vector<std::vector<int>>& all = extraction_.programs.members;
  const auto [found, is_new] =
      member_numbers_.try_emplace(std::pair(communicator, ranks), static_cast<int>(all.size()));
  if (is_new) all.push_back(std::move(ranks));
  return found->second;
}

std::optional<int> ExtractionTables::group(const Event& event, const std::vector<int>& ranks) {
  const Json* group = event.required("group");
  if (group == nullptr) return std::nullopt;
  const CapturedRun& run = extraction_.run;
  const Header& header = run.header;
  const std::int64_t communicator = event.find("communicator") == nullptr ? 0 : event.whole("communicator", 0, 1 << 20);
  std::vector<symbolic::ProgramGroup>& groups = extraction_.programs.groups;
  if (group->is_object()) {
    const Event inner = event.inner(*group);
    if (inner.required("axes") == nullptr) return std::nullopt;
    std::uint32_t axes = 0;
    for (const std::string& name : inner.texts("axes")) {
      const auto found = std::find(header.axes.begin(), header.axes.end(), name);
      if (found == header.axes.end()) {
        event.mistake(*group, fmt::format("\"{}\" is no axis of the mesh{}", name, did_you_mean(name, header.axes)));
        return std::nullopt;
      }
      axes |= std::uint32_t{1} << (found - header.axes.begin());
    }
    const auto [found, is_new] =
        groups_by_axes_.try_emplace(std::pair(communicator, axes), static_cast<int>(groups.size()));
    if (!is_new) return found->second;
    Budget::spend(4 * static_cast<std::int64_t>(header.world));
    std::map<int, std::vector<int>> by_others;
    for (const int rank : header.mesh_ranks) by_others[run.other_coordinates(rank, axes)].push_back(rank);
    symbolic::ProgramGroup made;
    made.of_rank.resize(static_cast<std::size_t>(header.world));
    for (const auto& [others, own] : by_others) {
      const int number = members(own, communicator);
      for (const int rank : own) made.of_rank[at(rank)] = number;
    }
    groups.push_back(std::move(made));
    return found->second;
  }
  std::vector<int> own;
  for (const std::int64_t rank : event.wholes("group", 0, header.world - 1)) own.push_back(static_cast<int>(rank));
  std::vector<int> sorted = own;
  std::sort(sorted.begin(), sorted.end());
  if (!group->is_array() || own.size() != group->items().size()) return std::nullopt;
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) {
    event.mistake(*group, "a rank stands in the group twice");
    return std::nullopt;
  }
  if (!std::includes(sorted.begin(), sorted.end(), ranks.begin(), ranks.end())) {
    event.mistake(*group, fmt::format("the group is called by {}, which {} not all in it", rank_words(ranks),
                                      ranks.size() == 1 ? "is" : "are"));
    return std::nullopt;
  }
  const int number = members(std::move(own), communicator);
  const auto [found, is_new] = groups_of_members_.try_emplace(number, static_cast<int>(groups.size()));
  if (is_new) groups.push_back({number, {}});
  return found->second;
}

std::optional<symbolic::ProgramPeer> ExtractionTables::peer(const Event& event, const std::vector<int>& ranks) {
  const Header& header = extraction_.run.header;
  const Json* peer = event.required("peer");
  if (peer == nullptr) return std::nullopt;
  if (!peer->is_object()) {
    const auto only = static_cast<int>(event.whole("peer", 0, header.world - 1));
    if (!std::binary_search(ranks.begin(), ranks.end(), only)) return symbolic::ProgramPeer{only, nullptr};
    event.mistake(fmt::format("rank {} is the peer of itself", only));
    return std::nullopt;
  }
  const Event inner = event.inner(*peer);
  std::vector<int> away(header.axes.size(), 0);
  for (const Json::Member& member : peer->members()) {
    const auto axis = std::find(header.axes.begin(), header.axes.end(), member.key);
    const auto far = whole_number_of(member.value);
    if (axis == header.axes.end() || !far || *far == 0 || std::abs(*far) >= header.world) {
      event.mistake(member.value,
                    fmt::format("\"peer\": expected how far it stands along an axis of the mesh, found \"{}\": {}{}",
                                member.key, member.value.describe(), did_you_mean(member.key, header.axes)));
      return std::nullopt;
    }
    away[static_cast<std::size_t>(axis - header.axes.begin())] = static_cast<int>(*far);
  }
  std::shared_ptr<std::vector<int>>& by_rank = peers_[away];
  if (by_rank == nullptr) by_rank = std::make_shared<std::vector<int>>(peers_at(away));
  for (const int rank : ranks) {
    if ((*by_rank)[at(rank)] >= 0 && (*by_rank)[at(rank)] != rank) continue;
    event.mistake(*peer, fmt::format("rank {} has no such peer in the mesh", rank));
    return std::nullopt;
  }
  return symbolic::ProgramPeer{-1, by_rank};
}

std::vector<int> ExtractionTables::peers_at(const std::vector<int>& away) const {
  const Header& header = extraction_.run.header;
  Budget::spend(static_cast<std::int64_t>(header.world) * static_cast<std::int64_t>(1 + away.size()));
  std::vector<int> peers(at(header.world), -1);
  for (std::size_t place = 0; place < header.mesh_ranks.size(); ++place) {
    std::int64_t stride = 1, moved = static_cast<std::int64_t>(place), rest = moved;
    bool is_inside = true;
    for (std::size_t axis = away.size(); axis-- > 0;) {
      const std::int64_t size = header.sizes[axis], there = rest % size + away[axis];
      is_inside = is_inside && there >= 0 && there < size;
      moved += away[axis] * stride;
      stride *= size;
      rest /= size;
    }
    if (is_inside) peers[at(header.mesh_ranks[place])] = header.mesh_ranks[static_cast<std::size_t>(moved)];
  }
  return peers;
}

std::optional<int> ExtractionTables::position(const Event& event, const Event& root, bool is_position, int group,
                                              const std::vector<int>& ranks) const {
  const symbolic::ProgramGroup& own = extraction_.programs.groups[at(group)];
  std::optional<int> position;
  if (is_position) position = static_cast<int>(root.whole("position"));
  const auto rank = is_position ? 0 : static_cast<int>(root.whole("root", 0, extraction_.run.header.world - 1));
  int last = -1;
  Budget::spend(1 + static_cast<std::int64_t>(ranks.size()));
  for (const int one : ranks) {
    const int number = own.on(one);
    if (number == last) continue;
    last = number;
    const std::vector<int>& members = extraction_.programs.members[at(number)];
    const auto found = is_position ? std::min<std::ptrdiff_t>(*position, std::ssize(members))
                                   : std::find(members.begin(), members.end(), rank) - members.begin();
    if (found == std::ssize(members) || (position && *position != found)) {
      event.mistake(*event.find("root"), fmt::format("the root is not one member of all groups in which {} {} it",
                                                     rank_words(ranks), ranks.size() == 1 ? "calls" : "call"));
      return std::nullopt;
    }
    position = static_cast<int>(found);
  }
  return position;
}

}  // namespace lockstep::live
