#include "train/text/utf8.hpp"

#include <gtest/gtest.h>

namespace unmetal::train::utf8_test {
namespace {

TEST(Utf8, IsKnown) {
  EXPECT_TRUE(detail::isUtf8(""));
  EXPECT_TRUE(detail::isUtf8("größer"));
  EXPECT_FALSE(detail::isUtf8("gr\xF6\xDF"));
  EXPECT_FALSE(detail::isUtf8("cut \xC3"));
}

}  // namespace
}  // namespace unmetal::train::utf8_test
