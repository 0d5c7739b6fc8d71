// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <unordered_set>
#include <utility>
#include <vector>

#include "src/base/at.h"

namespace lockstep::symbolic {

/// Values by number, each stored once: two are equal exactly when their numbers are.
template <class Value, class Hash>
class Interned {
 public:
  Interned() : numbers_(0, ByValue{&values_}, ByValue{&values_}) {}
  Interned(const Interned&) = delete;
  Interned& operator=(const Interned&) = delete;

  /// The number of `value`, a new one where it was never seen; then references to values are void.
  int number_of(Value value) {
    const auto found = numbers_.find(value);
    if (found != numbers_.end()) return *found;
    const int number = static_cast<int>(values_.size());
    values_.push_back(std::move(value));
    numbers_.insert(number);
    return number;
  }
  const Value& operator[](int number) const { return values_[at(number)]; }
  std::size_t size() const { return values_.size(); }

 private:
  // Numbers are looked up by what they stand for.
  struct ByValue {
    using is_transparent = void;
    const std::vector<Value>* values;
    const Value& value(int number) const { return (*values)[at(number)]; }
    const Value& value(const Value& itself) const { return itself; }
    template <class One>
    std::size_t operator()(const One& one) const {
      return Hash()(value(one));
    }
    template <class One, class Other>
    bool operator()(const One& one, const Other& other) const {
      return value(one) == value(other);
    }
  };

  std::vector<Value> values_;
  std::unordered_set<int, ByValue, ByValue> numbers_;
};

}  // namespace lockstep::symbolic
