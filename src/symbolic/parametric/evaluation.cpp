// SPDX-License-Identifier: Apache-2.0
#include "src/symbolic/parametric/evaluation.h"

#include <algorithm>
#include <numeric>

#include "src/base/at.h"

namespace lockstep::parametric {

Evaluation::Evaluation(const World& world, const World& target, const ClassResult& result, const Class& members)
    : world_(world), target_(target), result_(result), members_(members), stretches_(world, target, result) {
  if (world.levels().size() != target.levels().size())
    throw InternalError("a proof is evaluated at sizes that it is not about");
}

bool Evaluation::depends_on_owners(const Cell& cell) const {
  for (const int level : contributor_matters(cell)) {
    if (!result_.diagrams->at_level(level).owners.empty()) return true;
  }
  return false;
}

bool Evaluation::depends_on_elements(const Cell& cell) const {
  if (depends_on_owners(cell)) return true;
  for (std::size_t i = 0; i < cell.partitions.size(); ++i) {
    if (cell.partitions[i] < 0) continue;
    const Level& level = result_.diagrams->at_level(static_cast<int>(i));
    if (level.owners.size() > 1 || (!level.owners.empty() && !level.constants.empty())) return true;
  }
  return false;
}

const std::set<Evaluation::Elements>& Evaluation::elements(int logical) {
  const auto [found, is_new] = elements_.try_emplace(logical);
  std::set<Elements>& kinds = found->second;
  if (!is_new) return kinds;
  for (const auto& [piece, rank] : pieces(logical)) {
    for (const Stretch& stretch : stretches_.kinds(logical, piece)) kinds.insert({stretch.owners, rank, anywhere()});
  }
  return kinds;
}

/// Pieces that stand for all, with where the ranks that hold them are.
std::vector<std::pair<int, Coordinates>> Evaluation::pieces(int logical) const {
  if (target_.even(logical)) return {{0, anywhere()}};
  std::vector<std::pair<int, Coordinates>> pieces;
  const int count = static_cast<int>(target_.schedule().model.pieces(logical).size());
  pieces.reserve(at(count));
  for (int piece = 0; piece < count; ++piece) pieces.emplace_back(piece, target_.holders(logical, piece));
  return pieces;
}

Coordinates Evaluation::anywhere() const { return Coordinates(target_.levels().size(), -1); }

std::optional<Example> Evaluation::example(const Cell& cell) {
  for (const int logical : members_.logicals) {
    if (applies(cell, logical)) return Example{&cell, logical};
  }
  return std::nullopt;
}

bool Evaluation::applies(const Cell& cell, int logical) {
  // Whether a rank waits does not depend on what it holds: it calls a norm with nothing as well.
  if (cell.fault == Fault::race && !depends_on_elements(cell)) return exists(cell, nullptr);
  const std::vector<Piece>& all = target_.schedule().model.pieces(logical);
  if (std::all_of(all.begin(), all.end(), [](const Piece& piece) { return piece.numel == 0; })) return false;
  if (!depends_on_elements(cell) && target_.even(logical)) return exists(cell, nullptr);
  bool there = false;
  for (const Elements& one : elements(logical)) {
    const std::optional<std::vector<Places>> contributors = this->contributors(cell, &one);
    if (contributors && wrong(cell, *contributors)) return true;
    there = there || contributors.has_value();
  }
  if (!there || !depends_on_owners(cell)) return false;
  // The owner may be the contributor, and others of its kind have other numbers of tokens.
  bool found = false;
  for (const auto& [piece, rank] : pieces(logical)) {
    Elements elements{{}, rank, anywhere()};
    stretches_.visit(logical, piece, [&](const Stretch& stretch) {
      if (found) return;
      elements.owners = stretch.owners;
      found = exists(cell, &elements);
    });
    if (found) break;
  }
  return found;
}

Evaluation::First Evaluation::first() {
  First first;
  for (const Cell& cell : result_.cells) {
    std::optional<int>& known = cell.fault == Fault::race ? first.race : first.wrong;
    if ((known && *known <= cell.optimizer_step) || !example(cell)) continue;
    known = cell.optimizer_step;
  }
  return first;
}

bool Evaluation::exists(const Cell& cell, const Elements* elements) {
  const std::optional<std::vector<Places>> contributors = this->contributors(cell, elements);
  return contributors && wrong(cell, *contributors);
}

bool Evaluation::tells(const Cell& cell, const Elements& elements) {
  if (!exists(cell, &elements)) return false;
  if (cell.fault != Fault::norm_too_early) return true;
  return std::none_of(result_.cells.begin(), result_.cells.end(), [&](const Cell& other) {
    return is_of_count(other.fault) && other.optimizer_step == cell.optimizer_step && exists(other, &elements);
  });
}

/// Where the contributor can be on each level, if coordinates can be given to all names.
std::optional<std::vector<Evaluation::Places>> Evaluation::contributors(const Cell& cell, const Elements* elements) {
  std::vector<Places> contributors;
  for (std::size_t i = 0; i < cell.partitions.size(); ++i) {
    const Level& level = result_.diagrams->at_level(static_cast<int>(i));
    const int size = target_.levels()[i].size;
    Places& places = contributors.emplace_back(Places{0, size, {}});
    const int piece = elements == nullptr ? -1 : elements->piece[i];
    int rank = elements == nullptr ? -1 : elements->rank[i];
    if (rank < 0 && !is_of_count(cell.fault)) rank = piece;
    if (cell.partitions[i] < 0) continue;
    const Partition& partition = level.partitions.at(cell.partitions[i]);
    if (level.partitions.blocks(cell.partitions[i]) > size) return std::nullopt;
    std::map<int, int> coordinate_of_block;
    std::set<int>& taken = places.taken;
    const auto place = [&](int name, int coordinate) {
      const int block = partition[at(name)];
      const auto [found, is_new] = coordinate_of_block.emplace(block, coordinate);
      if (!is_new) return found->second == coordinate;
      return taken.insert(coordinate).second;
    };
    for (const int constant : level.constants) {
      if (!place(level.constant_name(constant), stretches_.coordinate(static_cast<int>(i), constant)))
        return std::nullopt;
    }
    if (rank >= 0 && !place(rank_name, rank)) return std::nullopt;
    if (is_of_count(cell.fault) && piece >= 0 && !place(contributor_name, piece)) return std::nullopt;
    for (std::size_t owner = 0; elements != nullptr && owner < elements->owners.size(); ++owner) {
      const int at = elements->owners[owner][i];
      const int name = level.owner_name(static_cast<int>(owner));
      if (name >= 0 && !place(name, at)) return std::nullopt;
    }
    const auto fixed = coordinate_of_block.find(partition[contributor_name]);
    if (fixed != coordinate_of_block.end()) places = {fixed->second, fixed->second + 1, {}};
    places.first = places.next(places.first - 1);
  }
  return contributors;
}

/// The use under which the batch has the tokens of a contribution.
std::string Evaluation::entry_of(const Atom& atom) const {
  const Logical& logical = target_.schedule().model.logicals()[at(members_.logicals.front())];
  return target_.entry(logical.uses[at(atom.site_use)].use);
}

bool Evaluation::is_listed(const std::string& entry) const {
  const auto& all = target_.schedule().batch.tokens_of_use;
  const auto found = all.find(entry);
  return found != all.end() && found->second.kind == Batch::Tokens::Kind::list && !world_.are_even(entry);
}

std::set<int> Evaluation::contributor_matters(const Cell& cell) const {
  std::set<int> levels;
  const Polynomials& polynomials = result_.diagrams->polynomials();
  const auto add = [&](const Variable& variable) {
    for (const int level : world_.depends_on(variable)) levels.insert(level);
  };
  for (const auto& [monomial, coefficient] : polynomials.terms(cell.value)) {
    for (const auto& [number, exponent] : monomial) add(polynomials.variable_at(number));
  }
  if (cell.atom >= 0 && result_.atoms[at(cell.atom)].leftover.empty()) {
    Variable tokens;
    tokens.kind = Variable::Kind::tokens;
    tokens.entry = entry_of(result_.atoms[at(cell.atom)]);
    if (is_listed(tokens.entry)) add(tokens);  // whether the contribution is there at all
  }
  return levels;
}

bool Evaluation::wrong(const Cell& cell, const std::vector<Places>& contributors) {
  const Polynomials& polynomials = result_.diagrams->polynomials();
  const Batch& batch = target_.schedule().batch;
  const std::set<int> levels = contributor_matters(cell);
  std::string use;
  bool listed = false;
  int first_micro_batch = 0, micro_batches = 1;
  if (cell.atom >= 0 && result_.atoms[at(cell.atom)].leftover.empty()) {
    const Atom& atom = result_.atoms[at(cell.atom)];
    use = entry_of(atom);
    listed = is_listed(use);
    first_micro_batch = batch.first_micro_batch(atom.optimizer_step) + std::max(atom.micro_batch, 0);
    micro_batches = atom.micro_batch >= 0 ? 1 : batch.micro_batches(atom.optimizer_step);
  }
  const std::vector<int> varied(levels.begin(), levels.end());
  for (int micro_batch = first_micro_batch; micro_batch < first_micro_batch + micro_batches; ++micro_batch) {
    std::vector<int> contributor;
    bool complete = true;
    for (const Places& places : contributors) {
      contributor.push_back(places.first < places.end ? places.first : 0);
      complete = complete && places.first < places.end;
    }
    if (!complete && cell.atom >= 0) return false;
    for (;;) {
      Variable tokens;
      tokens.kind = Variable::Kind::tokens;
      tokens.entry = use;
      const bool there = !listed || !target_.value(tokens, contributor, micro_batch).is_zero();
      if (there) {
        const Rational value = polynomials.evaluate(
            cell.value, [&](const Variable& variable) { return target_.value(variable, contributor, micro_batch); });
        if (cell.fault == Fault::unowned ? value.is_zero() : !value.is_zero()) return true;
      }
      std::size_t digit = 0;
      for (; digit < varied.size() && complete; ++digit) {
        const Places& places = contributors[at(varied[digit])];
        int& coordinate = contributor[at(varied[digit])];
        coordinate = places.next(coordinate);
        if (coordinate < places.end) break;
        coordinate = places.first;
      }
      if (digit == varied.size() || !complete) break;
    }
  }
  return false;
}

void Verdicts::add(const Evaluation::First& first, int logical) {
  race_ = std::min(race_, first.race.value_or(steps_));
  wrong_ = std::min(wrong_, first.wrong.value_or(steps_));
  if (first.wrong) logicals_.push_back(logical);
}

void Verdicts::write(ParametricResult& result) const {
  using Verdict = ParametricResult::Verdict;
  // A race ends the run before its optimizer step is compared.
  result.verdict = wrong_ < race_ ? Verdict::mismatch : race_ < steps_ ? Verdict::race : Verdict::match;
  result.step = std::min({race_, wrong_, steps_ - 1});
  if (result.verdict == Verdict::mismatch) result.wrong = logicals_;
}

}  // namespace lockstep::parametric
