# SPDX-License-Identifier: Apache-2.0
# NCCL: the imported target NCCL::NCCL, NCCL_INCLUDE_DIR, NCCL_LIBRARY and NCCL_VERSION.
#
# Searched in this order: LOCKSTEP_NCCL_ROOT, NCCL_ROOT and NCCL_HOME (CMake or environment), build/nccl in the source
# tree (where tools/lockstep puts it), the CUDA Toolkit (CUDA_HOME), the system, and the wheels nvidia-nccl-cu13 and
# nvidia-nccl-cu12 of the Python that is in PATH. A wheel has libnccl.so.2 and no libnccl.so.
set(nccl_hints ${LOCKSTEP_NCCL_ROOT} $ENV{LOCKSTEP_NCCL_ROOT} ${NCCL_ROOT} $ENV{NCCL_ROOT} ${NCCL_HOME} $ENV{NCCL_HOME}
               ${PROJECT_SOURCE_DIR}/build/nccl $ENV{CUDA_HOME} ${CUDAToolkit_TARGET_DIR})
find_program(NCCL_PYTHON NAMES python3 python)
mark_as_advanced(NCCL_PYTHON)
set(nccl_wheels "")
if(NCCL_PYTHON AND NOT NCCL_INCLUDE_DIR)
  execute_process(COMMAND ${NCCL_PYTHON} -c
                          "import site, sys; print(';'.join(site.getsitepackages() + [site.getusersitepackages()]))"
                  OUTPUT_VARIABLE nccl_sites OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  foreach(folder IN LISTS nccl_sites)
    list(APPEND nccl_wheels ${folder}/nvidia/nccl)
  endforeach()
endif()
find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${nccl_hints} PATHS ${nccl_wheels} PATH_SUFFIXES include)
# Both names in one folder before the next: otherwise the libnccl.so of a later folder comes before the libnccl.so.2 of an
# earlier one, which the header is from.
find_library(NCCL_LIBRARY NAMES nccl libnccl.so.2 NAMES_PER_DIR HINTS ${nccl_hints} PATHS ${nccl_wheels} PATH_SUFFIXES lib lib64)
mark_as_advanced(NCCL_INCLUDE_DIR NCCL_LIBRARY)
if(NCCL_INCLUDE_DIR)
  file(STRINGS ${NCCL_INCLUDE_DIR}/nccl.h nccl_defines REGEX "^#define NCCL_(MAJOR|MINOR|PATCH) ")
  string(REGEX REPLACE ".*NCCL_MAJOR ([0-9]+).*NCCL_MINOR ([0-9]+).*NCCL_PATCH ([0-9]+).*" "\\1.\\2.\\3" NCCL_VERSION
                       "${nccl_defines}")
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(NCCL REQUIRED_VARS NCCL_LIBRARY NCCL_INCLUDE_DIR VERSION_VAR NCCL_VERSION)
if(NCCL_FOUND AND NOT TARGET NCCL::NCCL)
  add_library(NCCL::NCCL UNKNOWN IMPORTED)
  set_target_properties(NCCL::NCCL PROPERTIES IMPORTED_LOCATION ${NCCL_LIBRARY}
                                              INTERFACE_INCLUDE_DIRECTORIES ${NCCL_INCLUDE_DIR})
endif()
