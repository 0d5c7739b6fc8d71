// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/repair_search.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "lockstep/operation.h"
#include "src/base/budget.h"
#include "src/diagnosis/idioms.h"
#include "src/diagnosis/inserts.h"
#include "src/diagnosis/kept_norms.h"
#include "src/diagnosis/repair_order.h"
#include "src/diagnosis/workload.h"
#include "src/scenario/step_keys.h"

namespace lockstep::diagnosis {

namespace {

constexpr std::size_t most_first_edits = 16, most_mending = 8, most_complements = 80,
                      no_repair = static_cast<std::size_t>(-1);

/// Whether of each parameter one of two edits makes the values right, and one how often a norm counts it, and so what
/// all are clipped by.
bool complete_each_other(const OracleAnswer& a, const OracleAnswer& b) {
  bool all = a.wrong_buffers.size() == b.wrong_buffers.size() && !a.wrong_buffers.empty();
  for (std::size_t at = 0; all && at < a.wrong_buffers.size(); ++at) {
    const auto values_are_right = [at](const OracleAnswer& one) {
      return one.wrong_buffers[at] == one.wrong_norms[at] + one.wrong_clips[at];
    };
    all = (a.wrong_norms[at] == 0 || b.wrong_norms[at] == 0) && (values_are_right(a) || values_are_right(b));
  }
  return all;
}

}  // namespace

RepairSearch SearchForRepairs::run() {
  if (!space_.found()) return {};
  try {
    search();
  } catch (const OverBudget& over) {
    found_.cut_off = over.what();
    drop_what_loses_norms();
    if (found_.repairs.empty() && all_back_is_) found_.repairs.push_back(std::move(*all_back_is_));
  }
  if (!found_.cut_off.empty() || found_.limit > 0) count_not_tried();
  drop_what_loses_norms();
  std::stable_sort(found_.repairs.begin(), found_.repairs.end(), ranks_before);
  return std::move(found_);
}

/// What is in no norm is in none wrongly, and the gradient is not clipped by the norm of all of it.
void SearchForRepairs::drop_what_loses_norms() {
  found_.without_norm += std::erase_if(found_.repairs, [](const FoundRepair& repair) { return !is_repair(repair); });
}

bool SearchForRepairs::is_at_limit() {
  if (found_.tried <= space_.most_tried()) return false;
  found_.limit = space_.most_tried();
  return true;
}

void SearchForRepairs::count_not_tried() {
  const Budget::Uncounted for_none;
  const bool wants_pairs = options_.pairs && !has_ordinary_repair();
  found_.not_tried.pairs = wants_pairs && !pairs_begun_;
  found_.not_tried.first_edits = firsts_left_.value_or(0);
  try {
    const Budget of_counting(Budget::run, Budget::memory_of_a_proof);  // they may be what there was no memory for
    std::size_t& edits = found_.not_tried.edits;
    edits = singles_left_.value_or(0);
    if (!singles_left_) {
      for (const auto& [distance, candidates] : other_candidates()) edits += candidates.size();
    }
    if (!inserts_are_known_) edits += insertions(listed_steps(space_.steps().steps()), space_.values()).size();
  } catch (const OverBudget&) {
    found_.not_tried.uncounted = true;
  }
}

void SearchForRepairs::search() {
  seen_.emplace(scenario::content_hash(space_.steps().steps()), no_repair);
  single();
  keep_right_here();
  if (stopped_ && !has_ordinary_repair()) {  // what it stopped at is right at the small sizes alone
    nearest_only_ = false;
    single();
    keep_right_here();
  }
  if (options_.pairs && !has_ordinary_repair()) {
    pairs_begun_ = true;
    if (all_back_) answer_to({&*all_back_});
    complementary();
    sequential();
    keep_right_here();
  }
  look_for_idle();
  try_around();
  if (!space_.sizes().empty()) return;
  for (FoundRepair& repair : found_.repairs) {
    repair.looked_at_own_sizes = true;
    repair.right_at_own_sizes = true;
    repair.verified_by = "symbolic";
  }
}

/// At other sizes; where one alone is wanted those of the repairs that may come to be it.
void SearchForRepairs::try_around() {
  if (!options_.alone_around && found_.repairs.size() == 1) return;
  std::vector<std::pair<RepairOptions::Order, FoundRepair*>> list;
  list.reserve(found_.repairs.size());
  for (FoundRepair& repair : found_.repairs)
    list.emplace_back(options_.order ? options_.order(repair) : RepairOptions::Order(), &repair);
  std::stable_sort(list.begin(), list.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::optional<RepairOptions::Order> best;
  for (const auto& [at_best, repair] : list) {
    if (best && *best < at_best) return;
    neighbours_.try_on(*repair);
    if (!options_.order) continue;
    RepairOptions::Order now = options_.order(*repair);
    if (!best || now < *best) best = std::move(now);
  }
}

/// Applies edits and keeps them where they repair everything. Nothing where the schedule that comes out was seen
/// before: of several edits that say the same the best is kept.
std::optional<OracleAnswer> SearchForRepairs::answer_to(const std::vector<const Candidate*>& edits) {
  std::optional<std::vector<Step>> steps = space_.steps().edited(edits_of(edits));
  if (!steps) return std::nullopt;
  const auto [seen, is_new] = seen_.emplace(scenario::content_hash(*steps), no_repair);
  if (!is_new) {
    if (seen->second == no_repair || !space_.says_the_same_in_the_file(edits, *steps)) return std::nullopt;
    FoundRepair& same = found_.repairs[seen->second];
    FoundRepair other = repair_of(edits, same.added_bytes, same.other_owners);
    if (std::tuple(other.alike, !is_wanted(other), ranks_before(same, other)) <
        std::tuple(same.alike, !is_wanted(same), !ranks_before(same, other)))
      same = std::move(other);
    return std::nullopt;
  }
  ++found_.tried;
  const OracleAnswer answer = space_.answer(*steps);
  if (!answer.right()) return answer;
  if (!space_.says_the_same_in_the_file(edits, *steps)) {
    seen_.erase(seen);  // another edit may say it there
  } else {
    seen->second = found_.repairs.size();
    const OracleAnswer& base = space_.base();
    found_.repairs.push_back(
        repair_of(edits, answer.sent_bytes - base.sent_bytes, base.ran && answer.owners != base.owners));
  }
  return answer;
}

FoundRepair SearchForRepairs::repair_of(const std::vector<const Candidate*>& edits, double added_bytes,
                                        bool other_owners) const {
  FoundRepair repair;
  repair.edits = one_by_one(edits);
  repair.touches_right = space_.touches_right(repair.edits);
  repair.added_bytes = added_bytes;
  repair.bytes_known = space_.sizes().empty() && space_.base().ran;
  repair.other_owners = other_owners;
  const Idioms idioms(space_.steps().steps(), space_.steps().schedule_of());
  repair.loses_norm = idioms.loses_norm(repair.edits) || runs_fewer_norms(repair.edits);
  repair.ends_backward = idioms.ends_backward(repair.edits);
  repair.owners_as_reduced = idioms.leaves_owners_to_reductions(repair.edits);
  repair.distance = idioms.distance(repair.edits);
  // Ranks that wait for others need these, and not a step less.
  constexpr int as_a_new_step = 3;
  if (space_.base().state == OracleAnswer::State::failed && idioms.drops_meeting(repair.edits))
    repair.distance = std::max(repair.distance, as_a_new_step);
  repair.counts_otherwise = idioms.counts_otherwise(repair.edits);
  repair.moves_only_backward = idioms.moves_only_backward(repair.edits);
  repair.repeats = idioms.repeats(repair.edits);
  repair.place = idioms.place(repair.edits);
  repair.alike = is_restored(repair) ? 0 : idioms.alike(repair.edits);
  repair.leaves_loop = idioms.leaves_loop(repair.edits);
  repair.acts_elsewhere = space_.acts_elsewhere(repair.edits.front());
  repair.factor_place = idioms.factor_place(repair.edits);
  return repair;
}

/// Where another norm says that it counts the same it may never run.
bool SearchForRepairs::runs_fewer_norms(const std::vector<Candidate>& edits) const {
  const std::vector<ListedStep> list = listed_steps(space_.steps().steps());
  const bool touches = std::any_of(edits.begin(), edits.end(), [&](const Candidate& edit) {
    const ListedStep* step = find_listed(list, edit.step);
    return step != nullptr && (operation(step->op()).counts || operation(step->op()).clips());
  });
  if (!touches) return false;
  std::vector<const Edit*> plain;
  plain.reserve(edits.size());
  for (const Candidate& edit : edits) plain.push_back(&edit.edit);
  std::optional<std::vector<Step>> steps = space_.steps().edited(plain);
  if (!steps) return false;
  const Schedule& before = space_.steps().schedule_of();
  Schedule after = before;
  after.steps = std::move(*steps);
  return keeps_norms(before, after) == false;
}

bool SearchForRepairs::is_wanted(const FoundRepair& repair) const {
  return options_.wanted.empty() ||
         std::any_of(repair.edits.begin(), repair.edits.end(),
                     [this](const Candidate& edit) { return options_.wanted.contains(edit.step); });
}

/// A repair that changes who owns what counts only where there is no other.
bool SearchForRepairs::has_ordinary_repair() const {
  return std::any_of(found_.repairs.begin(), found_.repairs.end(),
                     [](const FoundRepair& repair) { return !is_strange(repair); });
}

/// Where `distance` is the farthest that was tried: what breaks an idiom may be nearer to say than what is meant.
bool SearchForRepairs::has_good_repair(int distance) {
  return std::any_of(found_.repairs.begin(), found_.repairs.end(), [&](FoundRepair& repair) {
    const bool hands_over = repair.other_owners && !repair.owners_as_reduced;
    if (!is_wanted(repair) || hands_over || is_strange(repair) || repair.touches_right) return false;
    if (!is_restored(repair) && repair.distance > distance) return false;
    look_for_idle(repair);
    if (repair.leaves_idle) return false;
    if (is_restored(repair)) return true;
    neighbours_.try_on(repair);
    return repair.everywhere();
  });
}

/// Drops what is right at the small sizes and not at the file's own: numbers in the file may belong to its sizes. A
/// large layout is left to verify_repair().
void SearchForRepairs::keep_right_here() {
  constexpr double most_buffers = 4000;
  if (space_.sizes().empty() || found_.repairs.empty()) return;
  const Scenario& scenario = *result_.scenario;
  SymbolicOracle here(*scenario.schedule, one_of_each_class(*scenario.schedule));
  if (static_cast<double>(scenario.schedule->mesh.world()) *
              static_cast<double>(here.steps().schedule_of().model.parameters().size()) >
          most_buffers ||
      is_large(here.steps().schedule_of()))
    return drop_wrong_here();
  // All or nothing: an oracle that is cut off throws.
  std::vector<FoundRepair> right;
  for (const FoundRepair& repair : found_.repairs) {
    if (!here.answer(repair.plain_edits()).right()) continue;
    right.push_back(repair);
    right.back().looked_at_own_sizes = true;
    right.back().right_at_own_sizes = true;
    right.back().verified_by = "symbolic";
  }
  found_.repairs = std::move(right);
  seen_.clear();  // its numbers mean the repairs that there were
}

/// Where that is too much for each of them, those that come before the first that stands.
void SearchForRepairs::drop_wrong_here() {
  constexpr std::size_t most_looked_at = 8;
  if (!own_sizes_) own_sizes_.emplace(result_);
  std::vector<FoundRepair*> list;
  list.reserve(found_.repairs.size());
  for (FoundRepair& repair : found_.repairs) list.push_back(&repair);
  std::stable_sort(list.begin(), list.end(), [&](const FoundRepair* a, const FoundRepair* b) {
    return options_.order ? options_.order(*a) < options_.order(*b) : ranks_before(*a, *b);
  });
  const auto is_wrong = [](const FoundRepair& repair) { return repair.right_at_own_sizes == false; };
  if (list.size() > most_looked_at) list.resize(most_looked_at);
  for (FoundRepair* repair : list) {
    own_sizes_->look_at(*repair);
    if (!is_wrong(*repair)) break;
  }
  // Its numbers mean the repairs that there were, and what was wrong here is not found once more.
  std::vector<std::uint64_t> gone;
  for (const auto& [steps, number] : seen_) {
    if (number != no_repair && is_wrong(found_.repairs[number])) gone.push_back(steps);
  }
  const std::size_t dropped = std::erase_if(found_.repairs, is_wrong);
  if (dropped > 0) seen_.clear();
  for (const std::uint64_t steps : gone) seen_.emplace(steps, no_repair);
  found_.wrong_at_own_sizes += static_cast<int>(dropped);
}

/// All but those that restore or insert, by distance, the nearest first.
std::map<int, std::vector<Candidate>> SearchForRepairs::other_candidates() const {
  const std::vector<Step>& steps = space_.steps().steps();
  std::map<int, std::vector<Candidate>> candidates;
  std::vector<Candidate> singles = edits_of_steps(steps, space_.values());
  std::vector<Candidate> two = two_keys_at_once(singles);
  for (Candidate& candidate : edits_together(steps, singles))
    candidates[distance_of(candidate)].push_back(std::move(candidate));
  for (Candidate& candidate : singles) candidates[distance_of(candidate)].push_back(std::move(candidate));
  const std::vector<Parameter>& parameters = space_.steps().schedule_of().model.parameters();
  for (std::vector<Candidate> more :
       {normalizing_edits(steps, space_.values()), norm_splits(steps, space_.values(), parameters), std::move(two)}) {
    for (Candidate& candidate : more) candidates[distance_of(candidate)].push_back(std::move(candidate));
  }
  return candidates;
}

void SearchForRepairs::single() {
  singles_left_.reset();
  inserts_are_known_ = false;
  const std::optional<std::vector<Step>> right = space_.unedited_steps();
  if (right) {
    const std::vector<Step>& steps = space_.steps().steps();
    single(restoring_edits(steps, *right, space_.steps().schedule_of().model.parameters()));
    if (!has_ordinary_repair() && !all_back_) look_at_all_back(steps, *right);
  }
  // Often that is enough, and there are thousands of others.
  stopped_ = nearest_only_ && has_good_repair(0);
  if (stopped_) return;
  const std::vector<ListedStep> list = listed_steps(space_.steps().steps());
  std::map<int, std::vector<Candidate>> others = other_candidates();
  singles_left_ = 0;
  for (const auto& [distance, candidates] : others) *singles_left_ += candidates.size();
  const auto add_inserts = [&] {
    for (Candidate& insert : insertions(list, space_.values())) {
      others[distance_of(insert)].push_back(std::move(insert));
      ++*singles_left_;
    }
    inserts_are_known_ = true;
  };
  // There are thousands of new steps, and often none is looked at. Waits are nearer than the others.
  const int of_inserts = distance_of({Candidate::Kind::insert, "", Edit::insert({}, "", false)});
  const bool waits = std::any_of(list.begin(), list.end(), [](const ListedStep& step) { return step.step->async; });
  others[of_inserts];
  if (waits) add_inserts();
  int tried = 0;
  for (auto& [distance, candidates] : others) {
    stopped_ = nearest_only_ && has_good_repair(tried);
    if (stopped_) return;
    if (!waits && distance == of_inserts) add_inserts();
    single(std::move(candidates));
    tried = distance;
  }
  std::stable_sort(firsts_.begin(), firsts_.end(),
                   [](const FirstEdit& a, const FirstEdit& b) { return a.answer.distance < b.answer.distance; });
}

void SearchForRepairs::single(std::vector<Candidate> candidates) {
  const std::vector<ListedStep> list = listed_steps(space_.steps().steps());
  for (Candidate& candidate : candidates) {
    if (is_at_limit()) return;
    const bool is_relevant = space_.is_relevant(candidate, list);
    if (singles_left_) --*singles_left_;
    if (!is_relevant) continue;
    const std::optional<OracleAnswer> answer = answer_to({&candidate});
    if (const std::optional<Candidate> two = in_two_steps(candidate);
        two && answer && answer->right() && !nearest_only_)
      answer_to({&*two});
    // Of what is two changes no third one is tried.
    if (!answer || answer->state != OracleAnswer::State::wrong || is_two_changes(candidate)) continue;
    const bool takes_back = candidate.kind == Candidate::Kind::restore || candidate.kind == Candidate::Kind::drop;
    if (takes_back && taking_back_.size() < most_first_edits) taking_back_.push_back(candidate);
    if (space_.is_better(*answer) || space_.mends_the_few(*answer)) {
      firsts_.push_back({std::move(candidate), *answer});
    } else if (takes_back && plain_firsts_.size() < most_first_edits) {
      plain_firsts_.push_back({std::move(candidate), *answer});
    }
  }
}

/// All that the file changed, where no part of it is enough: it stands behind single edits, but is known to be right
/// before thousands of these are tried, so that a search which is cut off has it.
void SearchForRepairs::look_at_all_back(const std::vector<Step>& steps, const std::vector<Step>& right) {
  all_back_ = all_back(steps, right);
  if (!all_back_) return;
  const std::vector<const Candidate*> edits = {&*all_back_};
  std::optional<std::vector<Step>> edited = space_.steps().edited(edits_of(edits));
  if (!edited || !space_.answer(*edited).right() || !space_.says_the_same_in_the_file(edits, *edited)) return;
  all_back_is_ = repair_of(edits, 0, false);
}

/// Two edits of which each repairs what the other does not, and two that take back what was edited.
void SearchForRepairs::complementary() {
  const std::size_t most = std::min(firsts_.size(), most_complements);
  for (std::size_t a = 0; a < most; ++a) {
    for (std::size_t b = a + 1; b < most; ++b) {
      if (complete_each_other(firsts_[a].answer, firsts_[b].answer))
        answer_to({&firsts_[a].candidate, &firsts_[b].candidate});
    }
  }
  for (std::size_t a = 0; a < taking_back_.size(); ++a) {
    for (std::size_t b = a + 1; b < taking_back_.size(); ++b) answer_to({&taking_back_[a], &taking_back_[b]});
  }
}

/// A second edit of what the best first edits leave.
void SearchForRepairs::sequential() {
  // What is right for the few parameters that are tried first may leave alone what others need, as where each owner's
  // reduction is a step of its own.
  const auto others = std::stable_partition(
      firsts_.begin(), firsts_.end(), [this](const FirstEdit& edit) { return space_.mends_the_few(edit.answer); });
  std::vector<FirstEdit> mending(firsts_.begin(), others);
  if (mending.size() > most_mending) mending.resize(most_mending);
  firsts_.erase(firsts_.begin(), others);
  // What is too much or has changed may have to go before anything looks better.
  if (firsts_.size() > most_first_edits) firsts_.resize(most_first_edits);
  firsts_.insert(firsts_.begin(), mending.begin(), mending.end());
  firsts_.insert(firsts_.end(), plain_firsts_.begin(), plain_firsts_.end());
  firsts_left_ = firsts_.size();
  for (const bool inserts : {false, true}) {  // there are many more of them
    for (std::size_t first = 0; first < firsts_.size() && !has_ordinary_repair(); ++first) {
      seconds(firsts_[first].candidate, inserts);
      if (found_.limit > 0) return;
      if (inserts) --*firsts_left_;
    }
  }
}

void SearchForRepairs::seconds(const Candidate& first, bool inserts) {
  const std::optional<std::vector<Step>> steps = space_.steps().edited(edits_of({&first}));
  if (!steps) return;
  const std::vector<ListedStep> list = listed_steps(*steps);
  std::vector<Candidate> all = inserts ? insertions(list, space_.values()) : edits_of_steps(*steps, space_.values());
  if (!inserts)
    std::ranges::move(norm_splits(*steps, space_.values(), space_.steps().schedule_of().model.parameters()),
                      std::back_inserter(all));
  for (const Candidate& second : all) {
    if (is_at_limit()) return;
    if (space_.is_relevant(second, list)) answer_to({&first, &second});
  }
}

}  // namespace lockstep::diagnosis
