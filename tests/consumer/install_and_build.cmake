# Installs a finished build into an empty prefix and builds and runs the project beside this file against it.
#   cmake -D BUILD_FOLDER=... -D WORK_FOLDER=... -D GENERATOR=... -D CXX_COMPILER=... -D CXX_FLAGS=... -D VERSION=...
#         -P install_and_build.cmake

function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ECHO STDOUT RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "failed: ${ARGN}")
  endif()
endfunction()

set(prefix "${WORK_FOLDER}/prefix")
set(build "${WORK_FOLDER}/build")
file(REMOVE_RECURSE "${WORK_FOLDER}")
run("${CMAKE_COMMAND}" --install "${BUILD_FOLDER}" --prefix "${prefix}")
run("${CMAKE_COMMAND}" -S "${CMAKE_CURRENT_LIST_DIR}" -B "${build}" -G "${GENERATOR}"
    -D "CMAKE_CXX_COMPILER=${CXX_COMPILER}" -D "CMAKE_CXX_FLAGS=${CXX_FLAGS}" -D "CMAKE_PREFIX_PATH=${prefix}")
run("${CMAKE_COMMAND}" --build "${build}")
run("${build}/consumer")
run("${build}/gradient_consumer")
run("${build}/train_consumer")

# The version file must refuse a version that this is not.
file(WRITE "${WORK_FOLDER}/other/CMakeLists.txt" "
cmake_minimum_required(VERSION 3.25)
project(other LANGUAGES CXX)
find_package(unmetal 99.0 REQUIRED)
")
execute_process(COMMAND "${CMAKE_COMMAND}" -S "${WORK_FOLDER}/other" -B "${WORK_FOLDER}/other/build"
                        -G "${GENERATOR}" -D "CMAKE_CXX_COMPILER=${CXX_COMPILER}" -D "CMAKE_PREFIX_PATH=${prefix}"
                RESULT_VARIABLE result ERROR_VARIABLE errors OUTPUT_QUIET)
if(result EQUAL 0 OR NOT errors MATCHES "version: ${VERSION}")
  message(FATAL_ERROR "find_package(unmetal 99.0) should have found version ${VERSION} and refused it:\n${errors}")
endif()
