#include "mtl/cuda/shared_library.hpp"

#include <dlfcn.h>
#include <glob.h>

#include <cstdlib>

#include "mtl/error.hpp"

namespace mtl::cuda {
namespace {

std::string environment(const std::string& variable) {
  const char* const value = std::getenv(variable.c_str());
  return value == nullptr ? std::string() : value;
}

void appendMatches(const std::string& pattern, std::vector<std::string>& paths) {
  glob_t found{};
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0)
    for (std::size_t i = 0; i < found.gl_pathc; ++i) paths.emplace_back(found.gl_pathv[i]);
  globfree(&found);
}

/// The folder of the file that this code is in; empty for a program that has it built in.
std::string ownFolder() {
  Dl_info own{};
  if (dladdr(reinterpret_cast<const void*>(&appendMatches), &own) == 0 || own.dli_fname == nullptr) return "";
  const std::string file = own.dli_fname;
  return file.find(".so") == std::string::npos ? "" : file.substr(0, file.rfind('/') + 1);
}

/// Files that exist, in the order in which they are tried: what is loaded is executed, so these are folders that the user
/// has named, folders that only the system's administrator writes to, and those beside our own code.
std::vector<std::string> candidates(const LibrarySearch& search) {
  std::vector<std::string> paths;
  for (const std::string& root : {environment("CUDNN_PATH"), environment("CUDA_HOME"),
                                  environment("CUDA_PATH"), std::string("/usr/local/cuda")})
    if (root.starts_with('/'))
      for (const char* folder : {"/lib64/", "/lib/"}) appendMatches(root + folder + search.file, paths);
  appendMatches("/usr/local/cuda-*/lib*/" + search.file, paths);
  for (const char* folder : {"/usr/lib/x86_64-linux-gnu/", "/usr/lib/aarch64-linux-gnu/", "/usr/lib64/"})
    appendMatches(folder + search.file, paths);
  const std::string own = ownFolder();
  for (const std::string& wheel : search.wheelFolders) {
    // A Python module of ours lies beside the packages that it was installed with.
    if (own.starts_with('/')) appendMatches(own + "../" + wheel + "/" + search.file, paths);
    for (const char* root : {"/usr/local", "/usr"})
      for (const char* packages : {"/lib/python3*/site-packages/", "/lib/python3*/dist-packages/"})
        appendMatches(std::string(root) + packages + wheel + "/" + search.file, paths);
  }
  return paths;
}

}  // namespace

SharedLibrary::SharedLibrary(const LibrarySearch& search) {
  constexpr int kFlags = RTLD_NOW | RTLD_GLOBAL;
  const std::string told = environment(search.variable);
  std::string why;
  const auto load = [&](const std::string& path) {
    handle_ = dlopen(path.c_str(), kFlags);
    if (handle_ != nullptr)
      path_ = path;
    else if (const char* const error = dlerror(); error != nullptr && why.empty())
      why = error;
    return handle_ != nullptr;
  };
  if (!told.empty()) {
    if (load(told)) return;
    throw Error(search.name + " cannot be loaded from where " + search.variable + " says: " + why);
  }
  if (load(search.file)) return;
  for (const std::string& path : candidates(search)) {
    why.clear();
    if (load(path)) return;
  }
  throw Error(search.name + " is missing (" + why +
              ") from the system's folders and CUDA_HOME; install it, or set " + search.variable +
              " to the path of " + search.file);
}

void* SharedLibrary::address(const char* name) const {
  void* const found = dlsym(handle_, name);
  if (found == nullptr) throw Error(path_ + " has no function " + name);
  return found;
}

}  // namespace mtl::cuda
