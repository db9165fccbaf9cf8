#include "tools/terminal/suggestion.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace unmetal::suggestion_test {
namespace {

TEST(Suggestion, DistancesCountLetters) {
  EXPECT_EQ(editDistance("", ""), 0U);
  EXPECT_EQ(editDistance("train", "train"), 0U);
  EXPECT_EQ(editDistance("", "abc"), 3U);
  EXPECT_EQ(editDistance("abc", ""), 3U);
  EXPECT_EQ(editDistance("tran", "train"), 1U);
  EXPECT_EQ(editDistance("sdg", "sgd"), 1U) << "exchanged";
  EXPECT_EQ(editDistance("kitten", "sitting"), 3U);
}

TEST(Suggestion, IsTheNearestWordWhereOneIsNear) {
  const std::vector<std::string> known{"train", "eval", "predict", "devices", "check-gradients"};
  EXPECT_EQ(suggestion("trian", known), "; did you mean train?");
  EXPECT_EQ(suggestion("predictt", known), "; did you mean predict?");
  EXPECT_EQ(suggestion("check-gradient", known), "; did you mean check-gradients?");
  EXPECT_EQ(suggestion("fly", known), "");
  EXPECT_EQ(suggestion("train", known), "") << "is no typing error";
  EXPECT_EQ(suggestion("", known), "");
  EXPECT_EQ(suggestion(std::string(100'000, 'a'), known), "");
  EXPECT_EQ(suggestion("train", {}), "");
}

}  // namespace
}  // namespace unmetal::suggestion_test
