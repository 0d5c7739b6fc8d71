// SPDX-License-Identifier: Apache-2.0
#include "src/cli/script_run.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "src/base/budget.h"
#include "src/cli/files.h"
#include "src/cli/options.h"
#include "src/cli/script_sources.h"
#include "src/importers/batch_lines.h"

namespace lockstep::cli {

namespace {

namespace fs = std::filesystem;

/// A folder of its own, which is gone with this.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string path = (fs::temp_directory_path() / "lockstep-script-XXXXXX").string();
    if (mkdtemp(path.data()) == nullptr)
      throw std::runtime_error(
          fmt::format("cannot make a folder in {}: {}", fs::temp_directory_path().string(), std::strerror(errno)));
    path_ = path;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code error;
    fs::remove_all(path_, error);
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// The nearest folder above with ".git", else the file's own.
fs::path visible_folder(const fs::path& script) {
  std::error_code error;
  for (fs::path folder = script.parent_path(); folder.has_relative_path(); folder = folder.parent_path()) {
    if (fs::exists(folder / ".git", error)) return folder;
  }
  return script.parent_path();
}

/// What follows `fork()` in the new process; never returns.
[[noreturn]] void become(const std::vector<std::string>& words, const std::string& said) {
  setpgid(0, 0);
  const int nothing = open("/dev/null", O_RDONLY), output = open(said.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  dup2(nothing, 0);
  dup2(output, 1);
  dup2(output, 2);
  close_range(3, ~0U, 0);  // what this program, or who started it, has open
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  execvp(arguments.front(), arguments.data());
  _exit(127);
}

/// What the script may write to, on the disk of the machine.
bool is_too_large(const fs::path& folder) {
  constexpr std::uintmax_t most = 16 << 20;
  std::uintmax_t sum = 0;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code none;
    const std::uintmax_t size = entry->is_symlink(none) ? 0 : entry->file_size(none);
    if (!none) sum += size;
  }
  return sum > most;
}

/// The exit status; -1 where it was stopped.
int ended(pid_t child, const fs::path& written) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(script_seconds);
  int status = 0;
  bool stopped = false;
  while (true) {
    const pid_t found = waitpid(child, &status, stopped ? 0 : WNOHANG);
    if (found == child) break;
    if (found < 0 && errno != EINTR) return -1;
    if (!stopped && (std::chrono::steady_clock::now() > end || is_too_large(written))) {
      stopped = true;
      kill(-child, SIGKILL);
    }
    if (!stopped) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  kill(-child, SIGKILL);  // what it has left in the background
  return stopped ? -1 : WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/// Without what differs between the nodes of one start.
std::vector<std::string> of_any_node(std::vector<std::string> command) {
  for (std::size_t i = 0; i < command.size(); ++i) {
    const bool is_rank = command[i].starts_with("--node_rank") || command[i].starts_with("--node-rank");
    if (is_rank && command[i].find('=') == std::string::npos && i + 1 < command.size()) command[i + 1].clear();
    if (is_rank) command[i].clear();
  }
  return command;
}

bool is_own_file(const fs::path& path) { return fs::is_regular_file(path) && !fs::is_symlink(path); }

/// What was written down, a file for each, in the order of their names, which begin with the time; and the last
/// configuration of DeepSpeed beside one.
std::vector<std::vector<std::string>> commands_in(const fs::path& folder, std::string& deepspeed) {
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (!entry.path().filename().string().starts_with("call.") || !is_own_file(entry.path())) continue;
    if (entry.path().extension() == ".deepspeed") {
      deepspeed = text_of(entry.path());
    } else if (entry.path().extension() != ".part") {
      files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  std::vector<std::vector<std::string>> commands, known;
  for (const fs::path& file : files) {
    std::vector<std::string> command = split_at('\0', text_of(file));
    command.pop_back();  // behind the last zero byte
    const std::vector<std::string> plain = of_any_node(command);
    if (command.empty() || std::find(known.begin(), known.end(), plain) != known.end()) continue;
    known.push_back(plain);
    commands.push_back(std::move(command));
  }
  return commands;
}

/// But for what `set -x` shows, and lines of the script that bash quotes: commands, in which there may be secrets.
std::string last_line(const std::string& text) {
  std::istringstream lines(text);
  std::string last;
  for (std::string line; std::getline(lines, line);) {
    if (line.find_first_not_of(" \r\t") != std::string::npos && !line.starts_with('+') &&
        line.find('`') == std::string::npos)
      last = line;
  }
  return last;
}

/// Names of files of the repository, one in a line; what is none, or comes after the third, is left out.
std::vector<std::string> names_in(const fs::path& path) {
  std::vector<std::string> names;
  if (!fs::exists(path) || !is_own_file(path)) return names;
  std::istringstream lines(text_of(path));
  constexpr std::size_t most = 3;
  for (std::string line; names.size() < most && std::getline(lines, line);) {
    const bool is_name = std::all_of(line.begin(), line.end(), [](unsigned char c) {
      return std::isalnum(c) != 0 || std::strchr("_./+-", c) != nullptr;
    });
    if (is_name && !line.empty()) names.push_back(line);
  }
  return names;
}

/// The folder of a file that bash could not open in a redirection; "": none.
std::string missing_folder(const std::string& said) {
  static const std::regex missing(R"(: line [0-9]+: ([A-Za-z0-9_./+-]+/)[^/:]*: No such file or directory$)");
  std::istringstream lines(said);
  constexpr std::size_t longest = 1000;  // a pattern nests as deep as a line is long
  for (std::string line; std::getline(lines, line);) {
    std::smatch found;
    if (line.size() <= longest && std::regex_search(line, found, missing)) return found[1].str();
  }
  return "";
}

/// Files of the repository that bash looked for by the path that they have on another machine, as variables made it:
/// those with the same end of two names or more.
std::vector<std::string> files_elsewhere(const std::string& said, const fs::path& visible) {
  static const std::regex missing(
      R"(: line [0-9]+: (/[A-Za-z0-9_.+-]+(?:/[A-Za-z0-9_.+-]+)+): No such file or directory$)");
  std::vector<std::string> paths;
  std::istringstream lines(said);
  constexpr std::size_t longest = 1000, most = 20;
  for (std::string line; paths.size() < most && std::getline(lines, line);) {
    std::smatch found;
    if (line.size() > longest || !std::regex_search(line, found, missing)) continue;
    std::string tail = found[1].str().substr(1);
    for (std::size_t slash = tail.find('/'); slash != std::string::npos; slash = tail.find('/')) {
      std::error_code error;
      if (fs::is_regular_file(visible / tail, error) && tail.find("..") == std::string::npos) {
        paths.push_back(found[1].str());
        break;
      }
      tail.erase(0, slash + 1);
    }
  }
  return paths;
}

/// One try, in which the folders `made` are there, and the repository's files by the paths `elsewhere`.
ScriptRun run_once(const std::string& script, const fs::path& visible, const std::map<std::string, std::string>& batch,
                   const std::vector<std::string>& variables, const std::vector<std::string>& arguments,
                   const std::vector<std::string>& made, const std::vector<std::string>& elsewhere, std::string& all) {
  ScriptRun run;
  const TemporaryFolder folder;
  const fs::path said = folder.path() / "said", driver = folder.path() / "script_run.sh";
  std::ofstream(driver, std::ios::binary) << embedded_scripts().at("script_run.sh");
  std::ofstream list(folder.path() / "made", std::ios::binary);
  for (const std::string& name : made) list << name << "\n";
  list.close();
  std::ofstream paths(folder.path() / "elsewhere", std::ios::binary);
  for (const std::string& path : elsewhere) paths << path << "\n";
  paths.close();
  std::vector<std::string> all_variables;
  for (const auto& [name, value] : first_node_variables()) all_variables.push_back(fmt::format("{}={}", name, value));
  for (const auto& [name, value] : batch) all_variables.push_back(fmt::format("{}={}", name, value));
  all_variables.insert(all_variables.end(), variables.begin(), variables.end());  // of two the later one counts
  std::vector<std::string> words = {"bash", driver.string(),  folder.path().string(),
                                    script, visible.string(), std::to_string(all_variables.size())};
  words.insert(words.end(), all_variables.begin(), all_variables.end());
  words.insert(words.end(), arguments.begin(), arguments.end());
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error(fmt::format("cannot start bash: {}", std::strerror(errno)));
  if (child == 0) become(words, said.string());
  const fs::path out = folder.path() / "out";
  run.status = ended(child, out);
  if (!fs::exists(out / "started"))
    usage_error(
        "--run needs bubblewrap, or unshare of util-linux where it may make namespaces, so that the script can do no "
        "harm; neither works here. Without --run the script is read, and not run");
  std::string deepspeed;
  run.commands = commands_in(out, deepspeed);
  if (!deepspeed.empty())
    run.deepspeed = std::make_shared<const Source>(Source{"the configuration of DeepSpeed", std::move(deepspeed)});
  all = text_of(said);
  run.said = last_line(all);
  run.asked_for_nodes = fs::exists(out / "nodes");
  run.asked_for_gpus = fs::exists(out / "gpus");
  run.had_placeholders = fs::exists(out / "placeholders");
  run.elsewhere = names_in(out / "elsewhere");
  run.made = made;
  return run;
}

}  // namespace

const std::vector<std::pair<std::string, std::string>>& first_node_variables() {
  static const auto variables = made_once([] {
    return std::vector<std::pair<std::string, std::string>>{
        {"MASTER_ADDR", "localhost"}, {"MASTER_PORT", "29500"}, {"NODE_RANK", "0"}, {"RANK", "0"}};
  });
  return variables;
}

ScriptRun run_script(const std::string& script, const std::vector<std::string>& variables,
                     const std::vector<std::string>& arguments) {
  std::shared_ptr<const Source> source = read_source(script, "a launch script");
  for (const std::string& variable : variables) {
    if (variable.find('=') == std::string::npos || variable.front() == '=')
      usage_error(fmt::format("--set takes NAME=VALUE, such as NNODES=4, found \"{}\"", variable));
  }
  const fs::path path = fs::canonical(script), visible = visible_folder(path);
  if (!fs::is_regular_file(path)) usage_error(fmt::format("--run runs a file, and {} is a pipe or a device", script));
  if (visible == visible.root_path())
    usage_error(fmt::format(
        "the folder that --run would show to {} is the root folder, with all of the machine below; give the script "
        "a folder of its own",
        script));
  constexpr std::size_t most_folders = 3;
  const std::map<std::string, std::string> batch = importers::batch_variables(source->text);
  const std::vector<std::string> sourced = sourced_texts(source->text, path.parent_path(), visible);
  std::vector<std::string> made, elsewhere;
  std::size_t tries_for_files = 0;
  while (true) {
    std::string said;
    ScriptRun run = run_once(path.string(), visible, batch, variables, arguments, made, elsewhere, said);
    run.source = source;
    run.sourced = sourced;
    run.batch = batch;
    bool has_more = false;
    for (const std::string& file : files_elsewhere(said, visible)) {
      if (std::find(elsewhere.begin(), elsewhere.end(), file) != elsewhere.end()) continue;
      elsewhere.push_back(file);
      has_more = true;
    }
    if (has_more && tries_for_files++ < most_folders) continue;  // what is set there may lead to others
    const std::string missing = run.status > 0 && run.commands.empty() ? missing_folder(said) : "";
    if (missing.empty() || made.size() == most_folders || std::find(made.begin(), made.end(), missing) != made.end())
      return run;
    made.push_back(missing);
  }
}

std::shared_ptr<const Source> as_plain_script(const ScriptRun& run) {
  std::string text;
  for (const std::string& line : importers::batch_lines(run.source->text)) text += line + "\n";
  for (const std::vector<std::string>& command : run.commands) {
    for (const std::string& word : command) {
      text += &word == &command.front() ? "'" : " '";
      for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
      text += "'";
    }
    text += "\n";
  }
  return std::make_shared<const Source>(Source{run.source->name + " as it ran", std::move(text)});
}

}  // namespace lockstep::cli
