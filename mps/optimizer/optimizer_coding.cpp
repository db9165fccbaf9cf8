#include "mps/core/coding/coder.hpp"
#include "mps/core/layer/loss_scale.hpp"
#include "mps/core/types/checked_number.hpp"
#include "mps/core/types/error.hpp"
#include "mps/optimizer/optimizer.hpp"

namespace mps {

void NNOptimizerDescriptor::encode(Coder& coder) const {
  coder.codeClass("NNOptimizerDescriptor");
  coder.encode("learningRate", learningRate_);
  coder.encode("gradientRescale", gradientRescale_);
  coder.encode("applyGradientClipping", applyGradientClipping_);
  coder.encode("gradientClipMax", gradientClipMax_);
  coder.encode("gradientClipMin", gradientClipMin_);
  coder.encode("regularizationType", static_cast<std::uint64_t>(regularizationType_));
  coder.encode("regularizationScale", regularizationScale_);
}

NNOptimizerDescriptor NNOptimizerDescriptor::decode(Coder& coder) {
  coder.codeClass("NNOptimizerDescriptor");
  NNOptimizerDescriptor descriptor;
  coder.decode("learningRate", descriptor.learningRate_);
  coder.decode("gradientRescale", descriptor.gradientRescale_);
  coder.decode("applyGradientClipping", descriptor.applyGradientClipping_);
  coder.decode("gradientClipMax", descriptor.gradientClipMax_);
  coder.decode("gradientClipMin", descriptor.gradientClipMin_);
  coder.codeEnumeration("regularizationType", descriptor.regularizationType_,
                        NNRegularizationType::Decoupled);
  coder.decode("regularizationScale", descriptor.regularizationScale_);
  return descriptor;
}

void NNOptimizer::codeProperties(Coder& coder) {
  Kernel::codeProperties(coder);
  coder.code("descriptor", descriptor_);
  checkDescriptor();
  coder.codeOptional("lossScale", lossScale_);
  setLossScale(lossScale_);
}

void NNOptimizerStochasticGradientDescent::codeProperties(Coder& coder) {
  NNOptimizer::codeProperties(coder);
  coder.code("momentumScale", momentumScale_);
  detail::checkedFinite(describe(), "momentumScale", momentumScale_);
  coder.code("useNesterovMomentum", useNesterovMomentum_);
}

void NNOptimizerRMSProp::codeProperties(Coder& coder) {
  NNOptimizer::codeProperties(coder);
  coder.code("decay", decay_);
  coder.code("epsilon", epsilon_);
  detail::checkedDecay(describe(), "decay", decay_);
  detail::checkedNotNegative(describe(), "epsilon", epsilon_);
}

void NNOptimizerAdam::codeProperties(Coder& coder) {
  NNOptimizer::codeProperties(coder);
  coder.code("beta1", beta1_);
  coder.code("beta2", beta2_);
  coder.code("epsilon", epsilon_);
  detail::checkedDecay(describe(), "beta1", beta1_);
  detail::checkedDecay(describe(), "beta2", beta2_);
  detail::checkedNotNegative(describe(), "epsilon", epsilon_);
  coder.code("timeStep", timeStep_);
}

}  // namespace mps
