# SPDX-License-Identifier: Apache-2.0
# `cmake --install`: program, library, headers, and the package that find_package(lockstep) finds.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/lockstep)
# In a wheel (pyproject.toml) the program goes where a Python environment has its commands.
set(program_dir ${CMAKE_INSTALL_BINDIR})
if(DEFINED SKBUILD_SCRIPTS_DIR)
  set(program_dir ${SKBUILD_SCRIPTS_DIR})
endif()
if(TARGET lockstep_cli)
  install(TARGETS lockstep_cli RUNTIME DESTINATION ${program_dir} COMPONENT program)
  # Completion and manual pages, written when the program is linked (src/CMakeLists.txt).
  if(NOT CMAKE_CROSSCOMPILING)
    set(pages ${PROJECT_BINARY_DIR}/pages)
    install(FILES ${pages}/lockstep DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
    install(FILES ${pages}/_lockstep DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
    install(FILES ${pages}/lockstep.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
    install(DIRECTORY ${pages}/man1 DESTINATION ${CMAKE_INSTALL_MANDIR} FILES_MATCHING PATTERN "*.1")
  endif()
endif()
if(TARGET lockstep_mpi)
  install(TARGETS lockstep_mpi LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/lockstep)
endif()
if(TARGET lockstep_cuda)
  install(TARGETS lockstep_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/lockstep)
endif()
if(TARGET lockstep_nccl)
  install(TARGETS lockstep_nccl LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/lockstep)
endif()
install(TARGETS lockstep EXPORT lockstepTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
        INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/lockstep DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR} FILES_MATCHING PATTERN "*.md" PATTERN "*.svg" PATTERN "*.png")
install(FILES ${PROJECT_SOURCE_DIR}/schema/scenario.schema.json DESTINATION ${CMAKE_INSTALL_DATADIR}/lockstep)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(EXPORT lockstepTargets NAMESPACE lockstep:: DESTINATION ${package_dir})

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/lockstepConfig.cmake.in
                              ${PROJECT_BINARY_DIR}/lockstepConfig.cmake INSTALL_DESTINATION ${package_dir})
# The C++ interface is not promised to be stable: only the same minor version will do.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/lockstepConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/lockstepConfig.cmake ${PROJECT_BINARY_DIR}/lockstepConfigVersion.cmake
        DESTINATION ${package_dir})
