// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lockstep/model.h"
#include "src/scenario/reading.h"

namespace lockstep::scenario {

/// A model as it was read at some sizes of the layout, with what was noted on the way.
struct KnownModel {
  Model::Parameters parameters;
  std::set<std::string> uses;
  Expressions decided_conditions;
  TextsOfExpressions refusing, rules;
  bool decided_by_numel = false;
  std::optional<Preset> preset;
  std::vector<Model> models;  ///< made of these parameters, for different meshes
};

/// Models of one scenario that is read at one layout after the other: what its model file says hangs on the sizes that
/// it names, and is read once for each of these. Holds those that were asked for last.
class KnownModels {
 public:
  /// The values, at the sizes at hand, of all names in "model" and in the files that it names that hang on the layout
  /// or the batch: at layouts with one text the model is one. Nothing where it may hang on something else.
  /// `model`: the same each time.
  std::optional<std::string> key_of(const Json& model, const Reading& reading);
  /// Null where there is none.
  KnownModel* find(const std::string& key);
  KnownModel& add(const std::string& key, KnownModel model);

 private:
  std::optional<std::set<std::string>> names_;
  std::list<std::pair<std::string, KnownModel>> known_;  ///< the one that was asked for last is the first
};

/// The words, names of the language or not, in all that "model" and the files that it names say of parameters.
std::set<std::string> words_of_model(const Json& model, const Reading& reading);

}  // namespace lockstep::scenario
