# Functions that make and fill targets. No globbing: a file is part of the build because a list names it.

# Optimised builds of what users run: functions with arrays check a canary, calls of the C library the sizes that the
# compiler knows. In a training step they cost about 0.1 % of the instructions. The sanitizers have checks of their own.
set(UNMETAL_HARDENED "$<$<CONFIG:Release,RelWithDebInfo,MinSizeRel>:-fstack-protector-strong;-U_FORTIFY_SOURCE;-D_FORTIFY_SOURCE=3>")
# And tables of functions cannot be written to once the program runs.
function(unmetal_harden_target target)
  if(NOT UNMETAL_SANITIZE)
    target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${UNMETAL_HARDENED}>")
    target_link_options(${target} PRIVATE LINKER:-z,relro,-z,now)
  endif()
endfunction()

# The settings that every target of ours shares.
function(unmetal_configure_target target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD_MODE GROUP)
  target_compile_options(${target} PRIVATE
    $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wconversion>
    # What is written is what is computed: fused multiply-adds are written out where they are wanted.
    $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>
    # Objects that do not depend on the build folder: presets share what ccache keeps.
    $<$<COMPILE_LANGUAGE:CXX>:-ffile-prefix-map=${PROJECT_BINARY_DIR}=.>)
  if(UNMETAL_WARNINGS_AS_ERRORS)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
  endif()
  # Tests take longer to compile than to run.
  if(target MATCHES "_tests$")
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O0 -D_GLIBCXX_ASSERTIONS>)
  endif()
  if(UNMETAL_SANITIZE)
    unmetal_sanitize_target(${target})
  endif()
  if(target MATCHES "^unmetal(_(mpi|tools|train|program|python))?$")
    unmetal_harden_target(${target})
  endif()
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}")
  if(UNMETAL_HAS_CUDA)
    target_compile_definitions(${target} PRIVATE UNMETAL_CUDA=1)
    target_include_directories(${target} SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
    target_compile_options(${target} PRIVATE
      # Functions that are constexpr, such as the geometry of windows, also run on the device. What is written is
      # what is computed, there, too.
      "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:--expt-relaxed-constexpr --fmad=false -Xcompiler=-Wall,-Wextra,-ffp-contract=off>"
      "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:-Xcompiler=-ffile-prefix-map=${PROJECT_BINARY_DIR}=.>")
    if(UNMETAL_WARNINGS_AS_ERRORS)
      target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings>)
    endif()
  endif()
endfunction()

# Most code takes longer to compile than to run.
set(UNMETAL_WATCHED "-fsanitize=${UNMETAL_SANITIZE};-fno-sanitize-recover=all;-fno-omit-frame-pointer;-O0;-UNDEBUG")

# What the sanitizers do not watch is compiled as in a release build, so that ccache has it from there. The thread
# sanitizer is there for mtl and the graph, the others for all that reads and writes memory or files of a user's.
function(unmetal_is_watched variable target)
  set(${variable} ON PARENT_SCOPE)
  if(UNMETAL_SANITIZE_EVERYTHING)
    return()
  endif()
  if(UNMETAL_SANITIZE MATCHES "thread")
    set(unwatched "unmetal_conform")
  else()
    # The references compute more than they compare; none of their memory comes from outside.
    set(unwatched "unmetal_conform|unmetal_tools|unmetal_random_calls|random_calls|[a-z_]+_tests")
  endif()
  if(target MATCHES "^(${unwatched})$")
    set(${variable} OFF PARENT_SCOPE)
  endif()
endfunction()

function(unmetal_sanitize_target target)
  target_link_options(${target} PUBLIC -fsanitize=${UNMETAL_SANITIZE})
  unmetal_is_watched(is_watched ${target})
  if(is_watched)
    target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${UNMETAL_WATCHED}>")
    if(target STREQUAL "unmetal_conform" AND UNMETAL_SANITIZE MATCHES "address")
      # The references run longer than they compile.
      target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O1>)
    endif()
  endif()
endfunction()

