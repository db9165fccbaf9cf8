#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>

#include "mps/batch_normalization/batch_normalization.hpp"
#include "mps/batch_normalization/check/batch_normalization_fixed_source.hpp"
#include "mps/convolution/convolution.hpp"
#include "mps/core/coding/coder.hpp"
#include "mps/core/image/image_allocator.hpp"
#include "mps/core/kernel/command_buffer.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mps/graph/check/test_network.hpp"
#include "mps/instance_normalization/check/instance_normalization_fixed_source.hpp"
#include "mps/instance_normalization/instance_normalization.hpp"

/// Code of the user's that an encode calls: what it may not do, and what becomes of the encode then.
namespace mps::user_code_test {
namespace {

using testing::errorOf;
using testing::names;

using UserCode = std::function<void(const std::shared_ptr<mtl::CommandBuffer>&)>;

/// Calls user code in its update.
class CallingSource final : public test::UserSource {
 public:
  using UserSource::update;
  using UserSource::UserSource;
  std::shared_ptr<CNNConvolutionWeightsAndBiasesState> update(
      const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
      const std::shared_ptr<CNNConvolutionGradientState>& gradientState,
      const std::shared_ptr<CNNConvolutionWeightsAndBiasesState>& sourceState) override {
    auto state = UserSource::update(commandBuffer, gradientState, sourceState);
    if (code) code(commandBuffer);
    return state;
  }
  UserCode code;
};

/// Calls user code before it makes temporary images.
class CallingAllocator final : public ImageAllocator {
 public:
  explicit CallingAllocator(UserCode code) : code_(std::move(code)) {}
  std::shared_ptr<Image> image(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                               const ImageDescriptor& descriptor, const Kernel& kernel) override {
    code_(commandBuffer);
    return TemporaryImage::defaultAllocator()->image(commandBuffer, descriptor, kernel);
  }

 private:
  UserCode code_;
};

/// Calls user code when it is asked for a size.
class CallingPadding final : public NNPadding {
 public:
  explicit CallingPadding(std::function<void()> code) : code_(std::move(code)) {}
  [[nodiscard]] NNPaddingMethod paddingMethod() const override {
    return NNPaddingMethod::SizeSame | NNPaddingMethod::Custom;
  }
  ImageDescriptor destinationImageDescriptor(std::span<const std::shared_ptr<Image>> /*sourceImages*/,
                                             std::span<const std::shared_ptr<State>> /*sourceStates*/,
                                             Kernel& /*kernel*/, const ImageDescriptor& suggested) override {
    code_();
    return suggested;
  }

 private:
  std::function<void()> code_;
};

class UserCodeTest : public testing::DeviceTest {
 protected:
  std::shared_ptr<CallingSource> source_ =
      std::make_shared<CallingSource>(device_, *test::layer(device_, 3, 1, 4, "conv"));
  std::shared_ptr<NNGraph> graph_ =
      test::SmallNetwork(source_, test::layer(device_, 4, 4, 3, "dense"), false).trainingGraph(device_);

