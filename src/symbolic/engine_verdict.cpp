// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>

#include "src/base/at.h"
#include "src/symbolic/engine_state.h"

namespace lockstep {

namespace {

// Logical parameters that are placed alike have the same references, piece by piece.
std::vector<int> placement_classes(const Model& model) {
  std::map<std::vector<std::vector<int>>, int> numbers;
  std::map<std::string, int> words;
  const auto word = [&](const std::string& text) {
    return words.emplace(text, static_cast<int>(words.size())).first->second;
  };
  std::vector<int> result;
  for (const Logical& logical : model.logicals()) {
    if (const auto known = static_cast<std::size_t>(logical.original); known < result.size()) {
      result.push_back(result[known]);  // a copy
      continue;
    }
    std::vector<std::vector<int>> key;
    for (int parameter : model.sites(logical.original)) {
      const Parameter& site = model.parameters()[at(parameter)];
      key.push_back({site.stage.value_or(-1), site.frozen ? 1 : 0, site.micro_batches ? 1 : 0});
      std::vector<int>& shards = key.emplace_back();
      for (const Shard& shard : site.shard) shards.push_back(static_cast<int>(shard.axis));
      for (const std::vector<Axis>* axes : {&site.partial, &site.dispatch}) {
        std::vector<int>& list = key.emplace_back();
        for (Axis axis : *axes) list.push_back(static_cast<int>(axis));
      }
      std::vector<int>& uses = key.emplace_back();
      for (const std::string& use : site.uses) uses.push_back(word(use));
      key.push_back(site.micro_batches.value_or(std::vector<int>{}));
      for (const Parameter::Only& only : site.only) {
        key.push_back({static_cast<int>(only.axis)});
        key.push_back(only.coordinates);
      }
    }
    result.push_back(numbers.emplace(key, static_cast<int>(numbers.size())).first->second);
  }
  return result;
}

}  // namespace

int SymbolicEngine::State::reference(int logical, int piece, int optimizer_step) {
  if (memory.placement_class.empty()) memory.placement_class = placement_classes(schedule.model);
  const std::tuple key(memory.placement_class[at(logical)], piece, optimizer_step);
  if (const auto known = memory.references.find(key); known != memory.references.end()) return known->second;
  std::vector<std::pair<int, Rational>> terms;
  for (const Term& term : reference_terms(schedule, logical, piece, optimizer_step)) {
    symbolic::Atom atom;
    atom.source = term.rank;
    atom.micro_batch = term.micro_batch;
    atom.site_use = term.site_use;
    terms.emplace_back(forms.atom(atom), term.coefficient);
  }
  return memory.references[key] = forms.make(terms);
}

// got/expected, where it is one number.
std::optional<Rational> SymbolicEngine::State::ratio(int form, int expected) {
  const auto [found, is_new] = memory.ratios.emplace(std::pair(form, expected), std::nullopt);
  if (!is_new) return found->second;
  const symbolic::Forms::Form& a = forms.form(form);
  const symbolic::Forms::Form& b = forms.form(expected);
  if (b.empty()) return std::nullopt;
  if (a.empty()) return found->second = Rational(0);
  if (a.size() != b.size()) return std::nullopt;
  const Rational first_ratio = forms.coefficient_at(a[0].coefficient) / forms.coefficient_at(b[0].coefficient);
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].atom != b[i].atom) return std::nullopt;
    if (forms.coefficient_at(a[i].coefficient) != forms.coefficient_at(b[i].coefficient) * first_ratio)
      return std::nullopt;
  }
  return found->second = first_ratio;
}

SymbolicResult SymbolicEngine::State::result_of(int optimizer_step) {
  SymbolicResult result;
  result.step = optimizer_step;
  compare(optimizer_step, result);
  find_unowned(optimizer_step, result);
  count_norm(optimizer_step, result);
  compare_replicas(result);
  const bool values_right = result.unowned.empty() &&
                            std::all_of(result.buffers.begin(), result.buffers.end(), [](const BufferResult& buffer) {
                              return std::all_of(buffer.pieces.begin(), buffer.pieces.end(),
                                                 [](const PieceResult& piece) { return piece.right; });
                            });
  if (!values_right) result.norm_squared_factor.reset();  // what is counted is not what is right
  result.match = values_right && result.norm.empty();
  return result;
}