# unmetal_sanitize_sources(<target> <source>...): those that need more than their target, or are watched in one that is not.
function(unmetal_sanitize_sources target)
  unmetal_is_watched(is_watched ${target})
  set(vector_options "")
  if(UNMETAL_SANITIZE MATCHES "address")
    set(vector_options -O1)
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      # Vector code whose accesses are checked on the spot, not by calls, takes GCC minutes.
      list(APPEND vector_options --param=asan-instrumentation-with-call-threshold=100)
    endif()
  endif()
  # The least that the processor must have is AVX2: then the plain fallback is not compiled, which takes as long.
  if(CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64")
    list(APPEND vector_options -march=haswell -maes)
  endif()
  list(FILTER ARGN EXCLUDE REGEX "\\.cu$")
  foreach(source IN LISTS ARGN)
    set(options "")
    unmetal_is_vector_code(is_vector_code "${source}")
    if(is_watched AND is_vector_code)
      set(options ${vector_options})
      if(source MATCHES "/convolution_direct\\.cpp$")
        # It is what other kernels are compared with: checked on the spot it compiles in the same time and runs faster.
        list(FILTER options EXCLUDE REGEX "call-threshold")
      endif()
    elseif(target STREQUAL "unmetal" AND UNMETAL_SANITIZE MATCHES "address" AND source MATCHES "(_(plain|cpu|reference)[a-z_]*|/float16)\\.cpp$")
      set(options -O1)  # loops over elements run longer than they compile
    elseif(target STREQUAL "unmetal_tools" AND NOT is_watched AND
           source MATCHES "/(data|checkpoint|initial_weights)\\.cpp$")
      set(options ${UNMETAL_WATCHED})  # they read files of a user's
    endif()
    if(options)  # even empty ones would keep a source out of its group
      set_source_files_properties("${source}" TARGET_DIRECTORY ${target} PROPERTIES COMPILE_OPTIONS "${options}")
    endif()
  endforeach()
endfunction()

# Sources that Highway compiles once for each instruction set.
function(unmetal_is_vector_code variable source)
  file(STRINGS "${source}" lines REGEX "hwy/foreach_target" LIMIT_COUNT 1)
  if(lines)
    set(${variable} ON PARENT_SCOPE)
  else()
    set(${variable} OFF PARENT_SCOPE)
  endif()
endfunction()

# The library's readers of untrusted bytes. Fuzz targets link them in place of the library's, built so that libFuzzer
# watches them.
set(UNMETAL_FUZZED_SOURCES mps/core/coding/coded_data.cpp mps/core/coding/coder.cpp mps/weights/safetensors.cpp)

# unmetal_tune_sources(<target> <source>...): with UNMETAL_THIS_PROCESSOR_ONLY, vector code whose least instruction set is the
# one of this machine. Then Highway compiles it once, for that one.
function(unmetal_tune_sources target)
  if(NOT UNMETAL_THIS_PROCESSOR_ONLY OR NOT CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64" OR CMAKE_CROSSCOMPILING)
    return()
  endif()
  foreach(source IN LISTS ARGN)
    unmetal_is_vector_code(is_vector_code "${source}")
    if(is_vector_code)
      set_property(SOURCE "${source}" TARGET_DIRECTORY ${target} APPEND PROPERTY COMPILE_OPTIONS -march=native)
    endif()
  endforeach()
endfunction()

# With CMAKE_UNITY_BUILD the sources of a folder, or of a family, are compiled as one, which takes a quarter of the time: most of it
# goes to headers. Vector code stays apart, it includes itself, and so does what fuzz targets replace.
function(unmetal_group_sources target)
  list(FILTER ARGN EXCLUDE REGEX "\\.cu$")
  foreach(source IN LISTS ARGN)
    unmetal_is_vector_code(is_vector_code "${source}")
    cmake_path(RELATIVE_PATH source BASE_DIRECTORY "${PROJECT_SOURCE_DIR}" OUTPUT_VARIABLE path)
    if(NOT is_vector_code AND NOT path IN_LIST UNMETAL_FUZZED_SOURCES)
      if(target STREQUAL "unmetal_samples")
        set(folder "samples")
      elseif(NOT path MATCHES "^(mps/[a-z_]+)/")
        cmake_path(GET path PARENT_PATH folder)
      else()
        set(folder "${CMAKE_MATCH_1}")
      endif()
      string(REPLACE "/" "_" group "${folder}")
      if(path MATCHES "_cuda\\.cpp$")  # those of each back end, whose local names are alike
        string(APPEND group "_cuda")
      endif()
      set_source_files_properties("${source}" TARGET_DIRECTORY ${target} PROPERTIES UNITY_GROUP "${group}")
    endif()
  endforeach()
endfunction()

# The library itself: its settings and what it links.
function(unmetal_configure_library target)
  unmetal_configure_target(${target})
  set_target_properties(${target} PROPERTIES
    EXPORT_NAME unmetal
    VERSION ${PROJECT_VERSION}
    SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
    POSITION_INDEPENDENT_CODE ON)
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_sources(${target} PUBLIC FILE_SET HEADERS BASE_DIRS "${PROJECT_SOURCE_DIR}")
  target_link_libraries(${target} PRIVATE OneDNN::OneDNN hwy::hwy Threads::Threads
                        $<BUILD_INTERFACE:nlohmann_json::nlohmann_json>)
  if(NOT UNMETAL_SANITIZE)
    # A shared library that lacks a symbol is found when it is linked, not when it is loaded.
    target_link_options(${target} PRIVATE LINKER:--no-undefined)
  endif()
  if(UNMETAL_HAS_CUDA)
    target_link_libraries(${target} PRIVATE $<LINK_ONLY:CUDA::cudart_static>)
  endif()
endfunction()

# unmetal_sources(<target> [HEADERS <public header>...] [SOURCES <source>...])
# Adds files of the current folder; <target> may be a target that this configuration does not build.
function(unmetal_sources target)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "" "HEADERS;SOURCES")
  if(NOT TARGET ${target})
    return()
  endif()
  list(TRANSFORM ARG_SOURCES PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/")
  list(TRANSFORM ARG_HEADERS PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/")
  target_sources(${target} PRIVATE ${ARG_SOURCES})
  unmetal_group_sources(${target} ${ARG_SOURCES})
  if(UNMETAL_SANITIZE)
    unmetal_sanitize_sources(${target} ${ARG_SOURCES})
  else()
    unmetal_tune_sources(${target} ${ARG_SOURCES})
  endif()
  if(ARG_HEADERS)
    target_sources(${target} PUBLIC FILE_SET HEADERS FILES ${ARG_HEADERS})
  endif()
endfunction()

# unmetal_tests(<name> SOURCES <source>... [LABELS <label>...] [LIBRARIES <target>...] [ALONE])
# One GoogleTest executable from files of the current folder, each of its suites a ctest test. The labels
# `smoke` and `tsan` put it into the sets that the sanitizers run; the targets of these names build the sets.
# ALONE: without the library, of which SOURCES has what it needs.
function(unmetal_tests name)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "ALONE" "" "SOURCES;LABELS;LIBRARIES")
  if(NOT UNMETAL_BUILD_TESTS)
    return()
  endif()
  list(TRANSFORM ARG_SOURCES PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/")
  add_executable(${name} ${ARG_SOURCES})
  unmetal_group_sources(${name} ${ARG_SOURCES})
  unmetal_configure_target(${name})
  if(ARG_ALONE)
    set(library hwy::hwy)
  else()
    # They choose instruction sets through Highway, which is private to the library: a shared one does not pass it on.
    set(library unmetal_conform $<LINK_ONLY:hwy::hwy>)
  endif()
  target_link_libraries(${name} PRIVATE ${ARG_LIBRARIES} ${library} GTest::gtest GTest::gmock GTest::gtest_main)
  if(UNMETAL_SANITIZE)
    # One process for all: starting a sanitized program costs more than most tests. Tables of cases run with random and
    # with non-finite numbers; whole numbers would touch the same memory once more.
    if(UNMETAL_SANITIZE_EVERYTHING)
      set(filter "")
      set(seconds 3600)
    else()
      set(filter --gtest_filter=-*Table.*Integers_*)
      set(seconds 600)
    endif()
    # Those that take longest begin first, as two parts, so that none is left alone at the end.
    set(parts 1)
    if(name MATCHES "^(normalization|upsampling|pooling|convolution|tools|arithmetic|graph)_tests$")
      set(parts 2)
    endif()
    foreach(part RANGE 1 ${parts})
      math(EXPR index "${part} - 1")
      add_test(NAME ${name}.${part} COMMAND ${name} ${filter})
      set(environment ${UNMETAL_TEST_ENVIRONMENT} "GTEST_TOTAL_SHARDS=${parts}" "GTEST_SHARD_INDEX=${index}")
      set_tests_properties(${name}.${part} PROPERTIES
        TIMEOUT ${seconds} LABELS "${ARG_LABELS}" COST ${parts} ENVIRONMENT "${environment}")
    endforeach()
  else()
    set(suites "${CMAKE_CURRENT_BINARY_DIR}/${name}_suites.cmake")
    string(CONCAT content
      "set(name \"${name}\")\n"
      "set(program \"$<TARGET_FILE:${name}>\")\n"
      "set(folder \"${CMAKE_CURRENT_BINARY_DIR}\")\n"
      "set(labels \"${ARG_LABELS}\")\n"
      "set(environment \"${UNMETAL_TEST_ENVIRONMENT}\")\n"
      "include(\"${PROJECT_SOURCE_DIR}/cmake/test_suites.cmake\")\n")
    file(GENERATE OUTPUT "${suites}" CONTENT "${content}")
    set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES "${suites}")
  endif()
  foreach(label IN LISTS ARG_LABELS)
    if(NOT TARGET ${label})
      add_custom_target(${label})
    endif()
    add_dependencies(${label} ${name})
  endforeach()
endfunction()

# unmetal_mpi_tests(<name> SOURCES <source>...)
# A program whose ranks each run all of its tests, under mpirun with 2, 3 and 4 of them on however many processors; but not
# those of suites whose name ends with ThatFail. Nothing without MPI, and with sanitizers, to which MPI means nothing.
function(unmetal_mpi_tests name)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "" "SOURCES")
  if(NOT TARGET unmetal_mpi OR NOT UNMETAL_BUILD_TESTS OR UNMETAL_SANITIZE)
    return()
  endif()
  list(TRANSFORM ARG_SOURCES PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/")
  add_executable(${name} ${ARG_SOURCES})
  unmetal_configure_target(${name})
  target_link_libraries(${name} PRIVATE unmetal_conform $<LINK_ONLY:hwy::hwy> GTest::gtest GTest::gtest_main)
  add_dependencies(${name} unmetal_mpi)
  foreach(ranks 2 3 4)
    unmetal_mpi_run(${name} ${ranks} ${ranks} -*ThatFail.*)
  endforeach()
endfunction()
function(unmetal_mpi_run name test ranks filter)
  add_test(NAME ${name}.${test}
    COMMAND ${MPIEXEC_EXECUTABLE} --oversubscribe --allow-run-as-root ${MPIEXEC_NUMPROC_FLAG} ${ranks}
            $<TARGET_FILE:${name}> --gtest_filter=${filter})
  set_tests_properties(${name}.${test} PROPERTIES TIMEOUT 120 LABELS distributed PROCESSORS 2
    ENVIRONMENT "UNMETAL_MPI=$<TARGET_FILE:unmetal_mpi>;OMP_NUM_THREADS=1")
endfunction()

# unmetal_property_tests(<test program>...)
# Their tests of random problems once more, with the kernels that oneDNN has for other instruction sets than the best one here.
function(unmetal_property_tests)
  if(NOT UNMETAL_BUILD_TESTS OR NOT CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64")
    return()
  endif()
  set(instruction_sets AVX2)
  file(STRINGS "/proc/cpuinfo" has_avx512 REGEX "avx512bw" LIMIT_COUNT 1)
  if(has_avx512)
    list(APPEND instruction_sets AVX512_CORE)
  endif()
  foreach(name IN LISTS ARGN)
    foreach(instructions IN LISTS instruction_sets)
      add_test(NAME ${name}.property.${instructions} COMMAND ${name} --gtest_filter=*Property.*)
      set(environment ${UNMETAL_TEST_ENVIRONMENT} "DNNL_MAX_CPU_ISA=${instructions}")
      set_tests_properties(${name}.property.${instructions} PROPERTIES
        TIMEOUT 600 LABELS property ENVIRONMENT "${environment}")
    endforeach()
  endforeach()
endfunction()

# unmetal_family(<name> [HEADERS <header>...] [SOURCES <source>...] [CPU <source>...] [CUDA <source>...] [CONFORM <source>...]
#                [TESTS <source>...])
#
# Everything about one family of kernels lies in mps/<name>, under fixed file names:
#   <name>.hpp  <name>.cpp                                        public header, the library
#   cpu/<name>_cpu.cpp                                            the library's kernels for the CPU
#   check/<name>_reference.cpp  <name>_conform.cpp  <name>_bench.cpp   references, self-check, timing
#   check/<name>_reference_test.cpp  <name>_plan_test.cpp         tests of both
#   check/<name>_samples.cpp                                      an object of each class, for tests of all classes
# The lists name further files: of a family that is split by class; in cpu/; in cuda/, which are built where CUDA is; in check/,
# of the self-check and tests. Among SOURCES, check/<name>_reference.cpp belongs to the library: the last entry of the family's
# list for the CPU calls it.
function(unmetal_family name)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "" "HEADERS;SOURCES;CPU;CUDA;CONFORM;TESTS")
  set(CMAKE_CURRENT_SOURCE_DIR "${PROJECT_SOURCE_DIR}/mps/${name}")
  list(TRANSFORM ARG_CPU PREPEND cpu/)
  list(TRANSFORM ARG_CUDA PREPEND cuda/)
  list(TRANSFORM ARG_CONFORM PREPEND check/)
  list(TRANSFORM ARG_TESTS PREPEND check/)
  set(cuda "")
  if(UNMETAL_HAS_CUDA)
    set(cuda ${ARG_CUDA})
  endif()
  unmetal_sources(unmetal
    HEADERS ${name}.hpp ${ARG_HEADERS}
    SOURCES ${name}.cpp cpu/${name}_cpu.cpp ${ARG_CPU} ${cuda} ${ARG_SOURCES})
  set(reference check/${name}_reference.cpp)
  if(reference IN_LIST ARG_SOURCES)
    set(reference "")
  endif()
  unmetal_sources(unmetal_conform
    SOURCES ${reference} check/${name}_conform.cpp check/${name}_bench.cpp ${ARG_CONFORM})
  unmetal_sources(unmetal_samples SOURCES check/${name}_samples.cpp)
  unmetal_tests(${name}_tests
    SOURCES check/${name}_reference_test.cpp check/${name}_plan_test.cpp ${ARG_TESTS}
    LABELS ${name} smoke)
endfunction()
