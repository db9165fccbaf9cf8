#include "mtl/cuda/shared_library.hpp"

#include <dlfcn.h>
#include <glob.h>

#include <cstdlib>
#include <sstream>

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

/// Folders that may have lib/python3.N: those of the programs that are on the path come first.
std::vector<std::string> pythonRoots() {
  std::vector<std::string> roots;
  std::istringstream path(environment("PATH"));
  const std::string bin = "/bin";
  for (std::string folder; std::getline(path, folder, ':');)
    if (folder.ends_with(bin)) roots.push_back(folder.substr(0, folder.size() - bin.size()));
  const std::string home = environment("HOME");
  for (const std::string& root : {home + "/.local", home + "/.pyenv/versions/*", std::string("/usr/local"),
                                  std::string("/usr"), std::string("/opt/*")})
    roots.push_back(root);
  return roots;
}

/// Files that exist, in the order in which they are tried.
std::vector<std::string> candidates(const LibrarySearch& search) {
  std::vector<std::string> paths;
  for (const std::string& root : {environment("CUDNN_PATH"), environment("CUDA_HOME"),
                                  environment("CUDA_PATH"), std::string("/usr/local/cuda")})
    if (!root.empty())
      for (const char* folder : {"/lib64/", "/lib/"}) appendMatches(root + folder + search.file, paths);
  appendMatches("/usr/local/cuda-*/lib*/" + search.file, paths);
  for (const char* folder : {"/usr/lib/x86_64-linux-gnu/", "/usr/lib/aarch64-linux-gnu/", "/usr/lib64/"})
    appendMatches(folder + search.file, paths);
  for (const std::string& wheel : search.wheelFolders)
    for (const std::string& root : pythonRoots())
      for (const char* packages : {"/lib/python3*/site-packages/", "/lib/python3*/dist-packages/"})
        appendMatches(root + packages + wheel + "/" + search.file, paths);
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
  throw Error(search.name + " is missing (" + why + "); install it, or set " + search.variable +
              " to the path of " + search.file);
}

void* SharedLibrary::address(const char* name) const {
  void* const found = dlsym(handle_, name);
  if (found == nullptr) throw Error(path_ + " has no function " + name);
  return found;
}

}  // namespace mtl::cuda
