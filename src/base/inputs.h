// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

namespace lockstep {

/// Files that this process has read, so that none of them is replaced by what is made of it. Regular ones alone:
/// nothing takes the place of a pipe or a device.
void note_input(int descriptor);
void note_input(const std::filesystem::path& path);

/// Whether what lies at `path`, after links, was read.
bool was_read(const std::filesystem::path& path);

}  // namespace lockstep
