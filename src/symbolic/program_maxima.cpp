// SPDX-License-Identifier: Apache-2.0
// What reductions other than sums make of forms.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "src/base/budget.h"
#include "src/symbolic/program_forms.h"

namespace lockstep::symbolic {

bool ProgramForms::is_apart(int form, int other) const {
  if (programs_.data_of.empty()) return false;
  std::map<int, Rational> sums, others;  // of coefficients, by data
  const auto add_up = [&](int one, std::map<int, Rational>& by_data) {
    for (const ComposedTerm& term : terms_of(one)) by_data[programs_.data_of[at(term.rank)]] += term.coefficient;
  };
  add_up(form, sums);
  add_up(other, others);
  // Contributions of ranks that see the same data may be one, and those of one data may then be none.
  const auto has_more = [](const std::map<int, Rational>& one, const std::map<int, Rational>& two) {
    return std::any_of(one.begin(), one.end(),
                       [&](const auto& own) { return !own.second.is_zero() && !two.contains(own.first); });
  };
  return has_more(sums, others) || has_more(others, sums);
}

int ProgramForms::other(const ProgramCall& call, const std::vector<Stretch>& held) {
  const int curve = call.reduce == "max" ? 1 : call.reduce == "min" ? -1 : 0;
  for (const Stretch& one : held) {
    if (one.form < 0) return unknown({reason_of(one.form)});
  }
  const bool is_curved = curve != 0 && std::any_of(held.begin(), held.end(), [&](const Stretch& one) {
                           return is_apart(held.front().form, one.form);
                         });
  return unknown({fmt::format("the {} is no sum", call.words), is_curved ? NoSum::never : NoSum::perhaps, -1,
                  is_curved ? curve : 0});
}

void ProgramForms::add_other(const ProgramCall& call, const std::vector<Stretches>& inputs, Stretches& output) {
  std::vector<std::size_t> places(inputs.size());
  std::vector<Stretch> held(inputs.size());
  for (std::int64_t position = 0; position < call.elements;) {
    Budget::spend(1 + static_cast<std::int64_t>(inputs.size() / 4));
    std::int64_t stop = call.elements;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      std::size_t& place = places[i];
      while (place < inputs[i].size() && inputs[i][place].end <= position) ++place;
      const bool is_there = place < inputs[i].size() && inputs[i][place].begin <= position;
      held[i] = is_there ? inputs[i][place] : Stretch{position, stop, unknown({std::string(not_followed)}), 0};
      if (place < inputs[i].size()) stop = std::min(stop, is_there ? inputs[i][place].end : inputs[i][place].begin);
    }
    const bool is_one = std::all_of(held.begin(), held.end(), [&](const Stretch& one) {
      return one.form >= 0 && one.form == held.front().form && one.shift == held.front().shift;
    });
    const bool chooses = call.reduce == "max" || call.reduce == "min";  // of equal ones that one
    const int form = is_one && (chooses || held.size() == 1) ? held.front().form : other(call, held);
    add(output, {position, stop, form, form > 0 ? held.front().shift : 0});
    position = stop;
  }
}

}  // namespace lockstep::symbolic
