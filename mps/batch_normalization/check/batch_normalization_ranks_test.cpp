#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "mps/batch_normalization/batch_normalization.hpp"
#include "mps/batch_normalization/check/batch_normalization_fixed_source.hpp"
#include "mps/conform/tolerance.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mps/core/types/error.hpp"
#include "mps/distributed/test_ranks.hpp"

/// One batch on several ranks, kernel by kernel.
namespace mps::batch_normalization_ranks_test {
namespace {

using State = std::shared_ptr<CNNBatchNormalizationState>;
using testing::Values;

constexpr std::size_t imageCount = 5;
constexpr std::size_t channels = 3;
constexpr std::size_t imageElements = std::size_t{4} * 4 * channels;

Values someValues(std::size_t factor) {
  Values values(imageCount * imageElements);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>((i * factor + i * i) % 101) / 101 + 3;
  return values;
}

struct Results {
  Values y, dx, mean, variance, gammaGradient, betaGradient;
};

/// The step of the header's example. @param communicator null: none
Results passOver(const std::shared_ptr<mtl::Device>& device,
                 const std::shared_ptr<Communicator>& communicator, std::size_t first, std::size_t count,
                 ImageFeatureChannelFormat format) {
  const ImageDescriptor size(format, 4, 4, channels);
  const auto batchOf = [&](const Values& values) {
    const auto all = ImageBatch::create(device, size, imageCount);
    for (std::size_t n = 0; n < imageCount; ++n)
      testing::fill(*all[n], Values(values.begin() + static_cast<std::ptrdiff_t>(n * imageElements),
                                    values.begin() + static_cast<std::ptrdiff_t>((n + 1) * imageElements)));
    return all.slice(first, count);
  };
  const auto x = batchOf(someValues(37));
  const auto dy = batchOf(someValues(53));
  const auto y = ImageBatch::create(device, {ImageFeatureChannelFormat::Float32, 4, 4, channels}, imageCount);
  const auto dx =
      ImageBatch::create(device, {ImageFeatureChannelFormat::Float32, 4, 4, channels}, imageCount);
  const auto source = detail::FixedBatchNormalization::create(channels);
  source->gammas = {1, 2, -1};
  const auto normalization = CNNBatchNormalization::create(device, source);
  const auto statistics = CNNBatchNormalizationStatistics::create(device);
  const auto sums = CNNBatchNormalizationStatisticsGradient::create(device);
  const auto state =
      std::static_pointer_cast<CNNBatchNormalizationState>(normalization->resultState(nullptr));
  const auto commandBuffer = device->newCommandQueue()->commandBuffer();
  statistics->encodeBatch(commandBuffer, x, state);
  if (communicator) statistics->gatherStatistics(commandBuffer, communicator, imageCount * 16, state);
  if (count > 0) normalization->encodeBatch(commandBuffer, x, state, y.slice(0, count));
  sums->encodeBatch(commandBuffer, dy, x, state);
  if (communicator) sums->reduceGradients(commandBuffer, communicator, state);
  if (count > 0)
    CNNBatchNormalizationGradient::create(device)->encodeBatch(commandBuffer, dy, x, state,
                                                               dx.slice(0, count));
  commandBuffer->commit();
  commandBuffer->throwIfFailed();
  const auto floats = [](const std::shared_ptr<mtl::Buffer>& buffer) {
    const auto values = buffer->contentsAs<const float>();
    return Values(values.begin(), values.end());
  };
  const auto pixels = [&](const ImageBatch& images) {
    return count > 0 ? testing::valuesOf(images.slice(0, count)) : Values();
  };
  return {pixels(y),
          pixels(dx),
          floats(state->mean()),
          floats(state->variance()),
          floats(state->gradientForGamma()),
          floats(state->gradientForBeta())};
}

/// Float32 roundings of what float64 sums in another order leave.
void expectNear(const Values& found, const Values& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double roundings = 8 * std::max(1.0, std::abs(static_cast<double>(expected[i])));
    ASSERT_NEAR(found[i], expected[i], roundings * detail::kFloat32Roundoff) << i;
  }
}

void append(Values& all, const Values& more) {
  all.insert(all.end(), more.begin(), more.end());
}
void add(Values& sums, const Values& more) {
  sums.resize(more.size());
  for (std::size_t i = 0; i < more.size(); ++i) sums[i] += more[i];
}

/// Parts that are not alike, the last one of no images.
class BatchNormalizationRanks
    : public ::testing::TestWithParam<std::tuple<std::size_t, ImageFeatureChannelFormat>> {};

TEST_P(BatchNormalizationRanks, GiveTheResultsOfOneDevice) {
  const std::size_t ranks = std::get<0>(GetParam());
  const ImageFeatureChannelFormat format = std::get<1>(GetParam());
  const Results one = passOver(mtl::newCPUDevice(1), nullptr, 0, imageCount, format);
  std::vector<Results> parts(ranks);
  test::runAll(test::ranks(ranks), [&](const auto& communicator) {
    const auto rank = static_cast<std::size_t>(communicator->rank());
    const auto begin = [&](std::size_t place) { return place < ranks - 1 ? place : imageCount; };
    parts[rank] =
        passOver(communicator->device(), communicator, begin(rank), begin(rank + 1) - begin(rank), format);
  });
  Results all;
  for (const Results& part : parts) {
    EXPECT_EQ(part.mean, parts[0].mean);
    EXPECT_EQ(part.variance, parts[0].variance);
    append(all.y, part.y);
    append(all.dx, part.dx);
    add(all.gammaGradient, part.gammaGradient);
    add(all.betaGradient, part.betaGradient);
  }
  EXPECT_TRUE(parts.back().y.empty());
  expectNear(parts[0].mean, one.mean);
  expectNear(parts[0].variance, one.variance);
  expectNear(all.y, one.y);
  expectNear(all.dx, one.dx);
  expectNear(all.gammaGradient, one.gammaGradient);
  expectNear(all.betaGradient, one.betaGradient);
}

INSTANTIATE_TEST_SUITE_P(Sizes, BatchNormalizationRanks,
                         ::testing::Combine(::testing::Values(2, 3, 4),
                                            ::testing::Values(ImageFeatureChannelFormat::Float32,
                                                              ImageFeatureChannelFormat::Float16)));

TEST(BatchNormalizationOfRanks, RefusesWhatCannotBeOfAll) {
  const auto device = mtl::newCPUDevice(1);
  const auto communicator = Communicator::create(device);
  const auto normalization =
      CNNBatchNormalization::create(device, detail::FixedBatchNormalization::create(channels));
  const auto statistics = CNNBatchNormalizationStatistics::create(device);
  const auto sums = CNNBatchNormalizationStatisticsGradient::create(device);
  const auto newState = [&] {
    return std::static_pointer_cast<CNNBatchNormalizationState>(normalization->resultState(nullptr));
  };
  const auto commandBuffer = device->newCommandQueue()->commandBuffer();
  const auto state = newState();
  const auto images = ImageBatch::create(device, {ImageFeatureChannelFormat::Float32, 4, 4, channels}, 2);
  statistics->encodeBatch(commandBuffer, images, state);
  const std::vector<std::pair<std::function<void()>, std::string>> cases{
      {[&] { statistics->gatherStatistics(commandBuffer, nullptr, 32, state); }, "communicator is null"},
      {[&] { statistics->gatherStatistics(commandBuffer, communicator, 32, State()); },
       "batchNormalizationState is null"},
      {[&] { statistics->gatherStatistics(commandBuffer, communicator, 31, state); },
       "elementCount is 31, expected that of all ranks, at least 1 and 32"},
      {[&] { sums->reduceGradients(commandBuffer, communicator, state); }, "without a statistics gradient"},
  };
  for (const auto& [function, expected] : cases) {
    std::string message;
    try {
      function();
    } catch (const Error& error) {
      message = error.what();
    }
    EXPECT_NE(message.find(expected), std::string::npos) << message << " / " << expected;
  }
}

}  // namespace
}  // namespace mps::batch_normalization_ranks_test
