// SPDX-License-Identifier: Apache-2.0
#include "lockstep/flight_recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>

#include "src/live/collective_order.h"
#include "src/live/flight_dump.h"
#include "src/live/words.h"
#include "src/symbolic/program_operations.h"

namespace lockstep {

namespace {

using live::FlightCall;
using live::FlightDump;

/// Whether a rank comes out of the operation only after all have called it. The root of a broadcast, and who sends to
/// the root of a reduction, may be done before others begin.
bool waits_for_all(std::string_view op) {
  const symbolic::ProgramOperation* row = symbolic::program_operation_named(op);
  return row != nullptr && row->waits_for_all;
}

/// The calls of one group, by rank.
struct Group {
  std::map<int, std::vector<const FlightCall*>> calls;
};

/// A group's name, and its members where dumps say them: another set of ranks is another group.
using GroupKey = std::pair<std::string, std::vector<int>>;

class Aligner {
 public:
  Aligner(const std::vector<std::string>& files,
          const std::function<std::shared_ptr<const Source>(const std::string&)>& read, int world) {
    std::vector<Diagnostic> mistakes;
    for (const std::string& file : files) {
      try {
        dumps_.push_back(live::read_flight_dump(read(file)));
      } catch (const InputError& error) {
        mistakes.insert(mistakes.end(), error.diagnostics().begin(), error.diagnostics().end());
      }
    }
    if (!mistakes.empty()) throw InputError(std::move(mistakes));
    std::stable_sort(dumps_.begin(), dumps_.end(),
                     [](const FlightDump& a, const FlightDump& b) { return a.rank < b.rank; });
    for (std::size_t i = 1; i < dumps_.size(); ++i) {
      if (dumps_[i].rank == dumps_[i - 1].rank)
        throw InputError({Diagnostic{
            {},
            fmt::format("{}: it is of rank {}, and so is {}", dumps_[i].file, dumps_[i].rank, dumps_[i - 1].file)}});
    }
    result_.world = world;
  }

  FlightResult run() {
    std::set<std::string> versions;
    for (const FlightDump& dump : dumps_) {
      result_.ranks.push_back(dump.rank);
      by_rank_[dump.rank] = &dump;
      versions.insert(dump.version);
      result_.world = std::max(result_.world, dump.rank + 1);
      for (const auto& [name, names] : dump.groups) {
        if (!names.ranks.empty()) result_.world = std::max(result_.world, names.ranks.back() + 1);
      }
      result_.calls += static_cast<std::int64_t>(dump.calls.size());
    }
    result_.versions.assign(versions.begin(), versions.end());
    missing();
    gather();
    for (auto& [key, group] : groups_) describe(key, group);
    compare();
    result_.notes.insert(result_.notes.end(), order_.suspicious.begin(), order_.suspicious.end());
    for (const VerifiedCollective& one : order_.wrong) result_.collectives.push_back(one.what);
    if (!unknown_.empty())
      result_.notes.push_back(fmt::format(
          "the dumps do not say which ranks belong to {}{}: those are compared that called something in {}.",
          *unknown_.begin(), unknown_.size() == 1 ? "" : fmt::format(" and {} more", unknown_.size() - 1),
          unknown_.size() == 1 ? "it" : "them"));
    if (result_.calls == 0) result_.gaps.push_back("no collective was recorded: was TORCH_FR_BUFFER_SIZE set?");
    return std::move(result_);
  }

 private:
  void missing() {
    std::vector<int> ranks;
    for (int rank = 0; rank < result_.world; ++rank) {
      if (!by_rank_.contains(rank)) ranks.push_back(rank);
    }
    if (!ranks.empty())
      result_.gaps.push_back(fmt::format("{} of {} left no dump: what {} called is not known.", live::rank_words(ranks),
                                         result_.world, ranks.size() == 1 ? "it" : "they"));
  }

