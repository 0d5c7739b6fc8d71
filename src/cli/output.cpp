// SPDX-License-Identifier: Apache-2.0
#include "src/cli/output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>

#include "src/cli/command.h"
#include "src/cli/files.h"
#include "src/cli/options.h"

namespace lockstep::cli {

namespace {

constexpr std::size_t flush_at = 1 << 16;
bool is_silent = false;
std::string held_back;

/// Unfinished files, in memory that a signal handler may read.
constexpr std::size_t most_files = 16;
std::array<std::array<char, 4096>, most_files> unfinished{};

void remember(const std::string& path) {
  for (auto& slot : unfinished) {
    if (slot[0] != '\0' || path.size() + 1 > slot.size()) continue;
    std::memcpy(slot.data() + 1, path.data() + 1, path.size());  // the first byte last: it marks the slot as used
    slot[0] = path[0];
    return;
  }
}

void forget(const std::string& path) {
  for (auto& slot : unfinished) {
    if (path == slot.data()) slot[0] = '\0';
  }
}

void remove_unfinished() {
  for (auto& slot : unfinished) {
    if (slot[0] != '\0') unlink(slot.data());
  }
}

/// The thread that makes files: where another one removed them, this one could be about to make the next.
pthread_t main_thread;

/// Whether a signal came to another thread, and was handed on to that one.
bool is_handed_on(int signal) {
  if (pthread_equal(pthread_self(), main_thread) != 0) return false;
  pthread_kill(main_thread, signal);
  return true;
}

extern "C" void on_interrupt(int signal) {
  if (is_handed_on(signal)) return;
  remove_unfinished();
  _exit(exit_interrupted);
}

/// Ends as it would without us: mpirun and a shell see the signal.
extern "C" void on_end_signal(int signal) {
  if (is_handed_on(signal)) return;
  remove_unfinished();
  std::signal(signal, SIG_DFL);
  raise(signal);  // comes when this returns
}

/// Why the file cannot be made, for people.
std::string reason_text(const std::string& path, int reason) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code error;
  if (reason == ENOENT && !folder.empty() && !std::filesystem::exists(folder, error))
    return fmt::format("there is no folder {}", folder.string());
  return std::strerror(reason);
}

/// Where the text is to go in the end: a link's target rather than the link.
std::string resolved(const std::string& path) {
  std::error_code error;
  const std::filesystem::path target = std::filesystem::canonical(path, error);
  return error ? path : target.string();
}

/// A stream that is open in some process, which the path is a name of: "/dev/stdout", "/proc/123/fd/1".
struct NamedStream {
  bool own;
  int number;
};

/// What is open there is written on where it stands: a log of a job that is renamed over would lose what it holds.
std::optional<NamedStream> stream_of(std::filesystem::path path) {
  namespace fs = std::filesystem;
  constexpr int most_links = 40;
  std::error_code error;
  for (int links = 0; links < most_links; ++links) {
    const fs::path folder = fs::canonical(path.has_parent_path() ? path.parent_path() : fs::path("."), error);
    if (error) return std::nullopt;
    const std::string name = path.filename().string();
    int number = -1;
    const auto [end, wrong] = std::from_chars(name.data(), name.data() + name.size(), number);
    const bool is_number = wrong == std::errc() && end == name.data() + name.size();
    if (is_number && folder.filename() == "fd" && folder.native().starts_with("/proc/"))
      return NamedStream{folder.native().starts_with(fmt::format("/proc/{}/", getpid())), number};
    if (!fs::is_symlink(folder / name, error)) return std::nullopt;
    path = folder / fs::read_symlink(folder / name, error);
    if (error) return std::nullopt;
  }
  return std::nullopt;
}

/// A descriptor of our own for that stream. Throws InputError where we were given none to write to.
int writable_stream(int number, const std::string& path) {
  // Those that were given to us outlive exec; those that we opened do not.
  const int flags = fcntl(number, F_GETFD);
  if (flags < 0 || (flags & FD_CLOEXEC) != 0)
    usage_error(fmt::format("cannot write to {}: no such stream was handed to this program", path));
  if ((fcntl(number, F_GETFL) & O_ACCMODE) == O_RDONLY)
    usage_error(fmt::format("cannot write to {}: it is open for reading alone", path));
  return fcntl(number, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
}

}  // namespace

void tell(const std::string& text) {
  const std::string readable = report::readable_text(text);
  if (is_silent) {
    held_back += readable;
  } else {
    std::fputs(readable.c_str(), stderr);
  }
}

void show_progress(const std::string& line) {
  if (!is_silent) std::fputs(line.c_str(), stderr);
  std::fflush(stderr);
}

void be_silent(bool silent) { is_silent = silent; }
bool is_held_back() { return !held_back.empty(); }

void say_what_was_held_back() {
  be_silent(false);
  tell(held_back);
  held_back.clear();
}

Output::Output(std::string path, report::ReadableText::Kind kind) : path_(std::move(path)), readable_(kind) {
  if (path_.empty()) {
    descriptor_ = STDOUT_FILENO;
    return;
  }
  struct stat status {};
  const bool exists = stat(path_.c_str(), &status) == 0;
  if (exists && S_ISDIR(status.st_mode)) usage_error(fmt::format("cannot write to {}: it is a folder", path_));
  if (const std::optional<NamedStream> stream = stream_of(path_); stream && stream->own) {
    descriptor_ = writable_stream(stream->number, path_);
  } else if (stream) {
    descriptor_ = open(path_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  } else if (exists && !S_ISREG(status.st_mode)) {
    // A device or a pipe: there is nothing to rename.
    descriptor_ = open(path_.c_str(), O_WRONLY | O_CLOEXEC);
  } else {
    path_ = resolved(path_);
    temporary_ = fmt::format("{}.{}.tmp", path_, getpid());
    remember(temporary_);  // before it is there, so that an interrupt always finds it
    descriptor_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  }
  if (descriptor_ < 0) {
    const int reason = errno;
    if (!temporary_.empty()) forget(temporary_);
    temporary_.clear();
    usage_error(fmt::format("cannot write to {}: {}", path_, reason_text(path_, reason)));
  }
  if (!temporary_.empty() && exists) fchmod(descriptor_, status.st_mode & 07777);
}

Output::~Output() {
  if (path_.empty()) return;
  if (descriptor_ >= 0) close(descriptor_);
  if (temporary_.empty()) return;
  unlink(temporary_.c_str());
  forget(temporary_);
}

void Output::write(std::string_view text) {
  buffer_ += readable_.next(text);
  if (buffer_.size() >= flush_at) flush();
}

void Output::control(std::string_view text) {
  buffer_ += readable_.rest();
  buffer_ += text;
}

void Output::flush() {
  std::string_view text = buffer_;
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor_, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno == EPIPE) {
      throw ClosedPipe();
    } else if (errno != EINTR) {
      throw WriteFailure(
          fmt::format("cannot write to {}: {}", path_.empty() ? "standard output" : path_, std::strerror(errno)));
    }
  }
  buffer_.clear();
}

