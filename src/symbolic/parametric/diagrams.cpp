// SPDX-License-Identifier: Apache-2.0
#include "src/symbolic/parametric/diagrams.h"

#include <algorithm>

#include "src/base/at.h"
#include "src/base/budget.h"

namespace lockstep::parametric {

int Level::owner_name(int owner) const {
  const auto found = std::find(owners.begin(), owners.end(), owner);
  return found == owners.end() ? -1 : 2 + static_cast<int>(found - owners.begin());
}

int Level::constant_name(int coordinate) const {
  const auto found = std::find(constants.begin(), constants.end(), coordinate);
  return found == constants.end() ? -1
                                  : 2 + static_cast<int>(owners.size()) + static_cast<int>(found - constants.begin());
}

Diagrams::Diagrams(Polynomials& polynomials, std::vector<Level> levels)
    : polynomials_(polynomials), levels_(std::move(levels)) {
  constant(0);
  constant(1);
  minus_one_ = polynomials_.constant(Rational(-1));
}

int Diagrams::constant(int polynomial) {
  const int bottom = static_cast<int>(levels_.size());
  const auto [found, is_new] = numbers_.emplace(std::vector<int>{bottom, polynomial}, next_);
  if (is_new) {
    ++next_;
    levels_of_.push_back(bottom);
    children_.push_back({polynomial});
  }
  return found->second;
}

int Diagrams::node(int level, std::vector<int> children) {
  if (std::all_of(children.begin(), children.end(), [&](int child) { return child == children.front(); }))
    return children.front();
  Budget::spend(4 + static_cast<std::int64_t>(children.size() / 4));
  std::vector<int> key = {level};
  key.insert(key.end(), children.begin(), children.end());
  const auto [found, is_new] = numbers_.emplace(std::move(key), next_);
  if (is_new) {
    ++next_;
    levels_of_.push_back(level);
    children_.push_back(std::move(children));
  }
  return found->second;
}

int Diagrams::equal(int level, int a, int b) {
  const Partitions& partitions = levels_[lockstep::at(level)].partitions;
  std::vector<int> children;
  children.reserve(lockstep::at(partitions.size()));
  for (int i = 0; i < partitions.size(); ++i) children.push_back(partitions.equal(i, a, b) ? 1 : 0);
  return node(level, std::move(children));
}

int Diagrams::apply(Operation operation, int a, int b) {
  if (operation == Operation::add) {
    if (a == 0) return b;
    if (b == 0) return a;
  } else {
    if (a == 0 || b == 0) return 0;
    if (a == 1) return b;
    if (b == 1) return a;
  }
  if (a > b) std::swap(a, b);
  auto& memo = memo_[static_cast<int>(operation)];
  const std::uint64_t key = static_cast<std::uint64_t>(a) << 32 | static_cast<std::uint64_t>(b);
  const auto known = memo.find(key);
  if (known != memo.end()) return known->second;
  Budget::spend(2);
  const int bottom = static_cast<int>(levels_.size());
  int result = 0;
  if (level(a) == bottom && level(b) == bottom) {
    const int x = children(a).front(), y = children(b).front();
    result = constant(operation == Operation::add ? polynomials_.add(x, y) : polynomials_.multiply(x, y));
  } else {
    const int top = std::min(level(a), level(b));
    std::vector<int> answers;
    const int count = levels_[lockstep::at(top)].partitions.size();
    for (int i = 0; i < count; ++i) {
      const int left = level(a) == top ? children(a)[lockstep::at(i)] : a;
      const int right = level(b) == top ? children(b)[lockstep::at(i)] : b;
      answers.push_back(apply(operation, left, right));
    }
    result = node(top, std::move(answers));
  }
  return memo[key] = result;
}

/// `change` makes the answers of a node of `at_level` out of what it answers (one for each partition).
template <class Change>
int Diagrams::rewrite(int a, int at_level, std::uint64_t kind, const Change& change) {
  const std::vector<int> key = {a, at_level, static_cast<int>(kind)};
  const auto known = rewritten_.find(key);
  if (known != rewritten_.end()) return known->second;
  int result = 0;
  if (level(a) < at_level) {
    std::vector<int> answers = children(a);
    for (int& answer : answers) answer = rewrite(answer, at_level, kind, change);
    result = node(level(a), std::move(answers));
  } else {
    const int count = levels_[lockstep::at(at_level)].partitions.size();
    const std::vector<int> answers =
        level(a) == at_level ? children(a) : std::vector<int>(static_cast<std::size_t>(count), a);
    result = change(answers);
  }
  return rewritten_[key] = result;
}

int Diagrams::at(int a, int at_level, int name) {
  const Partitions& partitions = levels_[lockstep::at(at_level)].partitions;
  return rewrite(a, at_level, 16 + static_cast<std::uint64_t>(name), [&](const std::vector<int>& answers) {
    std::vector<int> changed;
    changed.reserve(lockstep::at(partitions.size()));
    for (int i = 0; i < partitions.size(); ++i) changed.push_back(answers[lockstep::at(partitions.moved(i, name))]);
    return node(at_level, std::move(changed));
  });
}

int Diagrams::sum(int a, int at_level) {
  const Level& own = levels_[lockstep::at(at_level)];
  return rewrite(a, at_level, 1, [&](const std::vector<int>& answers) {
    std::vector<int> changed;
    for (int i = 0; i < own.partitions.size(); ++i) {
      const Partitions::Places& places = own.partitions.places(i);
      int total = 0;
      for (const int joined : places.joined) total = add(total, answers[lockstep::at(joined)]);
      if (places.alone >= 0) {
        const Rational named(static_cast<std::int64_t>(places.joined.size()));
        const int others = polynomials_.subtract(own.polynomial, polynomials_.constant(named));
        total = add(total, times(answers[lockstep::at(places.alone)], others));
      }
      changed.push_back(total);
    }
    return node(at_level, std::move(changed));
  });
}

int Diagrams::any(int condition, int at_level) {
  const Partitions& partitions = levels_[lockstep::at(at_level)].partitions;
  return rewrite(condition, at_level, 2, [&](const std::vector<int>& answers) {
    std::vector<int> changed;
    for (int i = 0; i < partitions.size(); ++i) {
      const Partitions::Places& places = partitions.places(i);
      int found = places.alone < 0 ? 0 : answers[lockstep::at(places.alone)];
      for (const int joined : places.joined) found = either(found, answers[lockstep::at(joined)]);
      changed.push_back(found);
    }
    return node(at_level, std::move(changed));
  });
}

int Diagrams::nonzero(int a) {
  const int bottom = static_cast<int>(levels_.size());
  if (level(a) == bottom) return a == 0 ? 0 : 1;
  const std::vector<int> key = {a, -1, 3};
  const auto known = rewritten_.find(key);
  if (known != rewritten_.end()) return known->second;
  std::vector<int> answers = children(a);
  for (int& answer : answers) answer = nonzero(answer);
  const int result = node(level(a), std::move(answers));
  return rewritten_[key] = result;
}

int Diagrams::import(const Diagrams& other, int a) {
  std::unordered_map<int, int> known;
  return import(other, a, known);
}

int Diagrams::import(const Diagrams& other, int a, std::unordered_map<int, int>& known) {
  const auto found = known.find(a);
  if (found != known.end()) return found->second;
  int result = 0;
  if (other.level(a) == static_cast<int>(levels_.size())) {
    result = constant(polynomials_.import(other.polynomials_, other.children(a).front()));
  } else {
    std::vector<int> answers = other.children(a);
    for (int& answer : answers) answer = import(other, answer, known);
    result = node(other.level(a), std::move(answers));
  }
  return known[a] = result;
}

bool Diagrams::visit(int a, bool zeros, const std::function<bool(const Path&)>& callback) const {
  Path path;
  path.partitions.assign(levels_.size(), -1);
  return visit(a, zeros, path, callback);
}

bool Diagrams::visit(int a, bool zeros, Path& path, const std::function<bool(const Path&)>& callback) const {
  if (a == 0 && !zeros) return true;
  const int own = level(a);
  if (own == static_cast<int>(levels_.size())) {
    path.value = children(a).front();
    return callback(path);
  }
  for (std::size_t i = 0; i < children(a).size(); ++i) {
    path.partitions[lockstep::at(own)] = static_cast<int>(i);
    if (!visit(children(a)[i], zeros, path, callback)) return false;
  }
  path.partitions[lockstep::at(own)] = -1;
  return true;
}

}  // namespace lockstep::parametric
