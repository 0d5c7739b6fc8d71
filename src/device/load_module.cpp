// SPDX-License-Identifier: Apache-2.0
#include "src/device/load_module.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <vector>

#include "lockstep/mpi.h"

namespace lockstep {

bool mpi_is_built() {
#ifdef LOCKSTEP_MPI_MODULE
  return true;
#else
  return false;
#endif
}

namespace device {

#ifdef LOCKSTEP_MPI_MODULE

namespace {

namespace fs = std::filesystem;

std::vector<std::string> places() {
  std::vector<std::string> result;
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (!error) {
    result.push_back((program.parent_path() / LOCKSTEP_MPI_MODULE).string());
    result.push_back((program.parent_path().parent_path() / "lib" / "lockstep" / LOCKSTEP_MPI_MODULE).string());
  }
  result.push_back((fs::path(LOCKSTEP_MODULE_FOLDER) / LOCKSTEP_MPI_MODULE).string());
  return result;
}

}  // namespace

std::unique_ptr<Transport> open_transport() {
  const std::vector<std::string> searched = places();
  for (const std::string& path : searched) {
    std::error_code error;
    if (!fs::exists(path, error)) continue;
    // Open MPI loads plugins of its own, which look for its symbols among the global ones. It is never unloaded.
    void* module = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (module == nullptr) {
      throw MpiFailure(fmt::format(
          "the mpi engine cannot be loaded: {}. Open MPI's libraries may be missing (Debian: openmpi-bin)", dlerror()));
    }
    const auto open = reinterpret_cast<OpenTransport*>(dlsym(module, open_transport_name));
    if (open == nullptr) throw MpiFailure(fmt::format("{} is no module of this lockstep", path));
    return std::unique_ptr<Transport>(open());
  }
  throw MpiFailure(fmt::format("the mpi engine cannot be loaded: none of {} is there", fmt::join(searched, ", ")));
}

#else

std::unique_ptr<Transport> open_transport() {
  throw MpiFailure(
      "this lockstep was built without MPI, so that it has no mpi engine. Install Open MPI (Debian: libopenmpi-dev "
      "openmpi-bin) and build it again");
}

#endif

}  // namespace device

}  // namespace lockstep
