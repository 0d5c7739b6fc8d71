// SPDX-License-Identifier: Apache-2.0
//
// What a scenario shows to be refused for all sizes of a range, whatever the other axes have: that it is refused
// beside some of them says nothing of the others.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <set>
#include <utility>

#include "lockstep/scenario.h"
#include "src/base/at.h"
#include "src/expression/node.h"
#include "src/symbolic/parametric/layouts.h"

namespace lockstep::parametric {

namespace {

/// The smallest size that an axis needs for a coordinate, which counts from the end where it is negative.
std::int64_t needed_for(const Json& coordinate) {
  const std::optional<Rational> number = coordinate.is_number() ? Rational::parse(coordinate.text()) : std::nullopt;
  const std::int64_t whole = number ? number->to_int64().value_or(0) : 0;
  return whole < 0 ? -whole : whole + 1;
}

/// Whether parameters may lie elsewhere than the file lists them.
bool places_parameters(const Json* schedule) {
  const Json* edits = schedule == nullptr ? nullptr : schedule->find("edits");
  const auto places = [](const Json& edit) {
    return edit.find("parameter") != nullptr &&
           std::any_of(edit.members().begin(), edit.members().end(), [](const Json::Member& member) {
             return member.key == "shape" || member.key == "shard" || member.key == "stage" || member.key == "only";
           });
  };
  return edits != nullptr && std::any_of(edits->items().begin(), edits->items().end(), places);
}

/// What edits speak of: a coordinate that stands there may be gone.
struct Edited {
  std::multiset<std::string> steps;  ///< names, each as often as edits speak of it
  bool drops = false;                ///< steps, and with them what other edits have put into them
  int parameters = 0;                ///< edits of parameters, one of which may undo another
};

Edited edited_in(const Json* schedule) {
  Edited edited;
  const Json* edits = schedule == nullptr ? nullptr : schedule->find("edits");
  if (edits == nullptr) return edited;
  for (const Json& edit : edits->items()) {
    for (const Json::Member& member : edit.members()) {
      edited.drops = edited.drops || member.key == "drop";
      edited.parameters += member.key == "parameter" ? 1 : 0;
      if (member.key != "before" && member.key != "after" && member.value.is_string())
        edited.steps.insert(member.value.text());
    }
  }
  return edited;
}

/// The smallest size of an axis at which all coordinates exist that the file itself names, in "only", "over", "root"
/// and "stage".
std::int64_t needed_size(const Json& value, Axis axis, const Edited& edited) {
  const Json *name = value.find("name"), *set = value.find("set");
  if (name != nullptr && name->is_string() && edited.steps.count(name->text()) > 0) return 1;
  if (set != nullptr && set->is_string() && edited.steps.count(set->text()) > 1) return 1;
  if (value.find("parameter") != nullptr && edited.parameters > 1) return 1;
  std::int64_t needed = 1;
  for (const Json& item : value.items()) needed = std::max(needed, needed_size(item, axis, edited));
  for (const Json::Member& member : value.members()) {
    if (member.key == "edits" && edited.drops) continue;
    needed = std::max(needed, needed_size(member.value, axis, edited));
    const bool names_axes = member.key == "only" || member.key == "over" || member.key == "root";
    const Json* named = names_axes && member.value.is_object() ? member.value.find(name_of(axis)) : nullptr;
    if (axis == Axis::pp && member.key == "stage") named = &member.value;
    if (named == nullptr) continue;
    needed = std::max(needed, needed_for(*named));
    for (const Json& item : named->items()) needed = std::max(needed, needed_for(item));
  }
  return needed;
}

/// Whether a parameter that the file lists is cut over the axis along a dimension that none of the sizes divides.
bool cuts_unevenly(const Json& parameters, Axis axis, const SizeRange& sizes) {
  return std::any_of(parameters.items().begin(), parameters.items().end(), [&](const Json& parameter) {
    const Json *shard = parameter.find("shard"), *shape = parameter.find("shape");
    const Json* dim = shard == nullptr || !shard->is_object() ? nullptr : shard->find(name_of(axis));
    if (dim == nullptr || !dim->is_number() || shape == nullptr || !shape->is_array()) return false;
    const std::int64_t at = needed_for(*dim) - 1;
    if (at < 0 || at >= static_cast<std::int64_t>(shape->items().size())) return false;
    const Json& extent = shape->items()[lockstep::at(at)];
    const std::optional<Rational> number = extent.is_number() ? Rational::parse(extent.text()) : std::nullopt;
    if (!number) return false;
    const bool too_many = sizes.low && Rational(0) < *number && *number < *sizes.low;
    return too_many || (sizes.is_one() && !(*number / *sizes.low).is_integer());
  });
}

}  // namespace

std::optional<SizeRange> Layouts::range_of(const std::string& name, const std::map<Axis, SizeRange>& sizes,
                                           const std::optional<SizeRange>& micro_batches) const {
  const auto of_axis = [&](Axis axis) -> std::optional<SizeRange> {
    if (const auto given = sizes.find(axis); given != sizes.end()) return given->second;
    const auto own = base_.axes.find(axis);
    if (own == base_.axes.end()) return std::nullopt;
    const bool open = allowed_.contains(axis) || std::find(axes_.begin(), axes_.end(), axis) != axes_.end();
    return open ? SizeRange::from(1) : SizeRange::exactly(Rational(own->second));
  };
  if (name == "micro_batches") {
    if (micro_batches) return micro_batches;
    if (this->micro_batches_ || !base_.micro_batches) return SizeRange::from(1);
    return SizeRange::exactly(Rational(*base_.micro_batches));
  }
  const auto always = [&](bool same, int value) {
    return same ? std::optional(SizeRange::exactly(Rational(value))) : std::nullopt;
  };
  const bool counts_twice = base_.axes.contains(Axis::dp) && base_.axes.contains(Axis::ep);
  if (name == "world" && !counts_twice) {
    SizeRange world = SizeRange::exactly(Rational(1));
    for (const auto& [axis, size] : base_.axes) {
      const SizeRange range = *of_axis(axis);
      world.low = *world.low * *range.low;
      world.high = world.high && range.high ? std::optional(*world.high * *range.high) : std::nullopt;
    }
    return world;
  }
  if (name == "steps") {
    const std::shared_ptr<const Scenario> scenario = read(base_);
    return scenario ? std::optional(SizeRange::exactly(Rational(scenario->schedule->batch.steps()))) : std::nullopt;
  }
  if (name == "sequence_parallel") return always(same_.sequence_parallel, file_layout_.sequence_parallel ? 1 : 0);
  if (name == "virtual_stages") return always(same_.virtual_stages, file_layout_.virtual_stages);
  const std::optional<Axis> axis = axis_named(name);
  if (!axis) return std::nullopt;
  if (auto own = of_axis(*axis)) return own;
  // Products of two digits that are open by themselves.
  const auto product = [&](Axis a, Axis b) -> std::optional<SizeRange> {
    const auto first = of_axis(a), second = of_axis(b);
    if (!first || !second) return std::nullopt;
    SizeRange range{*first->low * *second->low, std::nullopt, false, false};
    if (first->high && second->high) range.high = *first->high * *second->high;
    return range;
  };
  if (*axis == Axis::dp) {
    const auto parts = product(Axis::dp_shard, Axis::dp_replicate);
    return parts ? parts : product(Axis::ep, Axis::edp);
  }
  if (*axis == Axis::etp && expert_) return of_axis(Axis::tp);
  if (*axis == Axis::ep && !expert_) return always(same_.ep, file_layout_.ep);
  if (*axis == Axis::dp_replicate) return always(same_.dp_replicate, file_layout_.dp_replicate);
  return std::nullopt;
}

std::optional<bool> Layouts::truth(const Expression::Node& condition, const std::map<Axis, SizeRange>& sizes,
                                   const std::optional<SizeRange>& micro_batches) const {
  return truth_in_ranges(condition, [&](const std::string& name) { return range_of(name, sizes, micro_batches); });
}

bool Layouts::refuses_all(const std::map<Axis, SizeRange>& sizes, const std::optional<SizeRange>& micro_batches) const {
  for (const auto& [condition, rule] : rules_) {
    if (truth(rule.condition.tree(), sizes, micro_batches).value_or(false)) return true;
  }
  const Json *model = document_.find("model"), *schedule = document_.find("schedule");
  const Json* parameters = model == nullptr || places_parameters(schedule) ? nullptr : model->find("parameters");
  const Edited edited = edited_in(schedule);
  for (const auto& [axis, of_axis] : sizes) {
    if (parameters != nullptr && cuts_unevenly(*parameters, axis, of_axis)) return true;
    if (!of_axis.high) continue;
    const auto needs_more = [&, of = axis](const Json* part) {
      return part != nullptr && *of_axis.high < Rational(needed_size(*part, of, edited));
    };
    if (needs_more(parameters) || needs_more(schedule)) return true;
  }
  return false;
}

/// `other_rules_` have refused nothing yet, and may belong to something that this scenario lacks. Where the first size
/// at which one holds is read, it moves to `rules_`.
void Layouts::find_rules(Axis axis) const {
  for (const RefusingRule& rule : by_text(other_rules_)) {  // reading finds more
    if (rules_.contains(rule.condition)) continue;
    for (int size = 1; size <= most_listed; ++size) {
      const std::map<Axis, SizeRange> sizes = {{axis, SizeRange::exactly(Rational(size))}};
      if (!truth(rule.condition.tree(), sizes, std::nullopt).value_or(false)) continue;
      read(with(axis, size));
      break;
    }
  }
}

/// Each size up to most_listed of which the scenario shows that it is refused.
void Layouts::list_refused(Proof::Refused& refused) const {
  refused.tried = most_listed;
  refused.sizes.clear();
  find_rules(refused.axis);
  for (int size = 1; size <= refused.tried; ++size) {
    if (is_refused_at(refused.axis, size) && !read(with(refused.axis, size))) refused.sizes.push_back(size);
  }
}

std::optional<int> Layouts::refused_from(Axis axis) const {
  constexpr int farthest = 4096;
  const auto all_from = [&](int size) { return refuses_all({{axis, SizeRange::from(size)}}, std::nullopt); };
  int some = 0, all = 1;
  while (all <= farthest && !all_from(all)) some = std::exchange(all, 2 * all);
  if (all > farthest) return std::nullopt;
  while (all - some > 1) {
    const int middle = some + (all - some) / 2;
    (all_from(middle) ? all : some) = middle;
  }
  return all;
}

/// What refuses a size beside those of base() may allow it beside others, and what it refuses besides is not seen.
std::optional<Proof::Refused> Layouts::refused_beside(const Proof::Refused& read_as) const {
  Proof::Refused beside{read_as.axis, {}, read_as.tried, "", std::nullopt};
  for (const int size : read_as.sizes) {
    const Sizes sizes = with(read_as.axis, size);
    const bool by_rule =
        std::any_of(rules_.begin(), rules_.end(), [&](const auto& one) { return holds_at(one.second, sizes); });
    if (!by_rule && !is_refused_at(read_as.axis, size) && !out_of_reach_.contains(sizes)) beside.sizes.push_back(size);
  }
  if (!beside.sizes.empty()) {
    beside.why = refusal(with(read_as.axis, beside.sizes.front()));
    return beside;
  }
  const Json* model = document_.find("model");
  const Json* preset = model == nullptr ? nullptr : model->find("preset");
  if (preset == nullptr || builtin_model(preset->text()) != nullptr) return std::nullopt;
  for (const int size : allowed_.at(read_as.axis)) {  // what is cut may hang on it
    const std::shared_ptr<const Scenario> scenario = read(with(read_as.axis, size));
    if (scenario == nullptr) continue;
    for (const Parameter& parameter : scenario->schedule->model.parameters()) {
      for (const Shard& shard : parameter.shard) {
        if (shard.axis != read_as.axis || shard.uneven) continue;
        beside.why = fmt::format("the model file cuts \"{}\" over it", parameter.name);
        return beside;
      }
    }
  }
  return std::nullopt;
}

/// Of each rule that refuses none of the sizes that were tried, the first one that it does refuse, of some hundred and
/// of those beside a number that it names ("dp == 37"), where no other refuses that as well.
void Layouts::add_far(Proof::Refused& refused) const {
  constexpr int each_up_to = 128, most = 4096;
  const auto refuses = [&](const RefusingRule& rule, int size) {
    const std::map<Axis, SizeRange> sizes = {{refused.axis, SizeRange::exactly(Rational(size))}};
    return truth(rule.condition.tree(), sizes, std::nullopt).value_or(false);
  };
  std::vector<const RefusingRule*> near, far;
  for (const auto& [condition, rule] : rules_) near.push_back(&rule);
  for (const auto& [condition, rule] : other_rules_) {
    bool known = false;
    for (int size = 1; size <= refused.tried && !known; ++size) known = refuses(rule, size);
    if (!known) far.push_back(&rule);
  }
  std::set<int> found;
  for (const RefusingRule* rule : far) {
    std::set<int> sizes;
    for (int size = refused.tried + 1; size <= each_up_to; ++size) sizes.insert(size);
    for (const int number : rule->numbers) {
      if (number > refused.tried && number <= most) sizes.insert({number, number + 1});
    }
    const auto first = std::find_if(sizes.begin(), sizes.end(), [&](int size) { return refuses(*rule, size); });
    const bool by_others = first != sizes.end() && std::any_of(near.begin(), near.end(), [&](const auto* other) {
                             return refuses(*other, *first);
                           });
    if (first != sizes.end() && !by_others && !read(with(refused.axis, *first)) && is_refused_at(refused.axis, *first))
      found.insert(*first);
  }
  refused.sizes.insert(refused.sizes.end(), found.begin(), found.end());
}

bool Layouts::holds_at(const RefusingRule& rule, const Sizes& sizes) const {
  std::map<Axis, SizeRange> axes;
  for (const auto& [axis, size] : sizes.axes) axes.emplace(axis, SizeRange::exactly(Rational(size)));
  std::optional<SizeRange> count;
  if (sizes.micro_batches) count = SizeRange::exactly(Rational(*sizes.micro_batches));
  return truth(rule.condition.tree(), axes, count).value_or(false);
}

/// Whether these sizes say which value each name in the rule has.
bool Layouts::is_decided_by(const RefusingRule& rule, const Sizes& sizes) const {
  const auto has = [&](Axis axis) { return sizes.axes.contains(axis); };
  return std::all_of(rule.names.begin(), rule.names.end(), [&](const std::string& name) {
    if (name == "micro_batches") return sizes.micro_batches.has_value();
    if (name == "world" || facts_.contains(name)) return true;
    const std::optional<Axis> axis = axis_named(name);
    if (!axis) return false;
    const bool is_product =
        axis == Axis::dp && ((has(Axis::dp_shard) && has(Axis::dp_replicate)) || (has(Axis::ep) && has(Axis::edp)));
    return has(*axis) || is_product;
  });
}

/// Whether a rule refuses that refused other sizes: reading a scenario takes a thousand times as long as a condition,
/// and most of the sizes that are tried are refused.
bool Layouts::is_known_to_refuse(const Sizes& sizes) const {
  const auto refuses = [&](const RefusingRule& rule) { return is_decided_by(rule, sizes) && holds_at(rule, sizes); };
  if (std::none_of(rules_.begin(), rules_.end(), [&](const auto& one) { return refuses(one.second); })) return false;
  // What else refuses them would have been found by reading.
  for (const auto& [condition, rule] : other_rules_) {
    if (!rules_.contains(condition) && refuses(rule)) rules_.emplace(condition, rule);
  }
  return true;
}

/// Whether one size is allowed beside some other than the `other` one: calculating with intervals does not show each
/// size that is refused alone.
bool Layouts::is_allowed_beside(const Sizes& one, const Sizes& other) const {
  Sizes sizes = with(one);
  if (read(sizes)) return true;
  for (int size = 1; size <= most_tried; ++size) {
    for (const auto& [axis, refused] : other.axes) sizes.axes[axis] = size;
    if (other.micro_batches) sizes.micro_batches = size;
    if (read(sizes)) return true;
  }
  return false;
}

/// Whether the scenario refuses two sizes together, whatever the others are, and neither of them alone.
bool Layouts::refuses_together(const RefusingRule& rule, const Sizes& pair) const {
  if (!holds_at(rule, pair) || read(with(pair))) return false;
  std::vector<Sizes> both;
  both.reserve(2);
  for (const auto& one : pair.axes) both.push_back({{one}, std::nullopt});
  if (pair.micro_batches) both.push_back({{}, pair.micro_batches});
  return is_allowed_beside(both[0], both[1]) && is_allowed_beside(both[1], both[0]);
}

std::optional<Sizes> Layouts::first_refused_pair(const RefusingRule& rule) const {
  std::vector<std::vector<Sizes>> open;  // what each open size may be
  open.reserve(axes_.size() + 1);
  std::set<int> small;
  for (int size = 1; size <= most_tried; ++size) small.insert(size);
  for (const Axis axis : axes_) {
    std::set<int> tried = small;
    tried.insert(allowed_.at(axis).begin(), allowed_.at(axis).end());
    std::vector<Sizes>& sizes = open.emplace_back();
    for (const int size : tried) sizes.push_back({{{axis, size}}, std::nullopt});
  }
  if (micro_batches_) {
    std::vector<Sizes>& counts = open.emplace_back();
    for (const int count : small) counts.push_back({{}, count});
  }
  for (auto first = open.begin(); first != open.end(); ++first) {
    for (auto second = std::next(first); second != open.end(); ++second) {
      for (const Sizes& one : *first) {
        for (Sizes pair : *second) {
          pair.axes.insert(one.axes.begin(), one.axes.end());
          if (refuses_together(rule, pair)) return pair;
        }
      }
    }
  }
  return std::nullopt;
}

void Layouts::find_refused_together() {
  refused_together_.clear();
  std::set<Sizes> known;
  for (const RefusingRule& rule : all_rules()) {  // reading finds more
    if (open_sizes_of(rule).size() < 2) continue;
    const std::optional<Sizes> pair = first_refused_pair(rule);
    if (pair && known.insert(*pair).second) refused_together_.push_back({*pair, refusal(with(*pair))});
  }
}

std::set<std::string> Layouts::open_sizes_of(const RefusingRule& rule) const {
  std::set<std::string> open;
  const auto add = [&](Axis axis) {
    if (std::find(axes_.begin(), axes_.end(), axis) != axes_.end()) open.emplace(name_of(axis));
  };
  for (const std::string& name : rule.names) {
    const std::optional<Axis> axis = axis_named(name);
    if (axis) add(*axis);
    if (axis == Axis::dp) {
      for (const Axis part : {Axis::dp_shard, Axis::dp_replicate, Axis::ep, Axis::edp}) add(part);
    }
    if (axis == Axis::etp) add(Axis::tp);
    if (name == "micro_batches" && micro_batches_) open.insert(name);
    if (name == "world") {
      for (const Axis each : axes_) add(each);
    }
  }
  return open;
}

std::vector<Proof::Rule> Layouts::unlisted_rules(std::vector<Proof::Limit>& unwritten) const {
  std::vector<Proof::Rule> result;
  for (const RefusingRule& rule : all_rules()) {
    const std::set<std::string> open = open_sizes_of(rule);
    if (open.empty() || truth(rule.condition.tree(), {}, std::nullopt) == false) continue;
    // What it refuses of an axis that is not open any more is no example of what it refuses of those that are.
    const bool is_listed_alone = std::any_of(refused_.begin(), refused_.end(), [&](const Proof::Refused& one) {
      return open.contains(std::string(name_of(one.axis))) &&
             std::any_of(one.sizes.begin(), one.sizes.end(), [&](int size) {
               return holds_at(rule, {{{one.axis, size}}, std::nullopt});
             });
    });
    const bool is_listed_together =
        std::any_of(refused_together_.begin(), refused_together_.end(),
                    [&](const Proof::RefusedTogether& one) { return holds_at(rule, one.sizes); });
    if ((open.size() == 1 && is_listed_alone) || (open.size() == 2 && is_listed_together)) continue;
    // Whoever reads the answer is told of all of these sizes.
    if (auto text = expression::print(rule.condition.tree(), expression::longest_text)) {
      result.push_back({*std::move(text), rule.why});
    } else {
      unwritten.push_back({"", "",
                           fmt::format("the rule \"{}\", written out in sizes, has more than {} characters", rule.why,
                                       expression::longest_text)});
    }
  }
  return result;
}

}  // namespace lockstep::parametric
