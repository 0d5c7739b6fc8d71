// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::test {

/// The files of scenarios/ in the order of their names, without those of a thousand ranks and more.
inline std::vector<std::string> corpus() {
  std::vector<std::string> files;
  const std::filesystem::path folder = std::filesystem::path(LOCKSTEP_SOURCE_DIR) / "scenarios";
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    const std::string path = entry.path().string();
    if (entry.path().extension() == ".json" && path.find("/scale/") == std::string::npos) files.push_back(path);
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace lockstep::test
