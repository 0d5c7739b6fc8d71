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

# lockstep_folder(NAME [LIBRARY ...]): src/NAME/*.cpp as lockstep_NAME; LIBRARY is needed to compile it.
function(lockstep_folder name)
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${name}/*.cpp
       ${PROJECT_SOURCE_DIR}/src/${name}/parametric/*.cpp)
  add_library(lockstep_${name} OBJECT ${sources})
  target_link_libraries(lockstep_${name} PUBLIC lockstep_flags PRIVATE ${ARGN})
  set_property(GLOBAL APPEND PROPERTY LOCKSTEP_FOLDERS ${name})
  if(NOT sources)
    # A folder that is only planned: CMake wants at least one source.
    file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/empty.cpp CONTENT "")
    target_sources(lockstep_${name} PRIVATE ${PROJECT_BINARY_DIR}/empty.cpp)
  endif()
endfunction()