  void encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer) {
    graph_->encodeBatch(commandBuffer, {test::pictures(device_, 0)}, {test::labels(device_, 0)});
  }
};

TEST_F(UserCodeTest, AnUpdateCannotCommitTheBufferOfItsEncode) {
  source_->code = [](const auto& commandBuffer) { commandBuffer->commit(); };
  const auto commandBuffer = commands();
  EXPECT_TRUE(names(errorOf([&] { encode(commandBuffer); }), {"committed inside an encode", "data source"}));
  EXPECT_EQ(commandBuffer->status(), mtl::CommandBufferStatus::NotEnqueued);
  EXPECT_EQ(commandBuffer->commandCount(), 0U);
  source_->code = nullptr;
  encode(commandBuffer);
  run(commandBuffer);
}

TEST_F(UserCodeTest, NorGoOnWithAnotherPieceOfIt) {
  const auto commandBuffer = CommandBuffer::create(queue_);
  source_->code = [&](const auto& /*face*/) { commandBuffer->commitAndContinue(); };
  EXPECT_TRUE(names(errorOf([&] { encode(commandBuffer); }), {"committed inside an encode"}));
  source_->code = nullptr;
  encode(commandBuffer);
  commandBuffer->commitAndContinue();
  encode(commandBuffer);
  commandBuffer->commit();
  commandBuffer->throwIfFailed();
}

TEST_F(UserCodeTest, AnUpdateThatTriesAndGoesOnHarmsNothing) {
  int refusals = 0;
  source_->code = [&](const auto& commandBuffer) {
    if (!errorOf([&] { commandBuffer->commit(); }).empty()) ++refusals;
  };
  const auto commandBuffer = commands();
  encode(commandBuffer);
  EXPECT_EQ(refusals, 1);
  run(commandBuffer);
}

TEST_F(UserCodeTest, AnAllocatorCannotCommitIt) {
  const auto commit = [](const auto& commandBuffer) { commandBuffer->commit(); };
  const auto convolution = CNNConvolution::create(device_, test::layer(device_, 3, 1, 4, "conv"));
  convolution->setDestinationImageAllocator(std::make_shared<CallingAllocator>(commit));
  auto commandBuffer = commands();
  const auto pictures = test::pictures(device_, 0);
  EXPECT_TRUE(names(errorOf([&] { convolution->encode(commandBuffer, pictures[0]); }),
                    {"committed inside an encode"}));
  EXPECT_TRUE(names(errorOf([&] { convolution->encodeBatch(commandBuffer, pictures); }),
                    {"committed inside an encode"}));
  run(commandBuffer);
  const auto node = CNNConvolutionNode::create(NNImageNode::create(), test::layer(device_, 3, 1, 4, "conv"));
  const auto graph = NNGraph::create(device_, node->resultImage());
  graph->setDestinationImageAllocator(std::make_shared<CallingAllocator>(commit));
  commandBuffer = commands();
  EXPECT_TRUE(
      names(errorOf([&] { graph->encodeBatch(commandBuffer, {pictures}); }), {"committed inside an encode"}));
  run(commandBuffer);
}

TEST_F(UserCodeTest, APaddingPolicyCannotCommitIt) {
  std::shared_ptr<mtl::CommandBuffer> commandBuffer = commands();
  const auto policy = std::make_shared<CallingPadding>([&] { commandBuffer->commit(); });
  const auto pictures = test::pictures(device_, 0);
  const auto convolution = CNNConvolution::create(device_, test::layer(device_, 3, 1, 4, "conv"));
  convolution->setPadding(policy);
  EXPECT_TRUE(names(errorOf([&] { convolution->encodeBatch(commandBuffer, pictures); }),
                    {"committed inside an encode"}));
  run(commandBuffer);
  const auto node = CNNConvolutionNode::create(NNImageNode::create(), test::layer(device_, 3, 1, 4, "conv"));
  node->setPaddingPolicy(policy);
  const auto graph = NNGraph::create(device_, node->resultImage());
  commandBuffer = commands();
  EXPECT_TRUE(
      names(errorOf([&] { graph->encodeBatch(commandBuffer, {pictures}); }), {"committed inside an encode"}));
  run(commandBuffer);
}

/// purge() throws when it is asked to.
class ThrowingSource final : public test::UserSource {
 public:
  using UserSource::UserSource;
  void purge() override {
    UserSource::purge();
    if (throws) throw std::runtime_error("purge");
  }
  [[nodiscard]] DataType dataType() const override { return isReadable ? DataType::Float32 : DataType::Int8; }
  [[nodiscard]] std::string label() const override { return "conv1"; }
  bool throws = true, isReadable = true;
};

template <class Function>
std::string thrownBy(Function&& function) {
  try {
    function();
  } catch (const std::exception& error) {
    return error.what();
  }
  return {};
}

TEST_F(UserCodeTest, WhatPurgeThrowsReachesTheCaller) {
  const auto source = std::make_shared<ThrowingSource>(device_, *test::layer(device_, 3, 1, 4, "conv"));
  EXPECT_EQ(thrownBy([&] { CNNConvolution::create(device_, source); }), "purge");
  EXPECT_EQ(source->loads, source->purges);
  source->throws = false;
  const auto kernel = CNNConvolution::create(device_, source);
  source->throws = true;
  EXPECT_EQ(thrownBy([&] { kernel->reloadWeightsAndBiasesFromDataSource(); }), "purge");
  EXPECT_EQ(source->loads, source->purges);
  KeyedArchiver archiver;
  EXPECT_EQ(thrownBy([&] { kernel->encode(archiver); }), "purge");
}

TEST_F(UserCodeTest, WhatReadingThrowsComesFirst) {
  const auto source = std::make_shared<ThrowingSource>(device_, *test::layer(device_, 3, 1, 4, "conv"));
  source->isReadable = false;
  EXPECT_TRUE(names(thrownBy([&] { CNNConvolution::create(device_, source); }),
                    {"CNNConvolution \"conv1\"", "weights"}));
  EXPECT_EQ(source->loads, source->purges);
}

/// A fixed source whose purge() throws.
template <class Fixed>
class Throwing final : public Fixed {
 public:
  using Fixed::Fixed;
  void purge() override { throw std::runtime_error("purge"); }
};

TEST_F(UserCodeTest, WhatPurgeOfANormalisationThrowsReachesTheCaller) {
  const auto batch = std::make_shared<Throwing<detail::FixedBatchNormalization>>(3);
  EXPECT_EQ(thrownBy([&] { CNNBatchNormalization::create(device_, batch); }), "purge");
  const auto instance = std::make_shared<Throwing<detail::FixedInstanceNormalization>>(3, 0.5F);
  EXPECT_EQ(thrownBy([&] { CNNInstanceNormalization::create(device_, instance); }), "purge");
}

}  // namespace
}  // namespace mps::user_code_test
