#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "mps/distributed/collective.hpp"

namespace mps::detail {

/// MPI's ranks of this process' launch. The module is opened by the first call.
/// @throws Error in one sentence when the module or MPI is missing, or fails
std::unique_ptr<CollectiveEngine> makeMpiEngine();

/// Sets bytes in host memory to those of rank 0, and waits. @throws Error as makeMpiEngine does
void broadcastByMpi(std::span<std::byte> bytes);

/// File and version of the MPI that is used; opens the module. @throws Error as makeMpiEngine does
std::string describeMpi();

}  // namespace mps::detail
