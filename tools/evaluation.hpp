#pragma once

#include <memory>

#include "tools/confusion_matrix.hpp"
#include "tools/data/dataset.hpp"
#include "tools/networks.hpp"

namespace mtl {
class CommandQueue;
}

namespace unmetal {

/// Classifies every picture of a data set with the network's inference graph.
ConfusionMatrix evaluate(const Network& network, const std::shared_ptr<mtl::CommandQueue>& queue,
                         const Dataset& data);

}  // namespace unmetal
