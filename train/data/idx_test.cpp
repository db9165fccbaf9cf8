#include "train/data/idx.hpp"

#include <gtest/gtest.h>

#include "mps/core/types/error.hpp"
#include "mps/weights/test_folder.hpp"
#include "train/data/idx_writing.hpp"

namespace unmetal::train::idx_test {
namespace {

using detail::gzipOf;
using detail::idxOf;
using mps::detail::errorOf;

std::span<const std::byte> bytesOf(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::string troubleIn(const std::string& file) {
  const std::string error = errorOf<mps::Error>([&] { parseIdx(bytesOf(file), "x.idx"); });
  const std::string beginning = "x.idx is not a valid IDX file: ";
  EXPECT_TRUE(error.starts_with(beginning)) << error;
  return error.substr(std::min(beginning.size(), error.size()));
}

TEST(IdxTest, ReadsPlainAndCompressedFiles) {
  const std::string file = idxOf({2, 3}, "abcdef");
  for (const std::string& form : {file, gzipOf(file)}) {
    const IdxArray array = parseIdx(bytesOf(form), "x");
    EXPECT_EQ(array.shape, (std::vector<std::uint64_t>{2, 3}));
    EXPECT_EQ(array.values, (std::vector<std::uint8_t>{'a', 'b', 'c', 'd', 'e', 'f'}));
  }
}

TEST(IdxTest, ExtentsAreBigEndian) {
  const std::string values(0x010203, 'v');
  EXPECT_EQ(parseIdx(bytesOf(idxOf({0x010203}, values)), "x").shape, std::vector<std::uint64_t>{0x010203});
}

TEST(IdxTest, HighlyCompressedFile) {
  const std::string values(4'000'000, '\0');
  const std::string file = gzipOf(idxOf({4'000'000}, values));
  EXPECT_LT(file.size(), values.size() / 900);
  EXPECT_EQ(parseIdx(bytesOf(file), "x").values.size(), values.size());
}

TEST(IdxTest, EveryTruncationIsNoticed) {
  const std::string plain = idxOf({2, 3}, "abcdef");
  for (std::size_t length = 0; length < plain.size(); ++length) {
    const std::string trouble = troubleIn(plain.substr(0, length));
    EXPECT_TRUE(trouble.starts_with("it is too short")) << length << ": " << trouble;
  }
  const std::string compressed = gzipOf(plain);
  for (std::size_t length = 2; length < compressed.size(); ++length) {
    const std::string trouble = troubleIn(compressed.substr(0, length));
    EXPECT_TRUE(trouble.starts_with("it is too short")) << length << ": " << trouble;
  }
}

TEST(IdxTest, DamagedCompressedData) {
  std::string file = gzipOf(idxOf({20}, "abcdefghijklmnopqrst"));
  file[file.size() - 5] = static_cast<char>(file[file.size() - 5] + 1);  // in the checksum
  EXPECT_EQ(troubleIn(file), "its compressed data is damaged");
}

TEST(IdxTest, BytesAfterTheEnd) {
  const std::string plain = idxOf({2}, "ab");
  EXPECT_EQ(troubleIn(plain + "c"), "it has bytes after its end");
  EXPECT_EQ(troubleIn(gzipOf(plain) + "c"), "it has bytes after its end");
  EXPECT_EQ(troubleIn(gzipOf(plain + "c")), "it has bytes after its end");
}

TEST(IdxTest, WrongBeginnings) {
  EXPECT_EQ(troubleIn("PK\x03\x04 and more"), "it does not begin as one");
  EXPECT_EQ(troubleIn(std::string("\0\0\x0D\1\0\0\0\1abcd", 12)), "its elements are not unsigned bytes");
  EXPECT_EQ(troubleIn(std::string("\0\0\x08\0a", 5)), "it has 0 dimensions, expected 1 to 4");
  EXPECT_EQ(troubleIn(idxOf({1, 1, 1, 1, 1}, "a")), "it has 5 dimensions, expected 1 to 4");
  EXPECT_EQ(troubleIn(idxOf({2, 0}, "")), "it is an empty array of 2 x 0");
}

TEST(IdxTest, LengthsAreCheckedBeforeMemoryIsTaken) {
  constexpr std::uint32_t largest = 0xFFFFFFFF;
  EXPECT_EQ(troubleIn(idxOf({largest}, "ab")), "it is too short for its 4294967295 elements");
  const std::string trouble =
      "it is too short for its 4294967295 x 4294967295 x 4294967295 x 4294967295 elements";
  EXPECT_EQ(troubleIn(idxOf({largest, largest, largest, largest}, "ab")), trouble);
  EXPECT_EQ(troubleIn(gzipOf(idxOf({largest, largest, largest, largest}, "ab"))), trouble);
  // 2^16 * 2^16 * 2^16 * 2^16 is 0 in 64 bits.
  EXPECT_EQ(troubleIn(idxOf({0x10000, 0x10000, 0x10000, 0x10000}, "")),
            "it is too short for its 65536 x 65536 x 65536 x 65536 elements");
}

TEST(IdxTest, FilesAreNamed) {
  const mps::detail::TestFolder folder;
  mps::detail::writeText(folder / "a", idxOf({2}, "ab"));
  EXPECT_EQ(readIdx(folder / "a").values.size(), 2U);
  mps::detail::writeText(folder / "b", idxOf({2}, "a"));
  EXPECT_EQ(errorOf<mps::Error>([&] { readIdx(folder / "b"); }),
            (folder / "b").string() + " is not a valid IDX file: it is too short for its 2 elements");
  EXPECT_EQ(errorOf<mps::Error>([&] { readIdx(folder / "c"); }),
            "cannot read " + (folder / "c").string() + ": No such file or directory");
}

}  // namespace
}  // namespace unmetal::train::idx_test
