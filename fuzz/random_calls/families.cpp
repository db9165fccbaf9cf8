#include "fuzz/random_calls/families.hpp"

#include <array>

namespace unmetal::random_calls {

std::span<const Family> allFamilies() {
  // Calls take turns, so the order is part of what a seed means: new families go to the end.
  static constexpr std::array families{
      Family{"pooling", callPooling},
      Family{"convolution", callConvolution},
      Family{"transposed", callTransposedConvolution},
      Family{"fully-connected", callFullyConnected},
      Family{"batch-normalization", callBatchNormalization},
      Family{"image-normalization", callImageNormalization},
      Family{"local-normalization", callLocalNormalization},
      Family{"softmax", callSoftMax},
      Family{"neuron", callNeuron},
      Family{"dropout", callDropout},
      Family{"upsampling", callUpsampling},
      Family{"resize", callResize},
      Family{"crop", callCrop},
      Family{"grid-sample", callGridSample},
      Family{"arithmetic", callArithmetic},
      Family{"concatenation", callConcatenation},
      Family{"reduction", callReduction},
      Family{"reshape", callReshape},
      Family{"padding", callPadding},
      Family{"gram-matrix", callGramMatrix},
      Family{"gather", callGather},
      Family{"loss", callLoss},
      Family{"yolo-loss", callYOLOLoss},
      Family{"matrix-product", callMatrixProduct},
      Family{"matrix-softmax", callMatrixSoftMax},
      Family{"matrix-neuron", callMatrixNeuron},
      Family{"matrix-batch-normalization", callMatrixBatchNormalization},
      Family{"matrix-fully-connected", callMatrixFullyConnected},
      Family{"matrix-sum", callMatrixSum},
      Family{"matrix-copy", callMatrixCopy},
      Family{"image-matrix-copy", callImageMatrixCopy},
      Family{"random-numbers", callRandomNumbers},
      Family{"optimizer", callOptimizer},
  };
  return families;
}

}  // namespace unmetal::random_calls
