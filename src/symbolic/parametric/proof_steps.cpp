// SPDX-License-Identifier: Apache-2.0
#include "src/symbolic/parametric/proof_steps.h"

#include <algorithm>
#include <set>

#include "lockstep/operation.h"
#include "src/base/at.h"
#include "src/expression/node.h"

namespace lockstep::parametric {

namespace {

std::string coordinate_name(const Level& level, int coordinate) {
  if (coordinate == 0) return "first";
  return coordinate == level.size - 1 ? "last" : std::to_string(coordinate);
}

Json text(const std::string& words) { return Json::string(words); }
Json number(int value) { return Json::number(std::to_string(value)); }

/// Writes what one class of parameters went through.
class ClassProof {
 public:
  ClassProof(const Representative& representative, const ClassResult& result)
      : schedule_(*representative.scenario->schedule), result_(result), diagrams_(*result.diagrams) {}

  Json write() {
    Json one = Json::object();
    std::vector<Json> parameters;
    for (const int logical : result_.members->logicals)
      parameters.push_back(text(schedule_.model.logicals()[at(logical)].name));
    one.set("parameters", Json::array(std::move(parameters)));
    one.set("axes", axes());
    std::vector<Json> owners;
    for (const Owner& owner : result_.owners) owners.push_back(text("slice of " + owner.step->name));
    one.set("owners", Json::array(std::move(owners)));
    one.set("held_by", function(result_.domain));
    one.set("cut_along", levels(result_.cut_levels));
    one.set("optimized", text(schedule_.result));
    std::vector<Json> steps, ends;
    std::size_t outcome = 0;
    for (const Recorded& recorded : result_.recorded) {
      const int step = recorded.context.optimizer_step;
      if (step != optimizer_step_ && outcome < result_.outcomes.size())
        ends.push_back(end(result_.outcomes[outcome++]));
      if (step != optimizer_step_) owned_ = 1;
      optimizer_step_ = step;
      steps.push_back(this->step(recorded));
    }
    while (outcome < result_.outcomes.size()) ends.push_back(end(result_.outcomes[outcome++]));
    one.set("steps", Json::array(std::move(steps)));
    one.set("ends", Json::array(std::move(ends)));
    if (result_.ended) one.set("ended_by_race", Json::boolean(true));
    one.set("right", Json::boolean(result_.cells.empty()));
    return one;
  }

 private:
  /// Levels of one axis, where the two meshes cut it, are told apart by all axes that they are digits of.
  std::string name(int level) const {
    const Level& own = diagrams_.at_level(level);
    const auto alike = std::count_if(diagrams_.levels().begin(), diagrams_.levels().end(),
                                     [&](const Level& other) { return other.axis == own.axis; });
    std::string result(lockstep::name_of(own.axis));
    for (const Axis axis : own.axes) {
      if (alike > 1 && axis != own.axis) result += "/" + std::string(lockstep::name_of(axis));
    }
    return result;
  }

  static std::vector<std::string> names(const Level& level) {
    std::vector<std::string> result = {"rank", "contributor"};
    for (const int owner : level.owners) result.push_back("owner " + std::to_string(owner + 1));
    for (const int constant : level.constants) result.push_back(coordinate_name(level, constant));
    return result;
  }

  Json axes() const {
    std::vector<Json> list;
    for (std::size_t i = 0; i < diagrams_.levels().size(); ++i) {
      const Level& level = diagrams_.levels()[i];
      Json axis = Json::object();
      axis.set("axis", text(name(static_cast<int>(i))));
      axis.set("size", level.open ? text(std::string(lockstep::name_of(level.axis))) : number(level.size));
      if (level.open) axis.set("least", number(level.least));
      if (level.open && level.most) axis.set("most", number(*level.most));
      std::vector<Json> all;
      for (const std::string& word : names(level)) all.push_back(text(word));
      axis.set("names", Json::array(std::move(all)));
      list.push_back(axis);
    }
    return Json::array(std::move(list));
  }

  Json levels(const std::vector<int>& list) const {
    std::vector<Json> result;
    for (const int level : list) result.push_back(text(name(level)));
    return Json::array(std::move(result));
  }

  std::string coordinate(int level, int value) const { return coordinate_name(diagrams_.at_level(level), value); }

  /// "rank = owner 1 | contributor": the names of one axis, equal ones together.
  static std::string relation(const Level& level, int partition) {
    const Partition& blocks = level.partitions.at(partition);
    const std::vector<std::string> words = names(level);
    std::vector<std::string> texts;
    for (std::size_t i = 0; i < words.size(); ++i) {
      if (texts.size() <= blocks[i]) texts.resize(blocks[i] + std::size_t{1});
      texts[blocks[i]] += (texts[blocks[i]].empty() ? "" : " = ") + words[i];
    }
    std::string all;
    for (const std::string& block : texts) all += (all.empty() ? "" : " | ") + block;
    return all;
  }

