// SPDX-License-Identifier: Apache-2.0
//
// Which axes of a scenario a proof leaves open, and which stay as the layout has them.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <functional>
#include <iterator>
#include <utility>

#include "src/scenario/open_sizes.h"
#include "src/symbolic/parametric/layouts.h"
#include "src/symbolic/parametric/world.h"

namespace lockstep::parametric {

namespace {

/// Whether a word stands by itself in a text.
bool speaks_of(const std::string& text, const std::string& word) {
  const auto is_letter = [&](std::size_t at) {
    return at < text.size() && (std::isalnum(static_cast<unsigned char>(text[at])) != 0 || text[at] == '_');
  };
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    if ((at == 0 || !is_letter(at - 1)) && !is_letter(at + word.size())) return true;
  }
  return false;
}

}  // namespace

/// Whether the layout has the axis as a key, or it was asked for as though it had.
bool Layouts::is_written(Axis axis) const {
  const Json* written = document_.find("layout");
  return options_.also_open.contains(axis) || (written != nullptr && written->find(name_of(axis)) != nullptr);
}

/// What was asked for is open beside what is "any".
void Layouts::add_asked(bool parts) {
  const auto add = [&](Axis axis) {
    if (std::find(any_.begin(), any_.end(), axis) == any_.end()) any_.push_back(axis);
  };
  const bool whole = std::find(any_.begin(), any_.end(), Axis::dp) != any_.end();
  for (const Axis axis : options_.also_open) {
    if (axis == Axis::dp && parts && !whole) {
      add(Axis::dp_shard);
      add(Axis::dp_replicate);
    } else {
      add(axis == Axis::etp ? Axis::tp : axis);
    }
  }
}

