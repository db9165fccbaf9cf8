#include "mps/weights/atomic_file.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "mps/core/types/error.hpp"
#include "mps/weights/crc32.hpp"
#include "mps/weights/input_file.hpp"
#include "mps/weights/test_folder.hpp"

namespace mps::atomic_file_test {
namespace {

using detail::errorOf;
using detail::FileSizeLimit;
using detail::OrdinaryUser;
using detail::readText;
using detail::TestFolder;
using detail::writeText;
using Names = std::vector<std::string>;

/// Whether a partial file may have no name, which not every file system can do.
class AtomicFileKinds : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(AtomicFileTest, AtomicFileKinds, ::testing::Bool());

TEST_P(AtomicFileKinds, NothingIsVisibleBeforeCommit) {
  const TestFolder folder;
  writeText(folder / "a.txt", "old");
  {
    AtomicFile file(folder / "a.txt", GetParam());
    file.write("new ");
    file.write("text");
    EXPECT_EQ(readText(folder / "a.txt"), "old");
    if (!GetParam()) {
      ASSERT_EQ(folder.names().size(), 2U);
      EXPECT_EQ(folder.names()[1].size(), std::string("a.txt.partial-0123456789abcdef").size());
    }
    file.commit();
    EXPECT_EQ(readText(folder / "a.txt"), "new text");
  }
  EXPECT_EQ(folder.names(), Names{"a.txt"});
}

TEST_P(AtomicFileKinds, WithoutCommitTheOldFileStays) {
  const TestFolder folder;
  writeText(folder / "a.txt", "old");
  { AtomicFile(folder / "a.txt", GetParam()).write("new"); }
  EXPECT_EQ(readText(folder / "a.txt"), "old");
  EXPECT_EQ(folder.names(), Names{"a.txt"});
}

TEST_P(AtomicFileKinds, WritersOfOneNameDoNotMeet) {
  const TestFolder folder;
  AtomicFile first(folder / "a.txt", GetParam());
  first.write("first");
  AtomicFile second(folder / "a.txt", GetParam());  // leaves the other's partial file, which is locked
  second.write("second");
  first.commit();
  EXPECT_EQ(readText(folder / "a.txt"), "first");
  second.commit();
  EXPECT_EQ(readText(folder / "a.txt"), "second");
  EXPECT_EQ(folder.names(), Names{"a.txt"});
}

TEST(AtomicFileTest, FullDiskLeavesTheOldFile) {
  const TestFolder folder;
  writeText(folder / "a.txt", "old");
  const std::string error = errorOf<Error>([&] {
    const FileSizeLimit limit(1000);
    writeFile(folder / "a.txt", std::string(5000, 'x'));
  });
  EXPECT_EQ(error, "cannot write " + (folder / "a.txt").string() + ": File too large");
  EXPECT_EQ(readText(folder / "a.txt"), "old");
  EXPECT_EQ(folder.names(), Names{"a.txt"});
}

TEST(AtomicFileTest, ReservedRoomIsGivenBack) {
  const TestFolder folder;
  AtomicFile file(folder / "a.txt");
  file.reserve(100'000);
  file.write("text");
  file.commit();
  EXPECT_EQ(readText(folder / "a.txt"), "text");
}

TEST(AtomicFileTest, ReservingNoticesAFullDisk) {
  const TestFolder folder;
  writeText(folder / "a.txt", "old");
  const std::string error = errorOf<Error>([&] {
    const FileSizeLimit limit(1000);
    AtomicFile(folder / "a.txt").reserve(5000);
  });
  EXPECT_EQ(error, "cannot write " + (folder / "a.txt").string() + ": File too large");
  EXPECT_EQ(readText(folder / "a.txt"), "old");
  EXPECT_EQ(folder.names(), Names{"a.txt"});
  EXPECT_NO_THROW(AtomicFile("/dev/full").reserve(5000));
}

TEST(AtomicFileTest, DeviceIsWrittenDirectlyAndReportsThatItIsFull) {
  EXPECT_EQ(errorOf<Error>([] { writeFile("/dev/full", "text"); }),
            "cannot write /dev/full: No space left on device");
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/full"));
  EXPECT_NO_THROW(writeFile("/dev/null", "text"));
}

TEST(AtomicFileTest, UnwritableFolderLeavesTheOldFile) {
  const TestFolder folder;
  writeText(folder / "a.txt", "old");
  std::filesystem::permissions(folder.path(), std::filesystem::perms{0555});
  const std::string error = errorOf<Error>([&] {
    const OrdinaryUser user;
    writeFile(folder / "a.txt", "new");
  });
  EXPECT_EQ(error, "cannot write " + (folder / "a.txt").string() + ": Permission denied");
  std::filesystem::permissions(folder.path(), std::filesystem::perms{0755});
  EXPECT_EQ(readText(folder / "a.txt"), "old");
  EXPECT_EQ(folder.names(), Names{"a.txt"});
}

TEST(AtomicFileTest, MissingFolderAndFolderAsFile) {
  const TestFolder folder;
  EXPECT_EQ(errorOf<Error>([&] { writeFile(folder / "none/a.txt", "new"); }),
            "cannot write " + (folder / "none/a.txt").string() + ": No such file or directory");
  EXPECT_EQ(errorOf<Error>([&] { writeFile(folder.path(), "new"); }),
            "cannot write " + folder.path().string() + ": Is a directory");
}

TEST(AtomicFileTest, PermissionsAreKept) {
  const TestFolder folder;
  writeText(folder / "a.txt", "old");
  std::filesystem::permissions(folder / "a.txt", std::filesystem::perms{0640});
  writeFile(folder / "a.txt", "new");
  EXPECT_EQ(std::filesystem::status(folder / "a.txt").permissions(), std::filesystem::perms{0640});
}

TEST(AtomicFileTest, LinkIsFollowed) {
  const TestFolder folder;
  std::filesystem::create_directory(folder / "target");
  writeText(folder / "target/a.txt", "old");
  std::filesystem::create_symlink(folder / "target/a.txt", folder / "link.txt");
  writeFile(folder / "link.txt", "new");
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link.txt"));
  EXPECT_EQ(readText(folder / "target/a.txt"), "new");
}

TEST_P(AtomicFileKinds, PartialFilesOfKilledProcessesAreRemoved) {
  const TestFolder folder;
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    AtomicFile file(folder / "a.txt", GetParam());
    file.write("left over");
    ::kill(::getpid(), SIGKILL);
  }
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  // Without a name it depends on the file system.
  if (!GetParam()) {
    EXPECT_EQ(folder.names().size(), 1U);
  }
  // As earlier versions called them, and what is none.
  for (const char* name : {"a.txt.partial-7", "a.txt.partial-1x", "a.txt.partial-x.txt", "b.txt.partial-7"})
    writeText(folder / name, "text");
  ASSERT_EQ(::mkfifo((folder / "a.txt.partial-8").c_str(), 0600), 0);
  std::filesystem::create_symlink("b.txt.partial-7", folder / "a.txt.partial-9");
  writeFile(folder / "a.txt", "new");
  EXPECT_EQ(folder.names(),
            (Names{"a.txt", "a.txt.partial-8", "a.txt.partial-9", "a.txt.partial-x.txt", "b.txt.partial-7"}));
}

TEST(MakeWritableFolderTest, MakesParents) {
  const TestFolder folder;
  makeWritableFolder(folder / "a/b");
  EXPECT_TRUE(std::filesystem::is_directory(folder / "a/b"));
  EXPECT_NO_THROW(makeWritableFolder(folder / "a/b"));
}

TEST(MakeWritableFolderTest, ErrorsNameTheFolder) {
  const TestFolder folder;
  writeText(folder / "file", "text");
  EXPECT_EQ(errorOf<Error>([&] { makeWritableFolder(folder / "file"); }),
            "cannot make the folder " + (folder / "file").string() + ": Not a directory");
  EXPECT_EQ(errorOf<Error>([&] { makeWritableFolder(folder / "file/below"); }),
            "cannot make the folder " + (folder / "file/below").string() + ": Not a directory");
  std::filesystem::permissions(folder.path(), std::filesystem::perms{0555});
  const OrdinaryUser user;
  EXPECT_EQ(errorOf<Error>([&] { makeWritableFolder(folder.path()); }),
            "cannot write to the folder " + folder.path().string() + ": Permission denied");
  EXPECT_EQ(errorOf<Error>([&] { makeWritableFolder(folder / "new"); }),
            "cannot make the folder " + (folder / "new").string() + ": Permission denied");
}

TEST(InputFileTest, ReadsWholeFiles) {
  const TestFolder folder;
  const std::string text("\0\1text", 6);
  writeText(folder / "a", text);
  const std::vector<std::byte> bytes = readFile(folder / "a", 6);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()), text);
  EXPECT_EQ(
      errorOf<Error>([&] { readFile(folder / "a", 5); }),
      "cannot read " + (folder / "a").string() + ": it has 6 bytes, more than the 5 that are allowed here");
}

