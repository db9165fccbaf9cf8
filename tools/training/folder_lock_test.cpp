#include "tools/training/folder_lock.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "mps/core/types/error.hpp"
#include "mps/weights/test_folder.hpp"

namespace unmetal::folder_lock_test {
namespace {

using mps::detail::errorOf;
using mps::detail::TestFolder;

TEST(FolderLock, KeepsOthersOutAndNamesThem) {
  const TestFolder folder;
  {
    const FolderLock lock(folder.path());
    EXPECT_EQ(errorOf<mps::Error>([&] { FolderLock second(folder.path()); }),
              "another training (process " + std::to_string(::getpid()) + ") is at work in the folder " +
                  folder.path().string() + ": wait for its end, or give another --out");
    EXPECT_EQ(folder.names(), std::vector<std::string>{".lock"});
  }
  EXPECT_TRUE(folder.names().empty());
  EXPECT_NO_THROW(FolderLock(folder.path()));
}

TEST(FolderLock, EndsWithAKilledProcess) {
  const TestFolder folder;
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const FolderLock lock(folder.path());
    ::kill(::getpid(), SIGKILL);
  }
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_EQ(folder.names(), std::vector<std::string>{".lock"});
  { const FolderLock lock(folder.path()); }
  EXPECT_TRUE(folder.names().empty());
}

TEST(FolderLock, IsNotMadeThroughALink) {
  const TestFolder folder;
  mps::detail::writeText(folder / "precious", "text");
  std::filesystem::create_symlink("precious", folder / ".lock");
  EXPECT_EQ(errorOf<mps::Error>([&] { FolderLock lock(folder.path()); }),
            "cannot write " + (folder / ".lock").string() + ": Too many levels of symbolic links");
  EXPECT_EQ(mps::detail::readText(folder / "precious"), "text");
}

TEST(FolderLock, AFolderThatIsNotThereIsNamed) {
  const TestFolder folder;
  EXPECT_EQ(errorOf<mps::Error>([&] { FolderLock lock(folder / "none"); }),
            "cannot write " + (folder / "none/.lock").string() + ": No such file or directory");
}

}  // namespace
}  // namespace unmetal::folder_lock_test
