// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "lockstep/symbolic.h"
#include "src/base/at.h"

namespace lockstep {
namespace {

using Key =
    std::tuple<int, int, int, std::string, bool, int, int, std::int64_t>;  // as terms() sorts, but by rank first

std::map<Key, Rational> by_name(const std::vector<Term>& terms) {
  std::map<Key, Rational> result;
  for (const Term& t : terms) {
    result[{t.rank, t.micro_batch, t.site_use, t.leftover, t.foreign, t.logical, t.piece, t.offset}] += t.coefficient;
  }
  std::erase_if(result, [](const auto& entry) { return entry.second.is_zero(); });
  return result;
}

/// "1", "1 and 3", "1, 2 and 3".
std::string listed(const std::set<int>& numbers) {
  std::string text;
  std::size_t left = numbers.size();
  for (const int number : numbers) {
    if (!text.empty()) text += left == 1 ? " and " : ", ";
    text += std::to_string(number);
    --left;
  }
  return text;
}

/// The members of `all` for which nothing is left, if some are and whatever is missing is theirs.
std::set<int> gone(const std::set<int>& missing, const std::set<int>& present) {
  std::set<int> result;
  std::set_difference(missing.begin(), missing.end(), present.begin(), present.end(),
                      std::inserter(result, result.end()));
  return result.size() == missing.size() ? result : std::set<int>();
}

constexpr std::size_t listed_at_most = 4;

/// "the share of tp 1 is missing", for source ranks of which nothing is there.
std::string missing_ranks(const Mesh& mesh, const std::set<int>& missing, const std::set<int>& present) {
  const bool two_parts = mesh.size(Axis::dp_shard) > 1 && mesh.size(Axis::dp_replicate) > 1;
  for (const Axis axis : {Axis::tp, Axis::cp, Axis::sp, Axis::dp_shard, Axis::dp_replicate, Axis::dp, Axis::pp}) {
    if (!two_parts && (axis == Axis::dp_shard || axis == Axis::dp_replicate)) continue;
    std::set<int> missing_here, present_here;
    for (const int rank : missing) missing_here.insert(mesh.coordinate(rank, axis));
    for (const int rank : present) present_here.insert(mesh.coordinate(rank, axis));
    const std::set<int> coordinates = gone(missing_here, present_here);
    if (coordinates.empty()) continue;
    const std::string name(name_of(axis));
    if (coordinates.size() == 1) return "the share of " + name + " " + listed(coordinates) + " is missing";
    if (coordinates.size() <= listed_at_most)
      return "the shares of " + name + " " + listed(coordinates) + " are missing";
    return "the shares of " + std::to_string(coordinates.size()) + " of " +
           std::to_string(coordinates.size() + present_here.size()) + " " + name + " ranks are missing";
  }
  if (missing.size() == 1) return "the share of rank " + listed(missing) + " is missing";
  if (missing.size() <= listed_at_most) return "the shares of ranks " + listed(missing) + " are missing";
  return "the shares of " + std::to_string(missing.size()) + " ranks are missing";
}

/// What all missing terms have in common and no other has.
std::string missing_part(const Schedule& schedule, const std::vector<Key>& missing, const std::vector<Key>& present) {
  const auto field = [](const std::vector<Key>& keys, auto which) {
    std::set<int> values;
    for (const Key& key : keys) values.insert(which(key));
    return values;
  };
  const auto rank = [](const Key& key) { return std::get<0>(key); };
  const auto micro_batch = [](const Key& key) { return std::get<1>(key); };
  const auto site_use = [](const Key& key) { return std::get<2>(key); };
  const std::set<int> ranks = gone(field(missing, rank), field(present, rank));
  if (!ranks.empty()) return missing_ranks(schedule.mesh, ranks, field(present, rank));
  const std::set<int> micro_batches = gone(field(missing, micro_batch), field(present, micro_batch));
  if (micro_batches.size() == 1) return "micro-batch " + listed(micro_batches) + " is missing";
  if (!micro_batches.empty() && micro_batches.size() <= listed_at_most) {
    return "micro-batches " + listed(micro_batches) + " are missing";
  }
  if (!micro_batches.empty()) return std::to_string(micro_batches.size()) + " micro-batches are missing";
  const std::set<int> uses = gone(field(missing, site_use), field(present, site_use));
  if (uses.size() != 1) return "";
  const Logical& logical = schedule.model.logicals()[at(std::get<5>(missing.front()))];
  const SiteUse& use = logical.uses[at(*uses.begin())];
  const std::string& site = schedule.model.parameters()[at(use.parameter)].name;
  if (use.use == "main") return "the share of " + site + " is missing";
  const bool several = schedule.model.sites(logical.original).size() > 1;
  return "the use " + use.use + (several ? " of " + site : "") + " is missing";
}

std::string multiple(const Rational& ratio) {
  if (ratio == Rational(1, 2)) return "half of the right gradient";
  if (ratio > 0 && ratio < 1) return ratio.to_string() + " of the right gradient";
  return ratio.to_string() + " × the right gradient";
}

/// The clipping factors of terms that all have the same; nothing where they differ, or where there is no term.
std::optional<std::vector<ClipFactor>> clips_of(const std::vector<Term>& terms) {
  if (terms.empty()) return std::nullopt;
  const bool alike =
      std::all_of(terms.begin(), terms.end(), [&](const Term& term) { return term.clips == terms.front().clips; });
  return alike ? std::optional(terms.front().clips) : std::nullopt;
}

/// "not clipped", "clipped 2 times": a few words on clipping factors that are not the expected ones, else "".
std::string clipped_otherwise(const std::vector<Term>& got, const std::vector<Term>& expected) {
  const auto is = clips_of(got), should = clips_of(expected);
  if (got.empty() || expected.empty() || is == should) return "";
  if (!is) return "its shares are clipped by different factors";
  if (is->empty()) return "not clipped";
  if (is->size() > 1) return "clipped " + std::to_string(is->size()) + " times";
  return "clipped by another norm";
}

std::string describe_unclipped(const Schedule& schedule, const std::vector<Term>& got,
                               const std::vector<Term>& expected) {
  const std::map<Key, Rational> is = by_name(got), should = by_name(expected);
  if (is == should) return "";
  if (is.empty()) return "nothing arrived";
  std::optional<Rational> ratio;
  for (const auto& [key, coefficient] : is) {
    const auto right = should.find(key);
    if (right == should.end()) return "";
    const Rational own = coefficient / right->second;
    if (ratio && *ratio != own) return "";
    ratio = own;
  }
  if (is.size() == should.size()) return multiple(*ratio);
  std::vector<Key> missing, present;
  for (const auto& [key, coefficient] : should) (is.contains(key) ? present : missing).push_back(key);
  std::string part = missing_part(schedule, missing, present);
  if (part.empty() || ratio->is_one()) return part;
  return fmt::format("{}, the other shares count {} ×", part, ratio->to_string());
}

}  // namespace

std::string describe_difference(const Schedule& schedule, const std::vector<Term>& got,
                                const std::vector<Term>& expected) {
  const std::string values = describe_unclipped(schedule, got, expected);
  if (values.empty() && by_name(got) != by_name(expected)) return "";
  const std::string clips = clipped_otherwise(got, expected);
  return values.empty() || clips.empty() ? values + clips : values + ", " + clips;
}

}  // namespace lockstep
