// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/repairs.h"

#include <algorithm>
#include <optional>
#include <set>
#include <tuple>
#include <unordered_map>

#include "lockstep/communication.h"
#include "src/diagnosis/difference.h"
#include "src/diagnosis/other_tests.h"
#include "src/diagnosis/shrink.h"
#include "src/diagnosis/step_list.h"
#include "src/diagnosis/trial.h"

namespace lockstep {

namespace {

constexpr std::size_t most_first_edits = 16, most_complements = 80, no_repair = static_cast<std::size_t>(-1);

/// A first edit of two, that makes something better.
struct FirstEdit {
  Candidate candidate;
  Judgement judgement;
};

auto rank_of(const FoundRepair& repair) {
  std::size_t length = 0;
  for (const Candidate& edit : repair.edits) length += write_json(edit.edit).size();
  // Who owns what is the framework's business.
  const bool strange = repair.other_owners && repair.edits.front().kind != Candidate::Kind::restore;
  return std::tuple(strange, repair.edits.size(), repair.sizes - repair.right_sizes, std::max(repair.added_bytes, 0.0),
                    distance_of(repair.edits), repair.touches_right, length);
}

class Search {
 public:
  Search(const CheckResult& result, const RepairOptions& options, FileSizes sizes)
      : result_(result), options_(options), smallest_(std::move(sizes)) {}

  RepairSearch run() {
    if (!find_ground()) return {};
    limit();
    find_values();
    const Json& steps = ground_->steps().written();
    seen_.emplace(content_hash(steps), no_repair);
    single();
    keep_right_here();
    if (stopped_ && !found_one()) {  // what it stopped at is right at the small sizes alone
      nearest_only_ = false;
      single();
      keep_right_here();
    }
    if (options_.pairs && !found_one()) {
      complementary();
      sequential();
      keep_right_here();
    }
    try_around();
    std::stable_sort(found_.repairs.begin(), found_.repairs.end(),
                     [](const FoundRepair& a, const FoundRepair& b) { return rank_of(a) < rank_of(b); });
    return std::move(found_);
  }

 private:
  std::shared_ptr<const Scenario> read_at(const FileSizes& sizes) const {
    try {
      return std::make_shared<const Scenario>(
          read_document(at_sizes(result_.scenario->document, sizes), result_.scenario->file));
    } catch (const InputError&) {
      return nullptr;
    }
  }

  static std::set<std::string> wrong_names(const CheckResult& result) {
    std::set<std::string> names;
    for (const int parameter : wrong_set(result).parameters)
      names.insert(result.scenario->schedule->model.parameters()[static_cast<std::size_t>(parameter)].name);
    return names;
  }

  /// The small scenario in which the same goes wrong, and a smaller one of some of what is wrong.
  bool find_ground() {
    const std::shared_ptr<const Scenario> small = read_at(smallest_);
    if (small == nullptr) return false;
    CheckOptions check;
    check.host = false;
    check.blame = check.turns = false;
    small_ = check_scenario(small, check);
    if (small_.verdict == Verdict::match || small_.verdict == Verdict::error) return false;
    const Json classes = with_classes_only(*small);
    for (const Json& document : {classes, small->resolved}) {
      ground_ = std::make_unique<SymbolicJudge>(document);
      base_ = ground_->judge_steps(ground_->steps().written());
      if (!base_.right()) break;
    }
    if (base_.right() || base_.state == Judgement::State::not_applicable) return false;
    few_base_ = base_;
    if (base_.state != Judgement::State::wrong) return true;
    const Json few = with_few_only(classes, wrong_names(small_));
    auto judge = std::make_unique<SymbolicJudge>(few);
    const Judgement there = judge->judge_steps(judge->steps().written());
    if (there.state == Judgement::State::wrong) {
      few_ = std::move(judge);
      few_base_ = there;
    }
    return true;
  }

  /// A layout that could not be made small allows fewer trials, the nearest edits first.
  void limit() {
    constexpr double buffer_replays = 2e6, least = 100, most = 12000;
    const Schedule& schedule = (few_ != nullptr ? few_ : ground_)->steps().schedule_of();
    double buffers = 0;
    for (int rank = 0; rank < schedule.mesh.world(); ++rank)
      buffers += static_cast<double>(schedule.model.local(rank).buffers.size());
    most_tried_ = static_cast<int>(std::clamp(buffer_replays / std::max(buffers, 1.0), least, most));
  }

