// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

/// Whether it has one of * ? [, for which a shell would look for names.
bool is_glob(const std::string& text);

/// The files and folders whose paths fit, sorted: in each part of the path * ? and [] as in a shell, and ** for folders
/// at any depth, or none. Hidden names fit a part that begins with a dot alone, and ** goes into no hidden folder and
/// through no link to one. Folders that cannot be read hold nothing.
std::vector<std::string> expand_glob(const std::string& pattern);

/// The part of a glob in front of the first one with a wildcard: "a/b" of "a/b/*.json"; "" where there is none.
std::string fixed_part(const std::string& pattern);

}  // namespace lockstep::cli
