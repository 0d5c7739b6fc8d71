// SPDX-License-Identifier: Apache-2.0
#include "src/base/private_files.h"

#include <functional>
#include <mutex>
#include <set>

namespace lockstep {

namespace {

std::mutex private_mutex;
std::set<std::string, std::less<>> private_names;

}  // namespace

void keep_private(std::string name) {
  const std::lock_guard lock(private_mutex);
  private_names.insert(std::move(name));
}

bool is_private(std::string_view name) {
  const std::lock_guard lock(private_mutex);
  return private_names.contains(name);
}

}  // namespace lockstep
