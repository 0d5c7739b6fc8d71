// SPDX-License-Identifier: Apache-2.0
#include "src/base/inputs.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/catch.h"

using namespace lockstep;
namespace fs = std::filesystem;

namespace {

/// A folder with a folder `run` in it, for as long as it lives.
class Folder {
 public:
  Folder() : path_(fs::canonical(fs::temp_directory_path()) / ("lockstep-inputs-" + std::to_string(getpid()))) {
    fs::create_directories(path_ / "run" / ".git");
  }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  fs::path operator/(const std::string& name) const { return path_ / name; }
  fs::path file(const std::string& name) const {
    std::ofstream(path_ / name) << "{}";
    return path_ / name;
  }

 private:
  fs::path path_;
};

}  // namespace

TEST_CASE("a file leads out of its folder where a link ends elsewhere, or in its .git") {
  const Folder folder;
  const fs::path run = folder / "run", outside = folder.file("outside.json");
  const fs::path plain = folder.file("run/plain.json"), of_git = folder.file("run/.git/config");
  fs::create_symlink("plain.json", run / "inside");
  fs::create_symlink("../outside.json", run / "out");
  fs::create_symlink(".git/config", run / "git");
  fs::create_symlink("nowhere", run / "broken");
  CHECK_FALSE(leads_out_of(plain, run));
  CHECK_FALSE(leads_out_of(run / "inside", run));
  CHECK(leads_out_of(run / "out", run));
  CHECK(leads_out_of(run / "git", run));
  CHECK(leads_out_of(of_git, run));
  CHECK(leads_out_of(outside, run));
  // Whoever opens it says that it does not exist.
  CHECK_FALSE(leads_out_of(run / "broken", run));
  CHECK(leads_out_of(plain, folder / "missing"));
}

TEST_CASE("a file that was read is known by every name, and another is not") {
  const Folder folder;
  const fs::path read = folder.file("read.json"), other = folder.file("other.json");
  fs::create_symlink(read, folder / "link");
  note_input(read);
  CHECK(was_read(read));
  CHECK(was_read(folder / "link"));
  CHECK_FALSE(was_read(other));
  CHECK_FALSE(was_read(folder / "missing"));
}
