#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "mps/convolution/check/test_source.hpp"
#include "mps/convolution/convolution.hpp"
#include "mps/core/kernel/command_buffer.hpp"
#include "mps/core/testing/test_images.hpp"

/// Reload, export and the weights-and-biases state.
namespace mps::convolution_weights_test {
namespace {

using testing::ArraySource;
using testing::bufferOf;
using testing::errorOf;
using testing::names;
using testing::sizeOf;
using testing::Values;
using testing::valuesOf;
using WeightsState = CNNConvolutionWeightsAndBiasesState;

/// out = 2 in + 1 for one pixel and one channel.
class ConvolutionWeights : public testing::DeviceTest {
 protected:
  ConvolutionWeights() { kernel_->setDestinationImageAllocator(Image::defaultAllocator()); }
  std::shared_ptr<Image> encode(const std::shared_ptr<mtl::CommandBuffer>& buffer, float in = 10) {
    return kernel_->encode(buffer, image(sizeOf(1, 1, 1), {in}));
  }
  float result() {
    const auto buffer = commands();
    const auto out = encode(buffer);
    run(buffer);
    return valuesOf(*out)[0];
  }
  std::shared_ptr<WeightsState> stateOf(float weight, float bias) {
    return WeightsState::create(bufferOf(device_, {weight}), bufferOf(device_, {bias}));
  }

