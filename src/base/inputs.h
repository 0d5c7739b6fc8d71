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

/// Whether the file, which was found in `folder`, is a link to what lies outside of that folder, or in a ".git" of it.
/// Whoever made the folder, and the link, is not who may read what it leads to.
bool leads_out_of(const std::filesystem::path& file, const std::filesystem::path& folder);

}  // namespace lockstep
