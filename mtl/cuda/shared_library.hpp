#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "mtl/error.hpp"

/// Libraries that are found when the program runs, so that one binary serves machines with and without them.
/// Engine-internal.
namespace mtl::cuda {

/// Where a library may lie.
struct LibrarySearch {
  std::string name;      ///< for sentences: "cuDNN 9"
  std::string file;      ///< "libcudnn.so.9"
  std::string variable;  ///< environment variable with its path; where it is set nothing else is tried
  /// Folders inside of Python's package folders: "nvidia/cudnn/lib".
  std::vector<std::string> wheelFolders = {};
};

/// A loaded library; stays loaded.
class SharedLibrary {
 public:
  /// Tries the loader's own path (LD_LIBRARY_PATH among it), CUDNN_PATH, CUDA_HOME and CUDA_PATH, /usr/local/cuda, the
  /// system's folders of libraries, and of Python's packages those of the system and those beside our own module. Neither
  /// what else is on PATH nor a home folder: others may write there, or a program may have been started there.
  /// @throws Error in one sentence that says what is missing and how to say where it is.
  explicit SharedLibrary(const LibrarySearch& search);

  /// @throws Error when the library has no such function.
  template <class Function>
  void find(Function*& function, const char* name) const {
    function = reinterpret_cast<Function*>(address(name));
  }
  /// The name or path that loaded.
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  [[nodiscard]] void* address(const char* name) const;

  void* handle_ = nullptr;
  std::string path_;
};

/// The library of this process, made from Library::search() by the first call. Never unloaded: the engine's threads
/// run until the process ends. @throws Error, every time, when it cannot be loaded.
template <class Library>
const Library& loadedOnce() {
  static std::mutex& mutex = *new std::mutex;
  static auto& loaded = *new std::optional<Library>;
  static auto& missing = *new std::string;
  const std::lock_guard lock(mutex);
  if (!loaded && missing.empty()) {
    try {
      loaded.emplace(Library::search());
    } catch (const Error& error) {
      missing = error.what();
    }
  }
  if (!loaded) throw Error(missing);
  return *loaded;
}

/// Why the library of this process cannot be loaded; empty where it can.
template <class Library>
std::string whyMissing() {
  try {
    loadedOnce<Library>();
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace mtl::cuda