void SymbolicEngine::State::compare(int optimizer_step, SymbolicResult& result) {
  const auto step = static_cast<std::size_t>(optimizer_step);
  result.buffers.reserve(memory.first.back());
  for (int rank = 0; rank < schedule.mesh.world(); ++rank) {
    const auto& local = schedule.model.local(rank).buffers;
    for (std::size_t buffer = 0; buffer < local.size(); ++buffer) {
      BufferResult& entry = result.buffers.emplace_back();
      entry.rank = rank;
      entry.buffer = static_cast<int>(buffer);
      entry.owned = timeline.owned[step][at(rank)][buffer];
      if (entry.owned.empty()) continue;
      const int right_form = expected(local[buffer].logical, local[buffer].piece, optimizer_step);
      visit_handed_over(rank, entry.buffer, optimizer_step, [&](const Interval& elements, int form) {
        const bool right = form == right_form;
        entry.pieces.push_back(
            {elements, right, form, right_form, right ? std::optional(Rational(1)) : ratio(form, right_form)});
        if (!right) entry.pieces.back().right_unclipped = forms.unclipped(form) == forms.unclipped(right_form);
      });
    }
  }
}

void SymbolicEngine::State::find_unowned(int optimizer_step, SymbolicResult& result) const {
  const auto step = static_cast<std::size_t>(optimizer_step);
  // By family: what its members own. A member that owns everything settles it.
  std::map<int, std::vector<Interval>> covered;
  std::vector<char> whole(memory.first.back(), 0);
  for (const BufferResult& buffer : result.buffers) {
    const auto family = static_cast<std::size_t>(timeline.family[step][at(buffer.rank)][at(buffer.buffer)]);
    if (size(buffer.owned) == local_buffer(buffer.rank, buffer.buffer).numel) whole[family] = 1;
  }
  const auto family_of = [&](const BufferResult& buffer) {
    return timeline.family[step][at(buffer.rank)][at(buffer.buffer)];
  };
  for (const BufferResult& buffer : result.buffers) {
    const int family = family_of(buffer);
    if (whole[at(family)]) continue;
    auto& list = covered[family];
    list.insert(list.end(), buffer.owned.begin(), buffer.owned.end());
  }
  std::map<int, Intervals> missing;
  for (const BufferResult& buffer : result.buffers) {
    const int family = family_of(buffer);
    if (whole[at(family)]) continue;
    const auto [found, is_new] = missing.emplace(family, Intervals{});
    if (is_new) {
      found->second = subtract({{0, local_buffer(buffer.rank, buffer.buffer).numel}}, unite(covered[family], {}));
    }
    if (!found->second.empty()) result.unowned.push_back({buffer.rank, buffer.buffer, found->second});
  }
}

// Whether all owners of an element hold equal values, tied copies included, and whether a wrong one has several.
void SymbolicEngine::State::compare_replicas(SymbolicResult& result) const {
  result.replicas_agree.assign(schedule.model.logicals().size(), true);
  result.replicated.assign(schedule.model.logicals().size(), false);
  std::vector<char> wrong(schedule.model.logicals().size(), 0);
  for (const BufferResult& buffer : result.buffers) {
    for (const PieceResult& piece : buffer.pieces) {
      if (!piece.right) wrong[at(original_of(buffer.rank, buffer.buffer))] = 1;
    }
  }
  struct Held {
    Interval elements;
    int form;
    bool right;
  };
  std::map<std::pair<int, int>, std::vector<Held>> owners;  // by the original of a logical parameter and piece
  for (const BufferResult& buffer : result.buffers) {
    const int original = original_of(buffer.rank, buffer.buffer);
    if (!wrong[at(original)]) continue;
    auto& list = owners[{original, local_buffer(buffer.rank, buffer.buffer).piece}];
    for (const PieceResult& piece : buffer.pieces) list.push_back({piece.elements, piece.form, piece.right});
  }
  for (auto& [key, list] : owners) {
    std::sort(list.begin(), list.end(),
              [](const Held& a, const Held& b) { return a.elements.begin < b.elements.begin; });
    // Walking by begin: elements up to `end` are held, those from `since` on with `form`.
    std::int64_t end = 0;
    int form = 0;
    bool agree = true, replicated = false;
    for (const Held& held_part : list) {
      // Of two owners that differ one is wrong.
      if (held_part.elements.begin < end && (!held_part.right || held_part.form != form)) replicated = true;
      if (held_part.elements.begin < end && held_part.form != form) agree = false;
      if (held_part.elements.end >= end) {
        end = held_part.elements.end;
        form = held_part.form;
      }
    }
    for (const int copy : schedule.model.copies(key.first)) {
      if (!agree) result.replicas_agree[at(copy)] = false;
      if (replicated) result.replicated[at(copy)] = true;
    }
  }
}

}  // namespace lockstep
