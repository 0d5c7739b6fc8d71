// SPDX-License-Identifier: Apache-2.0
//
// Proves a scenario for all sizes: finds out which sizes it allows and into which cases they fall, takes the parameters
// of each case through the schedule once, and puts together what was found.
#include "lockstep/prove.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <set>

#include "lockstep/symbolic.h"
#include "src/expression/node.h"
#include "src/scenario/open_sizes.h"
#include "src/symbolic/parametric/cases.h"
#include "src/symbolic/parametric/evaluation.h"
#include "src/symbolic/parametric/proof_steps.h"

namespace lockstep {

using namespace parametric;

namespace {

/// Sizes that are tried to see which an axis allows.
constexpr int tried[] = {1, 2, 3, 4, 5, 6, 8, 12, 16};

/// Coordinates of an axis that the schedule singles out.
class NamedCoordinates {
 public:
  NamedCoordinates(const Schedule& schedule, Axis axis) : axis_(axis) {
    for (const Step& step : schedule.steps) add(step);
    for (const Parameter& parameter : schedule.model.parameters()) {
      for (const Parameter::Only& only : parameter.only) add(only.axis, only.coordinates);
      // Stages of parameters are told apart by name only where they are tied over several.
      if (axis == Axis::pp && !parameter.tied.empty() && parameter.stage) found_.insert(*parameter.stage);
    }
  }
  const std::set<int>& found() const { return found_; }

 private:
  void add(Axis axis, const std::vector<int>& coordinates) {
    if (axis == axis_ || is_part_of(axis_, axis) || is_part_of(axis, axis_))
      found_.insert(coordinates.begin(), coordinates.end());
  }
  void add(const Step& step) {
    for (const Only& only : step.only) add(only.axis, only.coordinates);
    if (step.over) {
      for (const Over::Pick& pick : step.over->picks) {
        if (pick.coordinates) add(pick.axis, *pick.coordinates);
      }
    }
    if (step.root) {
      for (const auto& [axis, coordinate] : step.root->coordinates) add(axis, {coordinate});
      if (step.root->position) found_.insert(*step.root->position);
    }
    for (const auto* expression : {&step.by, &step.when, &step.count}) {
      if (*expression) add((*expression)->tree());
    }
    for (const Step& inner : step.steps) add(inner);
  }
  void add(const Expression::Node& node) {
    using Kind = Expression::Node::Kind;
    for (std::size_t i = 0; i < node.children.size(); ++i) {
      const Expression::Node& child = *node.children[i];
      if (child.kind == Kind::rank_axis && node.kind == Kind::binary) {
        const Expression::Node& other = *node.children[1 - i];
        const auto* number = other.kind == Kind::value ? std::get_if<Rational>(&other.value) : nullptr;
        if (const auto whole = number != nullptr ? number->floor().to_int64() : std::nullopt)
          add(child.axis, {static_cast<int>(*whole)});
      }
      add(child);
    }
  }

  Axis axis_;
  std::set<int> found_;
};

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

/// The steps as text, without what a step of a framework file is called for humans.
std::string steps_text(const Scenario& scenario) {
  const Json* schedule = scenario.resolved.find("schedule");
  return schedule == nullptr ? "" : write_json(*schedule);
}

}  // namespace

std::string describe(const Sizes& sizes) {
  std::vector<std::string> parts;
  for (const auto& [axis, size] : sizes.axes) parts.push_back(fmt::format("{} {}", name_of(axis), size));
  if (sizes.micro_batches)
    parts.push_back(fmt::format("{} micro-batch{}", *sizes.micro_batches, *sizes.micro_batches == 1 ? "" : "es"));
  return fmt::format("{}", fmt::join(parts, ", "));
}

struct Prover::State {
  State(const Scenario& scenario, Options the_options)
      : options(the_options), file(scenario.file), document(scenario.document) {
    document.remove("expect");
    layout_of(scenario);
    // Where micro-batches must be told apart, their number is the one that is given.
    for (;;) {
      cases.clear();
      proof.classes = 0;
      try {
        prepare();
        break;
      } catch (const NeedsUnrolling&) {
        proof.micro_batches = false;
      }
    }
    conclude();
  }

