#include "mps/arithmetic/arithmetic.hpp"

#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "mps/arithmetic/arithmetic_node.hpp"
#include "mps/core/coding/coder.hpp"
#include "mps/core/image/image_batch.hpp"
#include "mps/core/types/error.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/device.hpp"

namespace mps::arithmetic_test {
namespace {

using Values = std::vector<float>;
using enum ImageFeatureChannelFormat;
constexpr auto kLayout = DataLayout::HeightxWidthxFeatureChannels;

class Arithmetic : public testing::Test {
 protected:
  std::shared_ptr<mtl::Device> device_ = mtl::createSystemDefaultDevice();
  std::shared_ptr<mtl::CommandQueue> queue_ = device_->newCommandQueue();

  /// @param format of the image; values are converted by writing float32 only
  std::shared_ptr<Image> image(std::size_t width, std::size_t height, std::size_t channels,
                               const Values& values) {
    auto made = Image::create(device_, ImageDescriptor(Float32, width, height, channels));
    made->writeBytes(std::span(values), kLayout);
    return made;
  }
  std::shared_ptr<Image> emptyImage(std::size_t width, std::size_t height, std::size_t channels) {
    return image(width, height, channels, Values(width * height * channels, -77));
  }
  static Values valuesOf(const std::shared_ptr<Image>& image) {
    Values values(image->width() * image->height() * image->featureChannels());
    image->readBytes(std::span(values), kLayout);
    return values;
  }
  template <class Encode>
  void run(Encode&& encode) {
    const auto commandBuffer = queue_->commandBuffer();
    encode(commandBuffer);
    commandBuffer->commit();
    commandBuffer->throwIfFailed();
  }
  /// Images that an encode returns are temporary unless the kernel is told otherwise.
  template <class Kernel>
  static std::shared_ptr<Kernel> permanent(std::shared_ptr<Kernel> kernel) {
    kernel->setDestinationImageAllocator(Image::defaultAllocator());
    return kernel;
  }
};

/// A worked example: 2 pixels of 2 channels times a vector of 2 channels.
class ArithmeticExampleA1 : public Arithmetic {
 protected:
  std::shared_ptr<Image> x_ = image(2, 1, 2, {1, 2, 3, 4});
  std::shared_ptr<Image> y_ = image(1, 1, 2, {10, 20});
  std::shared_ptr<Image> g_ = image(2, 1, 2, {1, 10, 100, 1000});

