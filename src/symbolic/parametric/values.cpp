// SPDX-License-Identifier: Apache-2.0
#include "src/symbolic/parametric/values.h"

#include <algorithm>

#include "lockstep/symbolic.h"
#include "src/base/at.h"
#include "src/base/budget.h"
#include "src/symbolic/formula_names.h"

namespace lockstep::parametric {

/// Partitions of the names on each level for one rank and stretch, worked out once for each place of the contributor.
class ClassValues::Assignment {
 public:
  Assignment(const Diagrams& diagrams, const Stretches& stretches, Coordinates rank,
             const std::vector<Coordinates>& owners)
      : diagrams_(diagrams), rank_(std::move(rank)), numbers_(rank_.size()) {
    for (std::size_t i = 0; i < rank_.size(); ++i) {
      const Level& level = diagrams.at_level(static_cast<int>(i));
      std::vector<int>& others = others_.emplace_back();
      for (const int owner : level.owners) others.push_back(owners[at(owner)][i]);
      for (const int constant : level.constants) others.push_back(stretches.coordinate(static_cast<int>(i), constant));
    }
  }

  /// A polynomial: the value of a diagram for this contributor.
  int value(int diagram, const Coordinates& contributor) {
    return diagrams_.value(diagram, [&](int level) { return partition(level, contributor); });
  }

 private:
  int partition(int level, const Coordinates& contributor) {
    const auto i = static_cast<std::size_t>(level);
    const auto [found, is_new] = numbers_[i].emplace(contributor[i], 0);
    if (!is_new) return found->second;
    std::map<int, std::uint16_t> blocks;
    Partition names;
    const auto add = [&](int coordinate) {
      names.push_back(blocks.emplace(coordinate, static_cast<std::uint16_t>(blocks.size())).first->second);
    };
    add(rank_[i]);
    add(contributor[i]);
    for (const int other : others_[i]) add(other);
    const int number = diagrams_.at_level(level).partitions.number_of(names);
    if (number < 0) throw InternalError("a rank stands where the parametric engine has no name for");
    return found->second = number;
  }

