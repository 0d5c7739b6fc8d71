// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::cli {

/// The texts of the files that a script reads or starts as scripts (`source`, `.`, `bash`, `sh`), and of those that
/// they read, by what their lines name: variables in a path are not followed, so that its end has to be found beside
/// the script or in the folder `visible`, outside of which nothing is read. It is a guess: a file may be among them
/// that is not read.
std::vector<std::string> sourced_texts(const std::string& text, const std::filesystem::path& folder,
                                       const std::filesystem::path& visible);

}  // namespace lockstep::cli