  /// FileSizes and token counts that can explain by how much contributions are wrong.
  void find_values() {
    values_ = candidate_values(*result_.scenario->schedule, wrong_names(result_));
    std::set<Rational> factors;
    bool uneven = false;
    if (small_.symbolic && small_.verdict == Verdict::mismatch) {
      for (const Difference& difference : differences(small_)) {
        if (!difference.least) continue;
        uneven = uneven || *difference.least != *difference.most;
        for (const Rational& ratio : {*difference.least, *difference.most}) {
          if (!ratio.is_zero()) factors.insert(Rational(1) / ratio);
        }
      }
    }
    if (uneven) return;
    keep_sizes(values_, ground_->steps().environment(), factors);
    if (!factors.empty() && values_.sizes.empty()) return;
    values_.token_counts.clear();
    values_.token_totals.clear();
  }

  /// The plain steps of the framework or of the file's list, without the file's edits; null where there are none.
  Json unedited_steps() const {
    const Json* schedule = result_.scenario->document.find("schedule");
    if (schedule->find("edits") == nullptr) return {};
    Json document = at_sizes(result_.scenario->document, smallest_);
    Json plain = *schedule;
    plain.remove("edits");
    document.set("schedule", plain);
    try {
      return *read_document(document, result_.scenario->file).resolved.find("schedule")->find("steps");
    } catch (const InputError&) {
      return {};
    }
  }

  /// Whether it acts on anything that is wrong, before or after; a step on other parameters alone repairs nothing.
  bool is_relevant(const Candidate& candidate, const std::vector<ListedStep>& steps) const {
    if (base_.wrong_buffers.empty()) return true;
    const Json* inserted = candidate.edit.find("insert");
    const ListedStep* old = find_listed(steps, candidate.step);
    if (old != nullptr && old->op == Op::each) return true;
    const Json* before = inserted != nullptr ? inserted->find("params")
                         : old == nullptr    ? nullptr
                                             : old->step.find("params");
    const Json* after = candidate.edit.find("params");
    const std::vector<Parameter>& parameters = ground_->steps().schedule_of().model.parameters();
    for (std::size_t at = 0; at < parameters.size(); ++at) {
      if (base_.wrong_buffers[at] == 0) continue;
      if (chooses(before, parameters[at]) || (after != nullptr && (after->is_null() || chooses(after, parameters[at]))))
        return true;
    }
    return false;
  }

  /// Applies edits and keeps them where they repair everything. Nothing where the schedule that comes out was seen
  /// before: of several edits that say the same the best is kept.
  std::optional<Judgement> judge(const std::vector<Candidate>& edits) {
    std::vector<Json> list;
    for (const Candidate& edit : edits) list.push_back(edit.edit);
    const Json steps = ground_->steps().edited(list);
    if (steps.is_null()) return std::nullopt;
    const auto [seen, is_new] = seen_.emplace(content_hash(steps), no_repair);
    if (!is_new) {
      if (seen->second == no_repair) return std::nullopt;
      FoundRepair& same = found_.repairs[seen->second];
      FoundRepair other = repair_of(edits, same.added_bytes, same.other_owners);
      const auto key = [this](const FoundRepair& repair) { return std::tuple(!is_wanted(repair), rank_of(repair)); };
      if (key(other) < key(same)) same = std::move(other);
      return std::nullopt;
    }
    ++found_.tried;
    if (few_ != nullptr) {
      const Judgement judgement = few_->judge_steps(steps);
      if (!judgement.right()) return judgement;
    }
    const Judgement judgement = ground_->judge_steps(steps);
    if (judgement.right() && says_the_same_in_the_file(list, steps)) {
      seen->second = found_.repairs.size();
      const bool failed = base_.state == Judgement::State::failed;
      found_.repairs.push_back(repair_of(edits, judgement.sent_bytes - (failed ? 0 : base_.sent_bytes),
                                         !failed && judgement.owners != base_.owners));
    }
    return judgement;
  }

  /// A step that an edit of the file put into one iteration keeps that, whatever `set` says of its `when`.
  bool says_the_same_in_the_file(const std::vector<Json>& edits, const Json& steps) const {
    const Json* written = result_.scenario->document.find("schedule")->find("edits");
    if (written == nullptr || write_json(*written).find("]\"") == std::string::npos) return true;  // no "STEP[0]"
    try {
      const Json document = with_edits(at_sizes(result_.scenario->document, smallest_), edits);
      const Json there = *read_document(document, result_.scenario->file).resolved.find("schedule")->find("steps");
      return content_hash(there) == content_hash(steps);
    } catch (const InputError&) {
      return false;
    }
  }

