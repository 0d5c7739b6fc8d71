// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <unordered_map>

#include "src/scenario/edits.h"
#include "src/schedule/selector_list.h"

namespace lockstep::scenario {

namespace {

/// Local elements of a parameter: what its axes leave of each dimension, rounded up.
std::int64_t local_numel(const Parameter& parameter, const Mesh& mesh) {
  std::int64_t numel = 1;
  for (std::size_t dim = 0; dim < parameter.shape.size(); ++dim) {
    std::int64_t extent = parameter.shape[dim];
    for (const Shard& shard : parameter.shard) {
      if (static_cast<std::size_t>(shard.dim) == dim)
        extent = (extent + mesh.size(shard.axis) - 1) / mesh.size(shard.axis);
    }
    numel *= extent;
  }
  return numel;
}

Json changed(const Json& parameter, const Edit& edit) {
  Json result = parameter;
  for (const Json::Member& member : edit.parameter_values) {
    if (member.value.is_null()) {
      result.remove(member.key);
    } else {
      set_member(result, member);
    }
  }
  return result;
}

/// Plain parameters under edit. Each is read once, and again where an edit changed it.
class ParameterList {
 public:
  // Mistakes in a parameter are reported when all edits are done, and not here.
  ParameterList(std::vector<Json> items, const Reading& reading) : items_(std::move(items)), quiet_(reading) {
    read_.resize(items_.size());
    for (std::size_t i = 0; i < items_.size(); ++i) read(i);
  }

  /// Those that an edit chooses, by index. Adds a mistake where there are none.
  std::vector<std::size_t> select(const Json& value, Diagnostics& diagnostics) const {
    const std::vector<std::string> items = strings_of(value);
    std::vector<std::size_t> list;
    const schedule::SelectorList selectors(items);
    if (items.size() == 1 && is_plain_name(items[0])) {
      const auto [begin, end] = named_.equal_range(items[0]);
      for (auto found = begin; found != end; ++found) list.push_back(found->second);
      std::sort(list.begin(), list.end());
    } else {
      for (std::size_t i = 0; i < items_.size(); ++i) {
        if (read_[i] && selectors.chooses(read_[i]->parameter, read_[i]->numel)) list.push_back(i);
      }
    }
    if (list.empty()) {
      diagnostics.add(value.place(),
                      fmt::format("\"{}\" selects no parameter{}", items[0], did_you_mean(items[0], words())));
    }
    return list;
  }

  void change(std::size_t index, const Edit& edit) {
    forget(index);
    items_[index] = changed(items_[index], edit);
    read(index);
  }

  std::vector<Json> take() { return std::move(items_); }

 private:
  struct Read {
    Parameter parameter;
    std::int64_t numel = 0;
  };

  /// Whether a selector can mean nothing but the parameter of just this name.
  static bool is_plain_name(const std::string& item) {
    return item.find_first_of("*?[!:<>= \t\n\r") == std::string::npos;
  }

  void read(std::size_t index) {
    std::optional<Parameter> parameter = read_parameter(items_[index], quiet_);
    if (!parameter) {
      read_[index].reset();
      return;
    }
    const std::int64_t numel = local_numel(*parameter, *quiet_.mesh);
    named_.emplace(parameter->name, index);
    read_[index] = Read{std::move(*parameter), numel};
  }

  void forget(std::size_t index) {
    const auto [begin, end] = named_.equal_range(read_[index]->parameter.name);
    named_.erase(std::find_if(begin, end, [&](const auto& entry) { return entry.second == index; }));
  }

  /// What selectors could name.
  std::vector<std::string> words() const {
    std::set<std::string> names;
    for (const std::optional<Read>& one : read_) {
      if (!one) continue;
      names.insert(one->parameter.name);
      for (const std::string& tag : one->parameter.tags) names.insert("tag:" + tag);
    }
    return {names.begin(), names.end()};
  }

  std::vector<Json> items_;
  Reading quiet_;
  std::vector<std::optional<Read>> read_;  // nothing where the parameter has no name
  std::unordered_multimap<std::string, std::size_t> named_;
};

}  // namespace

Json apply_parameter_edits(const Json& parameters, const std::vector<WrittenEdit>& edits, Reading& reading) {
  std::optional<ParameterList> list;
  for (const WrittenEdit& written : edits) {
    const Edit& edit = written.edit;
    if (edit.action != Edit::Action::parameter) continue;
    const std::vector<std::string> items = strings_of(edit.parameters);
    if (std::any_of(items.begin(), items.end(), Selectors::compares_numel)) reading.decided_by_numel = true;
    if (!list) list.emplace(parameters.items(), reading);
    for (const std::size_t i : list->select(edit.parameters, reading.diagnostics)) list->change(i, edit);
  }
  return list ? Json::array(list->take(), parameters.place()) : parameters;
}

}  // namespace lockstep::scenario
