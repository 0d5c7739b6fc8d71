// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <thread>

#include "src/cli/command.h"
#include "src/cli/output.h"
#include "src/cli/several_processes.h"
#include "src/cli/signals.h"
#include "src/device/gpu_job.h"

namespace lockstep::cli {

namespace {

using Clock = std::chrono::steady_clock;
using device::Board;
using device::GpuJobPlace;

constexpr std::chrono::milliseconds look_around{10};
/// For processes that hear of a failure, to end by themselves; then they are killed.
constexpr std::chrono::seconds grace{5};
/// For a process that gives up, to say so, before it is done for it.
constexpr std::chrono::seconds more_patience{15};

volatile std::sig_atomic_t signal_to_pass_on = 0;

extern "C" void note_signal(int signal) { signal_to_pass_on = signal; }

[[noreturn]] void cannot(const char* what) {
  throw std::runtime_error(fmt::format("cannot {}: {}", what, std::strerror(errno)));
}

/// The processes that were started; what is left of them is killed in the end.
class GpuProcesses {
 public:
  explicit GpuProcesses(int count)
      : file_(memfd_create("lockstep-board", MFD_CLOEXEC)), statuses_(static_cast<std::size_t>(count)) {
    if (file_ < 0 || ftruncate(file_, static_cast<off_t>(Board::bytes_for(count))) != 0)
      cannot("make a page of memory for the processes");
    board_.emplace(file_, count);
    for (int i = 1; i < count; ++i) {
      int pair[2] = {-1, -1};
      if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) cannot("join processes by sockets");
      ends_of_first_.push_back(pair[0]);
      ends_.push_back(pair[1]);
    }
  }
  GpuProcesses(const GpuProcesses&) = delete;
  GpuProcesses& operator=(const GpuProcesses&) = delete;
  ~GpuProcesses() {
    end_all(SIGKILL);
    for (std::size_t i = 0; i < processes_.size(); ++i) {
      if (!statuses_[i]) waitpid(processes_[i], nullptr, 0);
    }
    close_all();
    close(file_);
  }

  void start(const std::vector<std::string>& arguments) {
    const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
    const pid_t parent = getpid();
    for (std::size_t i = 0; i < statuses_.size(); ++i) {
      const int own = i == 0 ? -1 : ends_[i - 1];
      const GpuJobPlace place{static_cast<int>(i), static_cast<int>(statuses_.size()), file_,
                              i == 0 ? ends_of_first_ : std::vector<int>{own}};
      setenv(device::gpu_job_variable, place.text().c_str(), 1);
      const pid_t child = fork();
      if (child < 0) cannot("start a process");
      if (child == 0) become(program, arguments, place, parent);
      processes_.push_back(child);
    }
    unsetenv(device::gpu_job_variable);
    close_all();  // or nobody would see that a process has closed its own
  }

  /// Waits for the end of all, or for what ends all.
  int wait() {
    while (!signal_to_pass_on && !all_ended() && !failed() && !stuck()) {
      look();
      std::this_thread::sleep_for(look_around);
    }
    const int signal = signal_to_pass_on;
    if (signal != 0) end_all(SIGTERM);
    const Clock::time_point until = Clock::now() + grace;
    while (!all_ended() && Clock::now() < until) {
      look();
      std::this_thread::sleep_for(look_around);
    }
    if (signal != 0) return 128 + signal;
    const std::string why = why_failed();
    if (why.empty()) return WEXITSTATUS(*statuses_.front());
    tell(fmt::format("lockstep: {}\n", why));
    return exit_failure;
  }