  void gather() {
    for (const FlightDump& dump : dumps_) {
      for (const auto& [name, names] : dump.groups) {
        if (description_[name].empty()) description_[name] = names.description;
        if (names.description == "default_pg" && !default_) default_ = name;
        // One that the dump says nothing of stands here all the same, for the ranks that belong to it.
        if (!names.ranks.empty()) groups_[{name, names.ranks}];
      }
      for (const FlightCall& call : dump.calls)
        groups_[{call.group, dump.groups.at(call.group).ranks}].calls[dump.rank].push_back(&call);
    }
  }

  std::vector<int> members(const GroupKey& key, const Group& group) const {
    const auto& [name, known] = key;
    if (!known.empty()) return known;
    std::vector<int> ranks;
    if (is_default(name)) {
      ranks.resize(static_cast<std::size_t>(result_.world));
      std::iota(ranks.begin(), ranks.end(), 0);
      return ranks;
    }
    for (const auto& [rank, calls] : group.calls) ranks.push_back(rank);
    return ranks;
  }

  bool is_default(const std::string& name) const { return default_ == name; }

  void describe(const GroupKey& key, Group& group) {
    const auto& [name, known] = key;
    FlightGroup told;
    told.name = name;
    told.description = description_.at(name);
    told.ranks = members(key, group);
    told.members_known = !known.empty() || is_default(name);
    if (!group.calls.empty()) {
      words_ = live::rank_words(told.ranks);
      const std::string& called = told.description.empty() || told.description == "undefined" ? name : told.description;
      if (!called.empty()) words_ += fmt::format(" ({})", called);
      if (!told.members_known) unknown_.insert(called);
      for (auto& [rank, calls] : group.calls) keep_last_count(rank, calls);
      align(group, told);
      waiting(group);
    }
    if (!group.calls.empty() || !name.empty()) result_.groups.push_back(std::move(told));
  }

  /// A process group that is made anew under its name counts its calls from the start.
  void keep_last_count(int rank, std::vector<const FlightCall*>& calls) {
    const auto fewer = [](const FlightCall* a, const FlightCall* b) { return a->call.number > b->call.number; };
    const auto begin = std::is_sorted_until(calls.rbegin(), calls.rend(), fewer).base();
    if (begin == calls.begin()) return;
    result_.gaps.push_back(
        fmt::format("rank {} numbers a collective of {} with {} after {}: was the process group made anew? What came "
                    "before is not compared.",
                    rank, words_, (*begin)->call.number, (*(begin - 1))->call.number));
    calls.erase(calls.begin(), begin);
  }

  /// The number of the first call that a rank's dump has; nothing where it is not known what the rank called.
  std::optional<std::int64_t> first_of(int rank, const std::vector<const FlightCall*>* calls) const {
    if (calls != nullptr) return calls->front()->call.number;
    return by_rank_.at(rank)->lost_start ? std::nullopt : std::optional<std::int64_t>(0);
  }

  void align(const Group& group, FlightGroup& told) {
    live::GroupCalls compared{words_, {}, true, {}};
    std::map<int, const std::vector<const FlightCall*>*> have;
    std::vector<int> unknown;  // ranks of which only a dump without any call of the group is there
    std::int64_t begin = 0;
    int late = 0;  // the rank whose dump begins last
    for (const int rank : told.ranks) {
      if (!by_rank_.contains(rank)) continue;
      const auto found = group.calls.find(rank);
      const auto* calls = found == group.calls.end() ? nullptr : &found->second;
      const std::optional<std::int64_t> first = first_of(rank, calls);
      if (!first) {
        unknown.push_back(rank);
        continue;
      }
      have[rank] = calls;
      if (*first > begin) {
        begin = *first;
        late = rank;
      }
      if (calls != nullptr) told.last = std::max(told.last, calls->back()->call.number);
    }
    if (!unknown.empty())
      result_.gaps.push_back(fmt::format(
          "the dump of {} begins too late to tell what {} called in {}: a larger TORCH_FR_BUFFER_SIZE keeps it.",
          live::rank_words(unknown), unknown.size() == 1 ? "it" : "each", words_));
    told.first = begin;
    std::size_t made = 0;  // how many calls every rank has made, as one of these is over
    for (const auto& [rank, calls] : have) {
      const std::int64_t last = calls == nullptr ? 0 : calls->back()->call.number;
      if (last + 1 < begin) {
        result_.gaps.push_back(fmt::format(
            "rank {} stands at collective {} of {}, and rank {}'s dump begins with {}: a larger TORCH_FR_BUFFER_SIZE "
            "keeps what lies between.",
            rank, last, words_, late, begin));
        continue;
      }
      std::vector<const live::CapturedCollective*>& list = compared.calls[rank];
      if (calls == nullptr) continue;
      for (const FlightCall* call : *calls) {
        if (call->call.number < begin) continue;
        list.push_back(&call->call);
        if (call->done && waits_for_all(call->call.op)) made = std::max(made, list.size());
      }
    }
    tell_early(compared, made);
    aligned_.push_back(std::move(compared));
  }

