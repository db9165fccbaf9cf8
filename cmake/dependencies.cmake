# What we build on. CMakeLists of the layers link what they need; nothing here reaches public headers.

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
find_package(OneDNN REQUIRED)
find_package(hwy REQUIRED)
find_package(nlohmann_json REQUIRED)

if(UNMETAL_BUILD_TESTS OR UNMETAL_BUILD_PROGRAM)
  find_package(benchmark REQUIRED)
endif()
if(UNMETAL_BUILD_TESTS)
  find_package(GTest REQUIRED)
  include(GoogleTest)
endif()
if(UNMETAL_BUILD_PROGRAM)
  find_package(CLI11 REQUIRED)
  find_package(spdlog REQUIRED)
  find_package(fmt REQUIRED)
endif()
if(UNMETAL_BUILD_PROGRAM OR UNMETAL_BUILD_FUZZERS)
  find_package(ZLIB REQUIRED)
  find_package(PNG REQUIRED)
  find_package(JPEG REQUIRED)
endif()

# oneDNN brings GCC's OpenMP run time (libgomp) into every process, and we tell it the number of threads. GCC's code
# shares its pool; clang's pragmas would bring a second one (libomp), so that its builds use std::thread. So do
# those of the thread sanitizer, which sees into neither: there oneDNN keeps its own number.
if(UNMETAL_SANITIZE MATCHES "thread")
  set(UNMETAL_OPENMP OFF)
else()
  set(UNMETAL_OPENMP ON)
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
