#pragma once

namespace mps {
class Coder;
}

namespace mps::detail {

/// For the shared objects of this layer: padding policies, image allocators, fixed data sources. The library's own.
void addCoreDecoders(Coder& coder);

}  // namespace mps::detail
