# SPDX-License-Identifier: Apache-2.0
# Libraries that lockstep can do without: one that is missing switches off what needs it, and `lockstep version` says so.

set(LOCKSTEP_YAML_LIBRARY "")
find_package(yaml-cpp QUIET)
if(TARGET yaml-cpp::yaml-cpp)
  set(LOCKSTEP_YAML_LIBRARY yaml-cpp::yaml-cpp)
elseif(TARGET yaml-cpp)
  set(LOCKSTEP_YAML_LIBRARY yaml-cpp)  # its name before version 0.8
else()
  message(STATUS "lockstep: no yaml-cpp, so YAML configurations cannot be imported (Debian: libyaml-cpp-dev)")
endif()

set(LOCKSTEP_TOML_LIBRARY "")
find_package(tomlplusplus QUIET)
if(TARGET tomlplusplus::tomlplusplus)
  set(LOCKSTEP_TOML_LIBRARY tomlplusplus::tomlplusplus)
else()
  message(STATUS "lockstep: no toml++, so TOML configurations cannot be imported (Debian: libtomlplusplus-dev)")
endif()

set(LOCKSTEP_SYNTAX_LIBRARIES ${LOCKSTEP_YAML_LIBRARY} ${LOCKSTEP_TOML_LIBRARY})
set(LOCKSTEP_SYNTAX_DEFINITIONS "")
if(LOCKSTEP_YAML_LIBRARY)
  list(APPEND LOCKSTEP_SYNTAX_DEFINITIONS LOCKSTEP_YAML)
endif()
if(LOCKSTEP_TOML_LIBRARY)
  list(APPEND LOCKSTEP_SYNTAX_DEFINITIONS LOCKSTEP_TOML)
endif()

# Loops over elements for the processor's vectors, chosen when the program runs. Only Highway's headers: a program that is
# linked with its library measures the processor's clock when it starts.
set(LOCKSTEP_HIGHWAY OFF)
find_package(hwy QUIET)
if(TARGET hwy::hwy)
  set(LOCKSTEP_HIGHWAY ON)
else()
  message(STATUS "lockstep: no Highway, so loops over elements do not use the processor's widest vectors (Debian: libhwy-dev)")
endif()

# The mpi engine: the module that speaks MPI is the only thing that is linked with it, so that the program starts as fast
# as without, and on machines that have none.
set(LOCKSTEP_MPI_MODULE "")
set(MPI_CXX_SKIP_MPICXX ON)
find_package(MPI QUIET COMPONENTS CXX)
if(MPI_CXX_FOUND)
  set(LOCKSTEP_MPI_MODULE lockstep_mpi.so)
else()
  message(STATUS "lockstep: no MPI, so there is no mpi engine (Debian: libopenmpi-dev openmpi-bin)")
endif()

# The cuda engine: a module likewise, with CUDA's runtime inside, so that it is built on machines without a GPU and its
# driver. -DLOCKSTEP_CUDA=OFF leaves it out.
set(LOCKSTEP_CUDA_MODULE "")
if(LOCKSTEP_CUDA)
  include(CheckLanguage)
  if(NOT DEFINED CMAKE_CUDA_HOST_COMPILER AND NOT DEFINED ENV{CUDAHOSTCXX} AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
  endif()
  check_language(CUDA)
endif()
if(LOCKSTEP_CUDA AND CMAKE_CUDA_COMPILER)
  # Ampere, Hopper and Blackwell, and for what comes after them the newest that the compiler translates at load time.
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES AND NOT DEFINED ENV{CUDAARCHS})
    execute_process(COMMAND ${CMAKE_CUDA_COMPILER} --list-gpu-arch OUTPUT_VARIABLE known ERROR_QUIET)
    if(known MATCHES "compute_100")
      set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 100)
    else()
      set(CMAKE_CUDA_ARCHITECTURES 80-real 90)
    endif()
  endif()
  if(LOCKSTEP_CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${LOCKSTEP_CCACHE})
  endif()
  enable_language(CUDA)
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake learns the newest standard of a compiler late
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  endif()
  set(LOCKSTEP_CUDA_MODULE lockstep_cuda.so)
elseif(LOCKSTEP_CUDA)
  message(STATUS "lockstep: no CUDA compiler, so there is no cuda engine (install the CUDA Toolkit, with nvcc in PATH)")
else()
  message(STATUS "lockstep: LOCKSTEP_CUDA is off, so there is no cuda engine")
endif()

# The nccl engine: a module likewise, which needs the cuda engine's. Communicators are split off since NCCL 2.18.
set(LOCKSTEP_NCCL_MODULE "")
if(LOCKSTEP_CUDA_MODULE)
  find_package(CUDAToolkit QUIET)
  list(APPEND CMAKE_MODULE_PATH ${PROJECT_SOURCE_DIR}/cmake)
  find_package(NCCL 2.18 QUIET)
  if(NCCL_FOUND AND CUDAToolkit_FOUND)
    set(LOCKSTEP_NCCL_MODULE lockstep_nccl.so)
    message(STATUS "lockstep: NCCL ${NCCL_VERSION} (${NCCL_LIBRARY})")
  else()
    message(STATUS "lockstep: no NCCL (2.18 or newer), so there is no nccl engine (install it, or say where it is with "
                   "-DLOCKSTEP_NCCL_ROOT=FOLDER)")
  endif()
else()
  message(STATUS "lockstep: no cuda engine, so there is no nccl engine")
endif()
