#include "tools/networks/network_definitions.hpp"

namespace unmetal {

train::Features mnistCnn(const train::Features& pictures, const NetworkForm& form) {
  const train::PoolingOptions whole{.padding = train::Padding::Same};
  auto x = pictures.convolution(32, 5, {}, "conv1").relu().maxPool(2, whole);
  x = x.convolution(64, 5, {}, "conv2").relu().maxPool(2, whole);
  x = x.dense(1024, {}, "dense3").relu().dropout(0.5F);
  return x.dense(form.classes, {}, "dense4");
}

}  // namespace unmetal
