// SPDX-License-Identifier: Apache-2.0
#include "src/importers/settings.h"

namespace lockstep::importers {

void Settings::set(Setting setting) {
  const auto [found, is_new] = index_.emplace(setting.key, all_.size());
  if (is_new) {
    all_.push_back(std::move(setting));
  } else {
    all_[found->second] = std::move(setting);
  }
}

const Setting* Settings::find(std::string_view key) const {
  const auto found = index_.find(key);
  return found != index_.end() ? &all_[found->second] : nullptr;
}

void flatten(const Json& object, Settings& into, const std::string& prefix) {
  for (const Json::Member& member : object.members()) {
    const std::string key = prefix + member.key;
    if (member.value.is_object() && !member.value.members().empty()) {
      flatten(member.value, into, key + ".");
    } else {
      into.set({key, key, member.key_place, member.value, "", ""});
    }
  }
}

}  // namespace lockstep::importers
