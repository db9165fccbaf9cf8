# What we build on. CMakeLists of the layers link what they need; nothing here reaches public headers.

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
find_package(OneDNN REQUIRED)
find_package(hwy REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(ZLIB REQUIRED)
find_package(PNG REQUIRED)
find_package(JPEG REQUIRED)

# The ranks of several processes: without it the module for them is not built, and nothing else changes.
set(MPI_CXX_SKIP_MPICXX ON)
if(NOT CMAKE_CROSSCOMPILING)
  find_package(MPI QUIET COMPONENTS CXX)
endif()

if(UNMETAL_BUILD_TESTS)
  find_package(GTest REQUIRED)
endif()
if(UNMETAL_BUILD_PROGRAM)
  find_package(CLI11 REQUIRED)
  find_package(spdlog REQUIRED)
  find_package(fmt REQUIRED)
endif()

if(UNMETAL_HAS_CUDA)
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES "${UNMETAL_CUDA_ARCHITECTURES}")
  endif()
  enable_language(CUDA)
  if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc has C++20
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
  endif()
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  find_package(CUDAToolkit REQUIRED)
endif()
