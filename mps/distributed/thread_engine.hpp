#pragma once

#include <memory>
#include <vector>

#include "mps/distributed/collective.hpp"

namespace mps::detail {

/// Ranks that are threads of this process, each with a CPU device of its own, whose executing threads meet. Sums are
/// float64 in the order of ranks, rounded once. Engine number i is rank i's.
std::vector<std::unique_ptr<CollectiveEngine>> makeThreadEngines(int size);

}  // namespace mps::detail
