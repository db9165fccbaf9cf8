#pragma once

#include <cstdint>

#include "mtl/stream.hpp"

/// What the tests of this folder run on a device. Host code includes this.
namespace mtl::cuda::testing {

/// values[i] += number, for `count` of them.
void add(mtl::Stream& stream, std::int32_t* values, std::int64_t count, std::int32_t number);
/// values[i + 1] += number, for `count` of them: each by a block of its own, which waits for all others. values[0] counts the
/// blocks that came.
void addTogether(mtl::Stream& stream, std::int32_t* values, unsigned count, std::int32_t number);
/// Keeps the device busy for about so many milliseconds.
void spin(mtl::Stream& stream, int milliseconds);
/// Writes where nothing is: the process cannot use the device after that.
void writeToNowhere(mtl::Stream& stream);

}  // namespace mtl::cuda::testing
