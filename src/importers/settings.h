// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <map>
#include <string>
#include <string_view>

#include "lockstep/json.h"

namespace lockstep::importers {

/// One key of a configuration and its value.
struct Setting {
  std::string key;         ///< as the tables call it: "parallelism.tp", "tensor_model_parallel_size"
  std::string written;     ///< as its user wrote it: "--tensor-model-parallel-size"
  Place place;             ///< of the key
  Json value;              ///< null: given, but unset
  std::string origin;      ///< the class of keys that it belongs to, as KeyTable::ignored() takes it; mostly ""
  std::string unresolved;  ///< why the value is not known, a sentence; "" where it is
  bool is_auto = false;    ///< the value was "auto": what hands the configuration to DeepSpeed fills it in
};

/// All keys of a configuration, in the order in which they were written; values may not be nested any more.
class Settings {
 public:
  /// A key that is given again replaces the earlier value, and keeps its place in the order.
  void set(Setting setting);
  /// Null where the key was not given.
  const Setting* find(std::string_view key) const;
  const std::deque<Setting>& all() const { return all_; }

 private:
  std::deque<Setting> all_;  // a deque: pointers stay valid
  std::map<std::string, std::size_t, std::less<>> index_;
};

/// Adds the members of nested objects as "outer.inner"; arrays stay whole, and so do empty objects.
void flatten(const Json& object, Settings& into, const std::string& prefix = "");

}  // namespace lockstep::importers
