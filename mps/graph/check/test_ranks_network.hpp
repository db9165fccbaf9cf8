#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "mps/distributed/test_ranks.hpp"
#include "mps/graph/check/test_network.hpp"

/// A training shared by ranks, and the same on one device.
namespace mps::test {

/// Images of one step, of all ranks.
using BatchSizes = std::function<std::size_t(unsigned step)>;

/// Full batches, and now and then one that is smaller than the number of ranks may be.
inline std::size_t unevenBatches(unsigned step) {
  return step % 3 == 2 ? 2 : SmallNetwork::batch;
}

/// Trains one rank's graph on its part of each batch. @param rank null: on all of it
inline void trainPart(NNGraph& graph, const Communicator* rank, unsigned steps,
                      const BatchSizes& sizes = unevenBatches) {
  const auto& device = graph.device();
  const auto queue = device->newCommandQueue();
  for (unsigned step = 0; step < steps; ++step) {
    const std::size_t total = sizes(step);
    const std::size_t ranks = rank != nullptr ? static_cast<std::size_t>(rank->size()) : 1;
    const std::size_t place = rank != nullptr ? static_cast<std::size_t>(rank->rank()) : 0;
    const std::size_t first = total * place / ranks;
    const std::size_t count = total * (place + 1) / ranks - first;
    if (rank != nullptr) graph.setBatchShare(first, total);
    const auto commandBuffer = queue->commandBuffer();
    graph.encodeBatch(commandBuffer, {pictures(device, step).slice(first, count)},
                      {labels(device, step).slice(first, count)});
    commandBuffer->commit();
    commandBuffer->throwIfFailed();
  }
}

/// Float32 sums in another order, step after step.
inline void expectClose(const std::vector<std::vector<float>>& found,
                        const std::vector<std::vector<float>>& expected) {
  constexpr float relative = 1e-5F;
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t layer = 0; layer < found.size(); ++layer) {
    ASSERT_EQ(found[layer].size(), expected[layer].size());
    const float most =
        std::abs(*std::ranges::max_element(expected[layer], {}, [](float value) { return std::abs(value); }));
    for (std::size_t i = 0; i < found[layer].size(); ++i)
      ASSERT_NEAR(found[layer][i], expected[layer][i], relative * most) << layer << ", " << i;
  }
}

}  // namespace mps::test
