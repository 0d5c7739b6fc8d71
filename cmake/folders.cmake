# SPDX-License-Identifier: Apache-2.0
# One object library per folder of src/, all of them together the library `lockstep`.

add_library(lockstep_flags INTERFACE)
target_include_directories(lockstep_flags INTERFACE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR})
target_compile_options(lockstep_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion)
# Members have default values; naming only the others is how they are meant to be used.
target_compile_options(lockstep_flags INTERFACE -Wno-missing-field-initializers)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 sees overlapping copies inside std::string where there are none (GCC bug 105651).
  target_compile_options(lockstep_flags INTERFACE -Wno-restrict)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # At -O1 GCC takes what an empty std::optional would hold for a value that is used. clang-tidy and the sanitizers look for real ones.
  target_compile_options(lockstep_flags INTERFACE -Wno-maybe-uninitialized)
endif()
# Of sources that are compiled as one, a name in one seems hidden by a name in another, and a source to be a header.
set(compiled_together $<BOOL:$<TARGET_PROPERTY:UNITY_BUILD>>)
target_compile_options(lockstep_flags INTERFACE $<${compiled_together}:-Wno-shadow>)
target_compile_options(lockstep_flags INTERFACE $<$<AND:${compiled_together},$<CXX_COMPILER_ID:GNU>>:-Wno-subobject-linkage>)
if(LOCKSTEP_WERROR)
  target_compile_options(lockstep_flags INTERFACE -Werror)
endif()
if(LOCKSTEP_SANITIZE)
  target_compile_options(lockstep_flags INTERFACE -fsanitize=address,undefined -fno-sanitize-recover=all
                                                  -fno-omit-frame-pointer)
  target_link_options(lockstep_flags INTERFACE -fsanitize=address,undefined)
endif()
if(LOCKSTEP_FUZZ)
  # Tests are not what is fuzzed. And where no input is read, what is compared tells the fuzzer nothing: to tell it takes a tenth of the time of
  # compiling, and of each comparison.
  set(coverage $<TARGET_PROPERTY:LOCKSTEP_COVERAGE>)
  target_compile_options(lockstep_flags INTERFACE $<$<NOT:$<STREQUAL:${coverage},none>>:-fsanitize=fuzzer-no-link>
                                                  $<$<STREQUAL:${coverage},places>:-fno-sanitize-coverage=trace-cmp>)
endif()
target_link_libraries(lockstep_flags INTERFACE ${LOCKSTEP_FMT} Threads::Threads)

# lockstep_precompiled(NAME [HEADER ...]): a target that precompiles the headers of other libraries that most sources include, for those
# that are compiled with the same flags. None of lockstep, whose names sources and tests may have too.
function(lockstep_precompiled name)
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/${name}.cpp CONTENT "")
  add_library(${name} OBJECT ${PROJECT_BINARY_DIR}/${name}.cpp)
  target_link_libraries(${name} PRIVATE lockstep_flags)
  target_precompile_headers(
    ${name} PRIVATE <algorithm> <array> <cmath> <cstdint> <filesystem> <fstream> <functional> <map> <memory> <numeric> <optional>
    <set> <string> <string_view> <tuple> <unordered_map> <variant> <vector> <fmt/format.h> <fmt/ranges.h> ${ARGN})
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    target_compile_options(${name} PRIVATE "SHELL:-Xclang -fno-pch-timestamp")  # ccache looks at what the headers hold
  endif()
endfunction()
# clang-tidy goes without, and so shows whether each source includes what it uses.
if(LOCKSTEP_PRECOMPILE AND LOCKSTEP_SANITIZE)
  lockstep_precompiled(lockstep_precompiled)
  lockstep_precompiled(lockstep_precompiled_unoptimized)
  target_compile_options(lockstep_precompiled_unoptimized PRIVATE -O0)
elseif(LOCKSTEP_PRECOMPILE)
  lockstep_precompiled(lockstep_precompiled)
  target_compile_options(lockstep_precompiled PRIVATE $<$<CONFIG:Release>:-O1>)
