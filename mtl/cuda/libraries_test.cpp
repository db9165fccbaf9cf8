#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

#include "mtl/cuda/cublaslt.hpp"
#include "mtl/cuda/cudnn.hpp"
#include "mtl/cuda/nccl.hpp"

namespace mtl::cuda::libraries_test {
namespace {

/// Sets a variable of the environment while it lives.
class WithVariable {
 public:
  WithVariable(const char* name, const std::string& value) : name_(name) {
    if (const char* const before = std::getenv(name)) before_ = before;
    setenv(name, value.c_str(), 1);
  }
  ~WithVariable() {
    if (before_)
      setenv(name_, before_->c_str(), 1);
    else
      unsetenv(name_);
  }
  WithVariable(const WithVariable&) = delete;
  WithVariable& operator=(const WithVariable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

std::string messageOf(const LibrarySearch& search) {
  try {
    const SharedLibrary library(search);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

LibrarySearch searchFor(const std::string& file) {
  return {"Something 7", file, "UNMETAL_SOMETHING", {"nvidia/something/lib"}};
}

TEST(CudaLibraries, AMissingLibraryIsASentence) {
  const std::string message = messageOf(searchFor("libnothing_of_this_name.so.7"));
  EXPECT_NE(message.find("Something 7 is missing (libnothing_of_this_name.so.7: cannot open"),
            std::string::npos)
      << message;
  EXPECT_NE(message.find("set UNMETAL_SOMETHING to the path of libnothing_of_this_name.so.7"),
            std::string::npos)
      << message;
}

/// Where the user says that it is, nothing else is tried.
TEST(CudaLibraries, AWrongPathIsASentence) {
  const WithVariable variable("UNMETAL_SOMETHING", "/nowhere/libm.so.6");
  const std::string message = messageOf(searchFor("libm.so.6"));
  EXPECT_NE(
      message.find("Something 7 cannot be loaded from where UNMETAL_SOMETHING says: /nowhere/libm.so.6"),
      std::string::npos)
      << message;
}

TEST(CudaLibraries, FunctionsAreFoundOrMissing) {
  const SharedLibrary library(searchFor("libm.so.6"));
  EXPECT_EQ(library.path(), "libm.so.6");
  double (*cosine)(double) = nullptr;
  library.find(cosine, "cos");
  ASSERT_NE(cosine, nullptr);
  EXPECT_EQ(cosine(0), 1);
  EXPECT_THROW(library.find(cosine, "cosineOfAnotherLibrary"), Error);
}

/// A library that is none of the system's, in a folder below `root`.
class PlacedLibrary {
 public:
  PlacedLibrary(const std::string& name, const std::string& folder) : file_(root_ / folder / name) {
    std::filesystem::create_directories(file_.parent_path());
    Dl_info inLibm{};
    double (*const cosine)(double) = std::cos;
    EXPECT_NE(dladdr(reinterpret_cast<const void*>(cosine), &inLibm), 0);
    std::filesystem::remove(file_);
    std::filesystem::create_symlink(inLibm.dli_fname, file_);
  }
  ~PlacedLibrary() { std::filesystem::remove_all(root_); }
  PlacedLibrary(const PlacedLibrary&) = delete;
  PlacedLibrary& operator=(const PlacedLibrary&) = delete;

  [[nodiscard]] std::string root() const { return root_.string(); }
  [[nodiscard]] std::string file() const { return file_.string(); }

 private:
  std::filesystem::path root_ = std::filesystem::path(::testing::TempDir()) / "unmetal_libraries";
  std::filesystem::path file_;
};

TEST(CudaLibraries, TheFolderThatCudaHomeNamesIsSearched) {
  const PlacedLibrary placed("libsomething_of_cuda.so.7", "lib64");
  const WithVariable home("CUDA_HOME", placed.root());
  EXPECT_EQ(SharedLibrary(searchFor("libsomething_of_cuda.so.7")).path(), placed.file());
}

/// As wheels lay them, beside a Python that is on the path and below a home folder: whoever can write there, or bring
/// somebody to start a program there, would have their code executed.
TEST(CudaLibraries, NeitherThePathNorTheHomeFolderIsSearched) {
  const std::string packages = "lib/python3.99/site-packages/nvidia/something/lib";
  {
    const PlacedLibrary placed("libsomething_from_a_wheel.so.7", packages);
    const WithVariable path("PATH", placed.root() + "/bin:/usr/bin");
    EXPECT_NE(messageOf(searchFor("libsomething_from_a_wheel.so.7")), "");
  }
  const PlacedLibrary placed("libsomething_from_a_wheel.so.7", ".local/" + packages);
  const WithVariable home("HOME", placed.root());
  const std::string message = messageOf(searchFor("libsomething_from_a_wheel.so.7"));
  EXPECT_NE(message.find("set UNMETAL_SOMETHING to the path"), std::string::npos) << message;
  const WithVariable named("UNMETAL_SOMETHING", placed.file());
  EXPECT_EQ(SharedLibrary(searchFor("libsomething_from_a_wheel.so.7")).path(), placed.file());
}

/// A relative one would be looked for wherever the program was started.
TEST(CudaLibraries, ARelativeCudaHomeIsNotSearched) {
  const PlacedLibrary placed("libsomething_of_cuda.so.7", "lib64");
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(placed.root());
  {
    const WithVariable home("CUDA_HOME", ".");
    EXPECT_NE(messageOf(searchFor("libsomething_of_cuda.so.7")), "");
  }
  std::filesystem::current_path(before);
}

struct MathLibrary {
  static LibrarySearch search() { return searchFor("libm.so.6"); }
  explicit MathLibrary(const LibrarySearch& search) : library(search) {}
  SharedLibrary library;
};
struct NoLibrary {
  static LibrarySearch search() { return searchFor("libnothing_of_this_name.so.7"); }
  explicit NoLibrary(const LibrarySearch& search) : library(search) {}
  SharedLibrary library;
};

TEST(CudaLibraries, WhatIsMissingIsKnownWithoutAnError) {
  EXPECT_EQ(whyMissing<MathLibrary>(), "");
  EXPECT_NE(whyMissing<NoLibrary>().find("Something 7 is missing"), std::string::npos);
}

TEST(CudaLibraries, AnotherLibraryHasOtherFunctions) {
  LibrarySearch search = Cudnn::search();
  search.file = "libm.so.6";
  search.variable = "UNMETAL_SOMETHING";
  EXPECT_THROW(const Cudnn cudnn(search), Error);
  search = CublasLt::search();
  search.file = "libm.so.6";
  search.variable = "UNMETAL_SOMETHING";
  EXPECT_THROW(const CublasLt lt(search), Error);
  search = Nccl::search();
  search.file = "libm.so.6";
  search.variable = "UNMETAL_SOMETHING";
  EXPECT_THROW(const Nccl nccl(search), Error);
}

TEST(CudaLibraries, TwoCopiesInOneProcessAreASentence) {
  const std::vector<std::string> loaded = loadedFiles("libm.so");
  ASSERT_EQ(loaded.size(), 1U);
  EXPECT_NO_THROW(checkSingle(Nccl::search(), loaded));
  try {
    checkSingle(Nccl::search(), {"/a/libnccl.so.2", "/b/libnccl.so.2"});
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()),
              "there are two copies of NCCL 2 in this process, /a/libnccl.so.2 and /b/libnccl.so.2: set "
              "UNMETAL_NCCL to the one that is loaded first, or leave it unset");
  }
}

}  // namespace
}  // namespace mtl::cuda::libraries_test
