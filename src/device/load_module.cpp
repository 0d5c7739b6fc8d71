// SPDX-License-Identifier: Apache-2.0
#include "src/device/load_module.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>
#include <vector>

#include "lockstep/cuda.h"
#include "lockstep/mpi.h"
#include "lockstep/nccl.h"

namespace lockstep {

namespace device {

namespace {

namespace fs = std::filesystem;

constexpr const char* mpi_module = "lockstep_mpi.so";
constexpr const char* cuda_module = "lockstep_cuda.so";
constexpr const char* nccl_module = "lockstep_nccl.so";

/// Where a module may lie: beside the program, in the library folder beside that, and where it is installed.
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

/// The first of these places where it is; empty where it is not built.
std::string place_of(const char* file) {
  for (const std::string& path : places_of(file)) {
    std::error_code error;
    if (fs::exists(path, error)) return path;
  }
  return "";
}

/// The function that a module exports. A module is never unloaded. Throws Failure: with `missing` where it is not
/// built.
template <class Function, class Failure>
Function* function_of(std::string_view engine, const char* file, const char* name, int flags, std::string_view hint,
                      const std::string& missing) {
  const std::string path = place_of(file);
  if (path.empty()) throw Failure(missing);
  void* module = dlopen(path.c_str(), RTLD_NOW | flags);
  if (module == nullptr) throw Failure(fmt::format("the {} engine cannot be loaded: {}. {}", engine, dlerror(), hint));
  const auto found = reinterpret_cast<Function*>(dlsym(module, name));
  if (found == nullptr) throw Failure(fmt::format("{} is no module of this lockstep", path));
  return found;
}

template <class Function>
Function* nccl_function(const char* name) {
  return function_of<Function, NcclFailure>(
      "nccl", nccl_module, name, RTLD_LOCAL, "--engine cuda replays all ranks on one GPU without NCCL",
      "this lockstep was built without NCCL, so that it has no nccl engine; --engine cuda replays all ranks on one "
      "GPU, "
      "and --engine host the same numbers without any. Install NCCL beside the CUDA Toolkit and build it again");
}

}  // namespace

std::unique_ptr<Transport> open_transport() {
  // Open MPI loads plugins of its own, which look for its symbols among the global ones.
  const auto open = function_of<OpenTransport, MpiFailure>(
      "mpi", mpi_module, open_transport_name, RTLD_GLOBAL, "Open MPI's libraries may be missing (Debian: openmpi-bin)",
      "this lockstep was built without MPI, so that it has no mpi engine. Install Open MPI (Debian: libopenmpi-dev "
      "openmpi-bin) and build it again");
  return std::unique_ptr<Transport>(open());
}

std::unique_ptr<Gpu> open_gpu(int number) {
  const auto open = function_of<OpenGpu, CudaFailure>(
      "cuda", cuda_module, open_gpu_name, RTLD_LOCAL, "--engine host replays the same numbers without it",
      "this lockstep was built without CUDA, so that it has no cuda engine; --engine host replays the same numbers. "
      "Install the CUDA Toolkit (nvcc) and build it again to use a GPU");
  try {
    return std::unique_ptr<Gpu>(open(number));
  } catch (const GpuFailure& failure) {
    throw CudaFailure(failure.what());
  }
}

std::unique_ptr<GpuNetwork> open_gpu_network(const NetworkSettings& settings) {
  return std::unique_ptr<GpuNetwork>(nccl_function<OpenGpuNetwork>(open_gpu_network_name)(settings));
}

int count_gpus(std::string& why) { return nccl_function<CountGpus>(count_gpus_name)(why); }

}  // namespace device

bool mpi_is_built() { return !device::place_of(device::mpi_module).empty(); }

bool cuda_is_built() { return !device::place_of(device::cuda_module).empty(); }

bool nccl_is_built() { return !device::place_of(device::nccl_module).empty(); }

std::unique_ptr<CudaDevice> CudaDevice::open() { return std::make_unique<CudaDevice>(device::open_gpu(0)); }

}  // namespace lockstep
