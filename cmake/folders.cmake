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
if(LOCKSTEP_WERROR)
  target_compile_options(lockstep_flags INTERFACE -Werror)
endif()
if(LOCKSTEP_SANITIZE)
  target_compile_options(lockstep_flags INTERFACE -fsanitize=address,undefined -fno-sanitize-recover=all
                                                  -fno-omit-frame-pointer)
  target_link_options(lockstep_flags INTERFACE -fsanitize=address,undefined)
endif()
if(LOCKSTEP_FUZZ)
  target_compile_options(lockstep_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
target_link_libraries(lockstep_flags INTERFACE fmt::fmt Threads::Threads)

# Headers that most sources include, read once. Not in the release build, which shows whether each source includes what
# it uses.
set(LOCKSTEP_PRECOMPILED_HEADERS <algorithm> <cstdint> <filesystem> <functional> <map> <memory> <numeric> <optional> <set> <string>
                                 <string_view> <unordered_map> <variant> <vector> <fmt/format.h> <fmt/ranges.h>)
if(LOCKSTEP_PRECOMPILE)
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/precompiled.cpp CONTENT "")
  add_library(lockstep_precompiled OBJECT ${PROJECT_BINARY_DIR}/precompiled.cpp)
  target_link_libraries(lockstep_precompiled PRIVATE lockstep_flags)
  target_precompile_headers(lockstep_precompiled PRIVATE ${LOCKSTEP_PRECOMPILED_HEADERS}
                                                         ${PROJECT_SOURCE_DIR}/include/lockstep/check.h)
endif()

# lockstep_folder(NAME [LIBRARY ...]): src/NAME/*.cpp as lockstep_NAME; LIBRARY is needed to compile it.
function(lockstep_folder name)
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${name}/*.cpp
       ${PROJECT_SOURCE_DIR}/src/${name}/parametric/*.cpp)
  add_library(lockstep_${name} OBJECT ${sources})
  target_link_libraries(lockstep_${name} PUBLIC lockstep_flags PRIVATE ${ARGN})
  if(LOCKSTEP_PRECOMPILE)
    target_precompile_headers(lockstep_${name} REUSE_FROM lockstep_precompiled)
  endif()
  set_property(GLOBAL APPEND PROPERTY LOCKSTEP_FOLDERS ${name})
  if(NOT sources)
    # A folder that is only planned: CMake wants at least one source.
    file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/empty.cpp CONTENT "")
    target_sources(lockstep_${name} PRIVATE ${PROJECT_BINARY_DIR}/empty.cpp)
  endif()
endfunction()
