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

# Loops over elements for the processor's vectors, chosen when the program runs.
set(LOCKSTEP_HIGHWAY_LIBRARY "")
find_package(hwy QUIET)
if(TARGET hwy::hwy)
  set(LOCKSTEP_HIGHWAY_LIBRARY hwy::hwy)
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
