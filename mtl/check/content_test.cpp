#include "mtl/content.hpp"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace mtl::content_test {
namespace {

/// A letter per byte: 'a' where that failure holds, '.' where the byte is good.
std::string shown(const Content& content, std::size_t length) {
  std::string letters;
  for (std::size_t i = 0; i < length; ++i) {
    const std::string failure = content.failure(ByteRegion(i, 1));
    letters += failure.empty() ? "." : failure;
  }
  return letters;
}

TEST(Content, BytesAreInvalidUntilTheyAreWritten) {
  Content content(12);
  EXPECT_EQ(shown(content, 12), "............");
  content.setFailure(content.whole(), "a");
  EXPECT_EQ(shown(content, 12), "aaaaaaaaaaaa");
  content.clearFailure({3, 4});
  EXPECT_EQ(shown(content, 12), "aaa....aaaaa");
  EXPECT_EQ(content.failure({3, 4}), "");
  EXPECT_EQ(content.failure({1, 0}), "");
  EXPECT_EQ(content.failure({3, 5}), "a");
  EXPECT_EQ(content.failure({2, 5}), "a");
  content.clearFailure({0, 5});
  content.clearFailure({9, 3});
  EXPECT_EQ(shown(content, 12), ".......aa...");
  content.clearFailure(content.whole());
  EXPECT_EQ(content.failure(content.whole()), "");
}

TEST(Content, TheFirstFailureOfAByteStays) {
  Content content(10);
  content.setFailure({2, 2}, "a");
  content.setFailure({6, 2}, "b");
  content.setFailure({1, 8}, "c");
  EXPECT_EQ(shown(content, 10), ".caaccbbc.");
  EXPECT_EQ(content.failure(content.whole()), "c") << "of the first byte";
  content.clearFailure({3, 4});
  EXPECT_EQ(shown(content, 10), ".ca....bc.");
}

TEST(Content, RegionsRepeat) {
  Content content(24);
  // Two rows of two pixels, one of two channels each.
  content.setFailure(ByteRegion(1, 1).repeated(2, 2).repeated(2, 8), "a");
  EXPECT_EQ(shown(content, 24), ".a.a.....a.a............");
  EXPECT_EQ(content.failure(ByteRegion(0, 1).repeated(2, 2).repeated(2, 8)), "") << "the other channel";
  EXPECT_EQ(content.failure(ByteRegion(0, 2).repeated(2, 2)), "a");
  content.clearFailure(ByteRegion(0, 2).repeated(1, 99).repeated(2, 2).repeated(2, 8).repeated(1, 99));
  EXPECT_EQ(content.failure(content.whole()), "");
  content.setFailure(ByteRegion(0, 1).repeated(2, 3).repeated(2, 6).repeated(2, 12), "a");
  EXPECT_EQ(shown(content, 24), "a..a..a..a..a..a..a..a..");
  content.setFailure(ByteRegion(5, 4).repeated(0, 4), "b");
  content.setFailure({5, 0}, "b");
  EXPECT_EQ(shown(content, 24), "a..a..a..a..a..a..a..a..") << "no bytes";
}

TEST(Content, AgreesWithALetterForEachByte) {
  constexpr std::size_t length = 40;
  std::mt19937 random(7);
  const auto upTo = [&](std::size_t most) { return random() % (most + 1); };
  Content content(length);
  std::string expected(length, '.');
  for (int step = 0; step < 4000; ++step) {
    const std::size_t count = 1 + upTo(2);
    const std::size_t stride = upTo(8);
    const std::size_t begin = upTo(16);
    const std::size_t run = upTo(8);
    const ByteRegion region = ByteRegion(begin, run).repeated(count, stride);
    const char letter = step % 2 == 0 ? static_cast<char>('a' + upTo(25)) : '.';
    for (std::size_t i = 0; i < count; ++i)
      for (std::size_t at = begin + i * stride; at < begin + i * stride + run; ++at)
        if (letter == '.' || expected[at] == '.') expected[at] = letter;
    if (letter == '.')
      content.clearFailure(region);
    else
      content.setFailure(region, std::string(1, letter));
    ASSERT_EQ(shown(content, length), expected) << "step " << step;
  }
}

}  // namespace
}  // namespace mtl::content_test
