#include "mps/softmax/softmax.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "mps/conform/compare.hpp"
#include "mps/core/testing/test_images.hpp"

/// The public softmax kernels.
namespace mps::softmax_test {
namespace {

using testing::errorOf;
using testing::names;
using testing::sizeOf;
using testing::Values;
using testing::valuesOf;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

class SoftMax : public testing::DeviceTest {
 protected:
  template <class KernelType>
  std::shared_ptr<KernelType> make() const {
    auto kernel = KernelType::create(device_);
    kernel->setDestinationImageAllocator(Image::defaultAllocator());
    return kernel;
  }
  [[nodiscard]] std::shared_ptr<Image> pixel(const Values& values) const {
    return image(sizeOf(1, 1, values.size()), values);
  }
  struct Results {
    Values y, dx;
  };
  template <class Forward, class Gradient>
  Results resultsOf(const Values& x, const Values& dy) {
    std::shared_ptr<State> state;
    const auto buffer = commands();
    const auto y = make<Forward>()->encode(buffer, pixel(x), state, false);
    const auto dx = make<Gradient>()->encode(buffer, pixel(dy), y, state);
    run(buffer);
    return {valuesOf(*y), valuesOf(*dx)};
  }
  /// A few float32 roundings around values of at most `magnitude`.
  static void expectNear(const Values& found, const std::vector<double>& expected, double magnitude) {
    detail::ReferenceTensor reference(1, 1, 1, static_cast<std::int64_t>(expected.size()));
    reference.values = expected;
    reference.magnitude.assign(expected.size(), magnitude);
    reference.roundings = 8;
    reference.transcendental = 2;
    const std::vector<double> values(found.begin(), found.end());
    const auto compared = detail::compare(reference, values, ImageFeatureChannelFormat::Float32,
                                          detail::Tier::Bounded, detail::Zeros::Expected);
    EXPECT_EQ(compared.report, "");
  }
  const Values example_ = {0, std::log(2.0F), std::log(3.0F)};
};

TEST_F(SoftMax, ExampleOfSection12_3) {
  const auto results = resultsOf<CNNSoftMax, CNNSoftMaxGradient>(example_, {1, 0, 0});
  expectNear(results.y, {1.0 / 6, 1.0 / 3, 1.0 / 2}, 1);
  expectNear(results.dx, {5.0 / 36, -1.0 / 18, -1.0 / 12}, 1);
}

TEST_F(SoftMax, LogExampleOfSection12_3) {
  const auto results = resultsOf<CNNLogSoftMax, CNNLogSoftMaxGradient>(example_, {1, 0, 2});
  expectNear(results.y, {-std::log(6.0), -std::log(3.0), -std::log(2.0)}, 4);
  expectNear(results.dx, {0.5, -1, 0.5}, 4);
}

TEST_F(SoftMax, OneChannelIsACertainty) {
  const auto results = resultsOf<CNNSoftMax, CNNSoftMaxGradient>({-7}, {3});
  EXPECT_EQ(results.y, Values{1});
  EXPECT_EQ(results.dx, Values{0});
  const auto logarithm = resultsOf<CNNLogSoftMax, CNNLogSoftMaxGradient>({-7}, {3});
  EXPECT_EQ(logarithm.y, Values{0});
  EXPECT_EQ(logarithm.dx, Values{0});
}

TEST_F(SoftMax, LargeArgumentsDoNotOverflow) {
  EXPECT_EQ((resultsOf<CNNSoftMax, CNNSoftMaxGradient>({1000, 1000}, {1, 0}).y), (Values{0.5F, 0.5F}));
  EXPECT_EQ((resultsOf<CNNSoftMax, CNNSoftMaxGradient>({1000, -1000}, {1, 0}).y), (Values{1, 0}));
  EXPECT_EQ((resultsOf<CNNLogSoftMax, CNNLogSoftMaxGradient>({1000, -1000}, {1, 0}).y), (Values{0, -2000}));
  EXPECT_EQ((resultsOf<CNNSoftMax, CNNSoftMaxGradient>({0, -kInfinity}, {1, 0}).y), (Values{1, 0}));
  for (const Values& x : {Values{-kInfinity, -kInfinity}, Values{kInfinity, 0}}) {
    const auto y = resultsOf<CNNSoftMax, CNNSoftMaxGradient>(x, {1, 0}).y;
    EXPECT_TRUE(std::isnan(y[0])) << "as in PyTorch";
  }
}

/// Each pixel of each image is normalised alone, over the channels that are read.
TEST_F(SoftMax, ChannelsOfEachPixelInABatch) {
  const auto x = batch(sizeOf(2, 1, 5), 2, {9, 9, 9, 9, 3, 9, 9, 9, 9, 4, 9, 9, 9, 9, 5, 9, 9, 9, 9, 6});
  const auto kernel = make<CNNSoftMax>();
  kernel->setSourceFeatureChannelOffset(4);
  const auto states = kernel->resultStateBatch(x);
  const auto y = ImageBatch::create(device_, sizeOf(2, 1, 1), 2);
  auto buffer = commands();
  kernel->encodeBatch(buffer, x, states, y);
  run(buffer);
  for (std::size_t i = 0; i < 2; ++i) EXPECT_EQ(valuesOf(*y[i]), (Values{1, 1})) << "one channel is read";

  kernel->setSourceFeatureChannelOffset(0);
  kernel->setSourceFeatureChannelMaxCount(4);
  const auto states4 = kernel->resultStateBatch(x);
  const auto y4 = ImageBatch::create(device_, sizeOf(2, 1, 4), 2);
  buffer = commands();
  kernel->encodeBatch(buffer, x, states4, y4);
  const auto dx = make<CNNSoftMaxGradient>()->encodeBatch(
      buffer, batch(sizeOf(2, 1, 4), 2, {4, 0, 0, 0, 0, 4, 0, 0, 0, 0, 4, 0, 0, 0, 0, 4}), y4, states4);
  run(buffer);
  EXPECT_EQ(valuesOf(*y4[1]), Values(8, 0.25F));
  EXPECT_EQ(valuesOf(*dx[0]), (Values{0.75F, -0.25F, -0.25F, -0.25F, 0, -0.25F, 0.75F, -0.25F, -0.25F, 0}))
      << "the channel that was not read has no gradient";
}

TEST_F(SoftMax, FormatsOfResults) {
  const auto format = [&](ImageFeatureChannelFormat source) {
    const auto buffer = commands();
    return make<CNNSoftMax>()
        ->encode(buffer, Image::create(device_, {source, 1, 1, 2}))
        ->featureChannelFormat();
  };
  EXPECT_EQ(format(ImageFeatureChannelFormat::Unorm8), ImageFeatureChannelFormat::Float32);
  EXPECT_EQ(format(ImageFeatureChannelFormat::Float16), ImageFeatureChannelFormat::Float16);
}

/// docs/decisions.md, D11.
TEST_F(SoftMax, Behaviour12TheGradientTakesTheForwardResult) {
  const auto expectRefusal = [&](const auto& forward, const auto& gradient) {
    const auto x = pixel({1, 2});
    std::shared_ptr<State> state;
    const auto buffer = commands();
    const auto y = forward->encode(buffer, x, state, false);
    EXPECT_TRUE(names(errorOf([&] {
                        gradient->encode(buffer, pixel({1, 1}), x, state);
                      }),
                      {gradient->className(), "sourceImage", "the forward source", "the forward result"}));
    EXPECT_EQ(errorOf([&] { gradient->encode(buffer, pixel({1, 1}), y, state); }), "");
    EXPECT_EQ(errorOf([&] {
                gradient->encode(buffer, pixel({1, 1}), pixel({0.5F, 0.5F}), state);
              }),
              "")
        << "another image of the right size is computed with";
  };
  expectRefusal(make<CNNSoftMax>(), make<CNNSoftMaxGradient>());
  expectRefusal(make<CNNLogSoftMax>(), make<CNNLogSoftMaxGradient>());
}

TEST_F(SoftMax, StatesOfTheOtherKernelAreRefused) {
  std::shared_ptr<State> state, logState;
  const auto buffer = commands();
  const auto y = make<CNNSoftMax>()->encode(buffer, pixel({1, 2}), state, false);
  const auto l = make<CNNLogSoftMax>()->encode(buffer, pixel({1, 2}), logState, false);
  EXPECT_TRUE(names(errorOf([&] { make<CNNSoftMaxGradient>()->encode(buffer, y, l, logState); }),
                    {"CNNSoftMaxGradient", "gradientState", "CNNLogSoftMax"}));
  EXPECT_TRUE(names(errorOf([&] { make<CNNLogSoftMaxGradient>()->encode(buffer, y, y, state); }),
                    {"CNNLogSoftMaxGradient", "gradientState", "CNNSoftMax"}));
  EXPECT_EQ(state->resourceCount(), 0U) << "the state carries no tensor";
}

TEST_F(SoftMax, CopiesForAnotherDevice) {
  const auto device = mtl::newCPUDevice(1);
  const auto kernel = make<CNNSoftMax>()->copy(device);
  const auto gradient = make<CNNSoftMaxGradient>()->copy(device);
  EXPECT_EQ(make<CNNLogSoftMax>()->copy(device)->device(), device);
  EXPECT_EQ(make<CNNLogSoftMaxGradient>()->copy(device)->device(), device);
  const auto x = Image::create(device, sizeOf(1, 1, 2));
  std::shared_ptr<State> state;
  const auto buffer = device->newCommandQueue()->commandBuffer();
  const auto y = kernel->encode(buffer, x, state, false);
  const auto dx = gradient->encode(buffer, x, y, state);
  buffer->commit();
  buffer->throwIfFailed();
  EXPECT_EQ(valuesOf(*y), (Values{0.5F, 0.5F}));
  EXPECT_EQ(valuesOf(*dx), (Values{0, 0}));
}

template <class Node, class GradientNode>
void expectWiring(const char* name, const char* gradientName) {
  const auto source = NNImageNode::create();
  const auto node = Node::create(source);
  const auto device = mtl::newCPUDevice(1);
  EXPECT_EQ(std::string(node->className()), std::string(name) + "Node");
  EXPECT_EQ(node->makeKernel(device)->className(), name);
  const auto e = NNImageNode::create();
  const auto gradient = node->gradientFilter(e);
  EXPECT_EQ(gradient->className(), std::string(gradientName) + "Node");
  EXPECT_EQ(gradient->sourceImage(), node->resultImage()) << "the forward result";
  EXPECT_EQ(gradient->gradientState(), node->resultState());
  EXPECT_EQ(gradient->makeKernel(device)->className(), gradientName);
  EXPECT_EQ(errorOf([&] { GradientNode::create(e, source, node->resultState()); }), "")
      << "the graph refuses it (gradient_chain_test.cpp)";
}

TEST(SoftMaxNodes, GradientsAreWiredToTheResult) {
  expectWiring<CNNSoftMaxNode, CNNSoftMaxGradientNode>("CNNSoftMax", "CNNSoftMaxGradient");
  expectWiring<CNNLogSoftMaxNode, CNNLogSoftMaxGradientNode>("CNNLogSoftMax", "CNNLogSoftMaxGradient");
}

TEST_F(SoftMax, GradientsOfOtherNumbersOfChannelsAreRefused) {
  const auto buffer = commands();
  const auto y = pixel(Values(8, 0.125F));
  EXPECT_TRUE(names(errorOf([&] {
                      make<CNNSoftMaxGradient>()->encode(buffer, pixel(Values(4, 1)), y, pixel(Values(8, 0)));
                    }),
                    {"CNNSoftMaxGradient", "4, 8 and 8 feature channels"}));
  EXPECT_TRUE(names(errorOf([&] {
                      make<CNNLogSoftMaxGradient>()->encode(buffer, pixel(Values(4, 1)), y,
                                                            pixel(Values(8, 0)));
                    }),
                    {"CNNLogSoftMaxGradient", "4, 8 and 8 feature channels"}));
}

TEST_F(SoftMax, TheGradientOfARepeatedEdgeIsRefused) {
  const auto softMax = make<CNNSoftMax>();
  softMax->setOffset({1, 0, 0});
  softMax->setEdgeMode(ImageEdgeMode::Clamp);
  const auto x = pixel(example_), y = pixel(Values(3, 0));
  const auto state = softMax->resultState(x);
  const auto buffer = commands();
  softMax->encode(buffer, x, state, y);
  EXPECT_TRUE(names(errorOf([&] { make<CNNSoftMaxGradient>()->encode(buffer, y, y, state); }),
                    {"CNNSoftMaxGradient", "gradientState", "Clamp"}));
}

}  // namespace
}  // namespace mps::softmax_test
