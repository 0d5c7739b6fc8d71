// SPDX-License-Identifier: Apache-2.0
#include "src/numeric/component.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include "src/base/at.h"

namespace lockstep::numeric {

namespace {

class UnionFind {
 public:
  explicit UnionFind(std::size_t count) : parents_(count) {
    std::iota(parents_.begin(), parents_.end(), std::size_t{0});
  }
  std::size_t root_of(std::size_t node) {
    while (parents_[node] != node) node = parents_[node] = parents_[parents_[node]];
    return node;
  }
  void join(std::size_t a, std::size_t b) {
    a = root_of(a);
    b = root_of(b);
    parents_[std::max(a, b)] = std::min(a, b);
  }

 private:
  std::vector<std::size_t> parents_;
};

// Numbers for all buffers of all ranks under all names.
class NodeNumbers {
 public:
  NodeNumbers(const Schedule& schedule, const Timeline& timeline) : names_{schedule.result} {
    for (const Event& event : timeline.events) {
      if (!operation(event.op).changes()) continue;
      for (const Call& call : event.calls) {
        add_name(call.step->buffer);
        if (operation(event.op).reads_from()) add_name(call.step->from);
      }
    }
    for (int rank = 0; rank < schedule.mesh.world(); ++rank) {
      first_.push_back(count_);
      count_ += schedule.model.local(rank).buffers.size() * names_.size();
    }
  }
  std::size_t count() const { return count_; }
  const std::vector<std::string>& names() const { return names_; }
  std::size_t of(int rank, int buffer, int name) const {
    return first_[at(rank)] + static_cast<std::size_t>(buffer) * names_.size() + static_cast<std::size_t>(name);
  }
  std::size_t of(const Call& call, std::size_t position, const std::string& name) const {
    return of(call.rank, (*call.buffers)[position], index_of(name));
  }

 private:
  int index_of(const std::string& name) const {
    return static_cast<int>(std::find(names_.begin(), names_.end(), name) - names_.begin());
  }
  void add_name(const std::string& name) {
    if (static_cast<std::size_t>(index_of(name)) == names_.size()) names_.push_back(name);
  }

  std::vector<std::string> names_;
  std::vector<std::size_t> first_;
  std::size_t count_ = 0;
};

bool same_views(const Event& event, std::size_t position) {
  const Call& first = event.calls.front();
  return std::all_of(event.calls.begin(), event.calls.end(), [&](const Call& call) {
    if (call.owned.empty() != first.owned.empty()) return false;
    return call.owned.empty() || call.owned[position] == first.owned[position];
  });
}

/// Makes one component of aligned ones that hold the same piece of a logical parameter.
void merge_of_one_piece(const Schedule& schedule, std::vector<Component>& list) {
  UnionFind same(list.size());
  std::map<std::pair<int, int>, std::size_t> first_with;  // by logical and piece
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (!list[i].aligned) continue;
    for (const BufferNode& node : list[i].nodes) {
      const LocalBuffer& buffer = schedule.model.local(node.rank).buffers[at(node.buffer)];
      same.join(i, first_with.try_emplace({buffer.logical, buffer.piece}, i).first->second);
    }
  }
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::size_t root = same.root_of(i);  // the lowest, so before i
    if (root == i) continue;
    Component& whole = list[root];
    whole.nodes.insert(whole.nodes.end(), list[i].nodes.begin(), list[i].nodes.end());
    whole.uses.insert(whole.uses.end(), list[i].uses.begin(), list[i].uses.end());
    list[i].nodes.clear();
  }
  std::erase_if(list, [](const Component& component) { return component.nodes.empty(); });
  for (Component& component : list) {
    std::sort(component.nodes.begin(), component.nodes.end(), [](const BufferNode& a, const BufferNode& b) {
      return std::tuple(a.rank, a.buffer, a.name) < std::tuple(b.rank, b.buffer, b.name);
    });
    std::sort(component.uses.begin(), component.uses.end(), [](const EventUse& a, const EventUse& b) {
      return std::tuple(a.event, a.position) < std::tuple(b.event, b.position);
    });
  }
}

void find_families(const Schedule& schedule, std::vector<Component>& list) {
  const auto logical_of = [&](const BufferNode& node) {
    const LocalModel& local = schedule.model.local(node.rank);
    return static_cast<std::size_t>(local.buffers[at(node.buffer)].logical);
  };
  UnionFind logicals(schedule.model.logicals().size());
  for (const Component& component : list) {
    for (const BufferNode& node : component.nodes) logicals.join(logical_of(component.nodes.front()), logical_of(node));
  }
  for (Component& component : list)
    component.family = static_cast<int>(logicals.root_of(logical_of(component.nodes.front())));
}

}  // namespace

Components find_components(const Schedule& schedule, const Timeline& timeline) {
  const NodeNumbers numbers(schedule, timeline);
  UnionFind linked(numbers.count());
  const auto node_of_use = [&](const Event& event, std::size_t position) {
    return numbers.of(event.calls.front(), position, event.calls.front().step->buffer);
  };
  const auto for_each_use = [&](auto function) {
    for (std::size_t i = 0; i < timeline.events.size(); ++i) {
      const Event& event = timeline.events[i];
      if (!operation(event.op).changes()) continue;
      for (std::size_t position = 0; position < event.calls.front().buffers->size(); ++position)
        function(i, event, position);
    }
  };
  for_each_use([&](std::size_t, const Event& event, std::size_t position) {
    const std::size_t node = node_of_use(event, position);
    for (const Call& call : event.calls) {
      linked.join(node, numbers.of(call, position, call.step->buffer));
      if (operation(event.op).reads_from()) linked.join(node, numbers.of(call, position, call.step->from));
    }
  });

  Components result{numbers.names(), {}};
  std::vector<int> component_of(numbers.count(), -1);  // by root; only those with a result
  const auto component_at = [&](std::size_t node) { return component_of[linked.root_of(node)]; };
  for (int rank = 0; rank < schedule.mesh.world(); ++rank) {
    const auto& buffers = schedule.model.local(rank).buffers;
    for (std::size_t buffer = 0; buffer < buffers.size(); ++buffer) {
      int& found = component_of[linked.root_of(numbers.of(rank, static_cast<int>(buffer), 0))];
      if (found >= 0) continue;
      found = static_cast<int>(result.list.size());
      result.list.emplace_back();
    }
  }
  for (int rank = 0; rank < schedule.mesh.world(); ++rank) {
    const auto& buffers = schedule.model.local(rank).buffers;
    for (std::size_t buffer = 0; buffer < buffers.size(); ++buffer) {
      for (std::size_t name = 0; name < numbers.names().size(); ++name) {
        const BufferNode node{rank, static_cast<int>(buffer), static_cast<int>(name)};
        const int found = component_at(numbers.of(node.rank, node.buffer, node.name));
        if (found < 0) continue;
        Component& component = result.list[at(found)];
        if (!component.nodes.empty() && component.numel != buffers[buffer].numel) component.aligned = false;
        component.numel = std::max(component.numel, buffers[buffer].numel);
        component.nodes.push_back(node);
      }
    }
  }
  for_each_use([&](std::size_t index, const Event& event, std::size_t position) {
    const int found = component_at(node_of_use(event, position));
    if (found < 0) return;
    Component& component = result.list[at(found)];
    component.uses.push_back({index, position});
    if (!same_views(event, position)) component.aligned = false;
  });
  merge_of_one_piece(schedule, result.list);
  find_families(schedule, result.list);
  return result;
}

}  // namespace lockstep::numeric
