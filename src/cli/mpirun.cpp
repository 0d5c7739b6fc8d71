// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>

#include "src/cli/command.h"
#include "src/cli/output.h"
#include "src/cli/several_processes.h"
#include "src/cli/signals.h"

namespace lockstep::cli {

namespace {

namespace fs = std::filesystem;

/// The program of this name in PATH; "" where there is none.
std::string in_path(const std::string& name) {
  const char* variable = std::getenv("PATH");
  const std::string path = variable == nullptr ? "" : variable;
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find(':', begin), path.size());
    std::string candidate = (fs::path(path.substr(begin, end - begin)) / name).string();
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
    begin = end + 1;
  }
  return "";
}

/// An empty file of our own, removed at the end.
class StatusFile {
 public:
  StatusFile() {
    std::error_code error;
    path_ = (fs::temp_directory_path(error) / "lockstep-status-XXXXXX").string();
    const int descriptor = mkstemp(path_.data());
    if (descriptor < 0)
      throw std::runtime_error(
          fmt::format("cannot make a file in {}: {}", fs::path(path_).parent_path().string(), std::strerror(errno)));
    close(descriptor);
  }
  StatusFile(const StatusFile&) = delete;
  StatusFile& operator=(const StatusFile&) = delete;
  ~StatusFile() { unlink(path_.c_str()); }
  const std::string& path() const { return path_; }
  /// Nothing where process 0 did not come so far.
  std::optional<int> read() const {
    std::ifstream file(path_);
    int status = 0;
    return file >> status ? std::optional(status) : std::nullopt;
  }

 private:
  std::string path_;
};

volatile std::sig_atomic_t mpirun_process = 0, last_signal = 0;

/// To mpirun, which ends its processes.
extern "C" void hand_on(int signal) {
  last_signal = signal;
  if (mpirun_process > 0) kill(mpirun_process, signal);
}

/// In the new process. Never returns.
[[noreturn]] void become(const std::vector<std::string>& command, pid_t parent) {
  std::vector<char*> words;
  words.reserve(command.size() + 1);
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  // A group of its own: an interrupt from the terminal comes once, from us. And should we be killed, mpirun is told.
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(exit_failure);
  const int nothing = open("/dev/null", O_RDONLY);
  if (nothing >= 0) dup2(nothing, STDIN_FILENO);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) std::signal(signal, SIG_DFL);
  execv(words.front(), words.data());
  _exit(127);
}

std::string how_it_ended(int status) {
  if (WIFSIGNALED(status)) return fmt::format("mpirun was ended by signal {}", WTERMSIG(status));
  const int code = WEXITSTATUS(status);
  if (code > 128) return fmt::format("a process was ended by signal {} ({})", code - 128, strsignal(code - 128));
  return fmt::format("mpirun ended with status {}", code);
}

}  // namespace

int start_under_mpirun(int processes, const std::vector<std::string>& arguments) {
  const std::string mpirun = in_path("mpirun");
  if (mpirun.empty()) {
    tell("lockstep: the mpi engine needs mpirun, and there is none in PATH; install Open MPI (Debian: openmpi-bin)\n");
    return exit_failure;
  }
  const StatusFile status_file;
  // Processes may be more than cores: then who waits should not keep the others from working.
  std::vector<std::string> command = {mpirun, "-n", std::to_string(processes), "--oversubscribe", "--bind-to", "none"};
  if (geteuid() == 0) command.push_back("--allow-run-as-root");
  command.push_back(fs::read_symlink("/proc/self/exe").string());
  command.insert(command.end(), arguments.begin(), arguments.end());
  setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
  // Containers often forbid one process to read another's memory.
  setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 0);
  // Larger pieces through shared memory: each handing over costs a switch between processes that share a core.
  setenv("OMPI_MCA_btl_vader_max_send_size", "262144", 0);
  setenv(status_file_variable, status_file.path().c_str(), 1);

  const EndingSignals handed_on(hand_on);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error(fmt::format("cannot start mpirun: {}", std::strerror(errno)));
  if (child == 0) become(command, parent);
  mpirun_process = child;
  if (last_signal != 0) kill(child, last_signal);  // came before there was anybody to hand it to
  int ended = 0;
  while (waitpid(child, &ended, 0) < 0 && errno == EINTR) {
  }
  mpirun_process = 0;
  if (last_signal != 0) return 128 + last_signal;
  const std::optional<int> status = status_file.read();
  const bool well = WIFEXITED(ended) && WEXITSTATUS(ended) == 0;
  if (status && (well || *status == exit_usage || *status == exit_closed_pipe)) return *status;
  tell(fmt::format("lockstep: the run under mpirun failed: {}; all its processes were ended\n", how_it_ended(ended)));
  return exit_failure;
}

}  // namespace lockstep::cli