  FoundRepair repair_of(const std::vector<Candidate>& edits, double added_bytes, bool other_owners) const {
    FoundRepair repair;
    repair.edits = edits;
    repair.touches_right = touches_right(edits);
    repair.added_bytes = added_bytes;
    repair.other_owners = other_owners;
    return repair;
  }

  /// A repair that changes who owns what counts only where there is no other.
  bool found_one() const {
    return std::any_of(found_.repairs.begin(), found_.repairs.end(), [](const FoundRepair& repair) {
      return !repair.other_owners || repair.edits.front().kind == Candidate::Kind::restore;
    });
  }

  /// Drops what is right at the small sizes and not at the file's own: numbers in the file may belong to its sizes. A
  /// large layout is left to verify_repair().
  void keep_right_here() {
    constexpr double most_buffers = 4000;
    if (smallest_.empty() || found_.repairs.empty()) return;
    const Scenario& scenario = *result_.scenario;
    SymbolicJudge here(with_classes_only(scenario));
    if (static_cast<double>(scenario.schedule->mesh.world()) *
            static_cast<double>(here.steps().schedule_of().model.parameters().size()) >
        most_buffers)
      return;
    std::vector<FoundRepair> kept;
    for (FoundRepair& repair : found_.repairs) {
      if (here.judge(repair.json()).right()) kept.push_back(std::move(repair));
    }
    found_.repairs = std::move(kept);
    seen_.clear();  // its numbers mean the repairs that there were
  }

  bool found_good() const {
    return std::any_of(found_.repairs.begin(), found_.repairs.end(), [this](const FoundRepair& repair) {
      return is_wanted(repair) && !repair.other_owners && !repair.touches_right;
    });
  }

  bool is_wanted(const FoundRepair& repair) const {
    return options_.wanted.empty() ||
           std::any_of(repair.edits.begin(), repair.edits.end(),
                       [this](const Candidate& edit) { return options_.wanted.contains(edit.step); });
  }

  void single() {
    const Json& steps = ground_->steps().written();
    const std::vector<ListedStep> list = listed_steps(steps);
    const Json right = unedited_steps();
    std::vector<Candidate> candidates;
    if (!right.is_null()) candidates = restoring_edits(steps, right);
    for (Candidate& candidate : single_edits(steps, values_)) candidates.push_back(std::move(candidate));
    const auto distance = [](const Candidate& one) { return distance_of({one}); };
    std::stable_sort(candidates.begin(), candidates.end(),
                     [&](const Candidate& a, const Candidate& b) { return distance(a) < distance(b); });
    int nearest = 0;
    for (Candidate& candidate : candidates) {
      stopped_ = nearest_only_ && distance(candidate) > nearest && found_good();
      if (stopped_) return;
      nearest = distance(candidate);
      if (found_.tried > most_tried_ || !is_relevant(candidate, list)) continue;
      const std::optional<Judgement> judgement = judge({candidate});
      if (!judgement || judgement->state != Judgement::State::wrong) continue;
      const bool less = candidate.kind == Candidate::Kind::restore || candidate.kind == Candidate::Kind::drop;
      if (better(*judgement)) {
        firsts_.push_back({std::move(candidate), *judgement});
      } else if (less && plain_firsts_.size() < most_first_edits) {
        plain_firsts_.push_back({std::move(candidate), *judgement});
      }
    }
    std::stable_sort(firsts_.begin(), firsts_.end(), [](const FirstEdit& a, const FirstEdit& b) {
      return a.judgement.distance < b.judgement.distance;
    });
  }

  /// Less of what is wrong is wrong.
  bool better(const Judgement& now) const {
    if (few_base_.state == Judgement::State::failed) return true;
    if (now.distance >= few_base_.distance || now.wrong_buffers.size() != few_base_.wrong_buffers.size()) return false;
    for (std::size_t at = 0; at < now.wrong_buffers.size(); ++at) {
      if (now.wrong_buffers[at] > 0 && few_base_.wrong_buffers[at] == 0) return false;
    }
    return true;
  }