  void expectExample(float maximum, const Values& out, const Values& ofX, const Values& ofY) {
    const auto multiply = permanent(CNNMultiply::create(device_));
    multiply->setPrimaryScale(2);
    multiply->setSecondaryScale(0.5F);
    multiply->setBias(1);
    multiply->setMaximumValue(maximum);
    multiply->setSecondaryStrideInPixelsX(0);
    multiply->setSecondaryStrideInPixelsY(0);
    const auto gradientOfX = permanent(CNNMultiplyGradient::create(device_, false));
    gradientOfX->setPrimaryScale(2);
    gradientOfX->setSecondaryScale(0.5F);
    const auto gradientOfY = permanent(CNNMultiplyGradient::create(device_, true));
    gradientOfY->setPrimaryScale(0.5F);
    gradientOfY->setSecondaryScale(2);
    std::shared_ptr<Image> result, dx, dy;
    run([&](const auto& commandBuffer) {
      std::shared_ptr<State> state;
      result = multiply->encode(commandBuffer, x_, y_, state, false);
      multiply->setMaximumValue(0);  // the state keeps what the kernel had (docs/decisions.md, D9)
      dx = gradientOfX->encode(commandBuffer, g_, y_, state);
      dy = gradientOfY->encode(commandBuffer, g_, x_, state);
    });
    EXPECT_EQ(valuesOf(result), out);
    EXPECT_EQ(valuesOf(dx), ofX);
    EXPECT_EQ(valuesOf(dy), ofY);
    EXPECT_EQ(dy->width(), 1U);
  }
};

TEST_F(ArithmeticExampleA1, BroadcastMultiply) {
  expectExample(FLT_MAX, {11, 41, 31, 81}, {10, 200, 1000, 20000}, {301, 4020});
}

TEST_F(ArithmeticExampleA1, WithMaximum50) {
  expectExample(50, {11, 41, 31, 50}, {10, 200, 1000, 0}, {301, 20});
}

TEST_F(ArithmeticExampleA1, D11TheOperandItselfIsNotTheOtherOne) {
  const auto multiply = CNNMultiply::create(device_);
  const auto gradient = CNNMultiplyGradient::create(device_, false);
  const auto commandBuffer = queue_->commandBuffer();
  std::shared_ptr<State> state;
  const auto other = image(2, 1, 2, {1, 1, 1, 1});
  multiply->encode(commandBuffer, x_, other, state, false);
  EXPECT_THROW(gradient->encode(commandBuffer, g_, x_, state), Error);
  EXPECT_NO_THROW(gradient->encode(commandBuffer, g_, other, state));
}

TEST_F(Arithmetic, DefaultsAreThoseOfTheTable) {
  const auto add = CNNAdd::create(device_);
  EXPECT_EQ(add->primaryScale(), 1);
  EXPECT_EQ(add->secondaryScale(), 1);
  EXPECT_EQ(add->bias(), 0);
  EXPECT_EQ(add->minimumValue(), -FLT_MAX);
  EXPECT_EQ(add->maximumValue(), FLT_MAX);
  EXPECT_EQ(add->primaryStrideInFeatureChannels(), 1U);
  EXPECT_EQ(add->secondaryStrideInFeatureChannels(), 1U);
  EXPECT_EQ(add->primaryStrideInPixelsX(), 1U);
  const auto gradient = CNNSubtractGradient::create(device_, true);
  EXPECT_TRUE(gradient->isSecondarySourceFilter());
  EXPECT_EQ(gradient->primaryScale(), 1);
  EXPECT_EQ(gradient->secondaryStrideInFeatureChannels(), 1U);
  add->setBias(3);
  EXPECT_EQ(add->copy()->bias(), 3);
  EXPECT_EQ(gradient->copy()->isSecondarySourceFilter(), true);
}

/// What the gradients of all operations have from their base class.
TEST_F(Arithmetic, GradientDefaultsAreThoseOfTheTable) {
  const std::vector<std::shared_ptr<CNNArithmeticGradient>> gradients{
      CNNAddGradient::create(device_, false), CNNSubtractGradient::create(device_, false),
      CNNMultiplyGradient::create(device_, false)};
  for (const auto& gradient : gradients) {
    SCOPED_TRACE(gradient->className());
    EXPECT_EQ(gradient->primaryScale(), 1);
    EXPECT_EQ(gradient->secondaryScale(), 1);
    EXPECT_EQ(gradient->bias(), 0);
    EXPECT_EQ(gradient->minimumValue(), -FLT_MAX);
    EXPECT_EQ(gradient->maximumValue(), FLT_MAX);
    EXPECT_EQ(gradient->secondaryStrideInFeatureChannels(), 1U);
    EXPECT_FALSE(gradient->isSecondarySourceFilter());
    gradient->setPrimaryScale(2);
    gradient->setSecondaryScale(3);
    gradient->setSecondaryStrideInFeatureChannels(0);
    const auto copy = detail::copyAs(*gradient, device_);
    EXPECT_EQ(copy->primaryScale(), 2);
    EXPECT_EQ(copy->secondaryScale(), 3);
    EXPECT_EQ(copy->secondaryStrideInFeatureChannels(), 0U);
  }
}

TEST_F(Arithmetic, EachOperation) {
  const auto x = image(1, 1, 3, {1, -2, 8});
  const auto y = image(1, 1, 3, {2, 4, -4});
  const auto expectResult = [&](const std::shared_ptr<CNNArithmetic>& kernel, const Values& expected) {
    kernel->setPrimaryScale(2);
    kernel->setSecondaryScale(-1);
    kernel->setBias(0.5F);
    std::shared_ptr<Image> result;
    run([&](const auto& commandBuffer) { result = permanent(kernel)->encode(commandBuffer, x, y); });
    EXPECT_EQ(valuesOf(result), expected) << kernel->describe();
  };
  expectResult(CNNAdd::create(device_), {0.5F, -7.5F, 20.5F});
  expectResult(CNNSubtract::create(device_), {4.5F, 0.5F, 12.5F});
  expectResult(CNNMultiply::create(device_), {-3.5F, 16.5F, 64.5F});
  expectResult(CNNDivide::create(device_), {-0.5F, 1.5F, 4.5F});
}

TEST_F(Arithmetic, DivideGradients) {
  const auto x = image(2, 1, 1, {1, -6});
  const auto y = image(1, 1, 1, {2});
  const auto g = image(2, 1, 1, {8, 16});
  const auto divide = permanent(CNNDivide::create(device_));
  divide->setPrimaryScale(3);
  divide->setSecondaryStrideInPixelsX(0);
  const auto ofX = permanent(CNNDivideGradient::create(device_, false));
  const auto ofY = permanent(CNNDivideGradient::create(device_, true));
  ofX->setPrimaryScale(3);
  ofY->setPrimaryScale(3);
  std::shared_ptr<Image> dx, dy;
  run([&](const auto& commandBuffer) {
    std::shared_ptr<State> state;
    divide->encode(commandBuffer, x, y, state, false);
    dx = ofX->encode(commandBuffer, g, y, state);
    dy = ofY->encode(commandBuffer, g, y, state);
  });
  EXPECT_EQ(valuesOf(dx), (Values{12, 24}));
  EXPECT_EQ(valuesOf(dy), (Values{-3 * 8 * 1 / 4.0F + 3 * 16 * 6 / 4.0F}));
  EXPECT_THROW(ofY->encode(queue_->commandBuffer(), g, y, emptyImage(1, 1, 1)), Error) << "no state";
}

TEST_F(Arithmetic, D24ALimitOfFltMaxMeansNone) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto x = image(5, 1, 1, {1, -1, 0, infinity, nan});
  const auto y = image(5, 1, 1, {0, 0, 0, 1, 1});
  const auto g = image(5, 1, 1, {1, 2, 4, 8, 16});
  const auto sum = [&](const std::function<void(CNNAdd&)>& change) {
    const auto add = permanent(CNNAdd::create(device_));
    change(*add);
    const auto gradient = permanent(CNNAddGradient::create(device_, false));
    std::shared_ptr<Image> result, dx;
    run([&](const auto& commandBuffer) {
      std::shared_ptr<State> state;
      result = add->encode(commandBuffer, x, y, state, false);
      dx = gradient->encode(commandBuffer, g, y, state);
    });
    return std::pair(valuesOf(result), valuesOf(dx));
  };
  const auto expectQuotients = [&](const std::shared_ptr<CNNDivide>& divide) {
    std::shared_ptr<Image> result;
    run([&](const auto& commandBuffer) { result = divide->encode(commandBuffer, x, y); });
    const Values quotients = valuesOf(result);
    EXPECT_EQ(quotients[0], infinity);
    EXPECT_EQ(quotients[1], -infinity);
    EXPECT_TRUE(std::isnan(quotients[2]));
    EXPECT_EQ(quotients[3], infinity);
    EXPECT_TRUE(std::isnan(quotients[4]));
  };
  const auto divide = permanent(CNNDivide::create(device_));
  expectQuotients(divide);
  divide->setMinimumValue(-1);
  divide->setMaximumValue(1);
  divide->setMinimumValue(-FLT_MAX);
  divide->setMaximumValue(FLT_MAX);
  expectQuotients(divide);
  KeyedArchiver archiver;
  divide->encode(archiver);
  KeyedUnarchiver unarchiver(archiver.encodedData());
  expectQuotients(permanent(CNNDivide::decode(unarchiver, device_)));

