// SPDX-License-Identifier: Apache-2.0
#include "src/scenario/selector_matches.h"

#include <algorithm>
#include <set>

#include "src/base/at.h"
#include "src/schedule/selector_list.h"

namespace lockstep::scenario {

SelectorMatches::SelectorMatches(const Model& model) : model_(&model) {
  names_.reserve(model.parameters().size());
  for (const Parameter& parameter : model.parameters()) names_.insert(parameter.name);
}

bool SelectorMatches::fits_any(const std::string& item) {
  const auto found = known_.find(item);
  if (found != known_.end()) return found->second;
  return known_[item] = find_fit(item);
}

bool SelectorMatches::find_fit(const std::string& item) const {
  const schedule::SelectorItem read = schedule::SelectorItem::read(item);
  if (read.is_plain_name()) return names_.contains(read.pattern);
  if (read.kind != schedule::SelectorItem::Kind::numel) {
    return std::any_of(model_->parameters().begin(), model_->parameters().end(),
                       [&](const Parameter& parameter) { return read.fits(parameter, 0, parameter.chunk); });
  }
  for (const auto& local : model_->locals()) {
    for (const LocalBuffer& buffer : local->buffers) {
      const Parameter& parameter = model_->parameters()[at(buffer.parameters[0])];
      if (read.fits(parameter, buffer.numel, parameter.chunk)) return true;
    }
  }
  return false;
}

bool SelectorMatches::chooses_any(const std::vector<std::string>& items) const {
  const schedule::SelectorList selectors(items);
  for (const auto& local : model_->locals()) {
    for (const LocalBuffer& buffer : local->buffers) {
      if (selectors.chooses(*model_, buffer)) return true;
    }
  }
  return false;
}

std::string SelectorMatches::suggestion(const std::string& item) const {
  std::set<std::string> known;
  for (const Parameter& parameter : model_->parameters()) {
    known.insert(parameter.name);
    if (!parameter.tied.empty()) known.insert("tied:" + parameter.tied);
    for (const std::string& tag : parameter.tags) known.insert("tag:" + tag);
  }
  return did_you_mean(item.substr(std::min(item.find_first_not_of("! "), item.size())), {known.begin(), known.end()});
}

}  // namespace lockstep::scenario
