# An overlay port, which builds the sources that it lies in:  vcpkg install unmetal --overlay-ports=packaging/vcpkg
get_filename_component(SOURCE_PATH "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

vcpkg_check_features(OUT_FEATURE_OPTIONS FEATURE_OPTIONS
  FEATURES
    program UNMETAL_BUILD_PROGRAM)

vcpkg_cmake_configure(
  SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS
    ${FEATURE_OPTIONS}
    -DUNMETAL_BUILD_TESTS=OFF
    -DUNMETAL_CUDA=OFF
    -DCMAKE_DISABLE_FIND_PACKAGE_MPI=ON
    -DCMAKE_UNITY_BUILD=ON
  MAYBE_UNUSED_VARIABLES
    CMAKE_DISABLE_FIND_PACKAGE_MPI)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH lib/cmake/unmetal)
if("program" IN_LIST FEATURES)
  vcpkg_copy_tools(TOOL_NAMES unmetal AUTO_CLEAN)
endif()

file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include" "${CURRENT_PACKAGES_DIR}/debug/share")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
