#include "mps/upsampling/image_scale.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <string>
#include <vector>

#include "mps/conform/compare.hpp"
#include "mps/core/coding/coder.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mps/upsampling/resize.hpp"
#include "mps/upsampling/scale_node.hpp"

/// The public classes and nodes. The arithmetic over all shapes is tested with the plans of
/// upsampling.
namespace mps::image_scale_test {
namespace {

using testing::errorOf;
using testing::names;
using testing::sizeOf;
using testing::Values;
using testing::valuesOf;

/// Moves each image by its first value; can be coded.
class MovesByFirstValue final : public ImageTransformProvider {
 public:
  ScaleTransform transformForSourceImage(const std::shared_ptr<Image>& image,
                                         const std::shared_ptr<Handle>& handle) override {
    ++asked;
    lastHandle = handle;
    return {1, 1, static_cast<double>(valuesOf(*image)[0]), 0};
  }
  [[nodiscard]] std::string className() const override { return "MovesByFirstValue"; }
  void encode(Coder& coder) const override { coder.codeClass(className()); }

  int asked = 0;
  std::shared_ptr<Handle> lastHandle;
};

class Named final : public Handle {
 public:
  [[nodiscard]] std::string className() const override { return "Named"; }
  void encode(Coder& coder) const override { coder.codeClass(className()); }
};

/// @param terms that each value is a sum of; their absolute values add up to no more than four times it
void expectValues(const std::vector<double>& expected, const Values& found, std::int64_t terms) {
  detail::ReferenceTensor reference(1, 1, 1, static_cast<std::int64_t>(expected.size()));
  reference.values = expected;
  for (const double value : expected) reference.magnitude.push_back(4 * value);
  reference.roundings = terms + 4;
  const std::vector<double> values(found.begin(), found.end());
  const detail::Comparison comparison =
      detail::compare(reference, values, ImageFeatureChannelFormat::Float32, detail::Tier::Bounded);
  EXPECT_TRUE(comparison.passed()) << comparison.report;
}

class Scale : public testing::DeviceTest {
 protected:
  template <class KernelType>
  std::shared_ptr<KernelType> kernel(std::size_t width, std::size_t height) const {
    auto made = KernelType::create(device_, width, height);
    made->setDestinationImageAllocator(Image::defaultAllocator());
    return made;
  }
  Values scaled(CNNKernel& kernel, const std::shared_ptr<Image>& source) {
    const auto buffer = commands();
    const auto result = kernel.encode(buffer, source);
    run(buffer);
    return valuesOf(*result);
  }
  template <class KernelType>
  std::shared_ptr<KernelType> gradient() const {
    auto made = KernelType::create(device_);
    made->setDestinationImageAllocator(Image::defaultAllocator());
    return made;
  }
  /// Of the source. @param g of a result of the forward kernel's size, one channel
  Values gradientOf(ImageScale& forward, ImageScaleGradient& gradient, const std::shared_ptr<Image>& source,
                    const Values& g) {
    const auto buffer = commands();
    std::shared_ptr<State> state;
    forward.encode(buffer, source, state, false);
    const auto dx = gradient.encode(
        buffer, image(sizeOf(forward.outputWidth(), forward.outputHeight(), 1), g), source, state);
    run(buffer);
    return valuesOf(*dx);
  }
  std::shared_ptr<Image> row_ = image(sizeOf(4, 1, 1), {0, 8, 16, 32});
};

TEST_F(Scale, WithoutATransformTheSourceFillsTheResult) {
  for (const std::size_t width : {1U, 2U, 4U, 8U, 16U}) {
    const auto resize = NNResizeBilinear::create(device_, width, 1);
    resize->setHalfPixelCenters(true);
    resize->setDestinationImageAllocator(Image::defaultAllocator());
    const auto made = kernel<ImageBilinearScale>(width, 1);
    EXPECT_FALSE(made->scaleTransform().has_value());
    EXPECT_EQ(scaled(*made, row_), scaled(*resize, row_)) << width;
  }
}

/// result = scale * source + translate, in pixels from the corner.
TEST_F(Scale, TheTransformPlacesTheSource) {
  const auto made = kernel<ImageBilinearScale>(6, 1);
  made->setScaleTransform(ScaleTransform{1, 1, 1, 0});
  EXPECT_EQ(scaled(*made, row_), (Values{0, 0, 8, 16, 32, 0}));
  made->setScaleTransform(ScaleTransform{2, 1, -2, 0});
  EXPECT_EQ(scaled(*made, row_), (Values{6, 10, 14, 20, 28, 32}));
  made->setScaleTransform(ScaleTransform{0.5, 1, 0.5, 0});
  EXPECT_EQ(scaled(*made, image(sizeOf(4, 1, 1), {2, 4, 6, 8})), (Values{2, 5, 8, 0, 0, 0}));
}

TEST_F(Scale, OutsideIsZeroOrTheEdge) {
  const auto source = image(sizeOf(1, 2, 1), {3, 5});
  const auto expectEdges = [&](ImageScale& made) {
    made.setScaleTransform(ScaleTransform{1, 1, 0, 2});
    EXPECT_EQ(scaled(made, source), (Values{0, 0, 3, 5, 0}));
    made.setEdgeMode(ImageEdgeMode::Clamp);
    EXPECT_EQ(scaled(made, source), (Values{3, 3, 3, 5, 5}));
  };
  expectEdges(*kernel<ImageBilinearScale>(1, 5));
  expectEdges(*kernel<ImageLanczosScale>(1, 5));
}

TEST_F(Scale, LanczosKeepsPixelsAndConstants) {
  const auto same = kernel<ImageLanczosScale>(4, 1);
  EXPECT_EQ(scaled(*same, row_), valuesOf(*row_));
  const auto flat = image(sizeOf(9, 7, 1), Values(63, 3));
  expectValues(std::vector<double>(52, 3), scaled(*kernel<ImageLanczosScale>(4, 13), flat), 14 * 7);
}

/// Half way between two pixels of an edge, all of whose weights are known: sinc(1/2) sinc(1/6) and so on.
TEST_F(Scale, LanczosOvershootsAtEdges) {
  const auto edge = image(sizeOf(12, 1, 1), {0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1});
  const auto made = kernel<ImageLanczosScale>(12, 1);
  made->setScaleTransform(ScaleTransform{1, 1, -0.5, 0});
  const auto lobe = [](double u) {
    const double angle = std::numbers::pi * u;
    return std::sin(angle) * std::sin(angle / 3) * 3 / (angle * angle);
  };
  const double sum = 2 * (lobe(0.5) + lobe(1.5) + lobe(2.5));
  // Result 5 lies half way between pixels 5 and 6.
  const Values result = scaled(*made, edge);
  expectValues({0.5, (sum - lobe(1.5) - lobe(2.5)) / sum, (sum - lobe(2.5)) / sum},
               {result[5], result[6], result[7]}, 6);
  EXPECT_GT(result[6], 1);
}

/// Smaller results are averages: every source pixel counts.
TEST_F(Scale, LanczosLooksAtEveryPixelOfALargeSource) {
  const auto made = kernel<ImageLanczosScale>(3, 1);
  for (std::size_t pixel = 0; pixel < 30; ++pixel) {
    Values values(30, 0);
    values[pixel] = 1;
    const Values result = scaled(*made, image(sizeOf(30, 1, 1), values));
    EXPECT_NE(result, Values(3, 0)) << pixel;
  }
}

TEST_F(Scale, KeepsWhatItIsGiven) {
  const auto expectKept = [&](auto made) {
    made->setScaleTransform(ScaleTransform{2, 3, -4, 5});
    KeyedArchiver archiver;
    made->encode(archiver);
    KeyedUnarchiver unarchiver(archiver.encodedData());
    using KernelType = typename decltype(made)::element_type;
    for (const auto& one : {made->copy(), KernelType::decode(unarchiver, device_)}) {
      EXPECT_EQ(one->className(), made->className());
      EXPECT_EQ(one->outputWidth(), 7U);
      EXPECT_EQ(one->outputHeight(), 6U);
      EXPECT_EQ(one->scaleTransform(), (ScaleTransform{2, 3, -4, 5}));
      EXPECT_NE(one->resultState(row_), nullptr);
    }
  };
  expectKept(kernel<ImageBilinearScale>(7, 6));
  expectKept(kernel<ImageLanczosScale>(7, 6));
}

TEST_F(Scale, WrongUseIsNamed) {
  for (const std::size_t size : {std::size_t{0}, (std::size_t{1} << 24U) + 1}) {
    EXPECT_TRUE(
        names(errorOf([&] { kernel<ImageLanczosScale>(size, 1); }), {"ImageLanczosScale", "outputWidth"}));
    EXPECT_TRUE(
        names(errorOf([&] { kernel<ImageBilinearScale>(1, size); }), {"ImageBilinearScale", "outputHeight"}));
  }
  const auto made = kernel<ImageLanczosScale>(2, 2);
  const auto expectRefused = [&](const ScaleTransform& transform, const char* field) {
    EXPECT_TRUE(names(errorOf([&] { made->setScaleTransform(transform); }), {"scaleTransform", field}));
    EXPECT_FALSE(made->scaleTransform().has_value());
  };
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  expectRefused({0, 1, 0, 0}, "scaleX");
  expectRefused({1, -1, 0, 0}, "scaleY");
  expectRefused({nan, 1, 0, 0}, "scaleX");
  expectRefused({1, 1e10, 0, 0}, "scaleY");
  expectRefused({1, 1, nan, 0}, "translateX");
  expectRefused({1, 1, 0, -1e10}, "translateY");
}

/// Weights would be computed for each of its pixels, which takes minutes.
TEST_F(Scale, ASourceBeyondAllMemoryIsRefused) {
  const auto huge = Image::create(device_, sizeOf((std::size_t{1} << 32U), 1, 1));
  const auto error = [&](const auto& made) { return errorOf([&] { made->encode(commands(), huge); }); };
  EXPECT_TRUE(
      names(error(kernel<ImageLanczosScale>(1, 1)), {"ImageLanczosScale", "sourceImage", "4294967296x1"}));
  EXPECT_TRUE(names(error(kernel<ImageBilinearScale>(1, 1)), {"ImageBilinearScale", "sourceImage"}));
}

TEST_F(Scale, NodesMakeTheirKernels) {
  const auto source = NNImageNode::create();
  const std::vector<std::shared_ptr<NNScaleNode>> nodes{NNLanczosScaleNode::create(source, {7, 5, 1}),
                                                        NNBilinearScaleNode::create(source, {7, 5, 1})};
  for (const auto& node : nodes) EXPECT_EQ(node->outputSize(), (mtl::Size{7, 5, 1})) << node->className();
  const auto lanczos = NNLanczosScaleNode::create(source, {7, 5, 1});
  EXPECT_EQ(lanczos->className(), "NNLanczosScaleNode");
  EXPECT_EQ(lanczos->transformProvider(), nullptr);
  const auto made = std::dynamic_pointer_cast<ImageLanczosScale>(lanczos->makeKernel(device_));
  ASSERT_NE(made, nullptr);
  EXPECT_EQ(made->outputWidth(), 7U);
  EXPECT_EQ(made->outputHeight(), 5U);
  const auto gradientOf = [&](NNFilterNode& node) {
    return node.gradientFilter(NNImageNode::create())->makeKernel(device_);
  };
  EXPECT_NE(std::dynamic_pointer_cast<ImageLanczosScaleGradient>(gradientOf(*lanczos)), nullptr);
  EXPECT_NE(std::dynamic_pointer_cast<NNResizeBilinearGradient>(gradientOf(*nodes[1])), nullptr);
  const auto provider = std::make_shared<MovesByFirstValue>();
  const auto moved = NNBilinearScaleNode::create(source, provider, {7, 5, 1});
  EXPECT_EQ(moved->transformProvider(), provider);
  EXPECT_NE(std::dynamic_pointer_cast<ImageBilinearScale>(moved->makeKernel(device_)), nullptr);
  EXPECT_NE(std::dynamic_pointer_cast<ImageBilinearScaleGradient>(gradientOf(*moved)), nullptr);
  EXPECT_TRUE(names(errorOf([&] {
                      NNLanczosScaleNode::create(source, provider, {7, 5, 2});
                    }),
                    {"NNLanczosScaleNode", "outputSize", "depth 2"}));
}

/// Each pixel gets what it gave: moved back.
TEST_F(Scale, GradientsMoveBack) {
  const auto forward = kernel<ImageBilinearScale>(6, 1);
  forward->setScaleTransform(ScaleTransform{1, 1, 1, 0});
  const Values results{1, 2, 3, 4, 5, 6};
  EXPECT_EQ(gradientOf(*forward, *gradient<ImageBilinearScaleGradient>(), row_, results),
            (Values{2, 3, 4, 5}));
  forward->setScaleTransform(ScaleTransform{2, 1, -2, 0});
  // Results lie at 0.75, 1.25, 1.75, 2.25, 2.75 and, moved to the edge, 3.
  EXPECT_EQ(gradientOf(*forward, *gradient<ImageBilinearScaleGradient>(), row_, {4, 4, 4, 4, 4, 4}),
            (Values{1, 7, 8, 8}));
  const auto lanczos = kernel<ImageLanczosScale>(6, 1);
  lanczos->setScaleTransform(ScaleTransform{1, 1, 1, 0});
  EXPECT_EQ(gradientOf(*lanczos, *gradient<ImageLanczosScaleGradient>(), row_, results),
            (Values{2, 3, 4, 5}));
}

/// What lies outside is of the edge pixel, with Clamp.
TEST_F(Scale, GradientsBesideTheEdge) {
  const auto expect = [&](ImageScale& forward, ImageScaleGradient& gradient) {
    forward.setScaleTransform(ScaleTransform{1, 1, 2, 0});
    const auto source = image(sizeOf(2, 1, 1), {3, 5});
    const Values results{1, 2, 4, 8, 16};
    EXPECT_EQ(gradientOf(forward, gradient, source, results), (Values{4, 8}));
    forward.setEdgeMode(ImageEdgeMode::Clamp);
    gradient.setSecondaryEdgeMode(ImageEdgeMode::Clamp);
    EXPECT_EQ(gradientOf(forward, gradient, source, results), (Values{7, 24}));
  };
  expect(*kernel<ImageBilinearScale>(5, 1), *gradient<ImageBilinearScaleGradient>());
  expect(*kernel<ImageLanczosScale>(5, 1), *gradient<ImageLanczosScaleGradient>());
}

/// The gradient is the transposed forward map: the products of y with g, and of x with dx, have the same sum.
TEST_F(Scale, LanczosGradientIsTheTransposedMap) {
  const auto forward = kernel<ImageLanczosScale>(5, 7);
  const auto gradient = this->gradient<ImageLanczosScaleGradient>();
  Values x(13 * 4);
  Values g(5 * 7);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * i % 17) - 5;
  for (std::size_t i = 0; i < g.size(); ++i) g[i] = static_cast<float>(i * i % 11) - 3;
  const auto product = [](const Values& a, const Values& b) {
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
    return sum;
  };
  const auto source = image(sizeOf(13, 4, 1), x);
  const double ofResults = product(scaled(*forward, source), g);
  const double ofPixels = product(gradientOf(*forward, *gradient, source, g), x);
  expectValues({1}, {static_cast<float>(ofPixels / ofResults)}, 13 * 4 * 5 * 7);
}

/// The state keeps what the forward kernel had (docs/decisions.md, D9).
TEST_F(Scale, LaterTransformsDoNotChangeTheGradient) {
  const auto forward = kernel<ImageBilinearScale>(4, 1);
  forward->setScaleTransform(ScaleTransform{1, 1, 1, 0});
  const auto buffer = commands();
  std::shared_ptr<State> state;
  forward->encode(buffer, row_, state, false);
  forward->setScaleTransform(ScaleTransform{3, 3, 3, 3});
  const auto dx = gradient<ImageBilinearScaleGradient>()->encode(buffer, image(sizeOf(4, 1, 1), {1, 2, 3, 4}),
                                                                 row_, state);
  run(buffer);
  EXPECT_EQ(valuesOf(*dx), (Values{2, 3, 4, 0}));
}

TEST_F(Scale, GradientsNeedTheStateOfTheirForwardKernel) {
  const auto buffer = commands();
  std::shared_ptr<State> state;
  kernel<ImageBilinearScale>(4, 1)->encode(buffer, row_, state, false);
  EXPECT_TRUE(
      names(errorOf([&] { gradient<ImageLanczosScaleGradient>()->encode(buffer, row_, row_, state); }),
            {"ImageLanczosScaleGradient", "gradientState", "ImageBilinearScale"}));
  EXPECT_TRUE(names(errorOf([&] {
                      static_cast<CNNBinaryKernel&>(*gradient<ImageLanczosScaleGradient>())
                          .encode(buffer, row_, row_, image(sizeOf(4, 1, 1)));
                    }),
                    {"ImageLanczosScaleGradient", "gradientState", "missing"}));
}

TEST_F(Scale, GradientsAreCopiedAndCoded) {
  const auto expectKept = [&](auto made) {
    made->setKernelOffsetX(3);
    KeyedArchiver archiver;
    made->encode(archiver);
    KeyedUnarchiver unarchiver(archiver.encodedData());
    using KernelType = typename decltype(made)::element_type;
    for (const auto& one : {made->copy(), KernelType::decode(unarchiver, device_)}) {
      EXPECT_EQ(one->className(), made->className());
      EXPECT_EQ(one->kernelOffsetX(), 3);
    }
  };
  expectKept(gradient<ImageBilinearScaleGradient>());
  expectKept(gradient<ImageLanczosScaleGradient>());
}

/// As a graph does.
void encodeStep(detail::ImageKernel& kernel, const std::shared_ptr<mtl::CommandBuffer>& buffer,
                std::span<const ImageBatch> sources, const StateBatch& states, const ImageBatch& results) {
  kernel.encodeGraphStep(buffer, {sources, {}, states, results, false});
}

/// Images of a batch that were moved differently are moved back each in its own way; also some of them, in another order.
TEST_F(Scale, EachImageOfABatchHasItsOwnTransform) {
  const auto node =
      NNBilinearScaleNode::create(NNImageNode::create(), std::make_shared<MovesByFirstValue>(), {3, 1, 1});
  const auto forward = std::dynamic_pointer_cast<CNNKernel>(node->makeKernel(device_));
  const ImageBatch sources[] = {batch(sizeOf(3, 1, 1), 4, {0, 5, 6, 1, 5, 6, 1, 7, 8, 2, 5, 6})};
  const ImageBatch results = batch(sizeOf(3, 1, 1), 4, Values(12, poison));
  const auto buffer = commands();
  const StateBatch states = forward->resultStateBatch(sources[0]);
  encodeStep(*forward, buffer, sources, states, results);
  const auto back = gradient<ImageBilinearScaleGradient>();
  const ImageBatch g = batch(sizeOf(3, 1, 1), 4, {1, 2, 3, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  const ImageBatch dx = back->encodeBatch(buffer, g, sources[0], states);
  const ImageBatch some =
      back->encodeBatch(buffer, ImageBatch{g[3], g[0]}, ImageBatch{sources[0][3], sources[0][0]},
                        StateBatch{states[3], states[0]});
  run(buffer);
  EXPECT_EQ(valuesOf(dx), (Values{1, 2, 3, 2, 3, 0, 5, 6, 0, 9, 0, 0}));
  EXPECT_EQ(valuesOf(some), (Values{9, 0, 0, 1, 2, 3}));
}

/// Once for each image, with the handle of its node; neighbours with the same answer share a call.
TEST_F(Scale, TheProviderIsAskedForEachImage) {
  const auto provider = std::make_shared<MovesByFirstValue>();
  const auto handle = std::make_shared<Named>();
  const auto node = NNBilinearScaleNode::create(NNImageNode::create(handle), provider, {3, 1, 1});
  const auto made = std::dynamic_pointer_cast<CNNKernel>(node->makeKernel(device_));
  const ImageBatch sources[] = {batch(sizeOf(3, 1, 1), 4, {0, 5, 6, 1, 5, 6, 1, 7, 8, 2, 5, 6})};
  const ImageBatch results = batch(sizeOf(3, 1, 1), 4, Values(12, poison));
  const auto buffer = commands();
  encodeStep(*made, buffer, sources, {}, results);
  run(buffer);
  EXPECT_EQ(provider->asked, 4);
  EXPECT_EQ(provider->lastHandle, handle);
  EXPECT_EQ(valuesOf(results), (Values{0, 5, 6, 0, 1, 5, 0, 1, 7, 0, 0, 2}));
}

TEST_F(Scale, AWrongAnswerLeavesNothing) {
  const auto provider = std::make_shared<MovesByFirstValue>();
  const auto node = NNLanczosScaleNode::create(NNImageNode::create(), provider, {3, 1, 1});
  const auto made = std::dynamic_pointer_cast<CNNKernel>(node->makeKernel(device_));
  const ImageBatch sources[] = {batch(sizeOf(3, 1, 1), 2, {0, 5, 6, 2e9F, 5, 6})};
  const ImageBatch results = batch(sizeOf(3, 1, 1), 2, Values(6, poison));
  const auto buffer = commands();
  EXPECT_TRUE(names(errorOf([&] { encodeStep(*made, buffer, sources, {}, results); }), {"translateX"}));
  run(buffer);
  EXPECT_EQ(valuesOf(results), Values(6, poison));
}

TEST_F(Scale, ProvidersAndHandlesAreCoded) {
  const auto node = NNLanczosScaleNode::create(NNImageNode::create(std::make_shared<Named>()),
                                               std::make_shared<MovesByFirstValue>(), {3, 1, 1});
  KeyedArchiver archiver;
  node->makeKernel(device_)->encode(archiver);
  KeyedUnarchiver unarchiver(archiver.encodedData());
  int decoded = 0;
  unarchiver.setDecoder("MovesByFirstValue", [&](Coder& coder, const std::shared_ptr<mtl::Device>&) {
    coder.codeClass("MovesByFirstValue");
    ++decoded;
    return std::make_shared<MovesByFirstValue>();
  });
  unarchiver.setDecoder("Named", [&](Coder& coder, const std::shared_ptr<mtl::Device>&) {
    coder.codeClass("Named");
    ++decoded;
    return std::make_shared<Named>();
  });
  EXPECT_EQ(ImageLanczosScale::decode(unarchiver, device_)->outputWidth(), 3U);
  EXPECT_EQ(decoded, 2);
}

}  // namespace
}  // namespace mps::image_scale_test
