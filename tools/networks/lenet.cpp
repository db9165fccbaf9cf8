#include "tools/networks/network_definitions.hpp"

namespace unmetal {

train::Features lenet(const train::Features& pictures, const NetworkForm& form) {
  using train::Padding;
  return pictures.convolution(6, 5, {}, "conv1")
      .tanh()
      .averagePool(2, {.padding = Padding::Same})
      .convolution(16, 5, {.padding = Padding::Valid}, "conv2")
      .tanh()
      .averagePool(2, {.padding = Padding::Same})
      .dense(120, {}, "dense3")
      .tanh()
      .dense(84, {}, "dense4")
      .tanh()
      .dense(form.classes, {}, "dense5");
}

}  // namespace unmetal
