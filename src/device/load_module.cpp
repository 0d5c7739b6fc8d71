// SPDX-License-Identifier: Apache-2.0
#include "src/device/load_module.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <vector>

#include "lockstep/cuda.h"
#include "lockstep/mpi.h"
#include "lockstep/nccl.h"

namespace lockstep {

bool mpi_is_built() {
#ifdef LOCKSTEP_MPI_MODULE
  return true;
#else
  return false;
#endif
}

bool cuda_is_built() {
#ifdef LOCKSTEP_CUDA_MODULE
  return true;
#else
  return false;
#endif
}

bool nccl_is_built() {
#ifdef LOCKSTEP_NCCL_MODULE
  return true;
#else
  return false;
#endif
}

std::unique_ptr<CudaDevice> CudaDevice::open() { return std::make_unique<CudaDevice>(device::open_gpu(0)); }

namespace device {

#if defined(LOCKSTEP_MPI_MODULE) || defined(LOCKSTEP_CUDA_MODULE) || defined(LOCKSTEP_NCCL_MODULE)

namespace {

namespace fs = std::filesystem;

std::vector<std::string> places_of(const char* file) {
  std::vector<std::string> result;
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (!error) {
    result.push_back((program.parent_path() / file).string());
    result.push_back((program.parent_path().parent_path() / "lib" / "lockstep" / file).string());
  }
  result.push_back((fs::path(LOCKSTEP_MODULE_FOLDER) / file).string());
  return result;
}

/// The function that a module exports. A module is never unloaded. Throws Failure.
template <class Function, class Failure>
Function* function_of(std::string_view engine, const char* file, const char* name, int flags, std::string_view hint) {
  const std::vector<std::string> searched = places_of(file);
  for (const std::string& path : searched) {
    std::error_code error;
    if (!fs::exists(path, error)) continue;
    void* module = dlopen(path.c_str(), RTLD_NOW | flags);
    if (module == nullptr)
      throw Failure(fmt::format("the {} engine cannot be loaded: {}. {}", engine, dlerror(), hint));
    const auto found = reinterpret_cast<Function*>(dlsym(module, name));
    if (found == nullptr) throw Failure(fmt::format("{} is no module of this lockstep", path));
    return found;
  }
  throw Failure(fmt::format("the {} engine cannot be loaded: none of {} is there", engine, fmt::join(searched, ", ")));
}

}  // namespace

#endif

std::unique_ptr<Transport> open_transport() {
#ifdef LOCKSTEP_MPI_MODULE
  // Open MPI loads plugins of its own, which look for its symbols among the global ones.
  const auto open = function_of<OpenTransport, MpiFailure>("mpi", LOCKSTEP_MPI_MODULE, open_transport_name, RTLD_GLOBAL,
                                                           "Open MPI's libraries may be missing (Debian: openmpi-bin)");
  return std::unique_ptr<Transport>(open());
#else
  throw MpiFailure(
      "this lockstep was built without MPI, so that it has no mpi engine. Install Open MPI (Debian: libopenmpi-dev "
      "openmpi-bin) and build it again");
#endif
}

std::unique_ptr<Gpu> open_gpu([[maybe_unused]] int number) {
#ifdef LOCKSTEP_CUDA_MODULE
  const auto open = function_of<OpenGpu, CudaFailure>("cuda", LOCKSTEP_CUDA_MODULE, open_gpu_name, RTLD_LOCAL,
                                                      "--engine host replays the same numbers without it");
  try {
    return std::unique_ptr<Gpu>(open(number));
  } catch (const GpuFailure& failure) {
    throw CudaFailure(failure.what());
  }
#else
  throw CudaFailure(
      "this lockstep was built without CUDA, so that it has no cuda engine; --engine host replays the same numbers. "
      "Install the CUDA Toolkit (nvcc) and build it again to use a GPU");
#endif
}

#ifdef LOCKSTEP_NCCL_MODULE

namespace {

template <class Function>
Function* nccl_function(const char* name) {
  return function_of<Function, NcclFailure>("nccl", LOCKSTEP_NCCL_MODULE, name, RTLD_LOCAL,
                                            "--engine cuda replays all ranks on one GPU without NCCL");
}

}  // namespace

std::unique_ptr<GpuNetwork> open_gpu_network(const NetworkSettings& settings) {
  return std::unique_ptr<GpuNetwork>(nccl_function<OpenGpuNetwork>(open_gpu_network_name)(settings));
}

int count_gpus(std::string& why) { return nccl_function<CountGpus>(count_gpus_name)(why); }

#else

namespace {

[[noreturn]] void nccl_is_missing() {
  throw NcclFailure(
      "this lockstep was built without NCCL, so that it has no nccl engine; --engine cuda replays all ranks on one "
      "GPU, "
      "and --engine host the same numbers without any. Install NCCL beside the CUDA Toolkit and build it again");
}

}  // namespace

std::unique_ptr<GpuNetwork> open_gpu_network(const NetworkSettings&) { nccl_is_missing(); }
int count_gpus(std::string&) { nccl_is_missing(); }

#endif

}  // namespace device

}  // namespace lockstep