  /// What a function is where it is not 0: the relations along each axis on which it depends, and the value.
  Json function(int diagram) const {
    std::vector<Json> rows;
    diagrams_.visit(diagram, false, [&](const Diagrams::Path& path) {
      Json row = Json::object();
      for (std::size_t i = 0; i < path.partitions.size(); ++i) {
        if (path.partitions[i] < 0) continue;
        const int level = static_cast<int>(i);
        row.set(name(level), text(relation(diagrams_.at_level(level), path.partitions[i])));
      }
      row.set("value", text(polynomial(path.value)));
      rows.push_back(row);
      return true;
    });
    return Json::array(std::move(rows));
  }

  std::string polynomial(int value) const { return result_.diagrams->polynomials().to_string(value); }

  std::string contribution(std::size_t number) const {
    const Atom& atom = result_.atoms[number];
    if (!atom.leftover.empty()) return atom.leftover + (atom.per_rank ? " of each rank" : "");
    const Logical& logical = schedule_.model.logicals()[at(result_.members->logicals.front())];
    const SiteUse& use = logical.uses[at(atom.site_use)];
    std::string name = schedule_.model.parameters()[at(use.parameter)].name + "." + use.use;
    if (schedule_.batch.steps() > 1) name += ", step " + std::to_string(atom.optimizer_step);
    if (atom.micro_batch >= 0) name += ", micro-batch " + std::to_string(atom.micro_batch);
    return name;
  }

  /// By contribution. Without `before` all that are not 0, else those that differ from it.
  Json functions(const std::vector<int>& values, const std::vector<int>* before = nullptr) const {
    Json result = Json::object();
    for (std::size_t i = 0; i < values.size(); ++i) {
      const int old = before != nullptr && i < before->size() ? (*before)[i] : 0;
      if (values[i] != old) result.set(contribution(i), function(values[i]));
    }
    return result;
  }

  void what_it_does(const Recorded& recorded, Json& entry) const {
    const Step& step = *recorded.step;
    const Operation& row = operation(step.op);
    if (step.op == Op::wait) {
      entry.set("for", text(step.wait_for));
    } else if (row.touches()) {
      entry.set("buffer", text(step.buffer));
    }
    if (!step.from.empty()) entry.set("from", text(step.from));
    entry.set("on", function(recorded.on));
    if (step.on_owned) entry.set("owned", Json::boolean(true));
    if (row.counts) entry.set("counts", function(recorded.counts));
    if (step.async) entry.set("async", Json::boolean(true));
    if (result_.ended && recorded.races != 0) return;  // nothing is said of what comes after a race
    if (step.over) {
      entry.set("over", levels(recorded.group.levels));
      Json picks = Json::object();
      for (const Group::Picked& picked : recorded.group.picked) {
        std::vector<Json> coordinates;
        for (const int one : picked.coordinates) coordinates.push_back(text(coordinate(picked.level, one)));
        picks.set(name(picked.level), Json::array(std::move(coordinates)));
      }
      if (!picks.members().empty()) entry.set("picks", picks);
    }
    if (row.reduces()) entry.set("reduce", text(step.reduction == Reduction::sum ? "sum" : "avg"));
    if (!recorded.root.empty()) {
      Json root = Json::object();
      for (const auto& [level, value] : recorded.root) root.set(name(level), text(coordinate(level, value)));
      entry.set("root", root);
    }
    if (row.keeps == Operation::Keeps::multiple) entry.set("by", text(polynomial(recorded.by)));
    std::vector<Json> cuts, adds;
    for (const Recorded::Cut& cut : recorded.cuts) {
      cuts.push_back(Json::object({{"owner", {}, cut.owner < 0 ? Json() : number(cut.owner + 1)},
                                   {"on", {}, function(cut.on)},
                                   {"elements", {}, function(cut.elements)}}));
    }
    if (!cuts.empty()) entry.set("cuts", Json::array(std::move(cuts)));
    for (const Recorded::Share& share : recorded.adds) {
      adds.push_back(Json::object({{"contribution", {}, text(contribution(static_cast<std::size_t>(share.atom)))},
                                   {"on", {}, function(share.on)},
                                   {"by", {}, text(polynomial(share.by))}}));
    }
    if (!adds.empty()) entry.set("adds", Json::array(std::move(adds)));
    if (row.counts && step.mean_of_norms) entry.set("mean_of_norms", Json::boolean(true));
  }

  Json step(const Recorded& recorded) {
    Json entry = Json::object();
    entry.set("step", text(recorded.step->name));
    entry.set("op", text(std::string(operation(recorded.step->op).name)));
    const EvaluationContext& context = recorded.context;
    if (schedule_.batch.steps() > 1) entry.set("optimizer_step", number(context.optimizer_step));
    if (context.any_micro_batch) entry.set("micro_batch", text("any"));
    if (!context.any_micro_batch && context.micro_batch >= 0) entry.set("micro_batch", number(context.micro_batch));
    what_it_does(recorded, entry);
    Json after = Json::object();
    for (const auto& [buffer, values] : recorded.buffers) {
      Json changed = functions(values, &held_[buffer]);
      if (!changed.members().empty()) after.set(buffer, changed);
    }
    entry.set("after", after);
    if (recorded.owned != owned_) entry.set("owns", function(recorded.owned));
    if (operation(recorded.step->op).counts) entry.set("norm", function(recorded.norm));
    if (recorded.races != 0) entry.set("races", function(recorded.races));
    held_ = recorded.buffers;
    owned_ = recorded.owned;
    return entry;
  }