void Layouts::find_open(const Scenario& scenario) {
  const Layout& layout = scenario.layout;
  const auto part = [&](const char* key) {
    const Json* value = document_.find(key);
    return value == nullptr ? std::string() : write_json(*value);
  };
  const Json* schedule = document_.find("schedule");
  const Json* model = document_.find("model");
  const bool listed_steps = schedule == nullptr || schedule->find("framework") == nullptr;
  const bool listed_parameters = model != nullptr && model->find("parameters") != nullptr;
  const std::string text = (listed_steps ? part("schedule") : "") + part("model") + part("batch");
  const auto speak_of = [&](Axis axis) {
    // A preset places its layers by stage and cuts them over tp.
    const bool placed = axis == Axis::pp && listed_parameters && speaks_of(text, "stage");
    const bool preset = model != nullptr && !listed_parameters && (axis == Axis::pp || axis == Axis::tp);
    return placed || preset || speaks_of(text, std::string(name_of(axis)));
  };
  any_ = layout.any;
  any_micro_batches_ = scenario::has_any_micro_batches(scenario);
  any_given_ = !any_.empty() || any_micro_batches_;
  const auto has_part = [&](Axis axis) { return is_written(axis) || (listed_steps && speak_of(axis)); };
  const bool parts = layout.dp_replicate > 1 || has_part(Axis::dp_shard) || has_part(Axis::dp_replicate);
  if (any_given_) add_asked(parts);
  std::vector<Axis> axes = {Axis::tp, Axis::cp, Axis::sp};
  if (parts) {
    axes.insert(axes.end(), {Axis::dp_shard, Axis::dp_replicate});
  } else {
    axes.push_back(Axis::dp);
  }
  axes.push_back(Axis::pp);
  const std::map<Axis, int> sizes = {{Axis::tp, layout.tp},
                                     {Axis::cp, layout.cp},
                                     {Axis::sp, layout.sp},
                                     {Axis::dp, layout.dp},
                                     {Axis::pp, layout.pp},
                                     {Axis::dp_shard, layout.dp_shard},
                                     {Axis::dp_replicate, layout.dp_replicate}};
  for (const Axis axis : axes) base_.axes[axis] = sizes.at(axis);
  for (const Axis axis : layout.any) {
    if (is_expert_axis(axis)) base_.axes[axis] = 1;
    if (axis == Axis::dp) base_.axes[parts ? Axis::dp_shard : axis] = layout.ep;  // which divides it
  }
  // A list of tokens, or of micro-batches, is of given sizes.
  const Json* batch = document_.find("batch");
  const auto is_list = [](const Json& value) {
    return value.is_array() || std::any_of(value.members().begin(), value.members().end(),
                                           [](const Json::Member& use) { return use.value.is_array(); });
  };
  const Json* tokens = batch == nullptr ? nullptr : batch->find("tokens");
  const Json* count = batch == nullptr ? nullptr : batch->find("micro_batches");
  micro_batches_ = (tokens == nullptr || !is_list(*tokens)) && (count == nullptr || !count->is_array());
  any_axes_ = !any_.empty();
  axes_ = any_given_ ? any_ : axes;
  // dp as a whole is what its first part is, beside the other as the file has it.
  if (parts) std::replace(axes_.begin(), axes_.end(), Axis::dp, Axis::dp_shard);
  micro_batches_ = micro_batches_ && (any_micro_batches_ || !any_given_);
  for (const Axis axis : layout.any) any_of_experts_ = any_of_experts_ || (is_expert_axis(axis) && is_written(axis));
  const bool listed = tokens != nullptr && is_list(*tokens);
  std::vector<Axis> open;
  for (const Axis axis : axes) {
    const bool pinned = listed && axis != Axis::tp && axis != Axis::pp;
    if (pinned && (is_written(axis) || speak_of(axis))) listed_by_rank_.push_back(axis);
    if (!pinned && std::find(axes_.begin(), axes_.end(), axis) != axes_.end()) open.push_back(axis);
  }
  // Listed steps are written for some axes; the others stay as they are. Listed parameters that do not speak of tp are
  // those of one tp rank.
  const auto stays = [&](Axis axis) {
    if (any_given_ || is_written(axis) || speak_of(axis)) return false;
    if (listed_parameters && axis == Axis::tp) {
      lists_one_tp_rank_ = !listed_steps;
      return true;
    }
    return listed_steps && !(is_part_of(axis, Axis::dp) && (is_written(Axis::dp) || speak_of(Axis::dp)));
  };
  open.erase(std::remove_if(open.begin(), open.end(), stays), open.end());
  std::erase_if(open, [&](Axis axis) { return options_.fixed.contains(axis); });
  micro_batches_ = micro_batches_ && !options_.fixed_micro_batches;
  axes_ = open;
  base_.micro_batches =
      count != nullptr && count->is_number()
          ? static_cast<int>(Rational::parse(count->text()).value_or(Rational(2)).to_int64().value_or(2))
          : 2;
  if (count != nullptr && count->is_array()) base_.micro_batches.reset();
  lists_micro_batches_ = listed && !any_given_ && base_.micro_batches && !options_.fixed_micro_batches;
  own_ = base_;
}

/// The digits that are open where the file says which sizes are "any"; half a sentence where they hang together in
/// another way.
std::optional<std::string> Layouts::open_digits(const std::vector<Axis>& any) {
  const auto is_any = [&](Axis axis) { return std::find(any.begin(), any.end(), axis) != any.end(); };
  const Json* written = document_.find("layout");
  axes_.clear();
  for (const Axis axis : any) {
    // It is tp where the file does not say another size.
    if (axis == Axis::etp && is_any(Axis::tp) && written->find("etp") == nullptr) continue;
    if (axis == Axis::tp || axis == Axis::pp || (axis == Axis::ep && is_any(Axis::dp))) {
      axes_.push_back(axis);
    } else if (axis == Axis::dp) {
      axes_.push_back(Axis::edp);
    } else if (axis == Axis::ep) {
      return "ep divides dp, so that both have to be \"any\"";
    } else {
      return "with experts the sizes of both meshes hang together, and tp, ep, dp and pp alone can be \"any\"";
    }
  }
  return std::nullopt;
}

/// An axis whose other sizes are not looked at: they are refused, whatever the others are, or the statement is about
/// the one that it has.
void Layouts::keep(Axis axis, const std::string& why, bool is_unnamed) {
  Proof::Refused refused{axis, {}, most_tried, "", {}};
  for (int size = 2; size <= most_tried; ++size) read(with(axis, size));  // which finds the rules that refuse them
  list_refused(refused);
  refused.from = refused_from(axis);
  if (!refuses_all({{axis, SizeRange::from(2)}}, std::nullopt)) {
    kept_.push_back({axis, base_.axes.at(axis), why, is_unnamed});
  } else if (!refused.sizes.empty()) {
    refused.why = why_refused_alone(axis, refused.sizes.front());
    refused_.push_back(std::move(refused));
  }
}

