// SPDX-License-Identifier: Apache-2.0
#include "src/scenario/named_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>

#include "lockstep/scenario.h"
#include "src/base/budget.h"
#include "src/base/inputs.h"
#include "src/base/private_files.h"
#include "src/base/shell_quoted.h"
#include "src/scenario/allowed_files.h"
#include "src/scenario/changed_keys.h"

namespace lockstep {

namespace {

constexpr std::size_t largest_file = std::size_t{64} << 20;

/// Files as NamedFilesOnce keeps them: each by its path, for a kind, and for scenarios of a folder.
using KnownFiles = std::map<std::tuple<std::filesystem::path, scenario::FileKind, std::filesystem::path>, Json>;
thread_local std::unique_ptr<KnownFiles> known_files;

std::shared_ptr<const Source> open_builtin(const Json& reference, scenario::FileKind kind, Diagnostics& diagnostics) {
  const bool framework = kind == scenario::FileKind::framework;
  const std::string_view word = framework ? "framework" : "model";
  const std::string* text = framework ? builtin_framework(reference.text()) : builtin_model(reference.text());
  if (text != nullptr)
    return std::make_shared<const Source>(Source{fmt::format("{}:{}", word, reference.text()), *text});
  const std::vector<std::string> known = framework ? builtin_frameworks() : builtin_models();
  const std::string near = did_you_mean(reference.text(), known);
  diagnostics.add(reference.place(),
                  fmt::format("unknown {} \"{}\"{}", word, reference.text(),
                              near.empty() ? fmt::format("; a file of your own is given as a path, \"./{}.jsonc\"",
                                                         reference.text())
                                           : near));
  return nullptr;
}

std::optional<std::string> read_descriptor(int descriptor, std::string& error) {
  // Not by the size that the system gives: a device has none, and never ends.
  std::string text(1 << 16, '\0');
  std::size_t length = 0;
  while (true) {
    const ssize_t count = read(descriptor, text.data() + length, text.size() - length);
    if (count == 0) break;
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      error = std::strerror(errno);
      return std::nullopt;
    }
    length += static_cast<std::size_t>(count);
    if (length > largest_file) {
      error = fmt::format("it is larger than {} MiB, which no scenario is", largest_file >> 20);
      return std::nullopt;
    }
    if (length == text.size()) text.resize(2 * length);
  }
  text.resize(length);
  text.shrink_to_fit();  // a proof reads the same small file at thousands of sizes, and keeps what it read
  return text;
}

/// Of a file that a scenario names, and the scenario may be a stranger's: nothing but a regular file is opened, and
/// nothing is shown of one that is none of ours, such as one with passwords.
std::optional<std::string> read_regular_file(const std::filesystem::path& path, std::string& error) {
  struct stat status {};
  const auto is_regular = [&](int failed) {
    if (failed != 0) error = std::strerror(errno);
    if (failed == 0 && !S_ISREG(status.st_mode))
      error = S_ISDIR(status.st_mode) ? "it is a folder" : "it is no regular file";
    return error.empty();
  };
  error.clear();
  // Looked at first: a device may do something when it is opened.
  if (!is_regular(stat(path.c_str(), &status))) return std::nullopt;
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (descriptor < 0) {
    error = std::strerror(errno);
    return std::nullopt;
  }
  std::optional<std::string> text;
  if (is_regular(fstat(descriptor, &status))) text = read_descriptor(descriptor, error);
  if (text) note_input(descriptor);
  close(descriptor);
  return text;
}

std::shared_ptr<const Source> open_path(const Json& reference, const std::filesystem::path& path,
                                        scenario::FileKind kind, const std::filesystem::path& home,
                                        Diagnostics& diagnostics) {
  const std::string_view word = kind == scenario::FileKind::framework ? "framework" : "model";
  const std::string mark = fmt::format("\"lockstep_{}\"", word);
  const auto refuse = [&](const std::string& sentence) {
    diagnostics.add(reference.place(), sentence);
    return nullptr;
  };
  std::string error;
  const scenario::FileAccess access = scenario::access_to(path, home, error);
  if (access == scenario::FileAccess::refused)
    return refuse(fmt::format("the {} file \"{}\" {}", word, path.string(), error));
  std::optional<std::string> text = read_regular_file(path, error);
  if (!text) return refuse(fmt::format("cannot read the {} file \"{}\": {}", word, path.string(), error));
  if (text->find(mark) == std::string::npos) {
    return refuse(
        fmt::format("\"{}\" is no {} file: it lacks the key {}; nothing of it is shown", path.string(), word, mark));
  }
  if (access == scenario::FileAccess::included) keep_private(path.string());
  return std::make_shared<const Source>(Source{path.string(), std::move(*text)});
}

std::optional<std::string> read_file(const std::filesystem::path& path, std::string& error) {
  const int descriptor = path == standard_input_name ? STDIN_FILENO : open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) {
    error = std::strerror(errno);
    return std::nullopt;
  }
  std::optional<std::string> text = read_descriptor(descriptor, error);
  if (text) note_input(descriptor);
  if (descriptor != STDIN_FILENO) close(descriptor);
  return text;
}

