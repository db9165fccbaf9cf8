#include "tools/terminal/text.hpp"

#include <gtest/gtest.h>

namespace unmetal::text_test {
namespace {

TEST(Text, ControlCharactersAreEscaped) {
  EXPECT_EQ(printable("a\nb\tc\rd\x1B[2Je\x7F"), "a\\nb\\tc\\rd\\x1B[2Je\\x7F");
  EXPECT_EQ(printable("größer \\ \xFF"), "größer \\ \xFF");
  EXPECT_EQ(printable(std::string("\0", 1)), "\\x00");
  EXPECT_EQ(printable(""), "");
}

TEST(Text, IsShortenedBetweenCharacters) {
  EXPECT_EQ(shortened("abcd", 4), "abcd");
  EXPECT_EQ(shortened("abcde", 4), "abc\u2026");
  EXPECT_EQ(shortened("ab\u00e9de", 4), "ab\u2026");
}

}  // namespace
}  // namespace unmetal::text_test
