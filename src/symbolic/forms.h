// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lockstep/rational.h"
#include "src/base/at.h"
#include "src/symbolic/interned.h"

namespace lockstep::symbolic {

/// Hash of a short list of numbers.
struct ListHash {
  template <class List>
  std::size_t operator()(const List& list) const {
    std::uint64_t hash = 0x9E3779B97F4A7C15u + list.size();
    for (const auto item : list) hash = (hash ^ static_cast<std::uint64_t>(item)) * 0xD6E8FEB86659FD93u + (hash >> 29);
    return static_cast<std::size_t>(hash ^ (hash >> 32));
  }
};

/// The element that a term belongs to, seen from the buffer that holds it: frame 0 is the buffer's
/// own element; any other is an element of a piece, `offset` further than the local index.
struct Frame {
  int logical = -1;
  int piece = -1;
  std::int64_t offset = 0;
  friend bool operator==(const Frame&, const Frame&) = default;
};

/// One unknown: a contribution to a gradient, or a leftover.
struct Atom {
  int source = -1;       ///< rank that names it; -1: a leftover that is equal on all ranks
  int micro_batch = -1;  ///< counted through the optimizer steps; -1: a leftover
  int site_use = 0;
  int frame = 0;
  int leftover = -1;  ///< index into Forms::leftover names; -1: a gradient
  int clips = 0;      ///< number of a Forms::clips_at; 0: none
  friend bool operator==(const Atom&, const Atom&) = default;
};

/// Exact linear combinations of atoms, interned: two forms are equal exactly when their numbers
/// are. Because atoms do not name the buffer's own parameter, buffers that behave alike share
/// their forms, and every operation is worked out once. Form 0 is zero.
class Forms {
 public:
  struct Term {
    std::uint32_t atom;
    std::uint32_t coefficient;
    friend bool operator==(const Term&, const Term&) = default;
  };
  using Form = std::vector<Term>;  // by ascending atom, no zero coefficients

  Forms();
  int atom(const Atom& atom);
  const Atom& atom_at(std::uint32_t number) const { return atoms_[number]; }
  const Rational& coefficient_at(std::uint32_t number) const { return coefficients_[number]; }
  const Form& form(int number) const { return forms_[number]; }
  std::size_t size() const { return forms_.size(); }
  int leftover(const std::string& what);
  /// Clipping factors, sorted, that an atom with this number is multiplied by.
  const std::vector<int>& clips_at(int number) const { return clips_[at(number)]; }
  const std::string& leftover_name(int number) const { return leftovers_[at(number)]; }

  /// Coefficient times atom, summed; atoms may repeat.
  int make(const std::vector<std::pair<int, Rational>>& terms);
  int add(int a, int b);
  int sum(const std::vector<int>& forms);
  int scale(int form, const Rational& factor);
  /// Multiplied by a clipping factor, of which only its number is known.
  int clip(int form, int factor);
  /// With 1 for every clipping factor.
  int unclipped(int form);
  /// The same form seen from somewhere else: frame 0 becomes `own`, all offsets grow by `shift`.
  int leave(int form, const Frame& own, std::int64_t shift);
  /// The other way round: offsets shrink by `shift`, and `own` becomes frame 0.
  int enter(int form, const Frame& own, std::int64_t shift);
  const Frame& frame_at(int number) const { return frames_[at(number)]; }

 private:
  struct AtomHash {
    std::size_t operator()(const Atom& atom) const {
      return ListHash()(
          std::array<int, 6>{atom.source, atom.micro_batch, atom.site_use, atom.frame, atom.leftover, atom.clips});
    }
  };
  struct FormHash {
    std::size_t operator()(const Form& form) const;
  };
  std::uint32_t coefficient(const Rational& value);
  int intern(Form form);
  int frame(const Frame& frame);
  /// `change` is told each atom's number of a frame, or of clips, and says the new one.
  template <class Change>
  int change_atoms(int form, int Atom::*which, Change change);

  std::vector<Atom> atoms_;
  std::unordered_map<Atom, int, AtomHash> atom_numbers_;
  std::vector<Rational> coefficients_;
  std::unordered_map<Rational, std::uint32_t> coefficient_numbers_;
  Interned<Form, FormHash> forms_;
  std::vector<Frame> frames_;
  std::map<std::tuple<int, int, std::int64_t>, int> frame_numbers_;
  std::vector<std::string> leftovers_;
  std::vector<std::vector<int>> clips_ = {{}};
  std::map<std::vector<int>, int> clips_numbers_ = {{{}, 0}};
  std::unordered_map<std::vector<int>, int, ListHash> sums_;
  std::unordered_map<std::uint64_t, int> pair_sums_;
  std::unordered_map<std::uint64_t, int> scaled_;
  std::unordered_map<std::uint64_t, int> clipped_;
  std::unordered_map<int, int> unclipped_;
};

}  // namespace lockstep::symbolic