  const Diagrams& diagrams_;
  Coordinates rank_;
  std::vector<std::vector<int>> others_;
  std::vector<std::map<int, int>> numbers_;  // by level: of the contributor's coordinate
};

ClassValues::ClassValues(World& world, const ClassResult& result, Stretches& stretches)
    : world_(world), result_(result), stretches_(stretches) {
  for (std::size_t i = 0; i < result.atoms.size(); ++i) atoms_.emplace(result.atoms[i], static_cast<int>(i));
}

const std::vector<Term>& ClassValues::support(int logical, int piece, int optimizer_step) {
  const auto found = supports_.find({logical, piece, optimizer_step});
  if (found != supports_.end()) return found->second;
  std::vector<Term> terms = reference_terms(world_.schedule(), logical, piece, optimizer_step);  // or ends a budget
  return supports_[{logical, piece, optimizer_step}] = std::move(terms);
}

bool ClassValues::owned(int optimizer_step, int rank, const std::vector<Coordinates>& owners) const {
  const Coordinates coordinates = world_.coordinates(rank);
  Assignment assignment(*result_.diagrams, stretches_, coordinates, owners);
  return assignment.value(result_.handed[at(optimizer_step)].owned, coordinates) != 0;
}

/// The atom that a contribution belongs to, or -1.
int ClassValues::atom_of(const Term& term, int optimizer_step) const {
  const int micro_batch = term.micro_batch - world_.schedule().batch.first_micro_batch(optimizer_step);
  for (const int one : {micro_batch, -1}) {
    const auto found = atoms_.find({term.site_use, optimizer_step, one, "", false});
    if (found != atoms_.end()) return found->second;
  }
  return -1;
}

/// Whether contributions to `other` are named otherwise than those to `piece`, or they are one. Tokens that are sent to
/// experts come from the same ranks whichever expert it is, and are then those of the rank's own.
bool ClassValues::told_apart(int logical, int piece, int other, int site_use) {
  if (piece == other) return true;
  const Model& model = world_.schedule().model;
  const SiteUse& use = model.logicals()[at(logical)].uses[at(site_use)];
  const Coordinates own = world_.holders(logical, piece), theirs = world_.holders(logical, other);
  for (const Axis axis : model.parameters()[at(use.parameter)].dispatch) {
    for (const int level : world_.levels_of(axis, "")) {
      if (own[at(level)] != theirs[at(level)]) return false;
    }
  }
  return true;
}

int ClassValues::factor_of(int atom, const Coordinates& contributor, const std::vector<Coordinates>& owners) {
  if (atom < 0 || static_cast<std::size_t>(atom) >= result_.factors.size()) return 1;
  const int diagram = result_.factors[at(atom)];
  const auto [known, is_new] = factors_.try_emplace(atom);
  std::set<int>& all = known->second;
  if (is_new) {
    result_.diagrams->visit(diagram, false, [&](const Diagrams::Path& path) {
      all.insert(path.value);
      return true;
    });
  }
  if (all.size() <= 1) return all.empty() ? 1 : *all.begin();
  const int factor = Assignment(*result_.diagrams, stretches_, contributor, owners).value(diagram, contributor);
  // Tokens that are sent to an expert are named by a rank that need not hold it.
  return factor == 0 ? *all.begin() : factor;
}

Rational ClassValues::quotient(int value, int factor, const Coordinates& contributor, int micro_batch) {
  Polynomials& polynomials = world_.polynomials();
  const auto evaluated = [&](int polynomial) {
    const auto [known, is_new] = constants_.try_emplace(polynomial);
    if (is_new) {
      bool depends = false;
      for (const auto& [monomial, coefficient] : polynomials.terms(polynomial)) {
        for (const auto& [number, exponent] : monomial) {
          const Variable& variable = polynomials.variable_at(number);
          depends = depends || !world_.depends_on(variable).empty() ||
                    (variable.kind == Variable::Kind::tokens && variable.micro_batch < 0 &&
                     (variable.summed & all_micro_batches) == 0);
        }
      }
      if (!depends)
        known->second = polynomials.evaluate(
            polynomial, [&](const Variable& variable) { return world_.value(variable, contributor, micro_batch); });
    }
    if (known->second) return *known->second;
    return polynomials.evaluate(
        polynomial, [&](const Variable& variable) { return world_.value(variable, contributor, micro_batch); });
  };
  const auto [known, is_new] = quotients_.emplace(std::pair(value, factor), -1);
  if (is_new) {
    const std::optional<int> inverse = polynomials.inverse(factor);
    if (inverse) known->second = polynomials.multiply(value, *inverse);
  }
  if (known->second >= 0) return evaluated(known->second);
  const Rational divisor = evaluated(factor);
  return divisor.is_zero() ? evaluated(value) : evaluated(value) / divisor;
}

std::vector<Term> ClassValues::expected(int optimizer_step, int logical, int piece,
                                        const std::vector<Coordinates>& owners) {
  std::vector<Term> terms;
  for (const Term& term : support(logical, piece, optimizer_step)) {
    if (term.coefficient.is_zero()) continue;
    Budget::spend(8);
    const Coordinates contributor = world_.coordinates(term.rank);
    const int factor = factor_of(atom_of(term, optimizer_step), contributor, owners);
    terms.push_back(term);
    terms.back().coefficient = term.coefficient * quotient(1, factor, contributor, term.micro_batch);
  }
  return terms;
}

std::vector<Term> ClassValues::held(int optimizer_step, int rank, int buffer, const std::vector<Coordinates>& owners) {
  const Model& model = world_.schedule().model;
  const LocalBuffer& local = model.local(rank).buffers[at(buffer)];
  const std::vector<int>& held = result_.handed[at(optimizer_step)].held;
  const Coordinates coordinates = world_.coordinates(rank);
  Assignment assignment(*result_.diagrams, stretches_, coordinates, owners);
  std::vector<Term> terms;
  const int pieces = static_cast<int>(model.pieces(local.logical).size());
  for (int piece = 0; piece < pieces; ++piece) {
    for (int step = 0; step <= optimizer_step; ++step) {
      for (const Term& term : support(local.logical, piece, step)) {
        Budget::spend(8);
        const int atom = atom_of(term, step);
        if (atom < 0 || static_cast<std::size_t>(atom) >= held.size()) continue;
        const int diagram = held[at(atom)];
        if (diagram == 0 || !told_apart(local.logical, local.piece, piece, term.site_use)) continue;
        const Coordinates contributor = world_.coordinates(term.rank);
        const int value = assignment.value(diagram, contributor);
        if (value == 0) continue;
        Term found = term;
        found.foreign = piece != local.piece;
        if (found.foreign && !world_.even(local.logical)) throw OutOfReach("", "shards of other sizes are mixed in");
        found.coefficient = quotient(value, factor_of(atom, contributor, owners), contributor, term.micro_batch);
        if (!found.coefficient.is_zero()) terms.push_back(std::move(found));
      }
    }
  }
  for (std::size_t atom = 0; atom < held.size(); ++atom) {
    const Atom& name = result_.atoms[atom];
    if (name.leftover.empty() || held[atom] == 0) continue;
    const auto add = [&](const Coordinates& contributor, int source, int piece) {
      Budget::spend(4);
      const int value = assignment.value(held[atom], contributor);
      if (value == 0) return;
      Term term;
      term.leftover = name.leftover;
      term.logical = local.logical;
      term.piece = piece;
      term.rank = source;
      term.foreign = piece != local.piece;
      if (term.foreign && !world_.even(local.logical)) throw OutOfReach("", "shards of other sizes are mixed in");
      term.coefficient = quotient(value, 1, contributor, 0);
      if (!term.coefficient.is_zero()) terms.push_back(std::move(term));
    };
    if (name.per_rank) {
      for (int source = 0; source < world_.schedule().mesh.world(); ++source)
        add(world_.coordinates(source), source, local.piece);
      continue;
    }
    for (int piece = 0; piece < pieces; ++piece) {
      // A rank that holds this piece, where the others are those of the rank at hand.
      Coordinates contributor = world_.holders(local.logical, piece);
      for (std::size_t level = 0; level < contributor.size(); ++level) {
        if (contributor[level] < 0) contributor[level] = coordinates[level];
      }
      add(contributor, -1, piece);
    }
  }
  formula::sort_terms(terms);
  return terms;
}

}  // namespace lockstep::parametric
