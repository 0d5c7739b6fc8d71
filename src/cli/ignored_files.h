// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::cli {

/// A line of a .gitignore file, as gitignore(5) reads it.
struct IgnoreRule {
  std::vector<std::string> parts;  ///< of the pattern, between its slashes; "**" stands for folders at any depth
  bool negated;                    ///< "!" in front: what it fits is not ignored after all
  bool folders_only;               ///< "/" at the end
};

/// The rules of a .gitignore file, in its order.
std::vector<IgnoreRule> ignore_rules(std::string_view text);

/// Whether the pattern fits a path, which is relative to the folder of its .gitignore. Time: of the product of the two
/// lengths, whatever a stranger writes there.
bool fits(const IgnoreRule& rule, const std::vector<std::string>& path, bool is_folder);

/// What .gitignore files say of what lies below a folder: those in it and deeper, and those above it up to the folder
/// of its repository, the nearest one with `.git`. A .gitignore that is a link, no regular file, unreadable or larger
/// than 256 KiB has no rules. Git's settings outside of the tree (core.excludesFile, .git/info/exclude) are not read:
/// the same tree gives the same files for everybody.
class IgnoredFiles {
 public:
  explicit IgnoredFiles(const std::filesystem::path& folder);

  /// Of an entry below the folder. Git looks at nothing in an ignored folder: who asks does not either.
  bool ignores(const std::filesystem::path& entry, bool is_folder);

 private:
  const std::vector<IgnoreRule>& rules_of(const std::filesystem::path& folder);

  std::filesystem::path folder_;  ///< as it was given
  std::filesystem::path whole_;   ///< from the root of the file system
  std::filesystem::path top_;     ///< the highest folder whose .gitignore counts
  std::map<std::filesystem::path, std::vector<IgnoreRule>> rules_;
};

}  // namespace lockstep::cli