/// Axes that have no digit of their own beside experts, and are open without them: sizes above 1 are refused, or are
/// not followed, and the statement is about size 1.
void Layouts::keep_beside_experts() {
  for (const Axis axis : {Axis::cp, Axis::sp, Axis::dp_replicate}) {
    if (std::find(axes_.begin(), axes_.end(), axis) != axes_.end())
      keep(axis, "beside experts larger sizes are not followed", false);
  }
}

/// Whether the layout gives a size of this digit: by its name, by that of what it is a part of, or by being no 1.
bool Layouts::is_named(Axis axis) const {
  if (is_written(axis) || own_.axes.at(axis) != 1) return true;
  switch (axis) {
    case Axis::tp:
      return expert_ && is_written(Axis::etp);
    case Axis::dp_shard:
      return is_written(Axis::dp);
    case Axis::dp_replicate:
      // Beside a part that is given, dp gives the other one.
      return is_written(Axis::dp) && (is_written(Axis::dp_shard) || options_.also_open.contains(Axis::dp));
    case Axis::edp:
      return is_written(Axis::dp) || is_written(Axis::dp_shard) || is_written(Axis::dp_replicate);
    default:
      return false;
  }
}

/// Where the axes that the layout names are open alone: the others stay. A layout that names none leaves all open.
void Layouts::leave_unnamed() {
  if (options_.open == Prover::Options::Open::all || any_given_) return;
  const auto is_open = [&](Axis axis) { return is_named(axis); };
  const Json* layout = document_.find("layout");
  const bool names_one =
      layout != nullptr && std::any_of(layout->members().begin(), layout->members().end(),
                                       [](const Json::Member& key) { return axis_named(key.key).has_value(); });
  if (!names_one && options_.also_open.empty()) return;
  std::copy_if(axes_.begin(), axes_.end(), std::back_inserter(unnamed_), std::not_fn(is_open));
  std::erase_if(axes_, std::not_fn(is_open));
}

/// Beside what is "any" the other sizes stay as they are written.
void Layouts::keep_given() {
  const std::string why = "the file gives it, and says of others that they are \"any\"";
  const auto keep_one = [&](std::optional<Axis> axis, int size) { kept_.push_back({axis, size, why, false, true}); };
  const Json* layout = document_.find("layout");
  for (const auto& [axis, size] : base_.axes) {
    const Json* written = layout == nullptr ? nullptr : layout->find(name_of(axis));
    if (written != nullptr && written->is_number()) keep_one(axis, size);
  }
  if (!any_micro_batches_ && base_.micro_batches && !lists_micro_batches_) keep_one(std::nullopt, *base_.micro_batches);
}

/// The statement says of what stayed because nobody named it, and of what was asked for and is none.
void Layouts::keep_unnamed() {
  const auto is_told = [&](Axis axis) {
    return std::any_of(kept_.begin(), kept_.end(), [&](const auto& one) { return one.axis == axis; }) ||
           std::any_of(refused_.begin(), refused_.end(), [&](const auto& one) { return one.axis == axis; });
  };
  // What refuses one of them beside size 1 of another may allow both.
  for (const Axis axis : unnamed_) allowed_[axis];
  for (const Axis axis : unnamed_) {
    if (!is_told(axis)) keep(axis, "the layout does not name it", true);
  }
  for (const Axis axis : unnamed_) allowed_.erase(axis);
  if (expert_ || World::uses_expert_mesh(*read(base_)->schedule)) return;
  for (const auto& [axis, size] : {std::pair(Axis::ep, file_layout_.ep), {Axis::etp, file_layout_.etp}}) {
    if (options_.also_open.contains(axis) && !is_told(axis))
      kept_.push_back({axis, size, "no parameter or step speaks of the expert mesh"});
  }
}

}  // namespace lockstep::parametric
