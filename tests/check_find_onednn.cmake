# FindOneDNN refuses a oneDNN that brings threads of its own which we cannot tell to stay away.
#   cmake -D WORK_FOLDER=... -P check_find_onednn.cmake
set(folder "${WORK_FOLDER}/include/oneapi/dnnl")
file(REMOVE_RECURSE "${WORK_FOLDER}")
file(WRITE "${folder}/dnnl.hpp" "")
file(WRITE "${folder}/dnnl_version.h" "#define DNNL_VERSION_MAJOR 3\n#define DNNL_VERSION_MINOR 7\n#define DNNL_VERSION_PATCH 2\n")
file(WRITE "${folder}/dnnl_config.h" "#define DNNL_CPU_THREADING_RUNTIME DNNL_RUNTIME_TBB\n")
file(WRITE "${WORK_FOLDER}/project/CMakeLists.txt" "
cmake_minimum_required(VERSION 3.25)
project(other LANGUAGES NONE)
list(APPEND CMAKE_MODULE_PATH \"${CMAKE_CURRENT_LIST_DIR}/../cmake\")
find_package(OneDNN REQUIRED)
")
execute_process(COMMAND "${CMAKE_COMMAND}" -S "${WORK_FOLDER}/project" -B "${WORK_FOLDER}/build"
                        -D "OneDNN_INCLUDE_DIR=${WORK_FOLDER}/include" -D "OneDNN_LIBRARY=${folder}/dnnl.hpp"
                RESULT_VARIABLE result ERROR_VARIABLE errors OUTPUT_QUIET)
string(REGEX REPLACE "[ \n]+" " " errors "${errors}")
if(result EQUAL 0 OR NOT errors MATCHES "runs on TBB. Its option DNNL_CPU_RUNTIME must be OMP or SEQ")
  message(FATAL_ERROR "A oneDNN on TBB should have been refused:\n${errors}")
endif()
