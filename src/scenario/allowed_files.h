// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>

namespace lockstep::scenario {

/// What a scenario may name. It may be a stranger's, in a pull request, and then no file of the machine is his to read.
enum class FileAccess {
  refused,
  own,       ///< below the folder of the scenario, or of its repository: the nearest folder above with ".git"
  included,  ///< below a folder of include_files_below()
};

/// Lets scenarios name frameworks and models below `folder` too. Messages show no lines of them.
void include_files_below(const std::filesystem::path& folder);

/// Whether a scenario in the folder `home` ("" is the current one) may name the file at `path`, after links are
/// followed. Where not, `why` goes on after the file's name. What lies in ".git", /dev, /proc and /sys is refused
/// always.
FileAccess access_to(const std::filesystem::path& path, const std::filesystem::path& home, std::string& why);

/// Whether the path is one of a link, or through one, to where no scenario beside it may read.
bool leads_outside(const std::filesystem::path& path);

/// Whether what the path leads to is something that only the system writes: in /dev, /proc or /sys.
bool is_of_the_system(const std::filesystem::path& path);

}  // namespace lockstep::scenario
