#include "mps/dropout/dropout.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "mps/core/testing/test_images.hpp"

/// The public dropout kernels.
namespace mps::dropout_test {
namespace {

using testing::errorOf;
using testing::names;
using testing::sizeOf;
using testing::Values;
using testing::valuesOf;

constexpr std::uint64_t kSeed = 0x123456789ABCDEF0;

/// Philox 4x32-10 as Salmon and others print it, with a 64-bit key and a 64-bit product.
std::array<std::uint64_t, 4> words(std::uint64_t block, std::uint64_t imageIndex, std::uint64_t encode,
                                   std::uint64_t seed) {
  constexpr std::uint64_t k32Bits = 0xFFFFFFFF;
  std::uint64_t left[2] = {block, encode};
  std::uint64_t right[2] = {imageIndex, 0};
  for (std::uint64_t round = 0; round < 10; ++round) {
    const std::uint64_t lowKey = (seed + round * 0x9E3779B9) & k32Bits;
    const std::uint64_t highKey = ((seed >> 32U) + round * 0xBB67AE85) & k32Bits;
    const std::uint64_t first = left[0] * 0xD2511F53;
    const std::uint64_t second = left[1] * 0xCD9E8D57;
    left[0] = (second >> 32U) ^ right[0] ^ lowKey;
    left[1] = (first >> 32U) ^ right[1] ^ highKey;
    right[0] = second & k32Bits;
    right[1] = first & k32Bits;
  }
  return {left[0], right[0], left[1], right[1]};
}

/// The decision in dropout.hpp: block (element / 8, image, encode, 0) under the two 32-bit words of the seed; two
/// elements have a word, the even one its lower 16 bits; kept where these are less than 2^16 P.
Values maskOf(std::size_t elements, double keepProbability, std::uint32_t encode, std::uint32_t imageIndex,
              std::uint64_t seed = kSeed) {
  Values mask;
  for (std::size_t i = 0; i < elements; ++i) {
    const std::uint64_t word = words(i / 8, imageIndex, encode, seed)[i / 2 % 4];
    const std::uint64_t number = (i % 2 == 0 ? word : word >> 16U) & 0xFFFFU;
    mask.push_back(static_cast<double>(number) < std::ldexp(keepProbability, 16) ? 1.0F : 0.0F);
  }
  return mask;
}

class Dropout : public testing::DeviceTest {
 protected:
  template <class KernelType>
  static std::shared_ptr<KernelType> permanent(std::shared_ptr<KernelType> kernel) {
    kernel->setDestinationImageAllocator(Image::defaultAllocator());
    return kernel;
  }
  std::shared_ptr<CNNDropout> dropout(float keep = 0.5F, const mtl::Size& stride = {1, 1, 1}) const {
    return permanent(CNNDropout::create(device_, keep, kSeed, stride));
  }
  std::shared_ptr<CNNDropoutGradient> gradient(float keep = 0.5F, const mtl::Size& stride = {1, 1, 1}) const {
    return permanent(CNNDropoutGradient::create(device_, keep, kSeed, stride));
  }
  static Values maskData(const std::shared_ptr<State>& state) {
    Values mask;
    for (const std::byte value : std::dynamic_pointer_cast<CNNDropoutGradientState>(state)->maskData())
      mask.push_back(value == std::byte{1} ? 1.0F : value == std::byte{0} ? 0.0F : -1.0F);
    return mask;
  }
  static Values times(Values values, float factor) {
    for (float& value : values) value *= factor;
    return values;
  }
  [[nodiscard]] std::shared_ptr<Image> ones(std::size_t width, std::size_t height,
                                            std::size_t channels) const {
    return image(sizeOf(width, height, channels), Values(width * height * channels, 1));
  }
};

TEST_F(Dropout, TheMaskIsDrawnByPhilox) {
  const auto kernel = dropout();
  std::shared_ptr<State> state;
  const auto buffer = commands();
  const auto y = kernel->encode(buffer, ones(5, 3, 7), state, false);
  const auto dx = gradient()->encode(buffer, ones(5, 3, 7), ones(5, 3, 7), state);
  run(buffer);
  const Values mask = maskOf(5 * 3 * 7, 0.5, 0, 0);
  EXPECT_EQ(maskData(state), mask) << "order y, x, channel";
  EXPECT_EQ(valuesOf(*y), times(mask, 2)) << "kept values are divided by P";
  EXPECT_EQ(valuesOf(*dx), times(mask, 2));
}

/// Seed 0 begins with the words 6627e8d5 e169c58d bc57ac4c 9b00dbd8, element 8 with a block of its
/// own.
TEST_F(Dropout, TwoElementsHaveTheHalvesOfAWord) {
  EXPECT_EQ(words(0, 0, 0, 0),
            (std::array<std::uint64_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const Values numbers{0xe8d5, 0x6627, 0xc58d, 0xe169, 0xac4c, 0xbc57, 0xdbd8, 0x9b00};
  for (std::size_t i = 0; i < numbers.size(); ++i)
    for (const bool isKept : {false, true}) {
      const float keep = std::ldexp(numbers[i] + (isKept ? 1.0F : 0.0F), -16);
      std::shared_ptr<State> state;
      const auto buffer = commands();
      permanent(CNNDropout::create(device_, keep, 0))->encode(buffer, ones(12, 1, 1), state, false);
      run(buffer);
      Values expected;
      for (const float number : numbers) expected.push_back(std::ldexp(number, -16) < keep ? 1.0F : 0.0F);
      EXPECT_EQ(expected[i], isKept ? 1.0F : 0.0F);
      const Values mask = maskData(state);
      EXPECT_EQ(Values(mask.begin(), mask.begin() + 8), expected) << i;
      EXPECT_EQ(mask, maskOf(12, static_cast<double>(keep), 0, 0, 0)) << i;
    }
}

/// The probability is rounded up to a multiple of 2^-16, the scale is that of the probability asked for.
TEST_F(Dropout, TheProbabilityHas16Bits) {
  const auto kept = [&](float keep) {
    std::shared_ptr<State> state;
    const auto buffer = commands();
    const auto y = dropout(keep)->encode(buffer, ones(256, 256, 4), state, false);
    run(buffer);
    Values mask = maskData(state);
    EXPECT_EQ(valuesOf(*y), times(mask, 1 / keep));
    return mask;
  };
  EXPECT_EQ(kept(0x1p-17F), kept(0x1p-16F));
  EXPECT_EQ(kept(0x1p-17F), maskOf(256 * 256 * 4, 0x1p-17, 0, 0));
  EXPECT_EQ(kept(0x1.fffffep-1F), Values(256 * 256 * 4, 1)) << "the largest number is 1 - 2^-16";
  EXPECT_EQ(kept(1), Values(256 * 256 * 4, 1));
}

/// Example D1 with the mask that the seed draws instead of the printed one.
TEST_F(Dropout, ExampleD1) {
  const auto kernel = dropout(0.8F);
  std::shared_ptr<State> state;
  const auto buffer = commands();
  const auto y = kernel->encode(buffer, image(sizeOf(4, 1, 1), {1, 2, 3, 4}), state, false);
  run(buffer);
  const Values mask = maskOf(4, static_cast<double>(0.8F), 0, 0);
  EXPECT_EQ(valuesOf(*y), (Values{1.25F * mask[0], 2.5F * mask[1], 3.75F * mask[2], 5 * mask[3]}));
}

TEST_F(Dropout, EveryEncodeAndEveryImageDrawsAnew) {
  const auto kernel = dropout();
  EXPECT_EQ(kernel->encodeCount(), 0U);
  const auto x = batch(sizeOf(4, 4, 4), 3, Values(192, 1));
  const auto y = ImageBatch::create(device_, sizeOf(4, 4, 4), 3);
  const auto states = kernel->resultStateBatch(x);
  for (std::uint32_t encode = 0; encode < 3; ++encode) {
    const auto buffer = commands();
    kernel->encodeBatch(buffer, x, states, y);
    run(buffer);
    EXPECT_EQ(kernel->encodeCount(), encode + 1) << "once for a batch";
    for (std::uint32_t i = 0; i < 3; ++i) {
      EXPECT_EQ(valuesOf(*y[i]), times(maskOf(64, 0.5, encode, i), 2));
      EXPECT_EQ(maskData(states[i]), maskOf(64, 0.5, encode, i));
    }
  }
  EXPECT_NE(maskOf(64, 0.5, 0, 0), maskOf(64, 0.5, 1, 0));
  EXPECT_NE(maskOf(64, 0.5, 0, 0), maskOf(64, 0.5, 0, 1));
}

TEST_F(Dropout, TheEncodeCountGoesWithCopiesAndCheckpoints) {
  const auto encode = [](const std::shared_ptr<CNNDropout>& kernel) {
    const auto x = Image::create(kernel->device(), sizeOf(8, 8, 1));
    testing::fill(*x, Values(64, 1));
    const auto y = Image::create(kernel->device(), sizeOf(8, 8, 1));
    const auto buffer = kernel->device()->newCommandQueue()->commandBuffer();
    kernel->encode(buffer, x, y);
    buffer->commit();
    buffer->throwIfFailed();
    return valuesOf(*y);
  };
  const auto kernel = dropout();
  encode(kernel);
  const auto copy = kernel->copy(mtl::newCPUDevice(1));
  EXPECT_EQ(copy->encodeCount(), 1U);
  const Values second = encode(kernel);
  EXPECT_EQ(encode(copy), second) << "the same numbers on another device";
  kernel->setEncodeCount(1);
  EXPECT_EQ(encode(kernel), second);
  EXPECT_EQ(encode(kernel), times(maskOf(64, 0.5, 2, 0), 2));
}

TEST_F(Dropout, MaskStridesOf0GiveOneValueToAnAxis) {
  const auto expectMask = [&](const mtl::Size& stride, std::size_t elements, auto index) {
    const auto kernel = dropout(0.5F, stride);
    const auto back = gradient(0.5F, stride);
    EXPECT_EQ(kernel->maskStrideInPixels(), stride);
    std::shared_ptr<State> state;
    const auto buffer = commands();
    const auto y = kernel->encode(buffer, ones(3, 4, 5), state, false);
    const auto dx = back->encode(buffer, ones(3, 4, 5), ones(3, 4, 5), state);
    run(buffer);
    const Values mask = maskOf(elements, 0.5, 0, 0);
    EXPECT_EQ(maskData(state), mask);
    Values expected;
    for (std::size_t row = 0; row < 4; ++row)
      for (std::size_t x = 0; x < 3; ++x)
        for (std::size_t c = 0; c < 5; ++c) expected.push_back(2 * mask[index(row, x, c)]);
    EXPECT_EQ(valuesOf(*y), expected);
    EXPECT_EQ(valuesOf(*dx), expected);
  };
  expectMask({0, 0, 1}, 5, [](auto, auto, auto c) { return c; });
  expectMask({1, 1, 0}, 12, [](auto row, auto x, auto) { return row * 3 + x; });
  expectMask({1, 0, 1}, 15, [](auto, auto x, auto c) { return x * 5 + c; });
  expectMask({0, 0, 0}, 1, [](auto, auto, auto) { return std::size_t{0}; });
}

TEST_F(Dropout, EachStateKeepsItsMask) {
  const auto kernel = dropout();
  const auto x = batch(sizeOf(4, 4, 1), 3, Values(48, 1));
  const CNNDropoutGradientStateBatch states = kernel->resultStateBatch(x);
  const auto back = gradient();
  auto buffer = commands();
  kernel->encodeBatch(buffer, x, states, ImageBatch::create(device_, sizeOf(4, 4, 1), 3));
  kernel->encodeBatch(buffer, x, kernel->resultStateBatch(x),
                      ImageBatch::create(device_, sizeOf(4, 4, 1), 3));
  const auto all = back->encodeBatch(buffer, x, x, states);
  const auto tail = back->encodeBatch(buffer, x.slice(1, 2), x.slice(1, 2), states.slice(1, 2));
  const auto reversed = back->encodeBatch(buffer, x, x, StateBatch{states[2], states[1], states[0]});
  const auto single = back->encode(buffer, x[2], x[2], states[2]);
  run(buffer);
  const auto expected = [](std::uint32_t index) { return times(maskOf(16, 0.5, 0, index), 2); };
  for (std::uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(valuesOf(*all[i]), expected(i)) << i;
    EXPECT_EQ(valuesOf(*reversed[i]), expected(2 - i)) << i;
  }
  EXPECT_EQ(valuesOf(*tail[0]), expected(1));
  EXPECT_EQ(valuesOf(*tail[1]), expected(2));
  EXPECT_EQ(valuesOf(*single), expected(2));
}

/// Only the size of the source image counts, so an unwritten temporary image is right.
TEST_F(Dropout, TheGradientDoesNotReadTheSource) {
  const auto kernel = dropout();
  const auto buffer = commands();
  std::shared_ptr<State> state;
  kernel->encode(buffer, ones(2, 2, 1), state, false);
  const auto unwritten = TemporaryImage::create(buffer, sizeOf(2, 2, 1));
  const auto dx = gradient()->encode(buffer, ones(2, 2, 1), unwritten, state);
  run(buffer);
  EXPECT_EQ(valuesOf(*dx), times(maskOf(4, 0.5, 0, 0), 2));
  EXPECT_EQ(unwritten->readCount(), 0U);
}

TEST_F(Dropout, TheClipRectangleIsTheMask) {
  const auto kernel = dropout();
  kernel->setClipRect({{1, 1, 0}, {2, 2, 1}});
  kernel->setOffset({1, 1, 0});
  const auto y = image(sizeOf(4, 4, 1));
  const auto x = ones(4, 4, 1);
  const auto state = kernel->resultState(x);
  const auto buffer = commands();
  kernel->encode(buffer, x, state, y);
  const auto dx = gradient()->encode(buffer, ones(4, 4, 1), x, state);
  run(buffer);
  const Values m = times(maskOf(4, 0.5, 0, 0), 2);
  const Values expected{0, 0, 0, 0, 0, m[0], m[1], 0, 0, m[2], m[3], 0, 0, 0, 0, 0};
  EXPECT_EQ(valuesOf(*y), expected);
  EXPECT_EQ(valuesOf(*dx), expected);
}

/// A binomial count of 2^16 draws lies within 6 standard deviations but for 2 in 10^9 seeds.
TEST_F(Dropout, ASecondaryOffsetShiftsTheMask) {
  const auto x = image(sizeOf(8, 1, 1), Values(8, 1));
  std::shared_ptr<State> state;
  const auto buffer = commands();
  dropout()->encode(buffer, x, state, false);
  const Values mask = maskData(state);
  const auto shifted = gradient();
  shifted->setSecondaryOffset({2, 0, 0});
  shifted->setClipRect({{0, 0, 0}, {6, 1, 1}});
  const auto dx = poisoned(sizeOf(8, 1, 1));
  shifted->encode(buffer, image(sizeOf(8, 1, 1), {1, 2, 3, 4, 5, 6, 7, 8}), x, state, dx);
  run(buffer);
  Values expected(8, poison);
  for (std::size_t i = 0; i < 6; ++i) expected[i] = 2 * static_cast<float>(i + 1) * mask[i + 2];
  EXPECT_EQ(valuesOf(*dx), expected);
  shifted->setClipRect(RectNoClip);
  EXPECT_TRUE(names(errorOf([&] { shifted->encode(commands(), x, x, state, dx); }),
                    {"CNNDropoutGradient", "secondaryOffset", "mask of 8x1"}));
  shifted->setSecondaryOffset({0, -1, 0});
  EXPECT_TRUE(names(errorOf([&] { shifted->encode(commands(), x, x, state, dx); }),
                    {"CNNDropoutGradient", "secondaryOffset", "0, -1"}));
}

TEST_F(Dropout, GradientsOfOtherChannelsOrARepeatedEdgeAreRefused) {
  const auto x = image(sizeOf(2, 1, 8), Values(16, 1));
  std::shared_ptr<State> state;
  const auto buffer = commands();
  dropout()->encode(buffer, x, state, false);
  const auto narrow = gradient();
  narrow->setPrimarySourceFeatureChannelMaxCount(1);
  EXPECT_TRUE(names(errorOf([&] { narrow->encode(buffer, x, x, state); }),
                    {"CNNDropoutGradient", "1, 8 and 8 feature channels"}));
  const auto clamped = dropout();
  clamped->setOffset({1, 0, 0});
  clamped->setEdgeMode(ImageEdgeMode::Clamp);
  const auto other = clamped->resultState(x);
  clamped->encode(buffer, x, other, poisoned(sizeOf(2, 1, 8)));
  EXPECT_TRUE(names(errorOf([&] { gradient()->encode(buffer, x, x, other); }),
                    {"CNNDropoutGradient", "gradientState", "Clamp"}));
}

TEST_F(Dropout, KeepsTheFractionAskedFor) {
  for (const float keep : {0.1F, 0.5F, 0.9F}) {
    std::shared_ptr<State> state;
    const auto buffer = commands();
    dropout(keep)->encode(buffer, image(sizeOf(64, 64, 16)), state, false);
    run(buffer);
    double kept = 0;
    for (const float value : maskData(state)) kept += value;
    const double n = 65536;
    const double p = keep;
    EXPECT_LT(std::abs(kept - n * p), 6 * std::sqrt(n * p * (1 - p))) << keep;
  }
}

TEST_F(Dropout, AKeepProbabilityOf1IsTheIdentity) {
  const auto x = image(sizeOf(3, 1, 1), {1, -2, 3});
  const auto buffer = commands();
  const auto y = dropout(1)->encode(buffer, x);
  dropout()->encode(buffer, x, x);  // in place
  run(buffer);
  EXPECT_EQ(valuesOf(*y), (Values{1, -2, 3}));
  const Values mask = maskOf(3, 0.5, 0, 0);
  EXPECT_EQ(valuesOf(*x), (Values{2 * mask[0], -4 * mask[1], 6 * mask[2]}));
}

TEST_F(Dropout, MistakesAreSentences) {
  for (const float keep : {0.0F, -0.5F, 1.5F, std::numeric_limits<float>::quiet_NaN()}) {
    EXPECT_TRUE(names(errorOf([&] { static_cast<void>(dropout(keep)); }),
                      {"CNNDropout", "keepProbability", std::to_string(keep)}));
    EXPECT_TRUE(names(errorOf([&] { static_cast<void>(gradient(keep)); }),
                      {"CNNDropoutGradient", "keepProbability"}));
    EXPECT_TRUE(names(errorOf([&] { CNNDropoutNode::create(NNImageNode::create(), keep); }),
                      {"CNNDropoutNode", "keepProbability"}));
  }
  for (const mtl::Size& stride : {mtl::Size{2, 1, 1}, mtl::Size{1, 2, 1}, mtl::Size{1, 1, 2}})
    EXPECT_TRUE(names(errorOf([&] { static_cast<void>(dropout(0.5F, stride)); }),
                      {"CNNDropout", "maskStrideInPixels", "2"}));

  const auto x = ones(2, 1, 1);
  std::shared_ptr<State> state;
  EXPECT_TRUE(names(errorOf([&] { static_cast<void>(CNNDropoutGradientState::create(device_)->maskData()); }),
                    {"CNNDropoutGradientState", "maskData"}));
  dropout()->encode(commands(), x, state, false);
  const auto refused = [&](const std::shared_ptr<CNNDropoutGradient>& kernel) {
    return errorOf([&] { kernel->encode(commands(), x, x, state); });
  };
  const std::vector<std::string> words = {"CNNDropoutGradient",
                                          "keepProbability, seed or maskStrideInPixels"};
  EXPECT_TRUE(names(refused(gradient(0.25F)), words));
  EXPECT_TRUE(names(refused(gradient(0.5F, {1, 0, 1})), words));
  EXPECT_TRUE(names(refused(CNNDropoutGradient::create(device_, 0.5F, kSeed + 1)), words));
  EXPECT_EQ(refused(gradient()), "");
  EXPECT_TRUE(names(errorOf([&] { gradient()->encode(commands(), x, x, ones(2, 1, 1)); }),
                    {"CNNDropoutGradient", "gradientState", "missing"}));
}

TEST(DropoutNodes, DefaultsAndGradients) {
  const auto source = NNImageNode::create();
  const auto plain = CNNDropoutNode::create(source);
  EXPECT_EQ(plain->keepProbability(), 0.5F);
  EXPECT_EQ(plain->seed(), 0U);
  EXPECT_EQ(plain->maskStrideInPixels(), (mtl::Size{1, 1, 1}));
  const auto node = CNNDropoutNode::create(source, 0.75F, 7, {0, 0, 1});
  const auto device = mtl::newCPUDevice(1);
  const auto kernel = std::dynamic_pointer_cast<CNNDropout>(node->makeKernel(device));
  ASSERT_TRUE(kernel);
  EXPECT_EQ(kernel->keepProbability(), 0.75F);
  EXPECT_EQ(kernel->seed(), 7U);
  EXPECT_EQ(kernel->maskStrideInPixels(), (mtl::Size{0, 0, 1}));
  const auto gradient =
      std::dynamic_pointer_cast<CNNDropoutGradientNode>(node->gradientFilter(NNImageNode::create()));
  ASSERT_TRUE(gradient);
  EXPECT_EQ(gradient->className(), "CNNDropoutGradientNode");
  EXPECT_EQ(gradient->sourceImage(), source);
  EXPECT_EQ(gradient->keepProbability(), 0.75F);
  EXPECT_EQ(gradient->seed(), 7U);
  EXPECT_EQ(gradient->maskStrideInPixels(), (mtl::Size{0, 0, 1}));
  const auto back = std::dynamic_pointer_cast<CNNDropoutGradient>(gradient->makeKernel(device));
  ASSERT_TRUE(back);
  EXPECT_EQ(back->seed(), 7U);
  EXPECT_EQ(back->copy()->keepProbability(), 0.75F);
}

}  // namespace
}  // namespace mps::dropout_test