void Output::commit() {
  if (!may_replace_input_) keep_what_was_read(path_);
  buffer_ += readable_.rest();
  flush();
  if (path_.empty()) return;
  const int closed = close(descriptor_);
  descriptor_ = -1;
  if (closed != 0) throw WriteFailure(fmt::format("cannot write to {}: {}", path_, std::strerror(errno)));
  if (temporary_.empty()) return;
  if (rename(temporary_.c_str(), path_.c_str()) != 0) {
    throw WriteFailure(fmt::format("cannot put {} in its place: {}", path_, std::strerror(errno)));
  }
  forget(temporary_);
  temporary_.clear();
}

int Output::terminal() const { return path_.empty() ? STDOUT_FILENO : -1; }

void keep_standard_error() {
  // Else the first file that is opened would get its number, and what is said would go into that file.
  if (fcntl(STDERR_FILENO, F_GETFD) >= 0) return;
  const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (nowhere < 0 || nowhere == STDERR_FILENO) return;
  dup2(nowhere, STDERR_FILENO);
  close(nowhere);
}

void install_signal_handlers() {
  main_thread = pthread_self();
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGINT, on_interrupt);
  for (const int signal : {SIGTERM, SIGHUP}) {
    struct sigaction before {};
    // Who is started by nohup stays.
    if (sigaction(signal, nullptr, &before) == 0 && before.sa_handler != SIG_IGN) std::signal(signal, on_end_signal);
  }
}

}  // namespace lockstep::cli
