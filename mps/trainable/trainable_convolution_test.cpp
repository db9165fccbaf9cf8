#include "mps/trainable/trainable_convolution.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "mps/optimizer/optimizer.hpp"
#include "mps/weights/safetensors.hpp"
#include "mps/weights/test_folder.hpp"
#include "mtl/device.hpp"

namespace mps {
namespace {

std::vector<float> weightsOf(const TrainableConvolution& convolution) {
  std::vector<float> values(convolution.weights().size() / sizeof(float));
  std::memcpy(values.data(), convolution.weights().data(), convolution.weights().size());
  return values;
}

class TrainableConvolutionTest : public testing::Test {
 protected:
  std::shared_ptr<TrainableConvolution> make(std::uint64_t seed,
                                             WeightInitialization initialization = WeightInitialization::He) {
    return TrainableConvolution::create(device_, descriptor_, "layer", seed, nullptr, initialization);
  }
  std::shared_ptr<mtl::Device> device_ = mtl::createSystemDefaultDevice();
  // 3x3 windows of 4 channels: fanIn = 36, fanOut = 54.
  CNNConvolutionDescriptor descriptor_ = CNNConvolutionDescriptor::cnnConvolutionDescriptor(3, 3, 4, 6);
};

TEST_F(TrainableConvolutionTest, HeStaysWithinItsBoundAndComesNearIt) {
  const auto values = weightsOf(*make(7));
  ASSERT_EQ(values.size(), 216U);
  const auto bound = static_cast<float>(std::sqrt(6.0 / 36));
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  EXPECT_GE(*least, -bound);
  EXPECT_LE(*most, bound);
  EXPECT_LT(*least, -bound / 2);
  EXPECT_GT(*most, bound / 2);
}

TEST_F(TrainableConvolutionTest, GlorotDividesByBothFans) {
  const auto values = weightsOf(*make(7, WeightInitialization::Glorot));
  const auto bound = static_cast<float>(std::sqrt(6.0 / (36 + 54)));
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  EXPECT_GE(*least, -bound);
  EXPECT_LE(*most, bound);
  EXPECT_GT(*most, bound / 2);
}

TEST_F(TrainableConvolutionTest, ConstantGivesOneValueAndBiasesStartAtZero) {
  const auto convolution = make(7, WeightInitialization::Constant);
  for (const float value : weightsOf(*convolution)) EXPECT_EQ(value, TrainableConvolution::constantWeight);
  for (const float value : convolution->biasTerms()) EXPECT_EQ(value, 0);
}

TEST_F(TrainableConvolutionTest, TheSeedDecidesTheWeights) {
  EXPECT_EQ(weightsOf(*make(7)), weightsOf(*make(7)));
  EXPECT_NE(weightsOf(*make(7)), weightsOf(*make(8)));
}

TEST_F(TrainableConvolutionTest, WeightsComeBackFromAFile) {
  const detail::TestFolder folder;
  const auto path = folder / "layer.safetensors";
  const auto written = make(7);
  writeSafetensors(path, written->tensors(false), {});
  const auto read = make(8);
  read->read(SafetensorsFile::read(path), false);
  EXPECT_EQ(weightsOf(*read), weightsOf(*written));
}

TEST_F(TrainableConvolutionTest, RefusesAMissingDevice) {
  EXPECT_THROW(TrainableConvolution::create(nullptr, descriptor_, "layer", 1, nullptr), Error);
}

TEST_F(TrainableConvolutionTest, RefusesAFileOfAnotherShape) {
  const detail::TestFolder folder;
  const auto path = folder / "layer.safetensors";
  writeSafetensors(path, make(7)->tensors(false), {});
  descriptor_.setOutputFeatureChannels(7);
  const auto other = make(8);
  const auto before = weightsOf(*other);
  EXPECT_THROW(other->read(SafetensorsFile::read(path), false), Error);
  EXPECT_EQ(weightsOf(*other), before);
}

}  // namespace
}  // namespace mps
