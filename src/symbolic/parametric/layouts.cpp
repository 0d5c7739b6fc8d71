// SPDX-License-Identifier: Apache-2.0
//
// A scenario at other sizes than its own: it is read at each, so that a framework expands, and a model cuts its
// parameters, as it would there.
#include "src/symbolic/parametric/layouts.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "src/base/at.h"
#include "src/base/budget.h"
#include "src/expression/node.h"
#include "src/scenario/open_sizes.h"
#include "src/symbolic/parametric/world.h"

namespace lockstep::parametric {

namespace {

/// These are tried where an axis allows few.
constexpr int larger[] = {12, 16};
constexpr std::size_t enough = 6;

/// Whole numbers in an expression, but for those that no size is compared with.
std::set<int> numbers_in(const Expression& expression) {
  constexpr int most = 1 << 20;
  std::set<int> numbers;
  expression::any_node(expression.tree(), [&](const Expression::Node& node) {
    const auto* number = node.kind == Expression::Node::Kind::value ? std::get_if<Rational>(&node.value) : nullptr;
    const std::optional<std::int64_t> whole = number != nullptr ? number->to_int64() : std::nullopt;
    if (whole && *whole > 0 && *whole < most) numbers.insert(static_cast<int>(*whole));
    return false;
  });
  return numbers;
}

}  // namespace

Layouts::Layouts(const Scenario& scenario, const Prover::Options& options)
    : options_(options), file_(scenario.file), document_(scenario.document), file_layout_(scenario.layout) {
  document_.remove("expect");
  edits_model_ = scenario.preset && !scenario.preset->edits.empty();
  for (const char* key : {"sequence_parallel", "virtual_stages"}) {
    if (scenario::has_one_value_at_all_sizes(scenario, key)) facts_.insert(key);
  }
  find_open(scenario);
}

Sizes Layouts::with(const Sizes& sizes) const {
  Sizes all = base_;
  for (const auto& [axis, size] : sizes.axes) all.axes[axis] = size;
  if (sizes.micro_batches) all.micro_batches = sizes.micro_batches;
  return all;
}

Sizes Layouts::with(Axis axis, int size) const {
  Sizes sizes = with(Sizes{{{axis, size}}, std::nullopt});
  // Where two sizes are refused with any number of micro-batches, the others are not tried with all of them either.
  constexpr std::size_t enough_refused = 2;
  std::set<int>& refused = refused_with_any_count_[axis];
  if (!micro_batches_ || (refused.size() >= enough_refused && !refused.contains(size))) return sizes;
  Sizes found =
      with_allowed_count(sizes, allowed_micro_batches_, [&](const Sizes& some) { return read(some) != nullptr; });
  if (!read(found)) refused.insert(size);
  return found;
}

std::string sizes_kept(const std::vector<Proof::Kept>& kept) {
  std::set<std::string> said;
  std::string text;
  for (const Proof::Kept& one : kept) {
    if (one.is_given || !said.insert(one.name()).second) continue;
    text += fmt::format("{}{} = {}", text.empty() ? ", with " : " and ", one.name(), one.size);
  }
  return text;
}

Sizes with_allowed_count(const Sizes& sizes, const std::vector<int>& more,
                         const std::function<bool(const Sizes&)>& allowed) {
  if (allowed(sizes)) return sizes;
  std::vector<int> counts = {2, 3, 4, 8, 12, 24, 48};
  counts.insert(counts.end(), more.begin(), more.end());
  Sizes other = sizes;
  for (const int count : counts) {
    other.micro_batches = count;
    if (count > 1 && allowed(other)) return other;
  }
  return sizes;
}

std::shared_ptr<const Scenario> Layouts::read(const Sizes& sizes) const {
  const auto [found, is_new] = scenarios_.try_emplace(sizes);
  Read& read = found->second;
  if (!is_new && !read.is_allowed) return nullptr;
  if (read.small) return read.small;
  if (std::shared_ptr<const Scenario> known = read.large.lock()) {
    hold(read, known);
    return known;
  }
  if (is_new && is_known_to_refuse(sizes)) return nullptr;
  std::shared_ptr<Scenario> scenario;
  try {
    scenario = read_anew(sizes, &known_models_);
  } catch (const OverBudget&) {
    if (is_new) scenarios_.erase(found);  // nothing refuses these sizes
    throw;
  }
  if (!scenario) return nullptr;
  // With experts a model of thousands of parameters, and there are dozens of layouts.
  scenario->resolved.remove("model");
  read.is_allowed = true;
  const Layout& layout = scenario->layout;
  if (layout.virtual_stages != file_layout_.virtual_stages) same_.virtual_stages = false;
  if (layout.sequence_parallel != file_layout_.sequence_parallel) same_.sequence_parallel = false;
  if (layout.ep != file_layout_.ep) same_.ep = false;
  if (layout.dp_replicate != file_layout_.dp_replicate) same_.dp_replicate = false;
  hold(read, scenario);
  return scenario;
}

void Layouts::hold(Read& read, const std::shared_ptr<const Scenario>& scenario) const {
  constexpr std::size_t most_of_small = 1000, most_of_all_large = 150'000;  // parameters
  const auto size_of = [](const Scenario& one) {
    return one.schedule == nullptr ? 0 : one.schedule->model.parameters().size();
  };
  if (size_of(*scenario) <= most_of_small) {
    read.small = scenario;
    return;
  }
  read.large = scenario;
  large_.remove(scenario);
  large_.push_back(scenario);
  std::size_t held = 0;
  for (const auto& one : large_) held += size_of(*one);
  for (; held > most_of_all_large && large_.size() > 1; large_.pop_front()) held -= size_of(*large_.front());
}

std::string Layouts::refusal(const Sizes& sizes) const {
  const auto asked = scenarios_.find(sizes);
  if (asked == scenarios_.end() || asked->second.is_allowed) return "";
  // Of sizes that a known rule refuses, reading them says it in words.
  if (!refusals_.contains(sizes)) read_whole(sizes);
  return refusals_[sizes];
}

std::string Layouts::why_refused_alone(Axis axis, int size) const {
  const Sizes sizes = with(axis, size);
  read(sizes);
  return refusal(sizes);
}

std::shared_ptr<Scenario> Layouts::read_anew(const Sizes& sizes, scenario::KnownModels* known) const {
  Sizes given = sizes;
  const Json* layout = document_.find("layout");
  // What the file does not name is 1 by itself, unless its framework says otherwise, as it does of the file's own
  // sizes.
  std::erase_if(given.axes, [&](const auto& entry) {
    const auto& [axis, size] = entry;
    const auto own = own_.axes.find(axis);
    const auto names = [&](Axis of) { return layout != nullptr && layout->find(name_of(of)) != nullptr; };
    // dp_shard takes the place of a dp that the file names, which may be "any".
    const bool is_named = names(axis) || (axis == Axis::dp_shard && names(Axis::dp));
    return size == 1 && axis != Axis::edp && !is_named && (own == own_.axes.end() || own->second == 1);
  });
  if (sizes.axes.contains(Axis::edp) && options_.also_open.contains(Axis::etp))
    given.axes[Axis::etp] = sizes.axes.at(Axis::tp);
  try {
    auto scenario = std::make_shared<Scenario>(
        options_.read ? options_.read(given) : scenario::read_scenario_of_open_sizes(document_, file_, {given}, known));
    add_rules(scenario->rules, other_rules_);
    if (sizes.axes.count(Axis::edp) == 0 || scenario->layout.etp == scenario->layout.tp) return scenario;
    refusals_[sizes] = fmt::format(
        "beside tp = {} the expert mesh has etp = {}, and what the two meshes have in common is "
        "followed only where these are equal",
        scenario->layout.tp, scenario->layout.etp);
    out_of_reach_.insert(sizes);
  } catch (const scenario::RefusedSizes& refused) {
    add_rules(refused.rules, rules_);
    refusals_[sizes] = refused.diagnostics().front().message;
  } catch (const InputError& error) {
    refusals_[sizes] = error.diagnostics().front().message;
  }
  return nullptr;
}

void Layouts::add_rules(const TextsOfExpressions& rules, RefusingRules& known) {
  for (const auto& [rule, why] : rules) {
    if (known.contains(rule)) continue;
    known.emplace(rule, RefusingRule{rule, expression::shown(rule.tree()), why, rule.names(), numbers_in(rule)});
  }
}

std::vector<RefusingRule> Layouts::by_text(const RefusingRules& rules) {
  std::vector<RefusingRule> result;
  result.reserve(rules.size());
  for (const auto& [condition, rule] : rules) result.push_back(rule);
  std::stable_sort(result.begin(), result.end(),
                   [](const RefusingRule& a, const RefusingRule& b) { return a.text < b.text; });
  return result;
}

std::vector<RefusingRule> Layouts::all_rules() const {
  RefusingRules all = rules_;
  all.insert(other_rules_.begin(), other_rules_.end());
  return by_text(all);
}

/// The file's own sizes are large where the scenario is; 1 or 2 tells as much.
void Layouts::shrink() {
  Sizes small = base_;
  for (const Axis axis : axes_) small.axes[axis] = base_.axes.at(axis) > 1 ? 2 : 1;
  if (read(small)) base_ = small;
}

/// Where the file says "any" and refuses size 1, base() has the first of some others that it allows: of one axis, or of
/// all of them at once.
bool Layouts::find_base() {
  constexpr int tried[] = {2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256};
  std::vector<std::vector<Axis>> groups;
  groups.reserve(axes_.size() + 1);
  for (const Axis axis : axes_) groups.push_back({axis});
  groups.push_back(axes_);
  for (const int size : tried) {
    for (const std::vector<Axis>& group : groups) {
      Sizes sizes = base_;
      for (const Axis axis : group) sizes.axes[axis] = size;
      if (!read(sizes)) continue;
      base_ = sizes;
      return true;
    }
  }
  return false;
}

std::optional<std::string> Layouts::enter() {
  if (edits_model_)
    return "the edits of the model are not followed: they change what its own communication does, and `lockstep check` "
           "runs the model for given sizes";
  if (any_micro_batches_) find_allowed_micro_batches();
  shrink();
  const bool is_moved = any_axes_ && !read(base_) && find_base();
  if (!read(base_)) throw InputError({Diagnostic{document_.place(), refusal(base_)}});
  if (is_moved) own_ = base_;
  if (any_of_experts_ && !World::uses_expert_mesh(*read(base_)->schedule))
    return "no parameter or step speaks of the expert mesh; give a number";
  if (!expert_) {
    if (auto limit = enter_expert_mesh()) return limit;
    if (is_moved) own_ = base_;
    leave_unnamed();
    shrink();
  }
  add_rule_of_expert_mesh();
  find_allowed_micro_batches();
  find_allowed();
  keep_listed_tp_rank();
  keep_unnamed();
  const bool is_open = !axes_.empty() || micro_batches_;  // else the statement is of one size anyway
  if (is_open && any_given_) keep_given();
  for (const Axis axis : listed_by_rank_) {
    const auto own = base_.axes.find(axis);
    if (is_open && own != base_.axes.end())
      kept_.push_back({axis, own->second, "the file lists numbers of its ranks under \"tokens\""});
  }
  if (is_open && lists_micro_batches_)
    kept_.push_back({std::nullopt, *base_.micro_batches, "the file lists numbers of each under \"tokens\""});
  if (is_open && !any_given_ && !why_micro_batches_.empty() && base_.micro_batches)
    kept_.push_back({std::nullopt, *base_.micro_batches, why_micro_batches_});
  return std::nullopt;
}

/// Where the framework allows more, the statement says that it is about one.
void Layouts::keep_listed_tp_rank() {
  const bool is_told = std::any_of(kept_.begin(), kept_.end(), [](const auto& one) { return one.axis == Axis::tp; });
  const bool is_open = std::find(axes_.begin(), axes_.end(), Axis::tp) != axes_.end();
  if (lists_one_tp_rank_ && !is_told && !is_open && read(with(Sizes{{{Axis::tp, 2}}, std::nullopt})))
    kept_.push_back({Axis::tp, 1, "the parameters that the file lists are taken for those of one tp rank"});
}

void Layouts::find_allowed_micro_batches() {
  constexpr int most = 64;
  allowed_micro_batches_.clear();
  if (!micro_batches_) return;
  Sizes sizes = base_;
  for (int count = 1, found = 0; count <= most && found < 2; ++count) {
    sizes.micro_batches = count;
    if (!read(sizes)) continue;
    allowed_micro_batches_.push_back(count);
    if (count > 1) ++found;
  }
  micro_batches_ = !allowed_micro_batches_.empty();
  if (!any_micro_batches_ || !micro_batches_) return;
  const bool one = allowed_micro_batches_.front() == 1 && allowed_micro_batches_.size() > 1;
  base_.micro_batches = allowed_micro_batches_[one ? 1 : 0];
}

/// Which sizes each axis can have while the others are as in the file, or 1.
void Layouts::find_allowed() {
  allowed_.clear();
  for (const Axis axis : closed_) allowed_[axis];
  refused_with_any_count_.clear();
  // An axis that was found to have one size is not open any more, and what it refuses stays known.
  std::erase_if(refused_, [&](const Proof::Refused& one) {
    return std::find(axes_.begin(), axes_.end(), one.axis) != axes_.end();
  });
  refused_beside_.clear();
  std::vector<Axis> open, closed;
  std::map<Axis, Proof::Refused> all_refused;
  for (const Axis axis : axes_) {
    std::vector<int>& sizes = allowed_[axis];
    Proof::Refused& refused = all_refused[axis] = Proof::Refused{axis, {}, 0, "", {}};
    try_sizes(axis, sizes, refused);
    (sizes.size() > 1 ? open : closed).push_back(axis);
  }
  // Also those that come to be closed count as open here: it is asked about sizes that are allowed with them.
  for (auto& [axis, refused] : all_refused) {
    if (std::find(closed.begin(), closed.end(), axis) != closed.end())
      close(axis, refused);
    else if (auto beside = refused_beside(refused))
      refused_beside_.push_back(std::move(*beside));
    list_refused(refused);
    add_far(refused);
    refused.from = refused_from(axis);
    if (refused.sizes.empty() && refused.from) refused.sizes.push_back(*refused.from);
    if (refused.sizes.empty()) continue;
    refused.why = why_refused_alone(axis, refused.sizes.front());
    refused_.push_back(std::move(refused));
  }
  axes_ = open;
  find_refused_together();
  closed_.insert(closed.begin(), closed.end());
  for (const Axis axis : closed_) allowed_.erase(axis);
}

/// Finds some that are allowed, two at least where there are.
void Layouts::try_sizes(Axis axis, std::vector<int>& sizes, Proof::Refused& refused) {
  sizes.clear();
  refused.sizes.clear();
  refused.tried = 0;
  while (refused.tried < most_tried && sizes.size() < enough) {
    const int size = ++refused.tried;
    (read(with(axis, size)) ? sizes : refused.sizes).push_back(size);
  }
  const auto try_size = [&](int size) {
    const bool known = size <= refused.tried || std::find(sizes.begin(), sizes.end(), size) != sizes.end();
    if (!known && read(with(axis, size))) sizes.push_back(size);
  };
  for (const int size : larger) {
    if (!sizes.empty() && sizes.size() < enough) try_size(size);
  }
  // A schedule that names a coordinate has no small sizes, and one that cuts 77 elements has 7, 11 and 77.
  const int own = own_.axes.at(axis);
  std::vector<int> more = {own, own + 1, 2 * own};
  const std::set<int> divisors = dividing(axis);
  more.insert(more.end(), divisors.begin(), divisors.end());
  for (const int size : more) {
    if (sizes.size() < 2) try_size(size);
  }
  std::sort(sizes.begin(), sizes.end());
}

std::set<int> Layouts::dividing(Axis axis) const {
  constexpr std::int64_t most_cut = 4096;
  constexpr std::size_t enough_divisors = 16;
  std::set<int> sizes;
  for (const Parameter& parameter : read(base_)->schedule->model.parameters()) {
    for (const Shard& shard : parameter.shard) {
      const std::int64_t extent = parameter.shape[at(shard.dim)];
      for (int size = 2; shard.axis == axis && sizes.size() < enough_divisors && size <= std::min(extent, most_cut);
           ++size) {
        if (extent % size == 0) sizes.insert(size);
      }
    }
  }
  return sizes;
}

/// An axis of which one size was found to be allowed has no other one if the scenario itself says so.
void Layouts::close(Axis axis, const Proof::Refused& refused) {
  const int own = allowed_.at(axis).empty() ? base_.axes.at(axis) : allowed_.at(axis).front();
  // From some size on all are refused, such as those that are larger than a dimension; before it one by one.
  constexpr int most = 4096;
  int last = std::max(own, refused.tried);
  while (last <= most && !refuses_all({{axis, SizeRange::from(last + 1)}}, std::nullopt)) last *= 2;
  bool all = last <= most;
  for (int size = 1; size <= last && all; ++size) all = size == own || is_refused_at(axis, size);
  if (all) return;
  // Beside the other sizes of base(): beside others a layout may be out of reach for another axis' sake.
  const auto out_of_reach = std::find_if(refused.sizes.begin(), refused.sizes.end(),
                                         [&](int size) { return out_of_reach_.contains(with(axis, size)); });
  const std::string why =
      out_of_reach != refused.sizes.end() ? refusal(with(axis, *out_of_reach))
      : refused.sizes.empty()
          ? "none of the sizes that were tried is allowed"
          : "what refuses them beside the other sizes that were tried may allow them beside others: " +
                refusal(with(axis, refused.sizes.front()));
  // A file that says nothing of the axis leaves it as it is.
  if (!any_axes_ && !is_written(axis)) {
    kept_.push_back({axis, own, why});
    return;
  }
  limits_.push_back({std::string(name_of(axis)) + (own == 1 ? " ≥ 2" : " ≠ " + std::to_string(own)), "", why});
}

bool Layouts::is_refused_at(Axis axis, int size) const {
  return refuses_all({{axis, SizeRange::exactly(Rational(size))}}, std::nullopt);
}

/// Where the digits are those of the dense mesh, a size of the other one that the file gives has to divide its ranks:
/// the layout refuses by it as a framework does by a rule.
void Layouts::add_rule_of_expert_mesh() {
  const Json* written = document_.find("layout");
  const std::int64_t given = std::int64_t{file_layout_.ep} * file_layout_.etp;
  const auto is_given = [&](Axis axis, int size) {
    const Json* value = written == nullptr ? nullptr : written->find(name_of(axis));
    return size == 1 || (value != nullptr && value->is_number());
  };
  if (expert_ || given == 1 || !is_given(Axis::ep, file_layout_.ep) || !is_given(Axis::etp, file_layout_.etp)) return;
  std::string ranks;  // of a stage
  for (const Axis axis : {Axis::tp, Axis::cp, Axis::sp, Axis::dp_shard, Axis::dp_replicate, Axis::dp}) {
    const auto own = base_.axes.find(axis);
    const bool is_open = std::find(axes_.begin(), axes_.end(), axis) != axes_.end();
    if (own == base_.axes.end() || (!is_open && own->second == 1)) continue;
    ranks += fmt::format("{}{}", ranks.empty() ? "" : " * ", name_of(axis));
  }
  if (ranks.empty()) return;
  add_rules({{Expression::parse(fmt::format("floor({0} / {1}) != {0} / {1}", ranks, given)),
              fmt::format("the expert mesh needs etp * ep = {} * {} to divide the ranks of a stage", file_layout_.etp,
                          file_layout_.ep)}},
            rules_);
}

/// With experts the ranks are counted in two meshes, whose common digits are tp (which is etp), ep, edp and pp: dp is
/// ep * edp. Other layouts of the two are left to engines that look at ranks.
std::optional<std::string> Layouts::enter_expert_mesh() {
  const std::shared_ptr<const Scenario> scenario = read(base_);
  // Where the number of micro-batches alone is open, the digits are those of one layout.
  if (!World::uses_expert_mesh(*scenario->schedule) || (any_given_ && !any_axes_)) return std::nullopt;
  const Layout& layout = scenario->layout;
  // At the file's own sizes, for at smaller ones they may be equal by accident.
  const bool etp_is_tp = layout.etp == layout.tp && (any_axes_ || file_layout_.etp == file_layout_.tp);
  if (layout.cp != 1 || layout.sp != 1 || layout.dp_replicate != 1 || !etp_is_tp) {
    if (any_axes_) {
      axes_.clear();
      micro_batches_ = false;
      return "beside experts only tp, dp and pp can be larger than 1, and etp is tp, where a size is \"any\"";
    }
    if (axes_.empty()) return std::nullopt;
    base_ = own_;
    const auto keep = [&](Axis axis, int size) {
      kept_.push_back(
          {axis, size,
           "beside experts other sizes are followed only where cp, sp and dp_replicate are 1 and etp is tp"});
    };
    for (const Axis axis : axes_) keep(axis, base_.axes.at(axis));
    keep(Axis::ep, file_layout_.ep);
    if (file_layout_.etp != file_layout_.tp) keep(Axis::etp, file_layout_.etp);
    axes_.clear();
    return std::nullopt;
  }
  expert_ = true;
  if (any_axes_) {
    if (auto limit = open_digits(any_)) return limit;
  } else {
    keep_beside_experts();
    axes_ = {Axis::tp, Axis::ep, Axis::edp, Axis::pp};
  }
  base_.axes = {{Axis::tp, layout.tp},     {Axis::cp, 1},        {Axis::sp, 1}, {Axis::ep, layout.ep},
                {Axis::edp, layout.edp()}, {Axis::pp, layout.pp}};
  own_ = base_;
  own_.axes.at(Axis::tp) = file_layout_.tp;
  own_.axes.at(Axis::ep) = file_layout_.ep;
  own_.axes.at(Axis::edp) = file_layout_.edp();
  own_.axes.at(Axis::pp) = file_layout_.pp;
  std::erase_if(axes_, [&](Axis axis) { return options_.fixed.contains(axis); });
  return std::nullopt;
}

}  // namespace lockstep::parametric
