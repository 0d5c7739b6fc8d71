// SPDX-License-Identifier: Apache-2.0
#include "src/cli/mpi_job.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <new>
#include <thread>

#include "lockstep/mpi.h"
#include "src/cli/files.h"
#include "src/cli/mpirun.h"
#include "src/cli/output.h"
#include "src/cli/results.h"

namespace lockstep::cli {

namespace {

/// More would only wait for each other; a machine that has more cores says how many.
constexpr int most_processes = 4096;

/// --ranks as a number; 0 where it was not given.
int number_of_ranks(const CommonOptions& options) {
  if (options.ranks.empty()) return 0;
  int value = 0;
  const char* end = options.ranks.data() + options.ranks.size();
  const auto [rest, error] = std::from_chars(options.ranks.data(), end, value);
  if (error != std::errc() || rest != end || value < 1 || value > most_processes) {
    usage_error(fmt::format("--ranks takes a whole number from 1 to {}; found \"{}\"", most_processes, options.ranks));
  }
  return value;
}

int start(const CommonOptions& options, int processes, std::size_t files) {
  // What cannot be written is said before anything is started.
  ReportSet(options, files > 1);
  std::vector<std::string> arguments = command_line();
  // mpirun gives each process a terminal of its own, whatever our standard output is.
  if (options.color == "auto" && options.format == "text") {
    const int target = options.output.empty() ? STDOUT_FILENO : -1;
    arguments.insert(arguments.begin() + 1, {"--color", use_color(options, target) ? "always" : "never"});
  }
  if (processes == 0) processes = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  return start_under_mpirun(processes, arguments);
}

/// Every process must go through the same files, or they would wait for each other for ever.
bool have_the_same_files(MpiJob& job, const std::vector<std::string>& files) {
  std::string own;
  for (const std::string& file : files) own += file + '\n';
  const std::vector<std::string> all = job.exchange(own);
  for (std::size_t process = 0; process < all.size(); ++process) {
    if (all[process] == all.front()) continue;
    tell(fmt::format("lockstep: process {} of {} finds other files than process 0; every machine needs the same ones\n",
                     process, all.size()));
    return false;
  }
  return true;
}

/// In a process of a job.
int take_part(CheckOptions check, const std::vector<std::string>& files, int wanted,
              const std::function<int(const CheckOptions&, const std::vector<std::string>&)>& work) {
  const std::unique_ptr<MpiJob> job = MpiJob::join();
  if (!have_the_same_files(*job, files)) return exit_failure;
  if (wanted != 0 && wanted != job->processes()) {
    usage_error(fmt::format("--ranks {} was given, and {} processes were started; leave it out under mpirun", wanted,
                            job->processes()));
  }
  check.mpi = job.get();
  check.mpi_ranks_for_all = wanted != 0;
  check.progress = {};
  const auto fail = [&](const std::string& why, int status) {
    be_silent(false);
    tell(why);
    std::fflush(stderr);
    hand_over_status(status);
    job->abort(status);
  };
  try {
    if (job->process() == 0) return work(check, files);
    check.symbolic = check.host = false;
    check_files(files, check, [](const CheckResult&) {});
  } catch (const ClosedPipe&) {
    fail("", exit_closed_pipe);
  } catch (const InputError& error) {
    std::string text;
    for (const Diagnostic& diagnostic : error.diagnostics()) text += render(diagnostic);
    fail(text, exit_usage);
  } catch (const InternalError& error) {
    fail(fmt::format("lockstep: a bug of lockstep: {}\n", error.what()), exit_failure);
  } catch (const std::bad_alloc&) {
    fail("lockstep: out of memory\n", exit_failure);
  } catch (const std::exception& error) {
    fail(fmt::format("lockstep: {}\n", error.what()), exit_failure);
  }
  return exit_right;
}

}  // namespace

int with_engines(CommonOptions& options, const std::vector<std::string>& paths,
                 const std::function<int(const CheckOptions&, const std::vector<std::string>&)>& reported_work) {
  const CheckOptions check = check_options(options, true);
  const int ranks = number_of_ranks(options);
  const bool mpi = names_engine(options, "mpi");
  if (ranks != 0 && !mpi) usage_error("--ranks is for --engine mpi, which starts that many processes");
  const std::vector<std::string> files = scenario_files(paths);
  if (files.empty()) return nothing_found(paths);
  const auto work = [&](CheckOptions here, const std::vector<std::string>& all) {
    std::unique_ptr<CudaDevice> cuda;
    if (names_engine(options, "cuda")) cuda = CudaDevice::open();
    here.cuda = cuda.get();
    return reported_work(here, all);
  };
  if (!mpi) return work(check, files);
  for (const std::string& file : files) {
    std::error_code error;
    if (!std::filesystem::is_regular_file(file, error))
      usage_error(fmt::format("{} is no regular file: with the mpi engine every process reads it", file));
  }
  const std::optional<MpiPlace> place = mpi_place();
  if (!place) {
    if (mpi_is_built()) return start(options, ranks, files.size());
    MpiJob::join();  // says what is missing
  }
  // mpirun gives each process a terminal of its own, whatever its standard output is.
  if (options.color == "auto") options.color = "never";
  return take_part(check, files, ranks, work);
}

void silence_all_but_first(const std::vector<std::string>& arguments) {
  const std::optional<MpiPlace> place = mpi_place();
  if (!place || place->process == 0) return;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const bool engine = i > 0 && arguments[i - 1] == "--engine";
    if ((engine || arguments[i].starts_with("--engine=")) && arguments[i].find("mpi") != std::string::npos)
      be_silent(true);
  }
}

namespace {

/// mpirun ends every process as soon as one ends with a status of its own, and process 0 may not have spoken yet. So
/// the others wait until they are ended; one that is not had a mistake of its own, and says it.
void let_first_speak(int status) {
  if (status == exit_right || !is_held_back()) return;
  // Long, because it is only waited for where process 0 did not fail, or where nobody ends the others.
  constexpr std::chrono::seconds patience{10};
  std::this_thread::sleep_for(patience);
  say_what_was_held_back();
}

}  // namespace

int hand_over_status(int status) {
  const char* path = std::getenv(status_file_variable);
  const std::optional<MpiPlace> place = mpi_place();
  if (path == nullptr || !place) {
    let_first_speak(status);
    return status;
  }
  if (place->process != 0) return status == exit_usage ? exit_right : status;  // process 0 has it too
  std::FILE* file = std::fopen(path, "w");
  if (file == nullptr) return status;
  const bool written = std::fprintf(file, "%d\n", status) > 0;
  return std::fclose(file) == 0 && written ? exit_right : status;
}

}  // namespace lockstep::cli