  /// Two edits of which each repairs what the other does not, and two that take back what was edited.
  void complementary() {
    const std::size_t most = std::min(firsts_.size(), most_complements);
    for (std::size_t a = 0; a < most; ++a) {
      for (std::size_t b = a + 1; b < most; ++b) {
        const auto& left = firsts_[a].judgement.wrong_buffers;
        const auto& right = firsts_[b].judgement.wrong_buffers;
        bool all = left.size() == right.size() && !left.empty();
        for (std::size_t at = 0; all && at < left.size(); ++at) all = left[at] == 0 || right[at] == 0;
        if (all) judge({firsts_[a].candidate, firsts_[b].candidate});
      }
    }
    for (std::size_t a = 0; a < plain_firsts_.size(); ++a) {
      for (std::size_t b = a + 1; b < plain_firsts_.size(); ++b)
        judge({plain_firsts_[a].candidate, plain_firsts_[b].candidate});
    }
  }

  /// A second edit of what the best first edits leave.
  void sequential() {
    // What is too much or has changed may have to go before anything looks better.
    if (firsts_.size() > most_first_edits) firsts_.resize(most_first_edits);
    firsts_.insert(firsts_.end(), plain_firsts_.begin(), plain_firsts_.end());
    for (const bool inserts : {false, true}) {  // there are many more of them
      for (std::size_t first = 0; first < firsts_.size() && !found_one(); ++first)
        seconds(firsts_[first].candidate, inserts);
    }
  }

  void seconds(const Candidate& first, bool inserts) {
    const Json steps = ground_->steps().edited({first.edit});
    const std::vector<ListedStep> list = listed_steps(steps);
    for (const Candidate& second : single_edits(steps, values_)) {
      if (found_.tried > most_tried_) return;
      const bool is_insert = second.edit.find("insert") != nullptr;
      if (is_insert == inserts && is_relevant(second, list)) judge({first, second});
    }
  }

  /// Whether something changes for parameters that are right.
  bool touches_right(const std::vector<Candidate>& edits) const {
    if (base_.wrong_buffers.empty()) return false;
    const Model& model = ground_->steps().schedule_of().model;
    const std::vector<ListedStep> steps = listed_steps(ground_->steps().written());
    for (std::size_t at = 0; at < model.parameters().size(); ++at) {
      const Parameter& parameter = model.parameters()[at];
      if (parameter.frozen || is_wrong_anywhere(model, at)) continue;
      if (std::any_of(edits.begin(), edits.end(),
                      [&](const Candidate& edit) { return changes(edit, steps, parameter); }))
        return true;
    }
    return false;
  }

  static bool changes(const Candidate& candidate, const std::vector<ListedStep>& steps, const Parameter& parameter) {
    if (const Json* inserted = candidate.edit.find("insert")) return chooses(inserted->find("params"), parameter);
    const ListedStep* step = find_listed(steps, candidate.step);
    if (step == nullptr || !takes_uses_of(step->step.find("uses"), parameter)) return false;
    const bool before = chooses(step->step.find("params"), parameter);
    const Json* params = candidate.edit.find("params");
    const bool after = params == nullptr ? before : params->is_null() || chooses(params, parameter);
    const bool params_alone =
        candidate.edit.find("set") != nullptr && params != nullptr && candidate.edit.members().size() == 2;
    return params_alone ? before != after : before || after;
  }

  static bool takes_uses_of(const Json* uses, const Parameter& parameter) {
    return uses == nullptr || std::any_of(uses->items().begin(), uses->items().end(), [&](const Json& use) {
             return std::find(parameter.uses.begin(), parameter.uses.end(), use.text()) != parameter.uses.end();
           });
  }

  /// It, or a parameter that is tied to it.
  bool is_wrong_anywhere(const Model& model, std::size_t index) const {
    const int logical = model.logical_of(static_cast<int>(index));
    const std::vector<int>& sites = model.logicals()[static_cast<std::size_t>(logical)].parameters;
    return std::any_of(sites.begin(), sites.end(),
                       [&](int site) { return base_.wrong_buffers[static_cast<std::size_t>(site)] > 0; });
  }

  void try_around() {
    if (found_.repairs.empty()) return;
    for (const FileSizes& sizes : sizes_around(*result_.scenario, smallest_)) {
      const std::shared_ptr<const Scenario> there = read_at(sizes);
      if (there == nullptr) continue;
      SymbolicJudge judge(with_classes_only(*there));
      for (FoundRepair& repair : found_.repairs) {
        const Judgement judgement = judge.judge(repair.json());
        // A step that this size does not need is not there to be edited.
        if (judgement.state == Judgement::State::not_applicable) continue;
        ++repair.sizes;
        repair.right_sizes += judgement.right() ? 1 : 0;
      }
    }
  }

