#include "train/pictures/pixel_changes.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace unmetal::train::pixel_changes_test {
namespace {

using Pixels = std::vector<float>;
constexpr float infinite = std::numeric_limits<float>::infinity();

void expectNear(const Pixels& found, const Pixels& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-4F) << i;
}

TEST(PixelChanges, ShiftsRepeatTheOutermostPixels) {
  const Pixels pixels{1, 2, 3, 4, 5, 6};
  const Shape shape{2, 3, 1};
  expectNear(detail::moved(pixels, shape, 0, 0, 0), pixels);
  expectNear(detail::moved(pixels, shape, 0, 1, 0), {1, 1, 2, 4, 4, 5});
  expectNear(detail::moved(pixels, shape, 0, -1, 1), {2, 3, 3, 2, 3, 3});
  expectNear(detail::moved(pixels, shape, 0, 0.5, 0), {1, 1.5, 2.5, 4, 4.5, 5.5});
  expectNear(detail::moved(Pixels{1, 10, 2, 20}, {1, 2, 2}, 0, 1, 0), {1, 10, 1, 10});
}

TEST(PixelChanges, TurnsAreClockwiseAboutTheMiddle) {
  const Pixels pixels{1, 2, 3, 4, 5, 6, 7, 8, 9};
  const Shape shape{3, 3, 1};
  expectNear(detail::moved(pixels, shape, 90, 0, 0), {7, 4, 1, 8, 5, 2, 9, 6, 3});
  expectNear(detail::moved(pixels, shape, -90, 0, 0), {3, 6, 9, 2, 5, 8, 1, 4, 7});
  expectNear(detail::moved(pixels, shape, 180, 0, 0), {9, 8, 7, 6, 5, 4, 3, 2, 1});
  expectNear(detail::moved(pixels, shape, 90, 1, 0), {7, 7, 4, 8, 8, 5, 9, 9, 6});
}

TEST(PixelChanges, ColoursAreMixed) {
  Pixels pixels{10, 20, 200};
  detail::changeBrightness(pixels, 1.5F, 255);
  expectNear(pixels, {15, 30, 255});
  pixels = {0, 4, 8};
  detail::changeContrast(pixels, 0.5F, 255);
  expectNear(pixels, {2, 4, 6});
  detail::changeContrast(pixels, 4, 255);
  expectNear(pixels, {0, 4, 12});
  pixels = {100, 0, 0, 7, 7, 7};
  detail::changeSaturation(pixels, 0, 255);
  expectNear(pixels, {29.9F, 29.9F, 29.9F, 7, 7, 7});
  pixels = {-1, 1};
  detail::changeBrightness(pixels, 2, infinite);
  expectNear(pixels, {-2, 2});
}

}  // namespace
}  // namespace unmetal::train::pixel_changes_test
