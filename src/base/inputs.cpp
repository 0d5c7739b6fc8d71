// SPDX-License-Identifier: Apache-2.0
#include "src/base/inputs.h"

#include <sys/stat.h>

#include <algorithm>
#include <mutex>
#include <set>
#include <utility>

namespace lockstep {

namespace {

std::mutex inputs_mutex;
std::set<std::pair<dev_t, ino_t>> inputs;

void note(const struct stat& status) {
  if (!S_ISREG(status.st_mode)) return;
  const std::lock_guard lock(inputs_mutex);
  inputs.emplace(status.st_dev, status.st_ino);
}

}  // namespace

void note_input(int descriptor) {
  struct stat status {};
  if (fstat(descriptor, &status) == 0) note(status);
}

void note_input(const std::filesystem::path& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) == 0) note(status);
}

bool was_read(const std::filesystem::path& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) return false;
  const std::lock_guard lock(inputs_mutex);
  return inputs.contains({status.st_dev, status.st_ino});
}

bool leads_out_of(const std::filesystem::path& file, const std::filesystem::path& folder) {
  std::error_code error;
  const std::filesystem::path target = std::filesystem::canonical(file, error);
  if (error) return false;  // who opens it says why it cannot be
  const std::filesystem::path home = std::filesystem::canonical(folder.empty() ? "." : folder, error);
  if (error) return true;
  const std::filesystem::path rest = target.lexically_relative(home);
  return rest.empty() || *rest.begin() == ".." || std::find(rest.begin(), rest.end(), ".git") != rest.end();
}

}  // namespace lockstep