endif()

# Loops over the elements of tensors are compiled at -O3, all else at -O1: that takes a third less time, and checks and
# proofs of the scenarios take as long. What is instrumented takes two to three times as long to compile when it is optimized at all, so only those folders
# are in which the tests' time goes.
set(LOCKSTEP_LOOPS_OVER_ELEMENTS numeric)
set(LOCKSTEP_WITHOUT_INPUT mesh symbolic numeric transformer device diagnosis report)
set(LOCKSTEP_OPTIMIZED_WITH_SANITIZERS base mesh expression model schedule symbolic numeric transformer)

# lockstep_optimized(TARGET FOLDER): how the sources of a folder are compiled, and with sanitizers which headers are precompiled.
function(lockstep_optimized target folder)
  if(NOT folder IN_LIST LOCKSTEP_LOOPS_OVER_ELEMENTS)
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
    if(TARGET lockstep_precompiled AND NOT LOCKSTEP_SANITIZE)
      target_precompile_headers(${target} REUSE_FROM lockstep_precompiled)
    endif()
  endif()
  if(NOT LOCKSTEP_SANITIZE)
    return()
  endif()
  if(folder IN_LIST LOCKSTEP_WITHOUT_INPUT)
    set_target_properties(${target} PROPERTIES LOCKSTEP_COVERAGE places)
  endif()
  set(precompiled lockstep_precompiled)
  if(NOT folder IN_LIST LOCKSTEP_OPTIMIZED_WITH_SANITIZERS)
    target_compile_options(${target} PRIVATE -O0)
    string(APPEND precompiled _unoptimized)
  endif()
  if(TARGET ${precompiled})
    target_precompile_headers(${target} REUSE_FROM ${precompiled})
  endif()
endfunction()

# Most of what compiling takes is reading headers and compiling the same templates again, so several sources of a folder are compiled as one;
# names in their unnamed namespaces must differ therefore. The presets for coverage and a debugger, and clang-tidy, take each source by itself.
# Where much is changed the parts are smaller, so that a change is compiled in seconds.
set(LOCKSTEP_SOURCES_AT_ONCE 24 CACHE STRING "So many sources of a folder are compiled as one; 1: each by itself")
set(LOCKSTEP_MOST_AT_ONCE_symbolic 12)
set(LOCKSTEP_MOST_AT_ONCE_tests 16)

# lockstep_compiled_together(TARGET FOLDER)
function(lockstep_compiled_together target folder)
  set(at_once ${LOCKSTEP_SOURCES_AT_ONCE})
  if(DEFINED LOCKSTEP_MOST_AT_ONCE_${folder} AND at_once GREATER LOCKSTEP_MOST_AT_ONCE_${folder})
    set(at_once ${LOCKSTEP_MOST_AT_ONCE_${folder}})
  endif()
  if(at_once GREATER 1)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${at_once})
  endif()
endfunction()

# lockstep_folder(NAME [LIBRARY ...]): src/NAME/*.cpp as lockstep_NAME; LIBRARY is needed to compile it.
function(lockstep_folder name)
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${name}/*.cpp
       ${PROJECT_SOURCE_DIR}/src/${name}/parametric/*.cpp)
  add_library(lockstep_${name} OBJECT ${sources})
  target_link_libraries(lockstep_${name} PUBLIC lockstep_flags PRIVATE ${ARGN})
  lockstep_optimized(lockstep_${name} ${name})
  lockstep_compiled_together(lockstep_${name} ${name})
  set_property(GLOBAL APPEND PROPERTY LOCKSTEP_FOLDERS ${name})
  if(NOT sources)
    # A folder that is only planned: CMake wants at least one source.
    file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/empty.cpp CONTENT "")
    target_sources(lockstep_${name} PRIVATE ${PROJECT_BINARY_DIR}/empty.cpp)
  endif()
endfunction()
