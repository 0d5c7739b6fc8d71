// SPDX-License-Identifier: Apache-2.0
#include "src/symbolic/program_forms.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "src/base/budget.h"
#include "src/symbolic/program_operations.h"

namespace lockstep::symbolic {

namespace {

/// A shift of all offsets: those of the frame that stands for the element itself are as any other's.
constexpr Frame itself;

/// By what a reduction multiplies the sum; nothing where it is no sum.
std::optional<Rational> factor_of_sum(const ProgramCall& call, std::size_t members) {
  if (call.reduce == "sum") return Rational(1);
  if (call.reduce == "avg") return Rational(1, static_cast<std::int64_t>(members));
  if (call.reduce == "premul_sum") return call.factor;
  return std::nullopt;
}

/// The calls whose outputs a result of any rank depends on.
std::vector<char> needed_meetings(const RankPrograms& programs, const Meetings& meetings) {
  std::vector<char> needed(meetings.all.size(), 0);
  const auto mark = [&](int rank, const std::vector<int>& calls) {
    for (const int call : calls) {
      const int meeting = meetings.of_rank[at(rank)][at(call)];
      if (meeting >= 0) needed[at(meeting)] = 1;
    }
  };
  std::vector<std::vector<std::vector<int>>> of_input(programs.programs.size());  // by program and call
  std::vector<std::vector<int>> of_results(programs.programs.size());
  for (std::size_t i = 0; i < programs.programs.size(); ++i) {
    const RankProgram& program = programs.programs[i];
    for (const ProgramCall& call : program.calls) of_input[i].push_back(calls_read(program, call.input));
    for (const ProgramContent& result : program.results) {
      const std::vector<int> own = calls_read(program, result);
      of_results[i].insert(of_results[i].end(), own.begin(), own.end());
    }
  }
  for (int rank = 0; rank < programs.world(); ++rank) mark(rank, of_results[at(programs.program_of[at(rank)])]);
  for (std::size_t i = meetings.order.size(); i-- > 0;) {
    const Meeting& meeting = meetings.all[at(meetings.order[i])];
    if (needed[at(meetings.order[i])] == 0) continue;
    const std::vector<int>& ranks = meeting.ranks(programs);
    for (std::size_t position = 0; position < ranks.size(); ++position)
      mark(ranks[position], of_input[at(programs.program_of[at(ranks[position])])][at(meeting.calls[position])]);
  }
  return needed;
}

}  // namespace

/// Some stretches, seen from a buffer in which they stand `move` further on, times a factor.
struct ProgramForms::View {
  const Stretch* next = nullptr;  ///< null: `own`
  const Stretch* end = nullptr;
  std::int64_t move = 0;
  Rational factor = 1;
  std::optional<Stretch> own;
};

ProgramForms::ProgramForms(const RankPrograms& programs, const Meetings& meetings)
    : programs_(programs), meetings_(meetings), positions_(programs), outputs_(meetings.all.size()) {
  const std::vector<char> needed = needed_meetings(programs, meetings);
  for (const int meeting : meetings.order) {
    if (needed[at(meeting)] != 0) compose(meeting);
  }
}

int ProgramForms::unknown(Reason reason) {
  const auto [found, is_new] = reason_numbers_.try_emplace(reason, static_cast<int>(reasons_.size()));
  if (is_new) reasons_.push_back(std::move(reason));
  return -1 - found->second;
}

/// Of one that nobody knows.
int ProgramForms::scaled(int form, const Rational& factor) {
  Reason one = reason(form);
  if (one.curve == 0 || factor > Rational(0)) return form;
  one.curve = -one.curve;
  return unknown(std::move(one));
}

int ProgramForms::unknown_sum(const std::vector<int>& forms) {
  if (forms.size() == 1) return forms.front();
  // What is no sum on one rank and what is none on another do not make one together, nor do maxima; others may.
  std::vector<int> ranks;
  const Reason& first = reason(forms.front());
  bool is_never = true, is_curved = first.curve != 0;
  for (const int form : forms) {
    const Reason& one = reason(form);
    if (one.rank >= 0) ranks.push_back(one.rank);
    is_never = is_never && one.no_sum != NoSum::perhaps;
    is_curved = is_curved && one.curve == first.curve;
  }
  std::sort(ranks.begin(), ranks.end());
  const bool is_apart = ranks.size() == forms.size() && std::adjacent_find(ranks.begin(), ranks.end()) == ranks.end();
  if (!is_never || !(is_apart || is_curved)) return unknown({first.why});
  return unknown({first.why, first.no_sum, -1, is_curved ? first.curve : 0});
}

void ProgramForms::add(Stretches& stretches, const Stretch& next) const {
  if (next.begin == next.end) return;
  if (!stretches.empty()) {
    Stretch& last = stretches.back();
    if (last.end == next.begin && last.form == next.form && last.shift == next.shift) {
      last.end = next.end;
      return;
    }
  }
  stretches.push_back(next);
}

void ProgramForms::add_sum(std::vector<View>& views, std::int64_t begin, std::int64_t end, Stretches& sum) {
  const auto first = [](const View& view) { return view.own ? &*view.own : view.next; };
  const auto last = [](const View& view) { return view.own ? &*view.own + 1 : view.end; };
  // Where each view is; `next` of one that owns its stretch points into it.
  std::vector<std::pair<const Stretch*, const Stretch*>> places;
  places.reserve(views.size());
  for (const View& view : views) {
    const Stretch* place = std::upper_bound(first(view), last(view), begin - view.move,
                                            [](std::int64_t element, const Stretch& one) { return element < one.end; });
    places.emplace_back(place, last(view));
  }
  std::vector<int> forms, unknowns;
  for (std::int64_t position = begin; position < end;) {
    Budget::spend(1 + static_cast<std::int64_t>(views.size() / 4));
    std::int64_t stop = end;
    std::int64_t base = 0;
    forms.clear();
    unknowns.clear();
    for (std::size_t i = 0; i < views.size(); ++i) {
      auto& [place, past] = places[i];
      const View& view = views[i];
      while (place != past && place->end + view.move <= position) ++place;
      if (place == past || place->begin + view.move > position) {
        if (place != past) stop = std::min(stop, place->begin + view.move);
        unknowns.push_back(unknown({std::string(not_followed)}));
        continue;
      }
      stop = std::min(stop, place->end + view.move);
      if (place->form < 0) {
        unknowns.push_back(scaled(place->form, view.factor));
        continue;
      }
      int form = forms_.scale(place->form, view.factor);
      if (form == 0) continue;
      const std::int64_t shift = place->shift - view.move;
      if (forms.empty()) base = shift;
      if (shift != base) form = forms_.enter(form, itself, base - shift);
      forms.push_back(form);
    }
    Stretch next{position, stop, unknowns.empty() ? 0 : unknown_sum(unknowns), 0};
    if (unknowns.empty() && !forms.empty()) {
      next.form = forms.size() == 1 ? forms.front() : forms_.sum(forms);
      next.shift = next.form == 0 ? 0 : base;
    }
    add(sum, next);
    position = stop;
  }
}

ProgramForms::View ProgramForms::view(int rank, const SourceTerm& term, std::int64_t first) {
  const RankProgram& program = programs_.of(rank);
  const ProgramSource& source = program.sources[at(term.source)];
  View view;
  view.move = first - term.offset;
  view.factor = term.coefficient;
  if (source.call < 0) {
    view.own = Stretch{0, source.elements, forms_.make({{contribution(rank, term.source), Rational(1)}}), 0};
    return view;
  }
  const ProgramCall& call = program.calls[at(source.call)];
  if (!meetings_.reached(rank, source.call)) {
    view.own = Stretch{0, source.elements, unknown({fmt::format("the {} never ends", call.words)}), 0};
    return view;
  }
  const int number = meetings_.of_rank[at(rank)][at(source.call)];
  const Meeting& meeting = meetings_.all[at(number)];
  if (!meeting.wrong.empty()) {
    view.own = Stretch{0, source.elements, unknown({fmt::format("of the {}, {}", call.words, meeting.wrong)}), 0};
    return view;
  }
  const std::vector<Stretches>& outputs = outputs_[at(number)];
  std::size_t position = 0;
  if (outputs.size() > 1)
    position = meeting.group < 0 ? (rank == meeting.pair[0] ? 0 : 1) : positions_.of(meeting.group, rank);
  view.next = outputs[position].data();
  view.end = view.next + outputs[position].size();
  return view;
}

std::optional<Stretch> ProgramForms::sum_of_own(int rank, const ContentPart& part) {
  const RankProgram& program = programs_.of(rank);
  const auto is_own = [&](const SourceTerm& term) {
    const ProgramSource& source = program.sources[at(term.source)];
    return source.call < 0 && term.offset == part.terms.front().offset && term.offset + part.count <= source.elements;
  };
  if (part.terms.empty() || !std::all_of(part.terms.begin(), part.terms.end(), is_own)) return std::nullopt;
  Budget::spend(1 + static_cast<std::int64_t>(part.terms.size() / 4));
  std::vector<std::pair<int, Rational>> terms;
  for (const SourceTerm& term : part.terms) {
    if (!term.coefficient.is_zero()) terms.emplace_back(contribution(rank, term.source), term.coefficient);
  }
  const int form = forms_.make(terms);
  return Stretch{part.first, part.first + part.count, form, form == 0 ? 0 : part.terms.front().offset - part.first};
}

int ProgramForms::contribution(int rank, int source) {
  Atom atom;
  atom.source = rank;
  atom.micro_batch = source;
  return forms_.atom(atom);
}

Stretches ProgramForms::evaluate(int rank, const ProgramContent& content) {
  Stretches stretches;
  std::vector<View> views;
  for (const ContentPart& part : content) {
    if (!part.unknown.empty()) {
      const int from = part.no_sum == NoSum::perhaps ? -1 : rank;
      add(stretches, {part.first, part.first + part.count, unknown({part.unknown, part.no_sum, from}), 0});
      continue;
    }
    if (const std::optional<Stretch> own = sum_of_own(rank, part)) {
      add(stretches, *own);
      continue;
    }
    views.clear();
    for (const SourceTerm& term : part.terms) {
      if (!term.coefficient.is_zero()) views.push_back(view(rank, term, part.first));
    }
    add_sum(views, part.first, part.first + part.count, stretches);
  }
  return stretches;
}

void ProgramForms::compose(int number) {
  const Meeting& meeting = meetings_.all[at(number)];
  if (!meeting.wrong.empty()) return;
  const std::vector<int>& ranks = meeting.ranks(programs_);
  const std::size_t members = ranks.size();
  const auto call = [&](std::size_t i) -> const ProgramCall& {
    return programs_.of(ranks[i]).calls[at(meeting.calls[i])];
  };
  const ProgramCall& first = call(0);
  std::vector<Stretches> inputs(members);
  const ProgramOperation& row = program_operation(first.op);
  const auto counts = [&](std::size_t i) {
    if (row.sender == ProgramOperation::Sender::root) return static_cast<int>(i) == first.root;
    return row.sender == ProgramOperation::Sender::all || i == 0;
  };
  for (std::size_t i = 0; i < members; ++i) {
    if (!counts(i)) continue;
    inputs[i] = evaluate(ranks[i], call(i).input);
  }
  const auto shown = [&](const Stretches& all, std::int64_t move, const Rational& factor) {
    View view;
    view.next = all.data();
    view.end = view.next + all.size();
    view.move = move;
    view.factor = factor;
    return view;
  };
  const auto splits = [&](const ProgramCall& one, std::size_t i) {
    return part_at(one.input_splits, one.elements, members, i);
  };
  std::vector<Stretches>& outputs = outputs_[at(number)];
  outputs.resize(row.for_all ? 1 : members);
  std::vector<View> views;
  const auto reduce = [&](Stretches& output) {
    const std::optional<Rational> factor = factor_of_sum(first, members);
    if (!factor) return add_other(first, inputs, output);
    views.clear();
    for (const Stretches& input : inputs) views.push_back(shown(input, 0, *factor));
    add_sum(views, 0, first.elements, output);
  };
  const auto append = [&](const Stretches& from, std::int64_t begin, std::int64_t count, std::int64_t to,
                          Stretches& output) {
    views = {shown(from, to - begin, Rational(1))};
    add_sum(views, to, to + count, output);
  };
  // Where it is one member's alone, and else everybody's.
  const bool is_for_one = row.in_pairs || (row.rooted && row.sender != ProgramOperation::Sender::root);
  const std::size_t receiver = row.in_pairs ? 1 : is_for_one ? at(first.root) : 0;
  const std::size_t behind = row.for_all || is_for_one ? receiver + 1 : members;
  const bool in_parts = row.parts != ProgramOperation::Parts::none;
  if (row.reduces && !in_parts) return reduce(outputs[receiver]);
  Stretches sum;
  if (row.reduces) reduce(sum);
  // What is handed out, one behind the other: the sum, or what each sender puts in, or each sender's part for a member.
  std::vector<std::size_t> senders;
  for (std::size_t i = 0; i < members; ++i) {
    if (row.reduces ? i == 0 : counts(i) && call(i).elements > 0) senders.push_back(i);
  }
  std::vector<std::int64_t> taken(members);  // of what each sends, by members before
  for (std::size_t i = receiver; i < behind; ++i) {
    std::int64_t filled = 0;
    for (const std::size_t j : senders) {
      const std::int64_t count = in_parts ? splits(call(j), i) : call(j).elements;
      // Of a sum a member may take nothing.
      if (!row.reduces || call(i).output >= 0)
        append(row.reduces ? sum : inputs[j], taken[j], count, filled, outputs[i]);
      if (in_parts) taken[j] += count;
      filled += count;
    }
  }
}

Stretches ProgramForms::result(int rank, int result) { return evaluate(rank, programs_.of(rank).results[at(result)]); }

std::vector<ComposedTerm> ProgramForms::terms_of(int form) const {
  std::vector<ComposedTerm> terms;
  for (const Forms::Term& term : forms_.form(form)) {
    const Atom& atom = forms_.atom_at(term.atom);
    terms.push_back(
        {atom.source, atom.micro_batch, forms_.frame_at(atom.frame).offset, forms_.coefficient_at(term.coefficient)});
  }
  std::sort(terms.begin(), terms.end(), [](const ComposedTerm& a, const ComposedTerm& b) {
    return std::tie(a.rank, a.source, a.offset) < std::tie(b.rank, b.source, b.offset);
  });
  return terms;
}

}  // namespace lockstep::symbolic
