#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "mps/core/array/vector.hpp"
#include "mps/core/image/image_batch.hpp"
#include "mps/core/image/state.hpp"
#include "mps/core/types/float16.hpp"
#include "mps/distributed/communicator.hpp"
#include "mps/distributed/test_ranks.hpp"
#include "mtl/buffer.hpp"
#include "mtl/error.hpp"

/// What every engine must do, as one rank sees it: shared by the tests of threads and those of processes.
namespace mps::test {

/// Element i of what a rank begins with.
inline float valueOf(int rank, std::size_t i) {
  const auto number =
      static_cast<std::uint32_t>(i * 2654435761U + static_cast<std::size_t>(rank) * 40503U + 1);
  return (static_cast<float>(number * 747796405U >> 16U) / 65536.0F - 0.5F) * static_cast<float>(1 + rank);
}
inline std::vector<float> valuesOf(int rank, std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = valueOf(rank, i);
  return values;
}

/// Sums of the ranks' values, in float64. @param magnitude of their sum of absolute values
struct ExpectedSum {
  double sum = 0;
  double magnitude = 0;
  ExpectedSum(int ranks, std::size_t i) {
    for (int rank = 0; rank < ranks; ++rank) {
      sum += static_cast<double>(valueOf(rank, i));
      magnitude += std::abs(static_cast<double>(valueOf(rank, i)));
    }
  }
};

/// Each addition rounds once.
inline void expectSums(std::span<const float> found, int ranks, double unitRoundoff) {
  for (std::size_t i = 0; i < found.size(); ++i) {
    const ExpectedSum expected(ranks, i);
    ASSERT_NEAR(static_cast<double>(found[i]), expected.sum, expected.magnitude * ranks * unitRoundoff) << i;
  }
}

constexpr double floatRoundoff = 0x1p-24;
constexpr double float16Roundoff = 0x1p-11;

inline std::shared_ptr<mtl::Buffer> bufferOf(const Communicator& communicator,
                                             std::span<const float> values) {
  return communicator.device()->newBuffer(std::as_bytes(values));
}

inline void sumsBuffers(const std::shared_ptr<Communicator>& communicator) {
  for (const std::size_t count : {std::size_t{1}, std::size_t{7}, std::size_t{5000}}) {
    const auto buffer = bufferOf(*communicator, valuesOf(communicator->rank(), count));
    encodeNow(*communicator,
              [&](const auto& commandBuffer) { communicator->allReduce(commandBuffer, buffer); });
    expectSums(buffer->contentsAs<float>(), communicator->size(), floatRoundoff);
  }
}

inline void sumsFloat16(const std::shared_ptr<Communicator>& communicator) {
  std::vector<Float16> values;
  constexpr std::size_t count = 1000;
  for (const float value : valuesOf(communicator->rank(), count)) values.push_back(toFloat16(value));
  const auto buffer = communicator->device()->newBuffer(std::as_bytes(std::span(values)));
  encodeNow(*communicator, [&](const auto& commandBuffer) {
    communicator->allReduce(commandBuffer, buffer, DataType::Float16);
  });
  std::vector<float> found;
  for (const Float16 value : buffer->contentsAs<Float16>()) found.push_back(toFloat(value));
  expectSums(found, communicator->size(), 2 * float16Roundoff);
}

/// Vectors with padding between them, which stays as it was.
inline void sumsVectors(const std::shared_ptr<Communicator>& communicator) {
  constexpr std::size_t length = 5;
  constexpr std::size_t stride = 8;
  const auto values = valuesOf(communicator->rank(), 2 * stride);
  const auto buffer = bufferOf(*communicator, values);
  const auto vector = Vector::create(
      buffer, VectorDescriptor::vectorDescriptor(length, 2, stride * sizeof(float), DataType::Float32));
  encodeNow(*communicator,
            [&](const auto& commandBuffer) { communicator->allReduce(commandBuffer, vector); });
  const auto found = buffer->contentsAs<float>();
  for (std::size_t i = 0; i < found.size(); ++i) {
    const ExpectedSum expected(communicator->size(), i);
    if (i % stride < length)
      ASSERT_NEAR(static_cast<double>(found[i]), expected.sum,
                  expected.magnitude * communicator->size() * floatRoundoff);
    else
      ASSERT_EQ(found[i], values[i]);
  }
}

inline void sumsStates(const std::shared_ptr<Communicator>& communicator) {
  const auto first = bufferOf(*communicator, valuesOf(communicator->rank(), 10));
  const auto second = bufferOf(*communicator, valuesOf(communicator->rank(), 3));
  const auto state = State::create({first, second});
  encodeNow(*communicator, [&](const auto& commandBuffer) { communicator->allReduce(commandBuffer, state); });
  expectSums(first->contentsAs<float>(), communicator->size(), floatRoundoff);
  expectSums(second->contentsAs<float>(), communicator->size(), floatRoundoff);
}

/// In one block, and loose ones that lie apart.
inline void sumsImages(const std::shared_ptr<Communicator>& communicator) {
  constexpr std::size_t images = 3;
  const ImageDescriptor size(ImageFeatureChannelFormat::Float32, 4, 3, 5);
  constexpr std::size_t elements = images * std::size_t{4} * 3 * 5;
  const auto whole = ImageBatch::create(communicator->device(), size, images);
  const auto apart = ImageBatch::create(communicator->device(), size, 2 * images);
  for (const ImageBatch& batch : {whole, ImageBatch{apart[0], apart[1], apart[5]}}) {
    batch.writeBytes(valuesOf(communicator->rank(), elements), DataLayout::HeightxWidthxFeatureChannels);
    encodeNow(*communicator,
              [&](const auto& commandBuffer) { communicator->allReduce(commandBuffer, batch); });
    std::vector<float> found(elements);
    batch.readBytes(found, DataLayout::HeightxWidthxFeatureChannels);
    expectSums(found, communicator->size(), floatRoundoff);
  }
}

/// Two sums at once, while a third command runs between their beginning and their end.
inline void sumsWhileOthersRun(const std::shared_ptr<Communicator>& communicator) {
  std::vector<std::shared_ptr<mtl::Buffer>> first, second;
  for (const std::size_t count : {std::size_t{3}, std::size_t{1000}}) {
    first.push_back(bufferOf(*communicator, valuesOf(communicator->rank(), count)));
    second.push_back(bufferOf(*communicator, valuesOf(communicator->rank(), count + 1)));
  }
  encodeNow(*communicator, [&](const auto& commandBuffer) {
    const auto firstSum = communicator->startAllReduce(commandBuffer, first);
    communicator->recordProgress(commandBuffer);
    const auto secondSum = communicator->startAllReduce(commandBuffer, second);
    communicator->recordProgress(commandBuffer);
    communicator->finish(commandBuffer, firstSum);
    communicator->finish(commandBuffer, secondSum);
  });
  for (const auto& buffers : {first, second})
    for (const auto& buffer : buffers)
      expectSums(buffer->contentsAs<float>(), communicator->size(), floatRoundoff);
}

inline void gathersInTheOrderOfRanks(const std::shared_ptr<Communicator>& communicator) {
  constexpr std::size_t count = 5;
  const auto own = bufferOf(*communicator, valuesOf(communicator->rank(), count));
  const auto all =
      communicator->device()->newBuffer(own->length() * static_cast<std::size_t>(communicator->size()));
  encodeNow(*communicator,
            [&](const auto& commandBuffer) { communicator->allGather(commandBuffer, own, all); });
  const auto found = all->contentsAs<float>();
  for (std::size_t i = 0; i < found.size(); ++i)
    ASSERT_EQ(found[i], valueOf(static_cast<int>(i / count), i % count));
}

inline void broadcastsFromEachRank(const std::shared_ptr<Communicator>& communicator) {
  constexpr std::size_t count = 9;
  for (int root = 0; root < communicator->size(); ++root) {
    const auto buffer = bufferOf(*communicator, valuesOf(communicator->rank(), count));
    const auto state = State::create({bufferOf(*communicator, valuesOf(communicator->rank(), count))});
    encodeNow(*communicator, [&](const auto& commandBuffer) {
      communicator->broadcast(commandBuffer, buffer, root);
      communicator->broadcast(commandBuffer, state, root);
    });
    for (std::size_t i = 0; i < count; ++i) {
      ASSERT_EQ(buffer->contentsAs<float>()[i], valueOf(root, i));
      ASSERT_EQ(state->resource(0)->contentsAs<float>()[i], valueOf(root, i));
    }
  }
}

/// The last buffer of the last rank differs where `isPlanted` says so.
inline std::string disagreementOf(const std::shared_ptr<Communicator>& communicator, bool isPlanted) {
  constexpr std::size_t count = 7;
  std::vector<float> values = valuesOf(0, count);
  const auto same = bufferOf(*communicator, values);
  if (isPlanted && communicator->rank() == communicator->size() - 1) values.back() += 1;
  const auto other = bufferOf(*communicator, values);
  try {
    encodeNow(*communicator, [&](const auto& commandBuffer) {
      communicator->agree(commandBuffer, {{"conv1.weight", same}, {"conv2.weight", other}});
    });
  } catch (const mtl::Error& error) {
    return error.what();
  }
  return "";
}

inline void findsWhatDiffers(const std::shared_ptr<Communicator>& communicator) {
  EXPECT_EQ(disagreementOf(communicator, false), "");
  EXPECT_EQ(disagreementOf(communicator, true), "Communicator: conv2.weight differs between ranks 0 and " +
                                                    std::to_string(communicator->size() - 1));
}

inline void gathersTexts(const std::shared_ptr<Communicator>& communicator) {
  const auto texts = communicator->gather(std::string(static_cast<std::size_t>(communicator->rank()), 'x'));
  ASSERT_EQ(texts.size(), static_cast<std::size_t>(communicator->size()));
  for (std::size_t rank = 0; rank < texts.size(); ++rank) EXPECT_EQ(texts[rank], std::string(rank, 'x'));
}

inline void namesValuesThatDiffer(const std::shared_ptr<Communicator>& communicator) {
  communicator->agree("--batch", "64");
  const int last = communicator->size() - 1;
  try {
    communicator->agree("--seed", communicator->rank() == last ? "2" : "1");
    ADD_FAILURE() << "no error";
  } catch (const mtl::Error& error) {
    EXPECT_EQ(std::string(error.what()), "--seed is 1 on rank 0, but 2 on rank " + std::to_string(last));
  }
}

}  // namespace mps::test
