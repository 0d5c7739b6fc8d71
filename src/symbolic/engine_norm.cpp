// SPDX-License-Identifier: Apache-2.0
//
// The gradient norm: on every rank every logical element must be counted exactly once, by a rank
// that owns it to the end and at a time when it is what the optimizer gets.
#include <algorithm>
#include <set>

#include "src/base/at.h"
#include "src/symbolic/engine_state.h"

namespace lockstep {

namespace {

using PieceKey = std::pair<int, int>;  // logical and piece

// Elements that a norm call counts. `good`: they are final, and still owned at the end.
struct Counted {
  Interval elements;
  bool good = true;
  bool averaged = false;  // by mean_of_norms over several ranks
};
using CountedElements = std::map<PieceKey, std::vector<Counted>>;

/// What happens to elements in a norm.
struct Count {
  int times = 0;
  bool good = true;  ///< not one of them was counted too early, or by a rank that does not own it
  bool averaged = false;

  auto operator<=>(const Count&) const = default;
  bool right() const { return times == 1 && good && !averaged; }
  std::string text() const { return averaged ? "mean_of_norms" : std::to_string(times); }
};

/// What a norm is made of: stretches of the pieces of all logical parameters, one piece after the other, each up to
/// where elements are counted in another way.
using Profile = std::vector<std::pair<std::int64_t, Count>>;

/// How many of the elements of [0, numel) are counted in which way, added to `elements`; where, to `profile`.
void add_counts(const std::vector<Counted>& counted, std::int64_t numel, std::map<Count, std::int64_t>& elements,
                Profile& profile) {
  if (numel == 0) return;
  struct Change {
    std::int64_t at;
    int times, bad, averaged;
  };
  std::vector<Change> changes = {{0, 0, 0, 0}, {numel, 0, 0, 0}};
  for (const Counted& item : counted) {
    changes.push_back({item.elements.begin, 1, item.good ? 0 : 1, item.averaged ? 1 : 0});
    changes.push_back({item.elements.end, -1, item.good ? 0 : -1, item.averaged ? -1 : 0});
  }
  std::sort(changes.begin(), changes.end(), [](const Change& a, const Change& b) { return a.at < b.at; });
  int times = 0, bad = 0, averaged = 0;
  for (std::size_t i = 0; i + 1 < changes.size(); ++i) {
    times += changes[i].times;
    bad += changes[i].bad;
    averaged += changes[i].averaged;
    const std::int64_t length = changes[i + 1].at - changes[i].at;
    if (length == 0) continue;
    const Count count{times, bad == 0, averaged > 0};
    elements[count] += length;
    if (changes[i].at > 0 && profile.back().second == count) profile.pop_back();
    profile.emplace_back(changes[i + 1].at, count);
  }
}

/// A wrong count of a logical parameter.
struct Finding {
  int logical = 0;
  std::string counted;
  std::int64_t elements = 0;
  std::int64_t of = 0;
};

/// What ranks with the same norm have in common.
struct Norm {
  std::vector<Finding> wrong;
  std::set<Count> counts;  ///< of all elements of the model
  int number = 0;          ///< equal where the profiles are
};

}  // namespace

void SymbolicEngine::State::count_norm(int optimizer_step, SymbolicResult& result) {
  const auto step = static_cast<std::size_t>(optimizer_step);
  std::vector<CountedElements> counted;  // by norm call of this optimizer step
  std::vector<std::vector<int>> calls_of(static_cast<std::size_t>(schedule.mesh.world()));  // by rank
  for (const NormCall& norm : norm_calls) {
    const Event& event = timeline.events[norm.event];
    const bool in_step = std::any_of(event.calls.begin(), event.calls.end(),
                                     [&](const Call& call) { return call.optimizer_step == optimizer_step; });
    if (!in_step) continue;
    const int number = static_cast<int>(counted.size());
    CountedElements& elements = counted.emplace_back();
    const bool averaged =
        event.calls.size() > 1 &&
        std::any_of(event.calls.begin(), event.calls.end(), [](const Call& call) { return call.step->mean_of_norms; });
    for (std::size_t member = 0; member < event.calls.size(); ++member) {
      const Call& call = event.calls[member];
      if (call.optimizer_step == optimizer_step) calls_of[at(call.rank)].push_back(number);
      for (std::size_t i = 0; i < call.buffers->size(); ++i) {
        const int buffer = (*call.buffers)[i];
        const LocalBuffer& local = local_buffer(call.rank, buffer);
        const Intervals& final_owned = timeline.owned[step][at(call.rank)][at(buffer)];
        auto& list = elements[{original_of(call.rank, buffer), local.piece}];
        const int then = norm.held[member][i];
        const int at_last = snapshots[step][index(call.rank, buffer)];
        for (const Interval& interval : subtract(call.owned[i], final_owned))
          list.push_back({interval, false, averaged});
        for (const Interval& interval : intersect(call.owned[i], final_owned)) {
          // Where the content changed after it was counted, it was counted too early.
          std::int64_t begin = interval.begin;
          const symbolic::Contents::Content& a = contents.content(then);
          const symbolic::Contents::Content& b = contents.content(at_last);
          for (std::size_t x = 0, y = 0; x < a.size() && y < b.size() && begin < interval.end;) {
            const std::int64_t end = std::min({a[x].end, b[y].end, interval.end});
            if (end > begin) {
              const bool same = forms.unclipped(a[x].form) == forms.unclipped(b[y].form);
              list.push_back({{begin, end}, same, averaged});
              begin = end;
            }
            const std::int64_t passed = std::min(a[x].end, b[y].end);
            if (a[x].end == passed) ++x;
            if (b[y].end == passed) ++y;
          }
        }
      }
    }
  }
  if (counted.empty() && !clipped_steps.contains(optimizer_step)) return;

  // Ranks that took part in the same calls have the same norm.
  std::map<std::vector<int>, Norm> norms;
  std::set<Count> counts;
  std::map<Profile, int> numbers;
  for (int rank = 0; rank < schedule.mesh.world(); ++rank) {
    const std::vector<int>& calls = calls_of[at(rank)];
    const auto [found, is_new] = norms.try_emplace(calls);
    Norm& norm = found->second;
    if (is_new) {
      Profile profile;
      const auto& logicals = schedule.model.logicals();
      for (int logical = 0; logical < static_cast<int>(logicals.size()); ++logical) {
        if (!schedule.model.is_trained_tensor(logical)) continue;
        std::map<Count, std::int64_t> elements;
        const auto& pieces = schedule.model.pieces(logical);
        for (int piece = 0; piece < static_cast<int>(pieces.size()); ++piece) {
          std::vector<Counted> all;
          for (int call : calls) {
            const auto part = counted[at(call)].find({logical, piece});
            if (part != counted[at(call)].end()) {
              all.insert(all.end(), part->second.begin(), part->second.end());
            }
          }
          add_counts(all, pieces[at(piece)].numel, elements, profile);
        }
        std::int64_t of = 0;
        std::map<std::string, std::int64_t> wrong;
        for (const auto& [count, some] : elements) {
          of += some;
          norm.counts.insert(count);
          if (!count.right()) wrong[count.text()] += some;
        }
        for (const auto& [text, some] : wrong) norm.wrong.push_back({logical, text, some, of});
      }
      counts.insert(norm.counts.begin(), norm.counts.end());
      norm.number = numbers.emplace(profile, static_cast<int>(numbers.size())).first->second;
    }
    result.norm_of.push_back(norm.number);
    for (const Finding& finding : norm.wrong) {
      const int buffer = schedule.model.buffer_of_copy(rank, finding.logical);
      const int parameter =
          buffer >= 0 ? local_buffer(rank, buffer).parameters.front() : schedule.model.trained(finding.logical).front();
      result.norm.push_back({parameter, rank, finding.counted, "1", finding.elements, finding.of});
    }
  }
  if (counts.size() == 1 && counts.begin()->good && !counts.begin()->averaged && counts.begin()->times != 1) {
    result.norm_squared_factor = counts.begin()->times;
  }
}

}  // namespace lockstep
