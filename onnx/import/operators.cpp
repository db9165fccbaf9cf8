#include <map>

#include "onnx/import/node_import.hpp"

namespace unmetal::onnx::detail {

OperatorImport importOf(std::string_view type) {
  static const std::map<std::string_view, OperatorImport> operators{
      {"Abs", importActivation},
      {"Add", importArithmetic},
      {"AveragePool", importPooling},
      {"BatchNormalization", importBatchNormalization},
      {"Cast", importIdentity},
      {"Clip", importClip},
      {"Concat", importConcatenation},
      {"Conv", importConvolution},
      {"ConvTranspose", importTransposedConvolution},
      {"Div", importArithmetic},
      {"Dropout", importDropout},
      {"Elu", importActivation},
      {"Erf", importErf},
      {"Exp", importPower},
      {"Flatten", importReshape},
      {"Gelu", importActivation},
      {"Gemm", importGemm},
      {"GlobalAveragePool", importGlobalPooling},
      {"GlobalLpPool", importGlobalPooling},
      {"GlobalMaxPool", importGlobalPooling},
      {"GroupNormalization", importGroupNormalization},
      {"HardSigmoid", importActivation},
      {"HardSwish", importProductWithItself},
      {"Identity", importIdentity},
      {"InstanceNormalization", importInstanceNormalization},
      {"LRN", importCrossChannelNormalization},
      {"LeakyRelu", importActivation},
      {"Log", importPower},
      {"LogSoftmax", importSoftmax},
      {"LpPool", importPooling},
      {"MatMul", importMatMul},
      {"MaxPool", importPooling},
      {"Mish", importProductWithItself},
      {"Mul", importArithmetic},
      {"Neg", importArithmetic},
      {"PRelu", importPRelu},
      {"Pad", importPad},
      {"Pow", importPower},
      {"Reciprocal", importPower},
      {"ReduceMean", importMean},
      {"Relu", importActivation},
      {"Reshape", importReshape},
      {"Resize", importResize},
      {"Selu", importActivation},
      {"Shape", importShape},
      {"Sigmoid", importActivation},
      {"Softmax", importSoftmax},
      {"Softplus", importActivation},
      {"Softsign", importActivation},
      {"Sqrt", importPower},
      {"Squeeze", importReshape},
      {"Sub", importArithmetic},
      {"Sum", importSum},
      {"Tanh", importActivation},
      {"Unsqueeze", importReshape},
      {"Upsample", importResize}};
  const auto found = operators.find(type);
  return found == operators.end() ? nullptr : found->second;
}

}  // namespace unmetal::onnx::detail