 private:
  [[noreturn]] static void become(const std::string& program, const std::vector<std::string>& arguments,
                                  const GpuJobPlace& place, pid_t parent) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(exit_failure);
    fcntl(place.board, F_SETFD, 0);
    for (const int socket : place.sockets) fcntl(socket, F_SETFD, 0);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) std::signal(signal, SIG_DFL);
    std::vector<char*> words = {const_cast<char*>(program.c_str())};
    for (const std::string& argument : arguments) words.push_back(const_cast<char*>(argument.c_str()));
    words.push_back(nullptr);
    execv(words.front(), words.data());
    _exit(127);
  }

  void close_all() {
    for (std::vector<int>* ends : {&ends_of_first_, &ends_}) {
      for (const int end : *ends) close(end);
      ends->clear();
    }
  }

  void look() {
    for (std::size_t i = 0; i < processes_.size(); ++i) {
      int status = 0;
      if (statuses_[i] || waitpid(processes_[i], &status, WNOHANG) != processes_[i]) continue;
      statuses_[i] = status;
      // What it was doing stays on the board, for the sentence.
      if (!well(status) && !first_) first_ = i;
      board_->write(static_cast<int>(i), Board::State::ended, board_->read(static_cast<int>(i)).place);
    }
  }
  static bool well(int status) { return WIFEXITED(status) && WEXITSTATUS(status) == exit_right; }
  bool all_ended() const {
    for (const auto& status : statuses_) {
      if (!status) return false;
    }
    return true;
  }
  /// Whether somebody did not do what was asked for; process 0 may say what it likes.
  bool failed() const {
    if (statuses_.front()) return true;
    for (const auto& status : statuses_) {
      if (status && !well(*status)) return true;
    }
    return false;
  }

  /// Nobody moves while somebody waits, and nobody says so: a call of CUDA or NCCL itself does not come back.
  bool stuck() {
    const Clock::time_point now = Clock::now();
    const std::uint64_t moves = board_->moves();
    if (moves != moves_) {
      moves_ = moves;
      since_ = now;
    }
    if (now - since_ < device::nccl_patience() + more_patience) return false;
    for (int i = 0; i < board_->processes(); ++i) {
      const Board::Entry entry = board_->read(i);
      if (entry.state != Board::State::waits) continue;
      stuck_ = fmt::format("process {} (GPU {}) does not come back from a call in {}; all processes were ended", i, i,
                           entry.place.what);
      return true;
    }
    since_ = now;
    return false;
  }

  /// "" where nothing failed.
  std::string why_failed() const {
    const std::optional<int>& first = statuses_.front();
    const bool spoke = first && WIFEXITED(*first) && WEXITSTATUS(*first) != exit_failure;
    if (board_->failed_by_itself()) return *board_->failure();
    // Who was killed says nothing, and the others only know that it is gone.
    if (std::string killed = killed_by_a_signal(); !killed.empty()) return killed;
    if (!stuck_.empty()) return stuck_;
    if (spoke) return "";
    if (const auto heard = board_->failure()) return *heard;
    if (first_)
      return fmt::format("process {} ended with status {}{}", *first_, WEXITSTATUS(*statuses_[*first_]),
                         during(*first_));
    return "a process did not end";
  }
  std::string killed_by_a_signal() const {
    for (std::size_t i = 0; i < statuses_.size(); ++i) {
      if (!statuses_[i] || !WIFSIGNALED(*statuses_[i])) continue;
      const int signal = WTERMSIG(*statuses_[i]);
      return fmt::format("process {} (GPU {}) was ended by signal {} ({}){}; all processes of the job were ended", i, i,
                         signal, strsignal(signal), during(i));
    }
    return "";
  }
  std::string during(std::size_t process) const {
    const Board::Entry entry = board_->read(static_cast<int>(process));
    return entry.place.what.empty() ? "" : " in " + entry.place.what;
  }

  void end_all(int signal) {
    for (std::size_t i = 0; i < processes_.size(); ++i) {
      if (!statuses_[i]) kill(processes_[i], signal);
    }
  }

  int file_ = -1;
  std::optional<Board> board_;
  std::vector<int> ends_of_first_, ends_;
  std::vector<pid_t> processes_;
  std::vector<std::optional<int>> statuses_;  // as waitpid says
  std::optional<std::size_t> first_;          // that did not end well
  std::string stuck_;
  std::uint64_t moves_ = 0;
  Clock::time_point since_ = Clock::now();
};

}  // namespace

int start_gpu_processes(int processes, const std::vector<std::string>& arguments) {
  device::nccl_patience();  // what is wrong in it is said once
  const EndingSignals noted(note_signal);
  GpuProcesses started(processes);
  started.start(arguments);
  return started.wait();
}

}  // namespace lockstep::cli
