#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "mps/distributed/collective.hpp"

namespace mtl {
class Device;
}

namespace mps::detail {

/// What rank 0 makes and the others are told: ncclUniqueId.
using NcclId = std::array<std::byte, 128>;

/// @return the ranks that are not there
using RollCall = std::function<std::vector<int>(std::chrono::milliseconds most)>;

/// @name Calls of a build with CUDA. @throws Error in one sentence when NCCL is missing, there are two, or it fails
/// @{
/// @param meetingPlace "host:port", where rank 0 will wait for the others: all ranks make the same one. Empty: rank 0 alone
///        makes one
NcclId makeNcclId(const std::string& meetingPlace);
/// Waits for the other ranks. @param meetingPlace that of makeNcclId
/// @param callRoll tells which ranks are not there, where somebody knows; see callRollByMpi()
std::unique_ptr<CollectiveEngine> makeNcclEngine(const mtl::Device& device, int rank, int size,
                                                 const NcclId& id, const std::string& meetingPlace,
                                                 RollCall callRoll = nullptr);
/// Of ranks that are threads of this process.
std::vector<std::unique_ptr<CollectiveEngine>> makeNcclEngines(
    const std::vector<std::shared_ptr<mtl::Device>>& devices);
/// File and version.
std::string describeNccl();
/// @}

}  // namespace mps::detail
