#pragma once

#include <string>

namespace mtl {
class Memory;
}

namespace mps::detail {

/// @param label of the kernel that writes  @param argument where the memory was given
/// @throws Error for an mtl::ReadOnlyMemory
void checkWritable(const std::string& label, const char* argument, const mtl::Memory& memory);

}  // namespace mps::detail