  Json end(const StepOutcome& outcome) const {
    Json entry = Json::object();
    if (schedule_.batch.steps() > 1) entry.set("optimizer_step", number(outcome.optimizer_step));
    entry.set("expected", functions(outcome.references));
    entry.set("differs", functions(outcome.differs));
    std::vector<Json> families, early;
    for (const StepOutcome::Family& family : outcome.families) {
      families.push_back(Json::object({{"on", {}, function(family.on)},
                                       {"over", {}, levels(family.levels)},
                                       {"owners", {}, function(family.owners)}}));
    }
    entry.set("answers", Json::array(std::move(families)));
    if (outcome.has_norm) {
      for (const int one : outcome.norm_too_early) early.push_back(function(one));
      entry.set("norm", function(outcome.norm));
      entry.set("norm_too_early", Json::array(std::move(early)));
    }
    if (outcome.in_flight != 0) entry.set("in_flight", function(outcome.in_flight));
    return entry;
  }

  const Schedule& schedule_;
  const ClassResult& result_;
  const Diagrams& diagrams_;
  std::map<std::string, std::vector<int>> held_;
  int owned_ = 1;
  int optimizer_step_ = 0;
};

}  // namespace

namespace {

/// The sizes of a case as data: each open one is a number, or every number from one on, up to another if there is an
/// end.
Json guards(const CaseSizes& one) {
  std::vector<Json> list;
  const auto add = [&](std::string_view size, const char* kind, int value, std::optional<int> most = std::nullopt) {
    Json guard = Json::object({{"size", {}, text(std::string(size))}, {kind, {}, number(value)}});
    if (most) guard.set("most", number(*most));
    list.push_back(std::move(guard));
  };
  for (const auto& [axis, size] : one.exact) add(lockstep::name_of(axis), "exactly", size);
  for (const auto& [axis, size] : one.least) {
    const auto end = one.most.find(axis);
    add(lockstep::name_of(axis), "least", size, end == one.most.end() ? std::nullopt : std::optional(end->second));
  }
  if (one.exact_micro_batches) add("micro_batches", "exactly", *one.exact_micro_batches);
  if (one.least_micro_batches) add("micro_batches", "least", *one.least_micro_batches, one.most_micro_batches);
  return Json::array(std::move(list));
}

/// The conditions in the order of their texts, and what names in these stand for: parts of long ones that stand there
/// several times.
void write_conditions(const Expressions& decided, Json& entry) {
  std::set<std::string> texts;
  expression::SharedText shared;
  for (const Expression& condition : decided) {
    const bool is_short = expression::print(condition.tree(), expression::longest_text).has_value();
    texts.insert(is_short ? condition.text() : shared.print(condition.root()));
  }
  std::vector<Json> conditions;
  for (const std::string& condition : texts) conditions.push_back(text(condition));
  Json let = Json::object();
  for (const auto& [name, meaning] : shared.names()) let.set(name, text(meaning));
  if (!let.members().empty()) entry.set("let", let);
  entry.set("conditions", Json::array(std::move(conditions)));
}

/// The batch and the schedule of a case: the same at all layouts at which it was read, but for the number of
/// micro-batches.
Json program_of(const Scenario& scenario) {
  Json result = Json::object();
  for (const char* key : {"batch", "schedule"}) {
    if (const Json* part = scenario.resolved.find(key)) result.set(key, *part);
  }
  return result;
}

/// A layout at which a case was read: also the sizes that are not open.
Json sizes_of(const Sizes& sizes) {
  Json result = Json::object();
  for (const auto& [axis, size] : sizes.axes) result.set(std::string(lockstep::name_of(axis)), number(size));
  if (sizes.micro_batches) result.set("micro_batches", number(*sizes.micro_batches));
  return result;
}

}  // namespace

Json proof_steps(const std::vector<Case>& cases) {
  std::vector<Json> list;
  for (const Case& one : cases) {
    Json entry = Json::object();
    entry.set("sizes", text(describe(one)));
    entry.set("guards", guards(one));
    if (one.limit) entry.set("undecided", text(one.limit->why));
    std::vector<Json> classes, layouts;
    Expressions decided;
    for (const Representative& representative : one.representatives) {
      decided.insert(representative.scenario->decided_conditions.begin(),
                     representative.scenario->decided_conditions.end());
      for (const ClassResult& result : representative.results) {
        Json members = ClassProof(representative, result).write();
        members.set("layout", number(static_cast<int>(layouts.size())));
        classes.push_back(std::move(members));
      }
      layouts.push_back(sizes_of(representative.sizes));
    }
    write_conditions(decided, entry);
    entry.set("layouts", Json::array(std::move(layouts)));
    if (!one.representatives.empty()) entry.set("program", program_of(*one.representatives.front().scenario));
    entry.set("classes", Json::array(std::move(classes)));
    list.push_back(entry);
  }
  return Json::array(std::move(list));
}

}  // namespace lockstep::parametric
