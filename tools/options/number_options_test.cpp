#include "tools/options/number_options.hpp"

#include <gtest/gtest.h>

namespace unmetal {
namespace {

TEST(NumberOptions, SizesOfMemoryAreBytesOrHaveAUnit) {
  EXPECT_EQ(parseMemorySize("0"), 0U);
  EXPECT_EQ(parseMemorySize("1000"), 1000U);
  EXPECT_EQ(parseMemorySize("3K"), 3072U);
  EXPECT_EQ(parseMemorySize("512M"), std::uint64_t{1} << 29);
  EXPECT_EQ(parseMemorySize("2G"), std::uint64_t{1} << 31);
  EXPECT_EQ(parseMemorySize("1T"), std::uint64_t{1} << 40);
  EXPECT_EQ(parseMemorySize("16777215T"), std::uint64_t{16777215} << 40);
  for (const char* text :
       {"", "K", "-1", "1.5G", "2k", "2KB", "2 G", "2GK", "16777216T", "18446744073709551616"})
    EXPECT_FALSE(parseMemorySize(text)) << text;
}

}  // namespace
}  // namespace unmetal
