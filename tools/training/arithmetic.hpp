#pragma once

#include <string>

namespace mtl {
class Device;
}

namespace unmetal {

/// What the last bits of a device's results depend on beside a training's settings, for checkpoints: of a CPU the
/// instruction sets of our kernels and of oneDNN's, e.g. "AVX3, oneDNN AVX512_CORE", for the number of threads changes
/// nothing; of a GPU its name. The same text, the same bits.
std::string arithmeticOf(const mtl::Device& device);

}  // namespace unmetal
