// SPDX-License-Identifier: Apache-2.0
#include "src/symbolic/forms.h"

#include <algorithm>

#include "src/base/budget.h"

namespace lockstep::symbolic {

std::size_t Forms::FormHash::operator()(const Form& form) const {
  std::uint64_t hash = 0x9E3779B97F4A7C15u + form.size();
  for (const Term& term : form) {
    const std::uint64_t both = (static_cast<std::uint64_t>(term.atom) << 32) | term.coefficient;
    hash = (hash ^ both) * 0xD6E8FEB86659FD93u;
    hash ^= hash >> 32;
  }
  return static_cast<std::size_t>(hash);
}

Forms::Forms() {
  intern({});
  frames_.push_back({});
}

int Forms::atom(const Atom& atom) {
  const auto [found, is_new] = atom_numbers_.emplace(atom, static_cast<int>(atoms_.size()));
  if (is_new) atoms_.push_back(atom);
  return found->second;
}

int Forms::leftover(const std::string& what) {
  const auto found = std::find(leftovers_.begin(), leftovers_.end(), what);
  if (found != leftovers_.end()) return static_cast<int>(found - leftovers_.begin());
  leftovers_.push_back(what);
  return static_cast<int>(leftovers_.size()) - 1;
}

std::uint32_t Forms::coefficient(const Rational& value) {
  spend_on(value);
  const auto [found, is_new] = coefficient_numbers_.emplace(value, static_cast<std::uint32_t>(coefficients_.size()));
  if (is_new) coefficients_.push_back(value);
  return found->second;
}

int Forms::intern(Form form) {
  Budget::spend(2 + static_cast<std::int64_t>(form.size() / 4));
  return forms_.number_of(std::move(form));
}

int Forms::frame(const Frame& frame) {
  const auto [found, is_new] =
      frame_numbers_.emplace(std::tuple(frame.logical, frame.piece, frame.offset), static_cast<int>(frames_.size()));
  if (is_new) frames_.push_back(frame);
  return found->second;
}

int Forms::make(const std::vector<std::pair<int, Rational>>& terms) {
  std::vector<std::pair<int, Rational>> sorted = terms;
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  Form form;
  for (std::size_t i = 0; i < sorted.size();) {
    Rational total;
    const int atom = sorted[i].first;
    for (; i < sorted.size() && sorted[i].first == atom; ++i) total += sorted[i].second;
    if (!total.is_zero()) form.push_back({static_cast<std::uint32_t>(atom), coefficient(total)});
  }
  return intern(std::move(form));
}

int Forms::add(int a, int b) {
  if (a == 0) return b;
  if (b == 0) return a;
  const std::uint64_t key =
      (static_cast<std::uint64_t>(std::min(a, b)) << 32) | static_cast<std::uint32_t>(std::max(a, b));
  const auto found = pair_sums_.find(key);
  if (found != pair_sums_.end()) return found->second;
  const Form& x = form(a);
  const Form& y = form(b);
  Form result;
  for (std::size_t i = 0, j = 0; i < x.size() || j < y.size();) {
    if (j == y.size() || (i < x.size() && x[i].atom < y[j].atom)) {
      result.push_back(x[i++]);
    } else if (i == x.size() || y[j].atom < x[i].atom) {
      result.push_back(y[j++]);
    } else {
      const Rational total = coefficient_at(x[i].coefficient) + coefficient_at(y[j].coefficient);
      if (!total.is_zero()) result.push_back({x[i].atom, coefficient(total)});
      ++i, ++j;
    }
  }
  const int number = intern(std::move(result));
  pair_sums_.emplace(key, number);
  return number;
}

int Forms::sum(const std::vector<int>& forms) {
  if (forms.size() == 2) return add(forms[0], forms[1]);
  const auto found = sums_.find(forms);
  if (found != sums_.end()) return found->second;
  Form all;
  for (int number : forms) all.insert(all.end(), form(number).begin(), form(number).end());
  std::sort(all.begin(), all.end(), [](const Term& a, const Term& b) { return a.atom < b.atom; });
  Form result;
  for (std::size_t i = 0; i < all.size();) {
    const std::uint32_t atom = all[i].atom;
    if (i + 1 == all.size() || all[i + 1].atom != atom) {
      result.push_back(all[i++]);
      continue;
    }
    Rational total;
    for (; i < all.size() && all[i].atom == atom; ++i) total += coefficient_at(all[i].coefficient);
    if (!total.is_zero()) result.push_back({atom, coefficient(total)});
  }
  const int number = intern(std::move(result));
  sums_.emplace(forms, number);
  return number;
}

int Forms::scale(int number, const Rational& factor) {
  if (factor.is_one() || number == 0) return number;
  if (factor.is_zero()) return 0;
  const std::uint64_t key = (static_cast<std::uint64_t>(number) << 32) | coefficient(factor);
  const auto found = scaled_.find(key);
  if (found != scaled_.end()) return found->second;
  Form result;
  Budget::spend(static_cast<std::int64_t>(form(number).size() / 4));
  for (const Term& term : form(number))
    result.push_back({term.atom, coefficient(coefficient_at(term.coefficient) * factor)});
  const int scaled = intern(std::move(result));
  scaled_.emplace(key, scaled);
  return scaled;
}

template <class Change>
int Forms::change_atoms(int number, int Atom::*which, Change change) {
  std::vector<std::pair<int, Rational>> terms;
  constexpr std::int64_t units_of_an_atom = 8;  // looked up twice, in tables that may be large
  Budget::spend(units_of_an_atom * static_cast<std::int64_t>(form(number).size()));
  for (const Term& term : Form(form(number))) {
    Atom changed = atom_at(term.atom);
    changed.*which = change(changed.*which);
    terms.emplace_back(atom(changed), coefficient_at(term.coefficient));
  }
  return make(terms);
}

int Forms::clip(int number, int factor) {
  if (number == 0) return number;
  const std::uint64_t key = (static_cast<std::uint64_t>(number) << 32) | static_cast<std::uint32_t>(factor);
  const auto known = clipped_.find(key);
  if (known != clipped_.end()) return known->second;
  const int clipped = change_atoms(number, &Atom::clips, [&](int old) {
    std::vector<int> factors = clips_at(old);
    factors.insert(std::upper_bound(factors.begin(), factors.end(), factor), factor);
    const auto [found, is_new] = clips_numbers_.emplace(factors, static_cast<int>(clips_.size()));
    if (is_new) clips_.push_back(std::move(factors));
    return found->second;
  });
  clipped_.emplace(key, clipped);
  return clipped;
}

int Forms::unclipped(int number) {
  if (clips_.size() == 1) return number;
  const auto known = unclipped_.find(number);
  if (known != unclipped_.end()) return known->second;
  const int plain = change_atoms(number, &Atom::clips, [](int) { return 0; });
  unclipped_.emplace(number, plain);
  return plain;
}

int Forms::leave(int number, const Frame& own, std::int64_t shift) {
  return change_atoms(number, &Atom::frame, [&](int old) {
    if (old == 0) return frame({own.logical, own.piece, shift});
    Frame moved = frame_at(old);
    moved.offset += shift;
    return frame(moved);
  });
}

int Forms::enter(int number, const Frame& own, std::int64_t shift) {
  return change_atoms(number, &Atom::frame, [&](int old) {
    Frame moved = frame_at(old);
    moved.offset -= shift;
    if (moved.logical == own.logical && moved.piece == own.piece && moved.offset == 0) return 0;
    return frame(moved);
  });
}

}  // namespace lockstep::symbolic
