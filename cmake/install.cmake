# Installation and the package that find_package(unmetal) reads.
include(CMakePackageConfigHelpers)
set(package_folder "${CMAKE_INSTALL_LIBDIR}/cmake/unmetal")

install(TARGETS unmetal EXPORT unmetal
        RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}"
        LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}"
        ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}"
        FILE_SET HEADERS DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/unmetal"
        INCLUDES DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/unmetal")
if(TARGET unmetal_program)
  install(TARGETS unmetal_program RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
endif()
install(EXPORT unmetal NAMESPACE unmetal:: FILE unmetal-targets.cmake DESTINATION "${package_folder}")

configure_package_config_file(
  "${PROJECT_SOURCE_DIR}/cmake/unmetal-config.cmake.in" "${PROJECT_BINARY_DIR}/unmetal-config.cmake"
  INSTALL_DESTINATION "${package_folder}"
  NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/unmetal-config-version.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/unmetal-config.cmake" "${PROJECT_BINARY_DIR}/unmetal-config-version.cmake"
              "${PROJECT_SOURCE_DIR}/cmake/FindOneDNN.cmake"
        DESTINATION "${package_folder}")

# For scripts/check-structure: the headers that are installed, as paths from the root.
get_target_property(public_headers unmetal HEADER_SET)
list(REMOVE_DUPLICATES public_headers)
list(TRANSFORM public_headers REPLACE "^${PROJECT_SOURCE_DIR}/" "")
list(JOIN public_headers "\n" public_headers)
file(WRITE "${PROJECT_BINARY_DIR}/public_headers.txt" "${public_headers}\n")
