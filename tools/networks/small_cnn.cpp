#include <algorithm>
#include <string>

#include "tools/networks/network_definitions.hpp"

namespace unmetal {

train::Features smallCnn(const train::Features& pictures, const NetworkForm& form) {
  constexpr std::size_t leastSideToHalve = 8;
  constexpr std::size_t widest = 8;  // times the channels of the first stage
  auto x = pictures;
  std::size_t channels = form.firstChannels;
  for (std::size_t stage = 1;; ++stage, channels = std::min(2 * channels, widest * form.firstChannels)) {
    const std::string number = std::to_string(stage);
    x = x.convolution(channels, 3, {.biases = false}, "conv" + number)
            .batchNormalization({}, "bn" + number)
            .relu();
    if (std::min(x.height(), x.width()) < leastSideToHalve) break;
    x = x.maxPool(2);
  }
  return x.globalAveragePool().dropout(0.25F).dense(
      form.classes, {.initialization = mps::WeightInitialization::Glorot}, "fc");
}

}  // namespace unmetal