  /// A dump that was written before others, as one group shows, was so for all groups.
  void compare() {
    for (live::GroupCalls& group : aligned_) {
      for (const auto& [rank, calls] : group.calls) {
        if (!early_.contains(rank)) group.whole.emplace(rank, std::numeric_limits<int>::max());
      }
      live::compare_group(group, order_);
    }
  }

  /// A dump that lacks one of the `made` calls was written before others: what it lacks is not compared.
  void tell_early(const live::GroupCalls& compared, std::size_t made) {
    std::vector<int> early;
    for (const auto& [rank, calls] : compared.calls) {
      if (calls.size() < made) early.push_back(rank);
    }
    early_.insert(early.begin(), early.end());
    if (!early.empty())
      result_.gaps.push_back(
          fmt::format("the dump of {} was written before others: collectives of {} that it lacks "
                      "are over elsewhere.",
                      live::rank_words(early), words_));
  }

  /// The first call of each rank that is not over.
  void waiting(const Group& group) {
    std::map<std::tuple<std::int64_t, std::string, std::string>, std::size_t> places;
    std::vector<std::pair<const FlightCall*, std::vector<int>>> alike;  // the lowest rank first
    for (const auto& [rank, calls] : group.calls) {
      const auto open = std::find_if(calls.begin(), calls.end(), [](const FlightCall* call) { return !call->done; });
      if (open == calls.end()) continue;
      const FlightCall& first = **open;
      const auto [found, is_new] =
          places.try_emplace({first.call.number, live::call_words(first.call), first.state}, alike.size());
      if (is_new) alike.push_back({&first, {}});
      alike[found->second].second.push_back(rank);
    }
    for (const auto& [first, ranks] : alike)
      result_.waiting.push_back(fmt::format("{} wait{} in collective {} of {}, {}: {}.", live::rank_words(ranks),
                                            ranks.size() == 1 ? "s" : "", first->call.number, words_,
                                            live::call_words(first->call), first->state));
  }

  std::vector<FlightDump> dumps_;
  std::map<int, const FlightDump*> by_rank_;
  std::map<GroupKey, Group> groups_;
  std::map<std::string, std::string> description_;
  std::optional<std::string> default_;  // the name of the group of all ranks
  std::set<std::string> unknown_;
  std::string words_;  // of the group at hand
  std::vector<live::GroupCalls> aligned_;
  std::set<int> early_;  // ranks whose dumps were written before others
  live::CollectiveOrder order_;
  FlightResult result_;
};

}  // namespace

VerifiedPiece::Verdict FlightResult::verdict() const {
  if (!collectives.empty()) return VerifiedPiece::Verdict::wrong;
  return waiting.empty() && gaps.empty() ? VerifiedPiece::Verdict::right : VerifiedPiece::Verdict::undecided;
}

FlightResult read_flight_recorder(const std::vector<std::string>& dumps,
                                  const std::function<std::shared_ptr<const Source>(const std::string&)>& read,
                                  int world) {
  return Aligner(dumps, read, world).run();
}

}  // namespace lockstep
