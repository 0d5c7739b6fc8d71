// SPDX-License-Identifier: Apache-2.0
#include "src/scenario/known_models.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "src/scenario/expand.h"
#include "src/scenario/template.h"

namespace lockstep::scenario {

namespace {

/// Parameters of all models that are held: about a hundred megabytes.
constexpr std::size_t most_parameters = 150'000;

bool is_one_of(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

}  // namespace

std::optional<std::string> KnownModels::key_of(const Json& model, const Reading& reading) {
  if (!reading.sizes_known()) return std::nullopt;
  if (!names_) {
    names_ = words_of_model(model, reading);
    names_->insert({"pp", "virtual_stages"});  // of which a stage and a chunk must be
  }
  const Environment environment = file_environment(reading);
  std::string key;
  for (const std::string& name : *names_) {
    if (is_one_of(name, {"tokens", "sum", "rank", "step", "micro_batch"})) return std::nullopt;
    if (!axis_named(name) && !is_one_of(name, {"world", "micro_batches", "virtual_stages", "sequence_parallel", "steps",
                                               "pipeline_groups_agree", "instance_groups_agree"}))
      continue;
    try {
      key += name + " " + text_of(Expression::parse(name).evaluate(environment)) + ", ";
    } catch (const ExpressionError&) {
      key += name + ", ";  // it has no value here
    }
  }
  return key;
}

KnownModel* KnownModels::find(const std::string& key) {
  const auto found = std::find_if(known_.begin(), known_.end(), [&](const auto& one) { return one.first == key; });
  if (found == known_.end()) return nullptr;
  known_.splice(known_.begin(), known_, found);
  return &known_.front().second;
}

KnownModel& KnownModels::add(const std::string& key, KnownModel model) {
  known_.emplace_front(key, std::move(model));
  std::size_t held = 0;
  for (auto one = known_.begin(); one != known_.end(); ++one) {
    held += one->second.parameters->size();
    if (held <= most_parameters || one == known_.begin()) continue;
    known_.erase(one, known_.end());
    break;
  }
  return known_.front().second;
}

}  // namespace lockstep::scenario
