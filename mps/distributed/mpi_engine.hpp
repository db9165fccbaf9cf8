#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "mps/distributed/collective.hpp"

namespace mps::detail {

/// MPI's ranks of this process' launch. The module is opened by the first call.
/// @throws Error in one sentence when the module or MPI is missing, or fails
std::unique_ptr<CollectiveEngine> makeMpiEngine();

/// Waits until all ranks have called it. @param text its first 1020 bytes count @return those of all ranks, in their order
/// @throws Error as makeMpiEngine does, and when not all ranks come within 5 minutes
std::vector<std::string> gatherByMpi(const std::string& text);

/// Ranks that other processes wait for in vain. Each rank that has waited too long calls it; takes up to `most`.
/// @return the ranks that have not called it by then. @throws Error as makeMpiEngine does
std::vector<int> callRollByMpi(std::chrono::milliseconds most);

/// File and version of the MPI that is used; opens the module. @throws Error as makeMpiEngine does
std::string describeMpi();

}  // namespace mps::detail
