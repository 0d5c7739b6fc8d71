// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace lockstep::cli {

/// What a file was when it was last looked at. Two looks are equal where nothing was written between them.
struct FileState {
  bool exists = false;
  std::int64_t modified_ns = 0;
  std::uint64_t size = 0, inode = 0;
  std::size_t content =
      0;  ///< a hash of it, only where the time of the last change is too recent to tell changes apart

  bool operator==(const FileState& other) const {
    return exists == other.exists && modified_ns == other.modified_ns && size == other.size && inode == other.inode &&
           (content == other.content || content == 0 || other.content == 0);
  }
};
FileState state_of(const std::string& path);

/// The files that arguments of scenario_files() stand for, and the framework and model files that these name, as they
/// are now. Files and folders that are gone are left out.
class WatchedFiles {
 public:
  explicit WatchedFiles(std::vector<std::string> arguments) : arguments_(std::move(arguments)) {}

  /// Looks again. A file whose own state is as before, and that of all that it names, is not read.
  void look();
  /// In the order of the arguments.
  const std::vector<std::string>& files() const { return files_; }
  /// What must be equal for a check of the file to come out as before: its state, then those of what it names.
  const std::vector<FileState>& states(const std::string& file) const { return watched_.at(file).states; }

 private:
  struct Watched {
    std::vector<std::string> named;
    std::vector<FileState> states;
  };

  std::vector<std::string> arguments_, files_;
  std::map<std::string, Watched> watched_;
};

}  // namespace lockstep::cli
