// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "lockstep/collective.h"
#include "lockstep/local_step.h"
#include "src/base/at.h"
#include "src/base/budget.h"
#include "src/symbolic/engine_state.h"

namespace lockstep {

namespace {

Intervals all_of(const LocalBuffer& buffer) { return buffer.numel == 0 ? Intervals{} : Intervals{{0, buffer.numel}}; }

}  // namespace

int SymbolicEngine::State::slot(const std::string& name) {
  const auto [found, is_new] = slots.emplace(name, static_cast<int>(buffers.size()));
  if (is_new) buffers.emplace_back(memory.first.back(), -1);
  return found->second;
}

int& SymbolicEngine::State::held(int slot_number, int rank, int buffer) {
  int& content = buffers[at(slot_number)][index(rank, buffer)];
  if (content < 0) content = contents.uniform(local_buffer(rank, buffer).numel, 0);
  return content;
}

void SymbolicEngine::State::happen(const Event& event) {
  Budget::spend(4 + 2 * static_cast<std::int64_t>(event.calls.size()));
  const Operation& row = operation(event.op);
  if (row.counts) {
    keep_norm(event);
  } else if (row.collective) {
    collective(event);
  } else if (row.local()) {
    local(event);
  }
}

/// One buffer of a rank in a local step, for apply_local(): what stands in it afterwards.
struct SymbolicEngine::State::LocalChange {
  State& state;
  const Event& event;
  int buffer;
  const Intervals& where;
  int fresh;  ///< a content

  const Call& call() const { return event.calls.front(); }
  int from() const { return state.held(state.slot(call().step->from), call().rank, buffer); }

  void clear() { fresh = state.contents.uniform(state.local_buffer(call().rank, buffer).numel, 0); }
  void multiply() { fresh = state.contents.scale(fresh, event.by); }
  void clip() { fresh = state.contents.clip(fresh, state.clip_factor(call())); }
  void take_over() { fresh = from(); }
  void add_buffer() { fresh = state.contents.add(fresh, from()); }
  void add_gradient() { fresh = state.contents.add_form(fresh, where, state.gradient(event, buffer)); }
  void add_leftover() {
    symbolic::Atom atom;
    atom.source = call().step->per_rank ? call().rank : -1;
    atom.leftover = state.forms.leftover(call().step->what);
    const int form = state.forms.make({{state.forms.atom(atom), event.by}});
    fresh = state.contents.add_form(fresh, where, form);
  }
};

void SymbolicEngine::State::local(const Event& event) {
  const Call& call = event.calls.front();
  const int target = slot(call.step->buffer);
  for (std::size_t i = 0; i < call.buffers->size(); ++i) {
    const int buffer = (*call.buffers)[i];
    const Intervals where = call.owned.empty() ? all_of(local_buffer(call.rank, buffer)) : call.owned[i];
    LocalChange change{*this, event, buffer, where, held(target, call.rank, buffer)};
    apply_local(operation(event.op), change);
    contents.place(held(target, call.rank, buffer), where, change.fresh);
  }
}

/// What backward adds to a buffer: a form.
int SymbolicEngine::State::gradient(const Event& event, int buffer) {
  const Call& call = event.calls.front();
  const Step& step = *call.step;
  const auto [number, is_first] = step_numbers.emplace(&step, 0);
  if (is_first) number->second = memory.number_of(step);
  const int counted = schedule.batch.first_micro_batch(event.optimizer_step) + event.micro_batch;
  const std::array<int, 4> key = {call.rank, contributions.class_of(call.rank, buffer), counted, number->second};
  if (const auto known = memory.backward_forms.find(key); known != memory.backward_forms.end()) return known->second;
  std::vector<std::pair<int, Rational>> terms;
  for (const Contribution& contribution :
       contributions.of(call.rank, buffer, event.optimizer_step, event.micro_batch, step.uses)) {
    symbolic::Atom atom;
    atom.source = contribution.source;
    atom.micro_batch = counted;
    atom.site_use = contribution.site_use;
    terms.emplace_back(forms.atom(atom),
                       factors.by(step, contribution.evaluated_on, event.optimizer_step, event.micro_batch));
  }
  return memory.backward_forms[key] = forms.make(terms);
}

void SymbolicEngine::State::collective(const Event& event) {
  const Call& lead = event.calls.front();
  for (std::size_t position = 0; position < lead.buffers->size(); ++position) {
    std::vector<int> values;
    const int lead_buffer = (*lead.buffers)[position];
    bool alike = true;
    for (const Call& call : event.calls) {
      const int buffer = (*call.buffers)[position];
      values.push_back(held(slot(call.step->buffer), call.rank, buffer));
      alike = alike && original_of(call.rank, buffer) == original_of(lead.rank, lead_buffer) &&
              local_buffer(call.rank, buffer).piece == local_buffer(lead.rank, lead_buffer).piece &&
              (call.owned.empty() ? lead.owned.empty()
                                  : !lead.owned.empty() && call.owned[position] == lead.owned[position]);
    }
    if (alike) {
      aligned(event, position, values);
    } else {
      shifted(event, position, values);
    }
    for (std::size_t i = 0; i < event.calls.size(); ++i) {
      const Call& call = event.calls[i];
      held(slot(call.step->buffer), call.rank, (*call.buffers)[position]) = values[i];
    }
  }
}

// All members bring the same elements of the same parameter: local indices meet.
void SymbolicEngine::State::aligned(const Event& event, std::size_t position, std::vector<int>& values) {
  const Call& lead = event.calls.front();
  const Intervals everything =
      lead.owned.empty() ? all_of(local_buffer(lead.rank, (*lead.buffers)[position])) : lead.owned[position];
  std::vector<Intervals> slices;
  if (!event.cuts.empty()) {
    for (std::size_t i = 0; i < event.calls.size(); ++i) {
      slices.push_back(expand(everything, event.cuts[position].slice(static_cast<int>(i))));
    }
  }
  apply_collective(operation(event.op), contents, values, slices, everything, event.root, event.average);
}

// Shards or parameters get mixed up: work on stretches whose terms know where they come from.
void SymbolicEngine::State::shifted(const Event& event, std::size_t position, std::vector<int>& values) {
  std::vector<int> stretches;
  std::vector<Intervals> views, slices;
  std::vector<symbolic::Frame> frames;
  for (std::size_t i = 0; i < event.calls.size(); ++i) {
    const Call& call = event.calls[i];
    const int number = (*call.buffers)[position];
    const LocalBuffer& buffer = local_buffer(call.rank, number);
    views.push_back(call.owned.empty() ? all_of(buffer) : call.owned[position]);
    frames.push_back({original_of(call.rank, number), buffer.piece, 0});
    stretches.push_back(contents.extract(values[i], views.back(), frames.back()));
  }
  const std::int64_t length = size(views.front());
  const Intervals everything = length == 0 ? Intervals{} : Intervals{{0, length}};
  if (!event.cuts.empty()) {
    for (std::size_t i = 0; i < event.calls.size(); ++i) {
      slices.push_back(expand(everything, event.cuts[position].slice(static_cast<int>(i))));
    }
  }
  apply_collective(operation(event.op), contents, stretches, slices, everything, event.root, event.average);
  for (std::size_t i = 0; i < event.calls.size(); ++i)
    values[i] = contents.insert(values[i], views[i], stretches[i], frames[i]);
}

}  // namespace lockstep
