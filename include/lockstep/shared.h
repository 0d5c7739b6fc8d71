// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <utility>

namespace lockstep {

/// A value that copies share until one of them is changed; the default value takes no memory. Several threads may read
/// copies at once.
template <class Value>
class Shared {
 public:
  Shared() = default;
  Shared(Value value) : value_(std::make_shared<Value>(std::move(value))) {}

  const Value& operator*() const {
    static const Value nothing;
    return value_ == nullptr ? nothing : *value_;
  }
  const Value* operator->() const { return &**this; }

  /// To be changed: no copy made before shares it, and none may be made while the reference is in use.
  Value& own() {
    if (value_ == nullptr) {
      value_ = std::make_shared<Value>();
    } else if (value_.use_count() > 1) {
      value_ = std::make_shared<Value>(*value_);
    }
    return *value_;
  }

  friend bool operator==(const Shared& a, const Shared& b) { return a.value_ == b.value_ || *a == *b; }

 private:
  std::shared_ptr<Value> value_;
};

}  // namespace lockstep
