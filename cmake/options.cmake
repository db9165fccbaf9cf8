# Everything a user can choose, and what follows from it for the whole project.

option(BUILD_SHARED_LIBS "Build libunmetal as a shared library." OFF)
option(UNMETAL_BUILD_TESTS "Build the tests and the examples." ${PROJECT_IS_TOP_LEVEL})
option(UNMETAL_BUILD_PROGRAM "Build the program `unmetal`." ${PROJECT_IS_TOP_LEVEL})
option(UNMETAL_BUILD_PYTHON "Build the Python module; `pip install .` does." OFF)
option(UNMETAL_BUILD_FUZZERS "Build the fuzz targets with libFuzzer (clang)." OFF)
option(UNMETAL_WARNINGS_AS_ERRORS "Stop at the first compiler warning." OFF)
set(UNMETAL_CUDA AUTO CACHE STRING "Build the CUDA back end: AUTO (when nvcc is found), ON or OFF.")
set_property(CACHE UNMETAL_CUDA PROPERTY STRINGS AUTO ON OFF)
set(UNMETAL_CUDA_ARCHITECTURES "80;90-real;90-virtual" CACHE STRING "GPU architectures of the CUDA back end.")
option(UNMETAL_THIS_PROCESSOR_ONLY
  "Compile vector code for the instruction set of this machine alone (x86): a quarter of its time to compile." OFF)
set(UNMETAL_SANITIZE "" CACHE STRING "Sanitizers, as for -fsanitize: address,undefined or thread.")
set_property(CACHE UNMETAL_SANITIZE PROPERTY STRINGS "" "address,undefined" thread)
option(UNMETAL_SANITIZE_EVERYTHING "Let the sanitizers watch every source; takes twice as long to compile." OFF)

if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type." FORCE)
endif()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# Faster tools where they are installed; the result is the same.
if(PROJECT_IS_TOP_LEVEL)
  find_program(UNMETAL_CCACHE ccache)
  if(UNMETAL_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
    set(CMAKE_CXX_COMPILER_LAUNCHER "${UNMETAL_CCACHE}")
    set(CMAKE_CUDA_COMPILER_LAUNCHER "${UNMETAL_CCACHE}")
  endif()
  include(CheckLinkerFlag)
  check_linker_flag(CXX -fuse-ld=mold UNMETAL_LINKS_WITH_MOLD)
  if(UNMETAL_LINKS_WITH_MOLD)
    add_link_options(-fuse-ld=mold)
    # Lines for a debugger are four fifths of a program, and hundreds of MB in a folder of tests. They are a tenth of one that
    # sanitizers watch, where this would take longer than the rest of linking.
    if(NOT UNMETAL_SANITIZE)
      add_link_options(LINKER:--compress-debug-sections=zlib)
    endif()
  endif()
endif()

if(NOT UNMETAL_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "UNMETAL_CUDA is \"${UNMETAL_CUDA}\"; expected AUTO, ON or OFF.")
endif()
set(UNMETAL_HAS_CUDA OFF)
if(NOT UNMETAL_CUDA STREQUAL "OFF")
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    set(UNMETAL_HAS_CUDA ON)
  elseif(UNMETAL_CUDA STREQUAL "ON")
    message(FATAL_ERROR "UNMETAL_CUDA is ON, but nvcc was not found: put it on PATH or set CMAKE_CUDA_COMPILER.")
  endif()
endif()

# Variables that every test runs with.
set(UNMETAL_TEST_ENVIRONMENT "")
if(UNMETAL_SANITIZE MATCHES "thread")
  list(APPEND UNMETAL_TEST_ENVIRONMENT "TSAN_OPTIONS=halt_on_error=1:suppressions=${PROJECT_SOURCE_DIR}/cmake/tsan.supp")
endif()
