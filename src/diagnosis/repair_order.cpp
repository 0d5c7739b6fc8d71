// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/repair_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "src/scenario/step_keys.h"

namespace lockstep::diagnosis {

namespace {

/// What is said again goes with what is restored.
bool restores_alone(const FoundRepair& repair) {
  const auto end = repair.edits.end() - static_cast<std::ptrdiff_t>(repair.said_again);
  return std::all_of(repair.edits.begin(), end,
                     [](const Candidate& edit) { return edit.kind == Candidate::Kind::restore; });
}

/// A step that is changed is nearer than one that is changed and gets a new one beside it.
std::ptrdiff_t new_steps(const FoundRepair& repair) {
  return std::count_if(repair.edits.begin(), repair.edits.end(), [](const Candidate& edit) {
    return edit.kind != Candidate::Kind::restore && edit.edit.action == Edit::Action::insert;
  });
}

auto rank_of(const FoundRepair& repair) {
  std::size_t length = 0;
  for (const Candidate& edit : repair.edits) length += write_json(to_json(edit.edit)).size();
  return std::tuple(is_strange(repair), repair.count(), is_restored(repair) ? 0 : repair.sizes - repair.right_sizes,
                    repair.leaves_idle, !is_restored(repair),
                    repair.ends_backward ? 0.0 : std::max(repair.added_bytes, 0.0), repair.distance, new_steps(repair),
                    repair.acts_elsewhere, repair.touches_right, repair.factor_place, repair.counts_otherwise,
                    repair.leaves_loop, repair.added_bytes, repair.place, length);
}

/// What a repair does, without the place, the name, the parameters and the factor of what it inserts.
std::string kind_of(const FoundRepair& repair) {
  std::string kind;
  for (std::size_t at = 0; at + repair.said_again < repair.edits.size(); ++at) {
    const Candidate& edit = repair.edits[at];
    kind += fmt::format("{} ", static_cast<int>(edit.edit.action));
    if (edit.edit.action == Edit::Action::insert) {
      Step step = edit.edit.values;
      for (const char* key : {"name", "params", "by"}) scenario::remove_key(step, key);
      kind += write_json(scenario::as_written(step));
    } else {
      kind += edit.edit.step.to_string();
    }
    if (edit.edit.action == Edit::Action::set) {
      for (const auto* keys : {&edit.edit.values.keys, &edit.edit.removed})
        for (const std::string_view key : *keys) kind += fmt::format(" {}", key.substr(0, key.find('.')));
    }
  }
  return kind;
}

}  // namespace

int distance_of(const Candidate& candidate) {
  constexpr int elsewhere = 1, changed = 2, added = 3;
  const Edit& edit = candidate.edit;
  // What is asynchronous is so for a reason: it is waited for, rather than not overlapped any more.
  if (candidate.kind == Candidate::Kind::insert && edit.values.op == Op::wait) return elsewhere;
  if (edit.action == Edit::Action::set && edit.changes("async") && !edit.values.async) return added;
  if (is_two_changes(candidate)) return added;
  switch (candidate.kind) {
    case Candidate::Kind::restore:
      return 0;
    case Candidate::Kind::drop:
    case Candidate::Kind::move:
      return elsewhere;
    case Candidate::Kind::insert:
    case Candidate::Kind::duplicate:
      return added;
    default:
      return changed;
  }
}

bool is_two_changes(const Candidate& candidate) {
  const Edit& edit = candidate.edit;
  const bool is_one_thing = candidate.kind == Candidate::Kind::restore ||
                            candidate.kind == Candidate::Kind::operation || candidate.kind == Candidate::Kind::geometry;
  return edit.action == Edit::Action::set && !is_one_thing && edit.values.keys.size() + edit.removed.size() > 1;
}

bool is_repair(const FoundRepair& repair) { return !repair.loses_norm || restores_alone(repair); }

bool is_strange(const FoundRepair& repair) {
  // What a file has added may be what it asks for.
  if (restores_alone(repair) && repair.edits.front().edit.action != Edit::Action::drop) return false;
  return (repair.other_owners && !repair.owners_as_reduced) || repair.loses_norm;
}

bool is_restored(const FoundRepair& repair) { return repair.distance == 0 && restores_alone(repair); }

bool ranks_before(const FoundRepair& a, const FoundRepair& b) { return rank_of(a) < rank_of(b); }

std::vector<FoundRepair> distinct_repairs(const std::vector<FoundRepair>& repairs) {
  std::set<std::string> kinds;
  std::vector<FoundRepair> list, alike, strange;
  for (const FoundRepair& repair : repairs) {
    const bool is_new = kinds.insert(kind_of(repair)).second;
    if (!is_strange(repair)) {
      (is_new ? list : alike).push_back(repair);
    } else if (is_new) {
      strange.push_back(repair);
    }
  }
  for (FoundRepair& repair : alike) {
    repair.is_alike = true;
    list.push_back(std::move(repair));
  }
  for (FoundRepair& repair : strange) list.push_back(std::move(repair));
  return list;
}

}  // namespace lockstep::diagnosis