TEST(InputFileTest, ErrorsNameTheFile) {
  const TestFolder folder;
  EXPECT_EQ(errorOf<Error>([&] { InputFile(folder / "none"); }),
            "cannot read " + (folder / "none").string() + ": No such file or directory");
  EXPECT_EQ(errorOf<Error>([&] { InputFile(folder.path()); }),
            "cannot read " + folder.path().string() + ": Is a directory");
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(errorOf<Error>([&] { InputFile(folder / "pipe"); }),
            "cannot read " + (folder / "pipe").string() + ": it is not a regular file");
}

TEST(InputFileTest, FileThatBecomesShorter) {
  const TestFolder folder;
  writeText(folder / "a", "0123456789");
  InputFile file(folder / "a");
  std::filesystem::resize_file(folder / "a", 4);
  std::vector<std::byte> bytes(file.size());
  EXPECT_EQ(errorOf<Error>([&] { file.read(bytes); }),
            "cannot read " + (folder / "a").string() + ": it became shorter while it was read");
}

TEST(Crc32Test, CheckValuesInOnePieceAndInParts) {
  const auto bytes = [](std::string_view text) { return std::as_bytes(std::span(text)); };
  EXPECT_EQ(crc32({}), 0U);
  EXPECT_EQ(crc32(bytes("123456789")), 0xCBF43926U);
  EXPECT_EQ(crc32(bytes("456789"), crc32(bytes("123"))), 0xCBF43926U);
  EXPECT_EQ(crc32(bytes("The quick brown fox jumps over the lazy dog")), 0x414FA339U);
}

}  // namespace
}  // namespace mps::atomic_file_test