  CNNConvolutionDescriptor shape_ = CNNConvolutionDescriptor::cnnConvolutionDescriptor(1, 1, 1, 1);
  std::shared_ptr<ArraySource> source_ = ArraySource::create(shape_, {2}, {1});
  std::shared_ptr<CNNConvolution> kernel_ = CNNConvolution::create(device_, source_);
};

TEST_F(ConvolutionWeights, TheDataSourceIsReadOnceAndCopied) {
  EXPECT_EQ(result(), 21);
  source_->setWeights({3});
  source_->biases = {5};
  EXPECT_EQ(result(), 21);
  EXPECT_EQ(source_->loads, 1);
}

TEST_F(ConvolutionWeights, TheTypeThatKernelsKeepIsAHintThatIsIgnored) {
  struct Half : ArraySource {
    using ArraySource::ArraySource;
    [[nodiscard]] DataType kernelWeightsDataType() const override { return DataType::Float16; }
  };
  EXPECT_EQ(source_->kernelWeightsDataType(), DataType::Float32);
  kernel_ = CNNConvolution::create(device_, std::make_shared<Half>(shape_, Values{1.0001F}, Values{}));
  kernel_->setDestinationImageAllocator(Image::defaultAllocator());
  EXPECT_EQ(result(), 10 * 1.0001F) << "float16 has no 1.0001";
}

TEST_F(ConvolutionWeights, AReloadFromTheDataSourceLeavesEncodedWorkAlone) {
  const auto buffer = commands();
  const auto before = encode(buffer);
  source_->setWeights({3});
  source_->biases.clear();
  kernel_->reloadWeightsAndBiasesFromDataSource();
  const auto after = encode(buffer);
  run(buffer);
  EXPECT_EQ(valuesOf(*before), Values{21});
  EXPECT_EQ(valuesOf(*after), Values{30}) << "no biases any more";
  EXPECT_EQ(source_->loads, 2);
  EXPECT_EQ(source_->purges, 2);
  source_->bytes.clear();
  EXPECT_TRUE(names(errorOf([&] { kernel_->reloadWeightsAndBiasesFromDataSource(); }),
                    {"CNNConvolution", "weights", "0 bytes", "4"}));
  EXPECT_EQ(result(), 30) << "a failed reload changes nothing";
}

TEST_F(ConvolutionWeights, AReloadFromAStateIsOrderedOnTheCommandBuffer) {
  const auto state = stateOf(4, 7);
  const auto buffer = commands();
  const auto before = encode(buffer);
  kernel_->reloadWeightsAndBiases(buffer, state);
  const auto after = encode(buffer);
  state->weights()->contentsAs<float>()[0] = 5;  // read when the copy runs
  run(buffer);
  EXPECT_EQ(valuesOf(*before), Values{21});
  EXPECT_EQ(valuesOf(*after), Values{57});
  state->weights()->contentsAs<float>()[0] = 6;
  EXPECT_EQ(result(), 57) << "the kernel has a copy";
  EXPECT_EQ(state->readCount(), 0U) << "a permanent state is not counted";
}

TEST_F(ConvolutionWeights, AReloadTakesOneReadOffATemporaryState) {
  const auto buffer = commands();
  const auto state = kernel_->exportWeightsAndBiases(buffer, true);
  EXPECT_TRUE(state->isTemporary());
  EXPECT_EQ(state->readCount(), 1U);
  state->setReadCount(2);
  kernel_->reloadWeightsAndBiases(buffer, state);
  EXPECT_EQ(state->readCount(), 1U);
  kernel_->reloadWeightsAndBiases(buffer, state);
  EXPECT_TRUE(names(errorOf([&] { kernel_->reloadWeightsAndBiases(buffer, state); }),
                    {"CNNConvolution", "state", "readCount is 0"}));
  const auto out = encode(buffer);
  run(buffer);
  EXPECT_EQ(valuesOf(*out), Values{21});
}

TEST_F(ConvolutionWeights, AStateWithoutBiasesSetsThemToZero) {
  const auto buffer = commands();
  kernel_->reloadWeightsAndBiases(buffer, WeightsState::create(bufferOf(device_, {4}), nullptr));
  const auto exported = kernel_->exportWeightsAndBiases(buffer, false);
  exported->biases()->contentsAs<float>()[0] = 77;
  run(buffer);
  EXPECT_EQ(result(), 40);
  EXPECT_EQ(valuesOf(exported->weights()), Values{4});
  EXPECT_EQ(valuesOf(exported->biases()), Values{0}) << "an export has biases always";
}

/// A predicate of 0 leaves destinations as they were.
TEST_F(ConvolutionWeights, AReloadThatAPredicateLeavesOutChangesNothing) {
  const auto predicate = Predicate::create(device_);
  const auto reload = [&](const std::shared_ptr<WeightsState>& state, std::uint32_t value) {
    predicate->predicateBuffer()->contentsAs<std::uint32_t>()[0] = value;
    const auto buffer = CommandBuffer::create(queue_);
    buffer->setPredicate(predicate);
    kernel_->reloadWeightsAndBiases(buffer, state);
    run(buffer);
    return result();
  };
  EXPECT_EQ(reload(stateOf(4, 7), 0), 21);
  EXPECT_EQ(reload(WeightsState::create(bufferOf(device_, {4}), nullptr), 0), 21) << "with its biases";
  EXPECT_EQ(reload(stateOf(4, 7), 1), 47);
  EXPECT_EQ(reload(stateOf(5, 8), 0), 47);
  source_->biases.clear();
  kernel_->reloadWeightsAndBiasesFromDataSource();
  EXPECT_EQ(reload(stateOf(4, 7), 0), 20) << "without biases";
}

TEST_F(ConvolutionWeights, AReloadInADroppedBufferChangesNothing) {
  {
    const auto buffer = commands();
    kernel_->reloadWeightsAndBiases(buffer, stateOf(4, 7));
    kernel_->reloadWeightsAndBiases(buffer, WeightsState::create(bufferOf(device_, {5}), nullptr));
  }
  EXPECT_EQ(result(), 21);
  const auto buffer = commands();
  kernel_->reloadWeightsAndBiases(buffer, stateOf(4, 7));
  run(buffer);
  EXPECT_EQ(result(), 47) << "a later one does";
}

TEST_F(ConvolutionWeights, AReloadInABufferThatWasEnqueuedAndDroppedChangesNothingForThoseBehindIt) {
  auto dropped = commands();
  kernel_->reloadWeightsAndBiases(dropped, stateOf(4, 7));
  dropped->enqueue();
  const auto behind = commands();
  encode(behind);
  behind->commit();
  dropped = nullptr;
  behind->throwIfFailed();
  EXPECT_EQ(result(), 21);
}

TEST_F(ConvolutionWeights, AnEncodeThatRunsBeforeItsReloadFails) {
  auto late = commands();
  kernel_->reloadWeightsAndBiases(late, stateOf(4, 7));
  const auto early = commands();
  encode(early);
  early->commit();
  EXPECT_TRUE(names(errorOf([&] { early->throwIfFailed(); }), {"CNNConvolution", "reload", "has not run"}));
  run(late);
  EXPECT_EQ(result(), 47);
}

TEST_F(ConvolutionWeights, AnExportIsACopyOfTheWeightsAtItsPlaceOnTheCommandBuffer) {
  const auto buffer = commands();
  const auto before = kernel_->exportWeightsAndBiases(buffer, false);
  kernel_->reloadWeightsAndBiases(buffer, stateOf(4, 7));
  const auto after = kernel_->exportWeightsAndBiases(buffer, false);
  run(buffer);
  EXPECT_FALSE(after->isTemporary());
  EXPECT_EQ(valuesOf(before->weights()), Values{2});
  EXPECT_EQ(valuesOf(before->biases()), Values{1});
  EXPECT_EQ(valuesOf(after->weights()), Values{4});
  EXPECT_EQ(valuesOf(after->biases()), Values{7});
  after->weights()->contentsAs<float>()[0] = 100;
  EXPECT_EQ(result(), 47);
}

TEST_F(ConvolutionWeights, ReloadsAndExportsAreChecked) {
  const auto reload = [&](const std::shared_ptr<WeightsState>& state) {
    return errorOf([&] { kernel_->reloadWeightsAndBiases(commands(), state); });
  };
  EXPECT_TRUE(names(reload(nullptr), {"CNNConvolution", "state", "null"}));
  EXPECT_TRUE(names(reload(WeightsState::create(bufferOf(device_, {1, 2}), nullptr)),
                    {"CNNConvolution", "state", "2 weights and 0 biases", "1 and 1"}));
  EXPECT_TRUE(names(reload(WeightsState::create(bufferOf(device_, {1}), bufferOf(device_, {1, 2}))),
                    {"1 weights and 2 biases"}));
  const auto otherDevice = mtl::newCPUDevice(1);
  EXPECT_TRUE(names(reload(WeightsState::create(bufferOf(otherDevice, {1}), nullptr)), {"state", "device"}));
  EXPECT_TRUE(names(errorOf([&] { kernel_->reloadWeightsAndBiases(nullptr, stateOf(1, 1)); }),
                    {"CNNConvolution", "commandBuffer", "null"}));
  EXPECT_TRUE(names(errorOf([&] { kernel_->exportWeightsAndBiases(nullptr, false); }),
                    {"CNNConvolution", "commandBuffer", "null"}));
  const auto gradient = CNNConvolutionGradient::create(device_, source_);
  EXPECT_TRUE(names(errorOf([&] { gradient->reloadWeightsAndBiases(commands(), nullptr); }),
                    {"CNNConvolutionGradient", "state", "null"}));
  const auto otherBuffer = commands();
  const auto foreign = WeightsState::createTemporary(otherBuffer, shape_);
  EXPECT_TRUE(names(reload(foreign), {"state", "another command buffer"}));
  EXPECT_EQ(result(), 21) << "nothing of this changed the weights";
}

TEST_F(ConvolutionWeights, AStateOverRangesOfOneBuffer) {
  const auto buffer = bufferOf(device_, {9, 4, 9, 7, 9});
  const auto state = WeightsState::create(buffer, 4, buffer, 12, shape_);
  EXPECT_EQ(state->weightsOffset(), 4U);
  EXPECT_EQ(state->biasesOffset(), 12U);
  EXPECT_EQ(state->weightCount(), 1U);
  EXPECT_EQ(state->biasCount(), 1U);
  const auto commandBuffer = commands();
  kernel_->reloadWeightsAndBiases(commandBuffer, state);
  const auto out = encode(commandBuffer);
  run(commandBuffer);
  EXPECT_EQ(valuesOf(*out), Values{47});
}

TEST_F(ConvolutionWeights, AStateAllocatedFromTheDescriptorHoldsZeros) {
  const auto state =
      WeightsState::create(device_, CNNConvolutionDescriptor::cnnConvolutionDescriptor(3, 2, 4, 5));
  EXPECT_EQ(state->weights()->length(), 5U * 2 * 3 * 4 * sizeof(float));
  EXPECT_EQ(valuesOf(state->biases()), Values(5));
  EXPECT_FALSE(state->isTemporary());
  const auto depthWise =
      WeightsState::create(device_, CNNDepthWiseConvolutionDescriptor::cnnConvolutionDescriptor(3, 2, 4, 8));
  EXPECT_EQ(depthWise->weightCount(), 8U * 2 * 3);
  const auto noBiases = WeightsState::create(bufferOf(device_, {1}), nullptr);
  EXPECT_EQ(noBiases->biases(), nullptr);
  EXPECT_EQ(noBiases->biasCount(), 0U);
}

TEST_F(ConvolutionWeights, D26ALayerWithoutBiasesTakesNone) {
  const auto source = ArraySource::create(shape_, {2});
  const auto kernel = CNNConvolution::create(device_, source);
  kernel->setDestinationImageAllocator(Image::defaultAllocator());
  const auto resultFor = [&](float in) {
    const auto buffer = commands();
    const auto out = kernel->encode(buffer, image(sizeOf(1, 1, 1), {in}));
    run(buffer);
    return valuesOf(*out)[0];
  };
  const auto buffer = commands();
  const auto exported = kernel->exportWeightsAndBiases(buffer, false);
  EXPECT_EQ(exported->biases(), nullptr);
  EXPECT_EQ(exported->biasCount(), 0U);
  EXPECT_EQ(kernel->exportWeightsAndBiases(buffer, true)->biases(), nullptr);
  kernel->reloadWeightsAndBiases(buffer, stateOf(4, 7));
  run(buffer);
  EXPECT_EQ(valuesOf(exported->weights()), Values{2});
  EXPECT_EQ(resultFor(10), 40) << "the state's weight, without its bias";

  const auto live = WeightsState::create(device_, shape_);
  live->weights()->contentsAs<float>()[0] = 3;
  live->biases()->contentsAs<float>()[0] = 100;
  source->live = live;
  kernel->reloadWeightsAndBiasesFromDataSource();
  EXPECT_EQ(resultFor(10), 30) << "memory for biases makes none";
  source->biases = {100};
  kernel->reloadWeightsAndBiasesFromDataSource();
  EXPECT_EQ(resultFor(10), 130);
}

TEST_F(ConvolutionWeights, StatesAreChecked) {
  const char* const kernel = "CNNConvolutionWeightsAndBiasesState";
  const auto buffer = bufferOf(device_, {1, 2, 3});
  const auto make = [&](std::size_t weightsOffset, std::size_t biasesOffset) {
    return errorOf([&] { WeightsState::create(buffer, weightsOffset, buffer, biasesOffset, shape_); });
  };
  EXPECT_EQ(make(8, 0), "");
  EXPECT_EQ(make(0, 4), "");
  EXPECT_TRUE(names(make(4, 4), {kernel, "biasesOffset", "4", "overlap", "bytes 4 to 8"}));
  EXPECT_TRUE(names(errorOf([&] { WeightsState::create(nullptr, buffer); }), {kernel, "weights", "null"}));
  EXPECT_TRUE(names(make(2, 0), {kernel, "weights", "at byte 2", "multiple of 4"}));
  EXPECT_TRUE(names(make(12, 0), {kernel, "weights", "12 bytes", "16"}));
  EXPECT_TRUE(names(make(0, 12), {kernel, "biases", "12 bytes", "16"}));
  EXPECT_TRUE(names(make(0, std::numeric_limits<std::size_t>::max() - 3), {kernel, "biases", "12 bytes"}));
}

/// CNNConvolutionDataSource::deviceWeightsAndBiases: the kernel uses the source's own buffers.
TEST_F(ConvolutionWeights, WeightsThatLiveOnTheDeviceAreNotCopied) {
  source_->live = stateOf(3, 4);
  const auto gradient = CNNConvolutionGradient::create(device_, source_);
  kernel_ = CNNConvolution::create(device_, source_);
  kernel_->setDestinationImageAllocator(Image::defaultAllocator());
  EXPECT_EQ(result(), 34);
  source_->live->weights()->contentsAs<float>()[0] = 5;
  EXPECT_EQ(result(), 54);
  source_->live = WeightsState::create(bufferOf(device_, {1, 2}), nullptr);
  EXPECT_TRUE(names(errorOf([&] { CNNConvolution::create(device_, source_); }),
                    {"CNNConvolution", "deviceWeightsAndBiases", "2 weights", "1"}));
}

}  // namespace
}  // namespace mps::convolution_weights_test
