#include "tools/networks/network_builder.hpp"

namespace unmetal {

Features mnistCnn(NetworkBuilder& builder, const Features& pictures) {
  Features x = relu(builder.convolution(pictures, {.kernelSize = 5, .outputChannels = 32}, "conv1"));
  x = maxPool(x, 2, 2);
  x = relu(builder.convolution(x, {.kernelSize = 5, .outputChannels = 64}, "conv2"));
  x = maxPool(x, 2, 2);
  x = relu(builder.dense(x, 1024, "dense3"));
  x = builder.dropout(x, 0.5F);
  return builder.dense(x, builder.options().classNames.size(), "dense4");
}

}  // namespace unmetal