  // Sizes that the scenario has, and which of them are open.
  void layout_of(const Scenario& scenario);
  std::shared_ptr<const Scenario> read(const Sizes& sizes) const;
  Sizes with(Axis axis, int size) const {
    Sizes sizes = base;
    sizes.axes[axis] = size;
    return sizes;
  }
  void find_allowed();
  void enter_expert_mesh();
  void prepare();
  void enter(Case& one, const std::vector<Sizes>& layouts);
  Specimen specimen(const Case& one, const Sizes& sizes, const std::set<std::string>& known) const;
  void conclude();
  void find_counterexample(const std::vector<Reason>& reasons);
  bool show(const Sizes& sizes);

  Options options;
  bool expert = false;
  bool any_given = false;       ///< the file says which axes are open
  bool any_of_experts = false;  ///< and axes of the expert mesh are among them
  std::string file;
  Json document;
  Sizes base;
  std::map<Axis, std::vector<int>> allowed;
  std::vector<Case> cases;
  Proof proof;
  mutable std::map<Sizes, std::shared_ptr<const Scenario>> scenarios;
  mutable std::map<Sizes, std::string> refusals;
};

void Prover::State::layout_of(const Scenario& scenario) {
  const Layout& layout = scenario.layout;
  const Json* written = document.find("layout");
  const bool parts =
      layout.dp_replicate > 1 ||
      (written != nullptr && (written->find("dp_shard") != nullptr || written->find("dp_replicate") != nullptr));
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
  for (const Axis axis : axes) base.axes[axis] = sizes.at(axis);
  // A list of tokens, or of micro-batches, is of given sizes.
  const Json* batch = document.find("batch");
  const auto is_list = [](const Json& value) {
    return value.is_array() || std::any_of(value.members().begin(), value.members().end(),
                                           [](const Json::Member& use) { return use.value.is_array(); });
  };
  const Json* tokens = batch == nullptr ? nullptr : batch->find("tokens");
  const Json* count = batch == nullptr ? nullptr : batch->find("micro_batches");
  proof.micro_batches = (tokens == nullptr || !is_list(*tokens)) && (count == nullptr || !count->is_array());
  proof.axes = layout.any.empty() ? axes : layout.any;
  any_given = !layout.any.empty();
  proof.micro_batches = proof.micro_batches && !any_given;
  for (const Axis axis : layout.any) any_of_experts = any_of_experts || is_expert_axis(axis);
  const bool listed = tokens != nullptr && is_list(*tokens);
  std::vector<Axis> open;
  for (const Axis axis : axes) {
    const bool pinned = listed && axis != Axis::tp && axis != Axis::pp;
    if (!pinned && std::find(proof.axes.begin(), proof.axes.end(), axis) != proof.axes.end()) open.push_back(axis);
  }
  // Listed steps are written for some axes; the others stay as they are. Listed parameters that do not speak of tp are
  // those of one tp rank.
  const auto part = [&](const char* key) {
    const Json* value = document.find(key);
    return value == nullptr ? std::string() : write_json(*value);
  };
  const Json* schedule = document.find("schedule");
  const Json* model = document.find("model");
  const bool listed_steps = schedule == nullptr || schedule->find("framework") == nullptr;
  const bool listed_parameters = model != nullptr && model->find("parameters") != nullptr;
  const auto stays = [&](Axis axis) {
    const std::string name(name_of(is_part_of(axis, Axis::dp) ? Axis::dp : axis));
    if (!layout.any.empty() || (written != nullptr && written->find(name_of(axis)) != nullptr)) return false;
    if (listed_parameters && axis == Axis::tp) return !speaks_of(part("model"), name);
    return listed_steps && !speaks_of(part("schedule") + part("model"), name);
  };
  open.erase(std::remove_if(open.begin(), open.end(), stays), open.end());
  proof.axes = open;
  base.micro_batches =
      count != nullptr && count->is_number()
          ? static_cast<int>(Rational::parse(count->text()).value_or(Rational(2)).to_int64().value_or(2))
          : 2;
  if (count != nullptr && count->is_array()) base.micro_batches.reset();
}

std::shared_ptr<const Scenario> Prover::State::read(const Sizes& sizes) const {
  const auto [found, is_new] = scenarios.emplace(sizes, nullptr);
  if (!is_new) return found->second;
  Json resized = document;
  Json layout = resized.find("layout") != nullptr ? *resized.find("layout") : Json::object();
  for (const auto& [axis, size] : sizes.axes) {
    if (size != 1 || layout.find(name_of(axis)) != nullptr)
      layout.set(name_of(axis), Json::number(std::to_string(size)));
  }
  if (sizes.axes.count(Axis::dp_shard) != 0) layout.remove("dp");
  if (sizes.axes.count(Axis::edp) != 0) {
    for (const char* derived : {"edp", "dp_shard", "dp_replicate"}) layout.remove(derived);
    layout.set("dp", Json::number(std::to_string(sizes.axes.at(Axis::ep) * sizes.axes.at(Axis::edp))));
    if (layout.find("etp") != nullptr) layout.set("etp", Json::number(std::to_string(sizes.axes.at(Axis::tp))));
  }
  resized.set("layout", layout);
  if (sizes.micro_batches) {
    Json batch = resized.find("batch") != nullptr ? *resized.find("batch") : Json::object();
    batch.set("micro_batches", Json::number(std::to_string(*sizes.micro_batches)));
    resized.set("batch", batch);
  }
  try {
    auto scenario = std::make_shared<Scenario>(
        read_scenario_of_open_sizes(std::make_shared<const Source>(Source{file, write_json(resized)})));
    if (sizes.axes.count(Axis::edp) != 0 && scenario->layout.etp != scenario->layout.tp) {
      refusals[sizes] = "the expert mesh has another etp than tp, and their digits are not followed";
    } else {
      found->second = scenario;
    }
  } catch (const InputError& error) {
    refusals[sizes] = error.diagnostics().front().message;
  }
  return found->second;
}

/// Which sizes each axis can have while the others are as in the file, or 1.
void Prover::State::find_allowed() {
  allowed.clear();
  proof.refused.clear();
  std::vector<Axis> open;
  for (const Axis axis : proof.axes) {
    std::vector<int>& sizes = allowed[axis];
    std::set<int> candidates(std::begin(tried), std::end(tried));
    for (const int size : candidates) {
      if (sizes.size() >= 6 && size != base.axes.at(axis)) continue;
      if (read(with(axis, size))) {
        sizes.push_back(size);
      } else if (std::none_of(proof.refused.begin(), proof.refused.end(),
                              [&](const Proof::Refused& one) { return one.axis == axis; })) {
        proof.refused.push_back({axis, size, refusals.at(with(axis, size))});
      }
    }
    if (sizes.size() > 1) open.push_back(axis);
  }
  proof.axes = open;
}

/// With experts the ranks are counted in two meshes, whose common digits are tp (which is etp), ep, edp and pp: dp is
/// ep * edp. Other layouts of the two are left to engines that look at ranks.
void Prover::State::enter_expert_mesh() {
  const std::shared_ptr<const Scenario> scenario = read(base);
  if (!World::uses_expert_mesh(*scenario->schedule)) return;
  const Layout& layout = scenario->layout;
  expert = true;
  proof.axes = {Axis::tp, Axis::ep, Axis::edp, Axis::pp};
  if (layout.cp != 1 || layout.sp != 1 || layout.dp_replicate != 1 || layout.etp != layout.tp) {
    proof.axes.clear();
    proof.micro_batches = false;
    return;
  }
  base.axes = {{Axis::tp, layout.tp},     {Axis::cp, 1},        {Axis::sp, 1}, {Axis::ep, layout.ep},
               {Axis::edp, layout.edp()}, {Axis::pp, layout.pp}};
}

void Prover::State::prepare() {
  // The file's own sizes are large where the scenario is; 1 or 2 tells as much.
  const auto shrink = [&] {
    Sizes small = base;
    for (const Axis axis : proof.axes) small.axes[axis] = base.axes.at(axis) > 1 ? 2 : 1;
    if (read(small)) base = small;
  };
  shrink();
  if (!read(base)) {
    throw InputError({Diagnostic{document.place(), refusals.at(base)}});
  }
  if (any_given && (any_of_experts || World::uses_expert_mesh(*read(base)->schedule))) {
    cases.emplace_back();
    cases.back().limit = Proof::Limit{
        "", "", "with experts the sizes of both meshes hang together; `lockstep prove` takes all of them at once"};
    return;
  }
  if (!expert) {
    enter_expert_mesh();
    shrink();
  }
  find_allowed();
  struct Choice {
    std::optional<int> exact;
    int least = 1, first = 1, second = 1, last = 1;
  };
  std::vector<std::vector<Choice>> choices;
  for (const Axis axis : proof.axes) {
    const std::vector<int>& sizes = allowed.at(axis);
    std::set<int> named;
    const std::size_t last = sizes.size() - 1;
    const std::set<int> large = NamedCoordinates(*read(with(axis, sizes[last]))->schedule, axis).found();
    const std::set<int> smaller =
        NamedCoordinates(*read(with(axis, sizes[last > 0 ? last - 1 : 0]))->schedule, axis).found();
    std::set_intersection(large.begin(), large.end(), smaller.begin(), smaller.end(),
                          std::inserter(named, named.end()));
    named.erase(0);
    int least = axis == Axis::pp ? 3 : 2;
    if (!named.empty()) least = std::max(least, *named.rbegin() + 2);
    std::vector<int> open;
    std::vector<Choice>& list = choices.emplace_back();
    for (const int size : sizes) {
      if (size < least) {
        list.push_back({size, 1, size, size, size});
      } else {
        open.push_back(size);
      }
    }
    if (open.size() == 1) list.push_back({open.front(), 1, open.front(), open.front(), open.front()});
    if (open.size() > 1) list.push_back({std::nullopt, least, open[0], open[1], open.back()});
  }
  std::vector<Choice> micro_batches = {{std::nullopt, 1, 1, 1, 1}};
  if (proof.micro_batches) micro_batches = {{1, 1, 1, 1, 1}, {std::nullopt, 2, 2, 3, 3}};
  std::vector<std::size_t> at(choices.size(), 0);
  for (;;) {
    for (const Choice& count : micro_batches) {
      Case one;
      Sizes first = base, second = base;
      // With more stages more kinds of layers come to lie in the middle.
      std::optional<int> most_stages;
      for (std::size_t i = 0; i < choices.size(); ++i) {
        const Choice& choice = choices[i][at[i]];
        const Axis axis = proof.axes[i];
        if (choice.exact) {
          one.exact[axis] = *choice.exact;
        } else {
          one.least[axis] = choice.least;
        }
        first.axes[axis] = choice.first;
        second.axes[axis] = choice.second;
        if (axis == Axis::pp && !choice.exact) most_stages = choice.last;
      }
      if (proof.micro_batches) {
        one.exact_micro_batches = count.exact;
        if (!count.exact) one.least_micro_batches = count.least;
        first.micro_batches = count.first;
        second.micro_batches = count.second;
      }
      std::vector<Sizes> layouts = {first, second};
      if (most_stages) {
        layouts.push_back(first);
        layouts.back().axes[Axis::pp] = *most_stages;
      }
      enter(one, layouts);
      if (!one.specimens.empty() || one.limit) cases.push_back(std::move(one));
    }
    std::size_t digit = 0;
    while (digit < at.size() && ++at[digit] == choices[digit].size()) at[digit++] = 0;
    if (digit == at.size()) break;
  }
  for (const Case& one : cases) {
    for (const Specimen& specimen : one.specimens) proof.classes += static_cast<int>(specimen.results.size());
  }
  proof.cases = static_cast<int>(cases.size());
}

/// Takes the classes of some layouts of a case through the schedule, of the later ones those that the earlier ones
/// lack.
void Prover::State::enter(Case& one, const std::vector<Sizes>& layouts) {
  try {
    std::set<std::string> known;
    for (const Sizes& sizes : layouts) {
      const std::shared_ptr<const Scenario> scenario = read(sizes);
      const bool seen = std::any_of(one.specimens.begin(), one.specimens.end(),
                                    [&](const Specimen& specimen) { return specimen.sizes == sizes; });
      if (!scenario || seen) continue;
      if (!one.specimens.empty() && steps_text(*scenario) != steps_text(*one.specimens.front().scenario)) {
        throw OutOfReach("", fmt::format("the schedule has other steps at {} than at {}", lockstep::describe(sizes),
                                         lockstep::describe(one.specimens.front().sizes)));
      }
      one.specimens.push_back(specimen(one, sizes, known));
      for (const ClassResult& result : one.specimens.back().results) known.insert(result.members->key);
    }
  } catch (const OutOfReach& limit) {
    one.specimens.clear();
    one.limit = Proof::Limit{parametric::describe(one), limit.step, limit.what()};
  }
}

Specimen Prover::State::specimen(const Case& one, const Sizes& sizes, const std::set<std::string>& known) const {
  Specimen result;
  result.sizes = sizes;
  result.scenario = read(sizes);
  Open open;
  open.least = one.least;
  open.least_micro_batches = one.least_micro_batches;
  result.world = std::make_unique<World>(*result.scenario->schedule, open);
  result.choices = std::make_unique<Choices>(*result.world);
  for (const Class& members : result.choices->classes()) {
    if (known.count(members.key) == 0)
      result.results.push_back(run_class(*result.world, *result.choices, members, options.steps));
  }
  return result;
}

/// Replays the scenario at these sizes on every rank. Keeps it as the counterexample where it is wrong.
bool Prover::State::show(const Sizes& sizes) {
  const std::shared_ptr<const Scenario> scenario = read(sizes);
  if (!scenario) return false;
  const Schedule& schedule = *scenario->schedule;
  Timeline timeline;
  try {
    timeline = walk(schedule);
  } catch (const InputError&) {
    return false;
  }
  SymbolicEngine engine(schedule, timeline);
  const SymbolicResult result = engine.run();
  const bool race = timeline.outcome.kind == Outcome::Kind::race;
  if (!race && (timeline.step_ends.empty() || result.match)) return false;
  Proof::Counterexample example;
  example.sizes = sizes;
  example.document = scenario->document;
  example.document.set("expect", Json::object({{"verdict", {}, Json::string(race ? "race" : "mismatch")}}));
  for (const BufferResult& buffer : result.buffers) {
    const auto wrong =
        std::find_if(buffer.pieces.begin(), buffer.pieces.end(), [](const PieceResult& piece) { return !piece.right; });
    if (wrong == buffer.pieces.end()) continue;
    const LocalBuffer& local = schedule.model.local(buffer.rank).buffers[static_cast<std::size_t>(buffer.buffer)];
    const std::vector<Term> support = reference_terms(schedule, local.logical, local.piece, result.step);
    example.rank = buffer.rank;
    example.parameter = schedule.model.parameters()[static_cast<std::size_t>(local.parameters.front())].name;
    example.got = print_formula(schedule, buffer.rank, buffer.buffer,
                                engine.terms(wrong->form, buffer.rank, buffer.buffer), support);
    example.expected = print_formula(schedule, buffer.rank, buffer.buffer,
                                     engine.terms(wrong->reference, buffer.rank, buffer.buffer), support);
    break;
  }
  const auto name = [&](int rank, int buffer) {
    const LocalBuffer& local = schedule.model.local(rank).buffers[static_cast<std::size_t>(buffer)];
    return schedule.model.parameters()[static_cast<std::size_t>(local.parameters.front())].name;
  };
  if (example.parameter.empty() && !result.unowned.empty()) {
    example.rank = result.unowned.front().rank;
    example.parameter = name(example.rank, result.unowned.front().buffer);
    example.unowned = true;
  } else if (example.parameter.empty() && !result.norm.empty()) {
    example.rank = result.norm.front().rank;
    example.parameter = schedule.model.parameters()[static_cast<std::size_t>(result.norm.front().parameter)].name;
    example.counted = result.norm.front().counted;
  }
  proof.counterexample = std::move(example);
  return true;
}

void Prover::State::find_counterexample(const std::vector<Reason>& reasons) {
  // Sizes in the order of their ranks; only those at which something may be wrong are looked at.
  std::vector<Sizes> candidates = {base};
  for (const Axis axis : proof.axes) {
    std::vector<Sizes> more;
    for (const Sizes& sizes : candidates) {
      for (int size = 1; size <= 6; ++size) {
        more.push_back(sizes);
        more.back().axes[axis] = size;
      }
    }
    candidates = std::move(more);
  }
  if (proof.micro_batches) {
    std::vector<Sizes> more;
    for (const Sizes& sizes : candidates) {
      for (int count = 1; count <= 3; ++count) {
        more.push_back(sizes);
        more.back().micro_batches = count;
      }
    }
    candidates = std::move(more);
  }
  const auto world = [](const Sizes& sizes) {
    int product = 1;
    for (const auto& [axis, size] : sizes.axes) product *= size;
    return std::pair(product, sizes.micro_batches.value_or(0));
  };
  std::stable_sort(candidates.begin(), candidates.end(),
                   [&](const Sizes& a, const Sizes& b) { return world(a) < world(b); });
  int looked_at = 0;
  for (const Sizes& sizes : candidates) {
    const bool possible =
        std::any_of(reasons.begin(), reasons.end(), [&](const Reason& reason) { return applies(reason, sizes); });
    if (!possible || !read(sizes)) continue;
    if (show(sizes) || ++looked_at == 40) return;
  }
}

void Prover::State::conclude() {
  std::vector<Reason> reasons;
  std::set<std::string> names;
  for (const Case& one : cases) {
    if (one.limit) proof.limits.push_back(*one.limit);
    for (const Reason& reason : reasons_of(one)) {
      reasons.push_back(reason);
      const Logical& logical = reason.specimen->scenario->schedule->model
                                   .logicals()[static_cast<std::size_t>(reason.result->members->logicals.front())];
      names.insert(logical.name);
    }
  }
  proof.wrong_parameters.assign(names.begin(), names.end());
  if (options.steps) proof.steps = proof_steps(cases);
  if (!reasons.empty()) find_counterexample(reasons);
  if (!reasons.empty() && proof.counterexample) {
    proof.verdict = Proof::Verdict::wrong;
    proof.statement = statement_of(cases, reasons, proof.axes, proof.micro_batches);
    const bool cuts_alone =
        std::all_of(reasons.begin(), reasons.end(), [](const Reason& reason) { return reason.by_cut; });
    if (cuts_alone) proof.statement += ", wherever its cuts give an element these owners";
  } else if (!reasons.empty()) {
    proof.verdict = Proof::Verdict::undecided;
    proof.statement =
        "right at every small size that was tried; it would be wrong where its cuts give an element other owners";
  } else if (!proof.limits.empty()) {
    proof.verdict = Proof::Verdict::undecided;
    proof.statement =
        proof.limits.size() == cases.size() ? "no proof for every size" : "right where it could be followed";
  } else {
    proof.verdict = Proof::Verdict::right;
    proof.statement = "right for every size";
  }
}

Prover::Prover(const Scenario& scenario) : Prover(scenario, Options{}) {}
Prover::Prover(const Scenario& scenario, Options options) : state_(std::make_unique<State>(scenario, options)) {}
Prover::~Prover() = default;

const Proof& Prover::proof() const { return state_->proof; }

std::shared_ptr<const Scenario> Prover::scenario_at(const Sizes& sizes) const {
  Sizes all = state_->base;
  for (const auto& [axis, size] : sizes.axes) all.axes[axis] = size;
  if (sizes.micro_batches) all.micro_batches = sizes.micro_batches;
  return state_->read(all);
}

std::optional<ParametricResult> Prover::at(const Sizes& sizes) const {
  const std::shared_ptr<const Scenario> scenario = scenario_at(sizes);
  if (!scenario) return std::nullopt;
  Sizes all = state_->base;
  for (const auto& [axis, size] : sizes.axes) all.axes[axis] = size;
  if (sizes.micro_batches) all.micro_batches = sizes.micro_batches;
  ParametricResult result;
  result.why = "the proof does not speak of these sizes";
  const auto found =
      std::find_if(state_->cases.begin(), state_->cases.end(), [&](const Case& one) { return one.holds(all); });
  if (found == state_->cases.end()) return result;
  if (found->limit) {
    result.undecided_step = found->limit->step;
    result.why = found->limit->why;
    return result;
  }
  try {
    const Schedule& schedule = *scenario->schedule;
    const World target(schedule, {});
    const Choices choices(target);
    Verdicts verdicts(schedule.batch.steps());
    for (const Class& members : choices.classes()) {
      const Specimen* of = nullptr;
      const ClassResult* same = nullptr;
      for (const Specimen& specimen : found->specimens) {
        for (const ClassResult& one : specimen.results) {
          if (one.members->key == members.key) of = &specimen, same = &one;
        }
      }
      if (same == nullptr) {
        result.why = "at these sizes parameters lie where they lie at none of those that the proof looked at";
        return result;
      }
      verdicts.add(Evaluation(*of->world, target, *same, members).first(), members.logicals.front());
    }
    result.classes = static_cast<int>(choices.classes().size());
    result.why.clear();
    verdicts.write(result);
  } catch (const OutOfReach& limit) {
    result.undecided_step = limit.step;
    result.why = limit.what();
  }
  return result;
}

}  // namespace lockstep
