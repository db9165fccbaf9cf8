#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "mtl/cuda/cudnn.hpp"

namespace mtl::cuda {
namespace {

/// Sets a variable of the environment while it lives.
class WithVariable {
 public:
  WithVariable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~WithVariable() { unsetenv(name_); }
  WithVariable(const WithVariable&) = delete;
  WithVariable& operator=(const WithVariable&) = delete;

 private:
  const char* name_;
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

TEST(CudaLibraries, AnotherLibraryIsNotCudnn) {
  LibrarySearch search = Cudnn::search();
  search.file = "libm.so.6";
  EXPECT_THROW(const Cudnn cudnn(search), Error);
}

}  // namespace
}  // namespace mtl::cuda
