// SPDX-License-Identifier: Apache-2.0
#include "src/cli/python_part.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <system_error>
#include <vector>

#include "src/cli/command.h"
#include "src/cli/options.h"
#include "src/cli/output.h"
#include "src/cli/signals.h"

namespace lockstep::cli {

namespace {

namespace fs = std::filesystem;

constexpr int could_not_start = 127;
constexpr int something_wrong = 11;  // said by lockstep.matrix, which has written its text; 1 is Python's own

volatile std::sig_atomic_t running_process = 0, signal_to_end = 0;

extern "C" void end_part(int signal) {
  signal_to_end = signal;
  if (running_process > 0) kill(running_process, SIGTERM);
}

/// Where the Python package lies, if the program was built in a source tree and not installed; "" otherwise.
std::string package_folder() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  const fs::path folder = program.parent_path() / "../../../python";
  if (error || !fs::is_directory(folder / "lockstep" / "extracting", error)) return "";
  return fs::canonical(folder, error).string();
}

/// In the new process. It writes its text to a descriptor of its own: a script may write to standard output.
[[noreturn]] void become_python(const std::vector<std::string>& words, pid_t parent, int output) {
  // Interrupts from the terminal come once, from us.
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(exit_failure);
  fcntl(output, F_SETFD, 0);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) std::signal(signal, SIG_DFL);
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  execvp(pointers.front(), pointers.data());
  _exit(could_not_start);
}

std::string read_all(int descriptor) {
  std::string text;
  std::array<char, 1 << 16> part{};
  for (;;) {
    const ssize_t count = read(descriptor, part.data(), part.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return text;
    text.append(part.data(), static_cast<std::size_t>(count));
  }
}

}  // namespace

std::string python_of(const std::string& given) {
  const char* variable = std::getenv("LOCKSTEP_PYTHON");
  if (!given.empty()) return given;
  return variable != nullptr && *variable != 0 ? variable : "python3";
}

std::string cache_folder(const std::string& name) {
  const auto variable = [](const char* given) {
    const char* value = std::getenv(given);
    return value == nullptr ? fs::path() : fs::path(value);
  };
  fs::path folder = variable("XDG_CACHE_HOME");
  if (!folder.is_absolute()) folder = variable("HOME").is_absolute() ? variable("HOME") / ".cache" : fs::path();
  return folder.empty() ? "" : (folder / "lockstep" / name).string();
}

PythonOutput run_python_part(const PythonPart& part, const std::string& python, const std::string& settings) {
  if (const std::string folder = package_folder(); !folder.empty()) {
    const char* path = std::getenv("PYTHONPATH");
    setenv("PYTHONPATH", path != nullptr && *path != 0 ? (folder + ":" + path).c_str() : folder.c_str(), 1);
  }
  int ends[2] = {-1, -1};
  if (pipe2(ends, O_CLOEXEC) != 0)
    throw std::runtime_error(fmt::format("cannot make a pipe: {}", std::strerror(errno)));
  const std::vector<std::string> words = {python, "-m", part.module, settings, std::to_string(ends[1])};
  const EndingSignals ended_with_us(end_part);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error(fmt::format("cannot start {}: {}", python, std::strerror(errno)));
  if (child == 0) become_python(words, parent, ends[1]);
  running_process = child;
  if (signal_to_end != 0) kill(child, SIGTERM);  // came before there was anybody to end
  close(ends[1]);
  PythonOutput result;
  result.text = read_all(ends[0]);
  close(ends[0]);
  int ended = 0;
  while (waitpid(child, &ended, 0) < 0 && errno == EINTR) {
  }
  running_process = 0;
  if (signal_to_end != 0) {
    result.status = 128 + signal_to_end;
  } else if (WIFSIGNALED(ended)) {
    tell(fmt::format("lockstep {}: {} was ended by signal {}\n", part.command, python, WTERMSIG(ended)));
    result.status = exit_failure;
  } else if (WEXITSTATUS(ended) == could_not_start) {
    usage_error(fmt::format(
        "{}: it cannot be started; --python names the Python that has torch and the script's packages", python));
  } else if (WEXITSTATUS(ended) == something_wrong) {
    result.status = exit_wrong;
  } else if (WEXITSTATUS(ended) != 0) {
    // 1 is Python's own, which has said why.
    result.status = WEXITSTATUS(ended) == exit_usage ? exit_usage : exit_failure;
  }
  return result;
}

}  // namespace lockstep::cli
