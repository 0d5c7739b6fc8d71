// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/json.h"

namespace lockstep::scenario {

enum class FileKind { framework, model };

/// A framework or model file, parsed. Its mistakes of syntax are reported at its own text.
struct NamedFile {
  Json document;
  std::filesystem::path folder;  ///< what its own references are relative to
};

/// Whether a reference is a path, and no name of what is built in.
bool is_path(const std::string& reference);

/// The file that a scenario means by `reference`: a built-in name, or a path (with "/", or ending
/// in .json or .jsonc) relative to `folder`, to which a scenario in the folder `home` has access (allowed_files.h). A
/// mistake is added where there is none. What is no framework or model file is not quoted.
std::optional<NamedFile> load_named_file(const Json& reference, FileKind kind, const std::filesystem::path& folder,
                                         const std::filesystem::path& home, Diagnostics& diagnostics);

/// While it lives, load_named_file() reads each file of this thread once, and what was made of it is shared: a proof
/// reads the same scenario at thousands of sizes. One inside of another does nothing.
class NamedFilesOnce {
 public:
  NamedFilesOnce();
  NamedFilesOnce(const NamedFilesOnce&) = delete;
  NamedFilesOnce& operator=(const NamedFilesOnce&) = delete;
  ~NamedFilesOnce();

 private:
  bool is_outermost_;
};

/// The text of a scenario file, as read_text_file(). Through a link that leads out of its folder and repository only a
/// scenario is read, and that is private.
std::optional<Source> read_scenario_text(const std::filesystem::path& path, std::string& error);

/// The text of a file; nothing where it cannot be read, and then why in `error`. Standard input (standard_input_name)
/// and pipes are read once, and whoever asks again gets the same text.
std::optional<std::string> read_text_file(const std::filesystem::path& path, std::string& error);

}  // namespace lockstep::scenario
