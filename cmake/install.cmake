# Installation and the package that find_package(unmetal) reads.
include(CMakePackageConfigHelpers)
set(package_folder "${CMAKE_INSTALL_LIBDIR}/cmake/unmetal")

install(TARGETS unmetal EXPORT unmetal
        LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT library NAMELINK_COMPONENT development
        ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT development
        FILE_SET HEADERS DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/unmetal" COMPONENT development
        INCLUDES DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/unmetal")
install(TARGETS unmetal_train EXPORT unmetal
        LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT library NAMELINK_COMPONENT development
        ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT development
        FILE_SET HEADERS DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/unmetal" COMPONENT development
        INCLUDES DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/unmetal")
if(TARGET unmetal_mpi)
  install(TARGETS unmetal_mpi LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT mpi)
endif()
set(UNMETAL_HAS_CONFORM OFF)  # the component `conform`: checkGradients
if(TARGET unmetal_conform)
  set(UNMETAL_HAS_CONFORM ON)
  install(TARGETS unmetal_conform EXPORT unmetal
          ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT development
          FILE_SET HEADERS DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/unmetal" COMPONENT development
          INCLUDES DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/unmetal")
endif()
if(TARGET unmetal_program)
  install(TARGETS unmetal_program RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT program)
endif()
install(EXPORT unmetal NAMESPACE unmetal:: FILE unmetal-targets.cmake DESTINATION "${package_folder}"
        COMPONENT development)

configure_package_config_file(
  "${PROJECT_SOURCE_DIR}/cmake/unmetal-config.cmake.in" "${PROJECT_BINARY_DIR}/unmetal-config.cmake"
  INSTALL_DESTINATION "${package_folder}"
  NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/unmetal-config-version.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/unmetal-config.cmake" "${PROJECT_BINARY_DIR}/unmetal-config-version.cmake"
              "${PROJECT_SOURCE_DIR}/cmake/FindOneDNN.cmake"
        DESTINATION "${package_folder}" COMPONENT development)

# For scripts/check-structure: the headers that are installed, as paths from the root; a list for each library.
function(unmetal_list_headers target file)
  get_target_property(headers ${target} HEADER_SET)
  list(REMOVE_DUPLICATES headers)
  list(TRANSFORM headers REPLACE "^${PROJECT_SOURCE_DIR}/" "")
  list(JOIN headers "\n" headers)
  file(WRITE "${PROJECT_BINARY_DIR}/${file}" "${headers}\n")
endfunction()
unmetal_list_headers(unmetal public_headers.txt)
unmetal_list_headers(unmetal_train train_headers.txt)
if(TARGET unmetal_conform)
  unmetal_list_headers(unmetal_conform conform_headers.txt)
endif()
