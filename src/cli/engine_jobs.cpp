// SPDX-License-Identifier: Apache-2.0
#include "src/cli/engine_jobs.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <new>
#include <thread>

#include "lockstep/cuda.h"
#include "lockstep/mpi.h"
#include "lockstep/nccl.h"
#include "src/base/counted.h"
#include "src/cli/files.h"
#include "src/cli/output.h"
#include "src/cli/results.h"
#include "src/cli/several_processes.h"
#include "src/device/gpu.h"
#include "src/device/gpu_job.h"

namespace lockstep::cli {

namespace {

/// Long, because it is only waited for where nobody ends the others.
constexpr std::chrono::seconds patience{10};

/// More would only wait for each other; a machine that has more cores says how many.
constexpr int most_processes = 4096;
constexpr std::int64_t most_block = std::int64_t{1} << 40;

/// In processes that mpirun starts.
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

/// In processes that start_gpu_processes() began, one for each GPU that was asked for.
int start(const CommonOptions& options, int gpus, int wanted, std::size_t files) {
  ReportSet(options, files > 1);
  if (wanted > gpus)
    throw NcclFailure(fmt::format("--gpus {} was given, and this machine has {}", wanted, counted(gpus, "GPU")));
  return start_gpu_processes(wanted == 0 ? gpus : wanted, command_line());
}

/// Every process must go through the same files, or they would wait for each other for ever.
bool have_the_same_files(Job& job, const std::vector<std::string>& files) {
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

using Work = std::function<int(const CheckOptions&, const std::vector<std::string>&)>;

/// Process 0 reports, and the others only replay.
int divide(Job& job, CheckOptions check, const std::vector<std::string>& files, const Work& work) {
  if (job.process() == 0) return work(check, files);
  check.symbolic = check.host = check.parametric = false;
  check_files(files, check, [](const CheckResult&) {});
  return exit_right;
}

/// In a process of a job that speaks MPI.
int take_part(CheckOptions check, const CommonOptions& options, const std::vector<std::string>& files, int wanted,
              const Work& work) {
  const std::unique_ptr<MpiJob> job = MpiJob::join();
  if (!have_the_same_files(*job, files)) return exit_failure;
  if (wanted != 0 && wanted != job->processes()) {
    usage_error(fmt::format("--ranks {} was given, and {} processes were started; leave it out under mpirun", wanted,
                            job->processes()));
  }
  if (names_engine(options, "mpi")) check.mpi = job.get();
  check.mpi_ranks_for_all = wanted != 0;
  check.progress = {};
  const auto fail = [&](const std::string& why, int status) {
    be_silent(false);
    tell(why);
    std::fflush(stderr);
    hand_over_status(status);
    job->abort(status);
  };
  std::unique_ptr<NcclJob> nccl;  // not left by who fails: that would wait for the others
  try {
    if (names_engine(options, "nccl")) nccl = NcclJob::join(*job, nullptr);
    check.nccl = nccl.get();
    return divide(*job, check, files, work);
  } catch (const ClosedPipe&) {
    fail("", exit_closed_pipe);
  } catch (const NcclFailure& failure) {
    // Whoever met it says so and ends all.
    if (failure.heard()) std::this_thread::sleep_for(patience);
    fail(fmt::format("lockstep: {}\n", failure.what()), exit_failure);
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
  return exit_failure;  // not reached
}

/// In a process that start_gpu_processes() began. What it cannot do it writes on the board, and the program that
/// started it says it.
int take_part(CheckOptions check, const device::GpuJobPlace& place, const std::vector<std::string>& files,
              const Work& work) {
  using Cause = device::Board::Cause;
  device::GpuJob gpus(place);
  check.progress = {};
  const auto fail = [&](const std::string& why, Cause cause) {
    gpus.board->fail(place.process, cause, why);
    std::_Exit(exit_failure);  // what waits on the GPU or for other processes is not waited for
  };
  std::unique_ptr<NcclJob> nccl;  // not left by who fails: that would wait for the others
  try {
    nccl = NcclJob::join(*gpus.job, gpus.board);
    check.nccl = nccl.get();
    return divide(*gpus.job, check, files, work);
  } catch (const ClosedPipe&) {
    std::_Exit(exit_closed_pipe);
  } catch (const InputError& error) {
    for (const Diagnostic& diagnostic : error.diagnostics()) tell(render(diagnostic));
    std::_Exit(exit_usage);
  } catch (const NcclFailure& failure) {
    fail(failure.what(), failure.heard() ? Cause::another : Cause::own);
  } catch (const device::OtherFailure& failure) {
    fail(failure.what(), Cause::another);
  } catch (const InternalError& error) {
    fail(fmt::format("a bug of lockstep: {}", error.what()), Cause::own);
  } catch (const std::bad_alloc&) {
    fail(fmt::format("process {} is out of memory", place.process), Cause::own);
  } catch (const std::exception& error) {
    fail(error.what(), Cause::own);
  }
  return exit_failure;  // not reached
}

/// Each of several processes reads the files.
void want_regular(const std::vector<std::string>& files, std::string_view engine) {
  for (const std::string& file : files) {
    std::error_code error;
    if (file == standard_input_name || !std::filesystem::is_regular_file(file, error))
      usage_error(fmt::format("{} is no regular file: with the {} engine every process reads it", file, engine));
  }
}

}  // namespace

int with_engines(CommonOptions& options, const std::vector<std::string>& paths,
                 const std::function<int(const CheckOptions&, const std::vector<std::string>&)>& reported_work) {
  CheckOptions check = check_options(options, true);
  const int ranks = static_cast<int>(number_of("--ranks", options.ranks, most_processes));
  const int wanted_gpus = static_cast<int>(number_of("--gpus", options.gpus, most_processes));
  check.cuda_elements = number_of("--elements", options.elements, most_block);
  if (check.cuda_elements != 0 && !names_engine(options, "cuda") && !names_engine(options, "nccl"))
    usage_error(
        "--elements is for --engine cuda and nccl: so many elements of each buffer are in the memory of a GPU at once");
  const bool mpi = names_engine(options, "mpi"), nccl = names_engine(options, "nccl");
  if (ranks != 0 && !mpi) usage_error("--ranks is for --engine mpi, which starts that many processes");
  if (wanted_gpus != 0 && !nccl) usage_error("--gpus is for --engine nccl, which starts a process for each of them");
  if (wanted_gpus != 0 && mpi) {
    usage_error(
        "--gpus is for --engine nccl without mpi; together they run in the processes that mpirun starts, with a GPU "
        "each: say how many with --ranks");
  }
  if (check.jobs > 1 && (mpi || nccl || names_engine(options, "cuda")))
    usage_error(fmt::format("--jobs {}: with the engines mpi, cuda and nccl files are checked one after the other",
                            check.jobs));
  const std::vector<std::string> files = scenario_files(paths);
  if (files.empty()) return nothing_found(paths);
  const auto work = [&](CheckOptions here, const std::vector<std::string>& all) {
    std::unique_ptr<CudaDevice> cuda;
    if (names_engine(options, "cuda")) cuda = CudaDevice::open();
    here.cuda = cuda.get();
    return reported_work(here, all);
  };
  if (!mpi && !nccl) return work(check, files);
  want_regular(files, mpi ? "mpi" : "nccl");
  if (const auto place = device::gpu_job_place(); nccl && place) return take_part(check, *place, files, work);
  const std::optional<MpiPlace> place = mpi_place();
  // A launcher that starts one process leaves it to lockstep to start more.
  const bool launched = place && (mpi || place->processes > 1);
  if (nccl && !mpi && !launched) return start(options, count_gpus(), wanted_gpus, files.size());
  if (wanted_gpus != 0) {
    usage_error(fmt::format("--gpus {} was given, and a launcher has started {} processes; leave it out under mpirun",
                            wanted_gpus, place->processes));
  }
  if (!launched) {
    if (mpi_is_built()) return start(options, ranks, files.size());
    MpiJob::join();  // says what is missing
  }
  // mpirun gives each process a terminal of its own, whatever its standard output is.
  if (options.color == "auto") options.color = "never";
  return take_part(check, options, files, ranks, work);
}

void silence_all_but_first(const std::vector<std::string>& arguments) {
  if (const auto place = device::gpu_job_place()) return be_silent(place->process != 0);
  const std::optional<MpiPlace> place = mpi_place();
  if (!place || place->process == 0) return;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const bool engine = i > 0 && arguments[i - 1] == "--engine";
    if (!engine && !arguments[i].starts_with("--engine=")) continue;
    for (const char* name : {"mpi", "nccl"}) {
      if (arguments[i].find(name) != std::string::npos && (place->processes > 1 || *name == 'm')) be_silent(true);
    }
  }
}

namespace {

/// mpirun ends every process as soon as one ends with a status of its own, and process 0 may not have spoken yet. So
/// the others wait until they are ended; one that is not had a mistake of its own, and says it.
void let_first_speak(int status) {
  if (status == exit_right || !is_held_back()) return;
  std::this_thread::sleep_for(patience);
  say_what_was_held_back();
}

}  // namespace

int hand_over_status(int status) {
  if (device::gpu_job_place()) return status;
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
