#pragma once

#include <memory>
#include <string>
#include <vector>

namespace mtl {
class Device;
}

/// All families that this build has: the list is made by CMake from the names of their sources.
namespace mps::detail {

class Bench;
class Conform;
class ReferenceCall;

/// Calls the conform function of each family.
void conformAllFamilies(Conform& conform);
/// Calls the bench function of each family.
void benchAllFamilies(Bench& bench);
/// The names of the families' implementations for a device, sorted.
std::vector<std::string> implementationNames(const std::shared_ptr<mtl::Device>& device);
/// Computes the call by the reference of its family; false when no family knows its problem.
bool computeWithReference(ReferenceCall& call);

}  // namespace mps::detail
