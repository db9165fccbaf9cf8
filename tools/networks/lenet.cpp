#include "tools/networks/network_builder.hpp"

namespace unmetal {

Features lenet(NetworkBuilder& builder, const Features& pictures) {
  Features x = tanh(builder.convolution(pictures, {.kernelSize = 5, .outputChannels = 6}, "conv1"));
  x = averagePool(x, 2);
  x = tanh(builder.convolution(x, {.kernelSize = 5, .outputChannels = 16, .same = false}, "conv2"));
  x = averagePool(x, 2);
  x = tanh(builder.dense(x, 120, "dense3"));
  x = tanh(builder.dense(x, 84, "dense4"));
  return builder.dense(x, builder.options().classNames.size(), "dense5");
}

}  // namespace unmetal
