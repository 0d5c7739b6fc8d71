# SPDX-License-Identifier: Apache-2.0
# Libraries that lockstep needs: those of the machine, or, in what tools/bundle packs, the headers in third_party/include,
# before which nothing of the machine is looked at.

if(LOCKSTEP_BUNDLED)
  # lockstep_headers(TARGET [DEFINITION…]): a library that is headers alone.
  function(lockstep_headers target)
    add_library(${target} INTERFACE IMPORTED GLOBAL)
    target_include_directories(${target} SYSTEM INTERFACE ${PROJECT_SOURCE_DIR}/third_party/include)
    target_compile_definitions(${target} INTERFACE ${ARGN})
  endfunction()
  lockstep_headers(fmt::fmt FMT_HEADER_ONLY=1)
  lockstep_headers(nlohmann_json::nlohmann_json)
  lockstep_headers(CLI11::CLI11)
  lockstep_headers(Boost::headers)
  lockstep_headers(Eigen3::Eigen)
  if(EXISTS ${PROJECT_SOURCE_DIR}/third_party/include/catch2)
    lockstep_headers(Catch2::Catch2)
  endif()
else()
  find_package(fmt REQUIRED)
  find_package(nlohmann_json REQUIRED)
  find_package(CLI11 REQUIRED)
  find_package(Boost REQUIRED)
  find_package(Eigen3 REQUIRED NO_MODULE)
endif()