  const CheckResult& result_;
  const RepairOptions& options_;
  FileSizes smallest_;
  CheckResult small_;                      // at those sizes, all parameters
  std::unique_ptr<SymbolicJudge> ground_;  // one parameter of each class
  std::unique_ptr<SymbolicJudge> few_;     // some that are wrong; null where nothing goes wrong with them alone
  Judgement base_, few_base_;
  int most_tried_ = 0;
  bool nearest_only_ = options_.nearest_only, stopped_ = false;
  CandidateValues values_;
  std::vector<FirstEdit> firsts_, plain_firsts_;
  std::unordered_map<std::uint64_t, std::size_t> seen_;  // plain steps, with their repair
  RepairSearch found_;
};

}  // namespace

int distance_of(const std::vector<Candidate>& edits) {
  int sum = 0;
  for (const Candidate& edit : edits) {
    switch (edit.kind) {
      case Candidate::Kind::restore:
        break;
      case Candidate::Kind::drop:
      case Candidate::Kind::move:
        sum += 1;
        break;
      case Candidate::Kind::insert:
      case Candidate::Kind::duplicate:
        sum += 3;
        break;
      default:
        sum += 2;
    }
  }
  return sum;
}

std::vector<FoundRepair> distinct_repairs(const std::vector<FoundRepair>& repairs) {
  std::set<std::string> kinds;
  std::vector<FoundRepair> list;
  for (const FoundRepair& repair : repairs) {
    std::string kind;
    for (const Candidate& edit : repair.edits) {
      Json words = edit.edit;
      if (const Json* inserted = words.find("insert")) {
        Json step = *inserted;
        for (const char* key : {"name", "params", "by"}) step.remove(key);
        words.set("insert", step);
      }
      for (const char* key : {"before", "after"}) words.remove(key);
      if (words.find("set") != nullptr) {
        kind += edit.step;
        for (const Json::Member& member : words.members()) kind += member.key;
      } else {
        kind += write_json(words);
      }
    }
    if (kinds.insert(kind).second) list.push_back(repair);
  }
  return list;
}

Repair FoundRepair::plain() const {
  Repair repair;
  repair.edits = json();
  for (const Candidate& edit : edits) repair.steps.push_back(edit.step);
  repair.sizes = sizes;
  repair.right_sizes = right_sizes;
  repair.other_owners = other_owners;
  repair.added_bytes = added_bytes;
  return repair;
}

bool verify_repair(const CheckResult& result, Repair& repair) {
  repair.verified.clear();
  Json document = with_edits(result.scenario->document, repair.edits);
  document.remove("expect");
  try {
    const auto repaired = std::make_shared<const Scenario>(read_document(document, result.scenario->file));
    CheckOptions options;
    options.blame = options.turns = false;
    const CheckResult there = check_scenario(repaired, options);
    if (there.verdict != Verdict::match) return false;
    repair.verified.emplace_back("symbolic");
    if (there.host) repair.verified.emplace_back("host");
    const auto most_bytes = [](const CheckResult& of) {
      return communication(*of.scenario->schedule, *of.timeline).most_bytes_of_a_rank;
    };
    repair.added_bytes = static_cast<double>(most_bytes(there) - most_bytes(result));
    return true;
  } catch (const InputError&) {
    return false;
  }
}

std::vector<Json> FoundRepair::json() const {
  std::vector<Json> list;
  for (const Candidate& edit : edits) list.push_back(edit.edit);
  return list;
}

RepairSearch find_repairs(const CheckResult& result, const RepairOptions& options) {
  if (result.scenario == nullptr || result.scenario->schedule == nullptr || result.verdict == Verdict::match ||
      result.verdict == Verdict::error || wrong_in_model_alone(result))
    return {};
  const FileSizes smallest = smallest_sizes(result);
  RepairSearch search = Search(result, options, smallest).run();
  constexpr int small_world = 64;
  if (!search.repairs.empty() || smallest.empty() || result.scenario->schedule->mesh.world() > small_world)
    return search;
  RepairSearch here = Search(result, options, {}).run();
  here.tried += search.tried;
  return here;
}

}  // namespace lockstep
