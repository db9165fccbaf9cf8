#include "mps/core/image/writable.hpp"

#include "mps/core/types/error.hpp"
#include "mtl/read_only_memory.hpp"

namespace mps::detail {

void checkWritable(const std::string& label, const char* argument, const mtl::Memory& memory) {
  if (const auto* const copy = dynamic_cast<const mtl::ReadOnlyMemory*>(&memory))
    throw Error(label, argument, copy->found(), copy->expected());
}

}  // namespace mps::detail
