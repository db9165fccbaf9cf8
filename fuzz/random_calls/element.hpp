#pragma once

#include <cstddef>
#include <vector>

#include "mps/core/types/types.hpp"

namespace unmetal::random_calls {

using Bytes = std::vector<std::byte>;

/// What one element of memory that is compared holds.
enum class ElementFormat { Float32, Float16, UInt32, UInt16, UInt8 };

ElementFormat formatOf(mps::ImageFeatureChannelFormat format);
ElementFormat formatOf(mps::DataType type);
std::size_t bytesPerElement(ElementFormat format);
inline bool isFloat(ElementFormat format) {
  return format == ElementFormat::Float32 || format == ElementFormat::Float16;
}

double valueOf(ElementFormat format, const std::byte* element);
/// Rounds to the format. Formats of 8 and 16 bits that are whole numbers take 0 to 1, as unorm images do.
void store(ElementFormat format, std::byte* element, double value);

/// What destinations hold before a call: a NaN that no kernel computes, so that an element shows whether it was written.
void fillWithSentinel(ElementFormat format, Bytes& bytes);
/// Whether no result can be the sentinel by chance. Of 8 and 16 bits each pattern is a number.
inline bool showsWrites(ElementFormat format) {
  return bytesPerElement(format) == 4 || isFloat(format);
}

}  // namespace unmetal::random_calls
