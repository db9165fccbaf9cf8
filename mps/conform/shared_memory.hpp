#pragma once

namespace mtl {
class Stream;
}

namespace mps::detail {

/// Sets every bit of the shared memory of a GPU's multiprocessors, which are NaNs in every format: what kernels before
/// left there must not help one that reads what it did not write.
void poisonSharedMemory(mtl::Stream& stream);

}  // namespace mps::detail
