#pragma once

#include <string>
#include <vector>

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
  /// Tries the loader's own path (LD_LIBRARY_PATH among it), the folders of CUDA's packages, and those of Python's.
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

}  // namespace mtl::cuda