  const auto [plain, gradient] = sum([](CNNAdd&) {});
  EXPECT_EQ(plain[3], infinity);
  EXPECT_TRUE(std::isnan(plain[4]));
  EXPECT_EQ(gradient, (Values{1, 2, 4, 8, 16}));
  const auto [limited, masked] = sum([](CNNAdd& add) { add.setMinimumValue(-0.5F); });
  EXPECT_EQ(limited[1], -0.5F);
  EXPECT_EQ(limited[3], infinity);
  EXPECT_EQ(masked, (Values{1, 0, 4, 8, 0})) << "infinity is inside, NaN on no side of a limit";
  const auto [cut, maskedAbove] = sum([](CNNAdd& add) { add.setMaximumValue(0.5F); });
  EXPECT_EQ(cut[3], 0.5F);
  EXPECT_EQ(maskedAbove, (Values{0, 2, 4, 0, 0}));
}

TEST_F(Arithmetic, ResultSizeUnderBroadcast) {
  const auto add = permanent(CNNAdd::create(device_));
  add->setPrimaryStrideInPixelsX(0);
  add->setPrimaryStrideInFeatureChannels(0);
  add->setSecondaryStrideInPixelsY(0);
  std::shared_ptr<Image> result;
  run([&](const auto& commandBuffer) {
    result = add->encode(commandBuffer, image(1, 2, 1, {100, 200}), image(3, 1, 2, {1, 2, 3, 4, 5, 6}));
  });
  EXPECT_EQ(result->width(), 3U);
  EXPECT_EQ(result->height(), 2U);
  EXPECT_EQ(result->featureChannels(), 2U);
  EXPECT_EQ(valuesOf(result), (Values{101, 102, 103, 104, 105, 106, 201, 202, 203, 204, 205, 206}));
}

TEST_F(Arithmetic, OffsetsClipRectangleAndEdgeModes) {
  const auto x = image(3, 1, 1, {1, 2, 3});
  const auto y = image(2, 1, 1, {10, 20});
  const auto result = emptyImage(4, 1, 1);
  const auto dx = emptyImage(3, 1, 1);
  const auto dy = emptyImage(2, 1, 1);
  const auto add = CNNAdd::create(device_);
  add->setClipRect({{1, 0, 0}, {3, 1, 1}});
  add->setPrimaryOffset({1, 0, 0});
  add->setSecondaryOffset({-1, 0, 0});
  const auto ofX = CNNAddGradient::create(device_, false);
  const auto ofY = CNNAddGradient::create(device_, true);
  const auto state = CNNArithmeticGradientState::create(device_);
  run([&](const auto& commandBuffer) {
    add->encode(commandBuffer, x, y, state, result);
    const auto g = image(4, 1, 1, {1000, 1, 2, 4});
    ofX->encode(commandBuffer, g, x, state, dx);
    ofY->encode(commandBuffer, g, y, state, dy);
  });
  EXPECT_EQ(valuesOf(result), (Values{-77, 2, 13, 20})) << "x: 2 3 0, y: 0 10 20";
  EXPECT_EQ(valuesOf(dx), (Values{0, 1, 2}));
  EXPECT_EQ(valuesOf(dy), (Values{2, 4}));

  add->setSecondaryEdgeMode(ImageEdgeMode::Clamp);
  run([&](const auto& commandBuffer) { add->encode(commandBuffer, x, y, state, result); });
  EXPECT_EQ(valuesOf(result), (Values{-77, 12, 13, 20}));
  EXPECT_THROW(ofY->encode(queue_->commandBuffer(), result, y, state, dy), Error)
      << "no gradient through Clamp";
}

TEST_F(Arithmetic, ChannelRanges) {
  const auto x = image(1, 1, 8, {0, 1, 2, 3, 4, 5, 6, 7});
  const auto y = image(1, 1, 5, {0, 0, 0, 0, 10});
  const auto result = emptyImage(1, 1, 8);
  const auto multiply = CNNMultiply::create(device_);
  multiply->setPrimarySourceFeatureChannelOffset(4);
  multiply->setPrimarySourceFeatureChannelMaxCount(3);
  multiply->setSecondarySourceFeatureChannelOffset(4);
  multiply->setSecondaryStrideInFeatureChannels(0);
  multiply->setDestinationFeatureChannelOffset(4);
  const auto state = CNNArithmeticGradientState::create(device_);
  const auto dx = emptyImage(1, 1, 8);
  const auto dy = emptyImage(1, 1, 5);
  run([&](const auto& commandBuffer) {
    multiply->encode(commandBuffer, x, y, state, result);
    const auto g = image(1, 1, 8, {9, 9, 9, 9, 1, 2, 3, 9});
    CNNMultiplyGradient::create(device_, false)->encode(commandBuffer, g, y, state, dx);
    CNNMultiplyGradient::create(device_, true)->encode(commandBuffer, g, x, state, dy);
  });
  EXPECT_EQ(valuesOf(result), (Values{-77, -77, -77, -77, 40, 50, 60, -77}));
  EXPECT_EQ(valuesOf(dx), (Values{0, 0, 0, 0, 10, 20, 30, 0}));
  EXPECT_EQ(valuesOf(dy), (Values{0, 0, 0, 0, 4 + 10 + 18}));
}

TEST_F(Arithmetic, EachSourceHasItsEdgeModeAndItsOwnChannelsAndRows) {
  const auto sumOf = [&](CNNAdd& add, const std::shared_ptr<Image>& x, const std::shared_ptr<Image>& y,
                         std::size_t width, std::size_t height, std::size_t channels) {
    const auto result = emptyImage(width, height, channels);
    run([&](const auto& commandBuffer) { add.encode(commandBuffer, x, y, result); });
    return valuesOf(result);
  };
  const auto row = image(2, 1, 1, {1, 2});
  const auto tens = image(2, 1, 1, {10, 20});
  auto add = CNNAdd::create(device_);
  add->setPrimaryOffset({-1, 0, 0});
  add->setSecondaryOffset({1, 0, 0});
  EXPECT_EQ(sumOf(*add, row, tens, 2, 1, 1), (Values{0 + 20, 1 + 0}));
  add->setPrimaryEdgeMode(ImageEdgeMode::Clamp);
  EXPECT_EQ(sumOf(*add, row, tens, 2, 1, 1), (Values{1 + 20, 1 + 0}));
  add->setSecondaryEdgeMode(ImageEdgeMode::Clamp);
  EXPECT_EQ(sumOf(*add, row, tens, 2, 1, 1), (Values{1 + 20, 1 + 20}));

  add = CNNAdd::create(device_);
  const auto wide = image(1, 1, 6, {10, 20, 30, 40, 50, 60});
  const auto two = image(1, 1, 2, {1, 2});
  add->setSecondarySourceFeatureChannelMaxCount(2);
  EXPECT_EQ(sumOf(*add, two, wide, 1, 1, 2), (Values{11, 22}));
  add->setSecondarySourceFeatureChannelOffset(4);
  EXPECT_EQ(sumOf(*add, two, wide, 1, 1, 2), (Values{51, 62}));

  add = CNNAdd::create(device_);
  add->setPrimaryStrideInPixelsY(0);
  EXPECT_EQ(sumOf(*add, image(1, 2, 1, {1, 2}), image(1, 2, 1, {10, 20}), 1, 2, 1), (Values{11, 21}))
      << "the first row, twice";
}

TEST_F(Arithmetic, EncodesWithoutAStateSumWhereTheDestinationIsOne) {
  const auto g = image(2, 2, 2, {1, 2, 3, 4, 5, 6, 7, 8});
  const auto dy = emptyImage(1, 1, 2);
  const auto dNumber = emptyImage(1, 1, 1);
  const auto gradient = CNNAddGradient::create(device_, true);
  gradient->setPrimaryScale(2);
  run([&](const auto& commandBuffer) {
    gradient->encode(commandBuffer, g, emptyImage(1, 1, 2), dy);
    gradient->encode(commandBuffer, g, emptyImage(1, 1, 1), dNumber);
  });
  EXPECT_EQ(valuesOf(dy), (Values{32, 40}));
  EXPECT_EQ(valuesOf(dNumber), (Values{72}));
}

/// An image one pixel wide is a sum, a clip rectangle of that width is not.
/// The state of the arithmetic gradients holds no pixels, so a question without one has an answer, but for y of x / y.
TEST_F(Arithmetic, GradientsHaveASizeWithoutAState) {
  const auto x = image(2, 2, 3, Values(12, 1));
  const ImageBatch batch{x, image(2, 2, 3, Values(12, 2))};
  const auto small = image(1, 1, 3, {1, 2, 3});
  const auto sizes = [&](const std::shared_ptr<CNNArithmeticGradient>& gradient) {
    EXPECT_EQ(gradient->encodingStorageSize(x, x),
              gradient->batchEncodingStorageSize(ImageBatch{x}, ImageBatch{x}));
    EXPECT_NO_THROW((void)gradient->batchEncodingStorageSize(batch, batch));
    EXPECT_NO_THROW((void)gradient->encodingStorageSize(x, x, {}, small)) << "summed";
    gradient->setDestinationFeatureChannelOffset(4);
    EXPECT_THROW((void)gradient->encodingStorageSize(x, x, {}, x), Error);
  };
  for (const bool isSecondary : {false, true}) {
    sizes(CNNAddGradient::create(device_, isSecondary));
    sizes(CNNSubtractGradient::create(device_, isSecondary));
    sizes(CNNMultiplyGradient::create(device_, isSecondary));
  }
  sizes(CNNDivideGradient::create(device_, false));
  EXPECT_THROW((void)CNNDivideGradient::create(device_, true)->encodingStorageSize(x, x), Error);
}

TEST_F(Arithmetic, EncodesWithoutAStateDoNotSumIntoAClipRectangle) {
  const auto g = image(4, 1, 1, {1, 10, 100, 1000});
  const auto dx = emptyImage(4, 1, 1);
  const auto gradient = CNNAddGradient::create(device_, false);
  gradient->setPrimaryOffset({2, 0, 0});
  gradient->setClipRect({{2, 0, 0}, {1, 1, 1}});
  run([&](const auto& commandBuffer) { gradient->encode(commandBuffer, g, emptyImage(4, 1, 1), dx); });
  EXPECT_EQ(valuesOf(dx), (Values{-77, -77, 100, -77}));
}

/// The sum over no pixel of the result is 0.
TEST_F(Arithmetic, WhereNoPixelOfTheResultCountsTheGradientIsZero) {
  const auto x = image(3, 2, 1, {1, 2, 3, 4, 5, 6});
  const auto row = image(3, 1, 1, {7, 8, 9});
  const auto dRow = emptyImage(3, 1, 1);
  const auto ofY = CNNAddGradient::create(device_, true);
  run([&](const auto& commandBuffer) {  // y is repeated over the rows, and lies beside the result
    const auto add = CNNAdd::create(device_);
    add->setSecondaryStrideInPixelsY(0);
    add->setSecondaryOffset({3, 0, 0});
    const auto result = emptyImage(3, 2, 1);
    const auto state = add->resultState(x, row);
    add->encode(commandBuffer, x, row, state, result);
    ofY->encode(commandBuffer, result, row, state, dRow);
  });
  EXPECT_EQ(valuesOf(dRow), Values(3, 0));

  const auto withoutState = CNNAddGradient::create(device_, true);
  withoutState->setPrimaryOffset({3, 0, 0});
  const auto dSum = emptyImage(3, 1, 1);
  run([&](const auto& commandBuffer) { withoutState->encode(commandBuffer, x, row, dSum); });
  EXPECT_EQ(valuesOf(dSum), Values(3, 0));

  for (const std::size_t stride : {0U, 1U}) {  // the operands overlap the result, not each other
    const auto a = image(2, 1, 1, {1, 2});
    const auto b = image(2, 2, 1, {3, 4, 5, 6});
    const auto da = emptyImage(2, 1, 1);
    const auto multiply = CNNMultiply::create(device_);
    multiply->setPrimaryStrideInPixelsY(stride);
    multiply->setSecondaryOffset({-2, 0, 0});
    run([&](const auto& commandBuffer) {
      const auto result = emptyImage(4, 2, 1);
      const auto state = multiply->resultState(a, b);
      multiply->encode(commandBuffer, a, b, state, result);
      CNNMultiplyGradient::create(device_, false)->encode(commandBuffer, result, b, state, da);
    });
    EXPECT_EQ(valuesOf(da), Values(2, 0)) << "stride " << stride;
  }
}

/// The same gradient added to another.
TEST_F(Arithmetic, AGradientOfNoPixelChangesNoSum) {
  const auto batchOf = [](const std::shared_ptr<Image>& image) { return ImageBatch{image}; };
  const auto x = image(3, 2, 1, {1, 2, 3, 4, 5, 6});
  const auto row = image(3, 1, 1, {7, 8, 9});
  const auto sum = image(3, 1, 1, {1, 2, 3});
  run([&](const auto& commandBuffer) {
    const auto add = CNNAdd::create(device_);
    add->setSecondaryStrideInPixelsY(0);
    add->setSecondaryOffset({3, 0, 0});
    const auto result = emptyImage(3, 2, 1);
    const auto state = add->resultState(x, row);
    add->encode(commandBuffer, x, row, state, result);
    CNNAddGradient::create(device_, true)
        ->encodeBatchAccumulating(commandBuffer, batchOf(result), batchOf(row), StateBatch{state},
                                  batchOf(sum));
  });
  EXPECT_EQ(valuesOf(sum), (Values{1, 2, 3}));
}

TEST_F(Arithmetic, MasksFollowTheStatesOfABatch) {
  const ImageDescriptor pixel(Float32, 1, 1, 1);
  const auto batchOf = [&](const Values& values) {
    auto batch = ImageBatch::create(device_, pixel, values.size());
    batch.writeBytes(std::span(values), kLayout);
    return batch;
  };
  const auto x = batchOf({1, 5, 2, 7});
  const auto y = batchOf({0, 0, 0, 0});
  const auto add = CNNAdd::create(device_);
  add->setMaximumValue(4);
  const auto gradient = CNNAddGradient::create(device_, false);
  const auto results = ImageBatch::create(device_, pixel, 4);
  const CNNArithmeticGradientStateBatch states = add->resultStateBatch(x, y);
  const auto gradientsOf = [&](const ImageBatch& sources, const StateBatch& ofSources) {
    const auto destinations = ImageBatch::create(device_, pixel, sources.count());
    run([&](const auto& commandBuffer) {
      gradient->encodeBatch(commandBuffer, batchOf(Values(sources.count(), 3)), sources, ofSources,
                            destinations);
    });
    Values values(sources.count());
    destinations.readBytes(std::span(values), kLayout);
    return values;
  };
  run([&](const auto& commandBuffer) { add->encodeBatch(commandBuffer, x, y, states, results); });
  EXPECT_EQ(gradientsOf(x, states), (Values{3, 0, 3, 0}));
  EXPECT_EQ(gradientsOf(x.slice(1, 2), states.slice(1, 2)), (Values{0, 3}));
  const StateBatch reversed{states[3], states[2], states[1], states[0]};
  EXPECT_EQ(gradientsOf(ImageBatch{x[3], x[2], x[1], x[0]}, reversed), (Values{0, 3, 0, 3}));
}

TEST_F(Arithmetic, MistakesAreSentences) {
  const auto x = image(1, 1, 3, {1, 2, 3});
  const auto two = image(1, 1, 2, {1, 2});
  const auto expectRefusal = [&](auto change, const std::shared_ptr<Image>& y) {
    const auto add = CNNAdd::create(device_);
    change(*add);
    EXPECT_THROW(add->encode(queue_->commandBuffer(), x, y), Error);
  };
  expectRefusal([](CNNAdd&) {}, two);
  expectRefusal([](CNNAdd&) {}, nullptr);
  expectRefusal([](CNNAdd& add) { add.setPrimaryStrideInPixelsX(2); }, x);
  expectRefusal([](CNNAdd& add) { add.setSecondaryStrideInFeatureChannels(2); }, x);
  expectRefusal([](CNNAdd& add) { add.setMinimumValue(1), add.setMaximumValue(0); }, x);
  expectRefusal([](CNNAdd& add) { add.setPrimarySourceFeatureChannelOffset(4); }, x);
  const auto commandBuffer = queue_->commandBuffer();
  std::shared_ptr<State> state;
  CNNAdd::create(device_)->encode(commandBuffer, x, x, state, false);
  EXPECT_THROW(CNNMultiplyGradient::create(device_, false)->encode(commandBuffer, x, x, state), Error);
  EXPECT_THROW(CNNAddGradient::create(device_, false)->encode(commandBuffer, x, two, state), Error);
}

TEST_F(Arithmetic, NodesMakeTheGradientNodesOfTheTable) {
  const auto left = NNImageNode::create();
  const auto right = NNImageNode::create();
  const auto expectNodes = [&](const std::shared_ptr<NNBinaryArithmeticNode>& node, const std::string& name,
                               const std::vector<std::shared_ptr<NNImageNode>>& sources,
                               const Values& scales) {
    node->setPrimaryScale(2);
    node->setSecondaryScale(3);
    const auto gradients = node->gradientFilters(node->resultImage());
    ASSERT_EQ(gradients.size(), 2U);
    EXPECT_EQ(node->gradientClass(), name);
    EXPECT_TRUE(std::dynamic_pointer_cast<NNArithmeticGradientStateNode>(node->resultState()));
    for (std::size_t i = 0; i < 2; ++i) {
      const auto gradient = std::dynamic_pointer_cast<NNArithmeticGradientNode>(gradients[i]);
      ASSERT_TRUE(gradient);
      EXPECT_EQ(gradient->className(), name);
      EXPECT_EQ(gradient->sourceImage(), sources[i]);
      EXPECT_EQ(gradient->isSecondarySourceFilter(), i == 1);
      EXPECT_EQ(gradient->primaryScale(), scales[2 * i]);
      EXPECT_EQ(gradient->secondaryScale(), scales[2 * i + 1]);
    }
    EXPECT_THROW(node->gradientFilter(node->resultImage()), Error);
  };
  expectNodes(NNAdditionNode::create(left, right), "NNAdditionGradientNode", {left, right}, {2, 1, 3, 1});
  expectNodes(NNSubtractionNode::create(left, right), "NNSubtractionGradientNode", {left, right},
              {2, 1, -3, 1});
  expectNodes(NNMultiplicationNode::create(left, right), "NNMultiplicationGradientNode", {right, left},
              {2, 3, 3, 2});
  expectNodes(NNDivisionNode::create(left, right), "NNDivisionGradientNode", {right, right}, {2, 3, 2, 3});
  const std::vector<std::shared_ptr<NNImageNode>> one{left};
  EXPECT_THROW(NNAdditionNode::create(one), Error);
}

TEST_F(Arithmetic, GradientNodesTakeTwoImages) {
  const auto image = NNImageNode::create();
  const auto sum = NNAdditionNode::create(image, image);
  for (const std::size_t count : {0U, 1U, 3U}) {
    const std::vector<std::shared_ptr<NNImageNode>> images(count, image);
    EXPECT_THROW(NNAdditionGradientNode::create(images, sum, false), Error) << count;
    EXPECT_THROW(NNSubtractionGradientNode::create(images, sum, false), Error) << count;
    EXPECT_THROW(NNMultiplicationGradientNode::create(images, sum, false), Error) << count;
    EXPECT_THROW(NNDivisionGradientNode::create(images, sum, false), Error) << count;
  }
  const std::vector<std::shared_ptr<NNImageNode>> two(2, image);
  EXPECT_NO_THROW(NNAdditionGradientNode::create(two, sum, false));
  EXPECT_THROW(NNAdditionGradientNode::create(two, nullptr, false), Error);
}

}  // namespace
}  // namespace mps::arithmetic_test