/// Of standard input, or a pipe.
std::optional<std::string> read_once(const std::filesystem::path& path, std::string& error) {
  struct Read {
    std::optional<std::string> text;
    std::string failure;
  };
  static std::mutex mutex;
  static std::map<std::filesystem::path, Read> all;
  const std::lock_guard lock(mutex);
  const auto [found, is_new] = all.try_emplace(path);
  if (is_new) found->second.text = read_file(path, found->second.failure);
  error = found->second.failure;
  return found->second.text;
}

}  // namespace

std::string argument_for(const std::string& file) {
  if (file == standard_input_name) return "-";
  return shell_quoted(file.starts_with('-') ? "./" + file : file);
}

std::string arguments_for(const std::string& file) {
  std::string text = argument_for(file);
  for (const std::string& change : scenario::changes_of_every_scenario()) text += " --set " + shell_quoted(change);
  return text;
}

namespace scenario {

bool is_path(const std::string& text) {
  const auto ends_with = [&](std::string_view end) {
    return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
  };
  return text.find('/') != std::string::npos || ends_with(".json") || ends_with(".jsonc");
}

std::optional<std::string> read_text_file(const std::filesystem::path& path, std::string& error) {
  std::error_code code;
  if (path == standard_input_name || std::filesystem::is_fifo(path, code)) return read_once(path, error);
  if (std::filesystem::is_directory(path, code)) {
    error = "it is a folder";
    return std::nullopt;
  }
  return read_file(path, error);
}

std::optional<Source> read_scenario_text(const std::filesystem::path& path, std::string& error) {
  std::optional<std::string> text = read_text_file(path, error);
  if (!text) return std::nullopt;
  const bool outside = path != standard_input_name && leads_outside(path);
  if (outside) keep_private(path.string());
  if (outside && text->find("\"lockstep\"") == std::string::npos) {
    error = "it is a link that leads out of its folder, and what it leads to is no scenario; nothing of it is shown";
    return std::nullopt;
  }
  return Source{path.string(), std::move(*text)};
}

NamedFilesOnce::NamedFilesOnce() : is_outermost_(known_files == nullptr) {
  if (is_outermost_) known_files = std::make_unique<KnownFiles>();
}

NamedFilesOnce::~NamedFilesOnce() {
  if (is_outermost_) known_files.reset();
}

std::optional<NamedFile> load_named_file(const Json& reference, FileKind kind, const std::filesystem::path& folder,
                                         const std::filesystem::path& home, Diagnostics& diagnostics) {
  const bool path = is_path(reference.text());
  const std::filesystem::path file = path ? (folder / reference.text()).lexically_normal() : std::filesystem::path();
  if (path && known_files != nullptr) {
    if (const auto known = known_files->find({file, kind, home}); known != known_files->end())
      return NamedFile{known->second, file.parent_path()};
  }
  const std::shared_ptr<const Source> source =
      path ? open_path(reference, file, kind, home, diagnostics) : open_builtin(reference, kind, diagnostics);
  if (!source) return std::nullopt;
  // What is compiled in is the same for every scenario of a process.
  static std::mutex mutex;
  static std::map<std::string, Json> parsed_builtins;
  if (!path) {
    const std::lock_guard lock(mutex);
    if (const auto known = parsed_builtins.find(source->name); known != parsed_builtins.end())
      return NamedFile{known->second, {}};
  }
  const std::size_t before = diagnostics.size();
  std::optional<Budget::Uncounted> for_none;
  if (!path) for_none.emplace();
  Json document = parse_json(source, diagnostics);
  if (diagnostics.size() != before) return std::nullopt;
  if (!path) {
    const std::lock_guard lock(mutex);
    parsed_builtins.emplace(source->name, document);
    for_none.reset();
  } else if (known_files != nullptr) {
    known_files->emplace(std::tuple(file, kind, home), document);
  }
  return NamedFile{std::move(document), file.parent_path()};
}

}  // namespace scenario

}  // namespace lockstep
