# Finds oneDNN and defines the target OneDNN::OneDNN. The package file that comes with oneDNN also asks for
# OpenCL, which only its GPU interface needs; we use the CPU engine alone.
find_path(OneDNN_INCLUDE_DIR oneapi/dnnl/dnnl.hpp)
find_library(OneDNN_LIBRARY dnnl)
mark_as_advanced(OneDNN_INCLUDE_DIR OneDNN_LIBRARY)

set(_onednn_libraries "")
set(_onednn_refusal "")
if(OneDNN_INCLUDE_DIR)
  file(STRINGS "${OneDNN_INCLUDE_DIR}/oneapi/dnnl/dnnl_version.h" _onednn_version
       REGEX "^#define DNNL_VERSION_(MAJOR|MINOR|PATCH) +[0-9]+")
  list(TRANSFORM _onednn_version REPLACE "^.* " "")
  list(JOIN _onednn_version "." OneDNN_VERSION)
  unset(_onednn_version)

  file(STRINGS "${OneDNN_INCLUDE_DIR}/oneapi/dnnl/dnnl_config.h" OneDNN_RUNTIME
       REGEX "^#define DNNL_CPU_THREADING_RUNTIME DNNL_RUNTIME_")
  string(REGEX REPLACE "^.*DNNL_RUNTIME_" "" OneDNN_RUNTIME "${OneDNN_RUNTIME}")
  if(OneDNN_RUNTIME STREQUAL "OMP")
    set(_onednn_libraries gomp)  # which is told to start no threads
  elseif(NOT OneDNN_RUNTIME STREQUAL "SEQ")
    set(_onednn_refusal "\nThe oneDNN there runs on ${OneDNN_RUNTIME}. Its option DNNL_CPU_RUNTIME must be OMP or SEQ.")
  endif()
endif()

include(FindPackageHandleStandardArgs)
if(_onednn_refusal)
  set(OneDNN_RUNTIME OneDNN_RUNTIME-NOTFOUND)
endif()
find_package_handle_standard_args(OneDNN REQUIRED_VARS OneDNN_LIBRARY OneDNN_INCLUDE_DIR OneDNN_RUNTIME
                                  VERSION_VAR OneDNN_VERSION
                                  REASON_FAILURE_MESSAGE "${_onednn_refusal}")
if(OneDNN_FOUND AND NOT TARGET OneDNN::OneDNN)
  add_library(OneDNN::OneDNN UNKNOWN IMPORTED)
  set_target_properties(OneDNN::OneDNN PROPERTIES
    IMPORTED_LOCATION "${OneDNN_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${OneDNN_INCLUDE_DIR}"
    INTERFACE_LINK_LIBRARIES "${_onednn_libraries}")
endif()
unset(_onednn_libraries)
unset(_onednn_refusal)
