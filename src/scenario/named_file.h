// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/json.h"

namespace lockstep {

enum class FileKind { framework, model };

/// A framework or model file, parsed. Its mistakes of syntax are reported at its own text.
struct NamedFile {
  Json document;
  std::filesystem::path folder;  ///< what its own references are relative to
};

/// The file that a scenario means by `reference`: a built-in name, or a path (with "/", or ending
/// in .json or .jsonc) relative to `folder`. A mistake is added where there is none.
std::optional<NamedFile> load_named_file(const Json& reference, FileKind kind, const std::filesystem::path& folder,
                                         Diagnostics& diagnostics);

/// The text of a file; nothing where it cannot be read, and then why in `error`. Standard input (standard_input_name)
/// is read once, and whoever asks again gets the same text.
std::optional<std::string> read_text_file(const std::filesystem::path& path, std::string& error);

}  // namespace lockstep
