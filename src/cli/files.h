// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

/// The scenario files that the arguments stand for: files as they are, folders searched for *.json
/// and *.jsonc at any depth, sorted, each file once. Hidden files and folders in them are skipped.
/// Throws InputError for paths that do not exist, all of them at once.
std::vector<std::string> scenario_files(const std::vector<std::string>& arguments);

/// Throws InputError for files that do not exist, all of them at once, with the nearest name in each one's folder;
/// `endings` may have been left out.
void check_files_exist(const std::vector<std::string>& files, const std::vector<std::string>& endings);

}  // namespace lockstep::cli
