#pragma once

#include <string_view>

namespace mps {
class Coder;
}

namespace mps::detail {

/// For the shared objects of this layer: padding policies, image allocators, fixed data sources. The library's own.
void addCoreDecoders(Coder& coder);

/// Of a decode that would write otherwise. @throws Error when the coder encodes
void checkDecodes(const Coder& coder, std::string_view className);

}  // namespace mps::detail
