#include "train/training/optimizers.hpp"

#include <array>
#include <string_view>

#include "mps/core/types/error.hpp"

namespace unmetal::train {
namespace {

using Make = std::shared_ptr<mps::NNOptimizer> (*)(const std::shared_ptr<mtl::Device>&,
                                                   const mps::NNOptimizerDescriptor&);

struct NamedOptimizer {
  std::string_view name;
  double learningRate;
  double weightDecay;
  mps::NNRegularizationType regularization;
  mps::AdamForm form;
  Make make;
};

std::shared_ptr<mps::NNOptimizer> sgd(const std::shared_ptr<mtl::Device>& device,
                                      const mps::NNOptimizerDescriptor& descriptor) {
  return mps::NNOptimizerStochasticGradientDescent::create(device, 0, false, descriptor);
}
std::shared_ptr<mps::NNOptimizer> momentum(const std::shared_ptr<mtl::Device>& device,
                                           const mps::NNOptimizerDescriptor& descriptor) {
  return mps::NNOptimizerStochasticGradientDescent::create(device, 0.9F, false, descriptor);
}
std::shared_ptr<mps::NNOptimizer> nesterov(const std::shared_ptr<mtl::Device>& device,
                                           const mps::NNOptimizerDescriptor& descriptor) {
  return mps::NNOptimizerStochasticGradientDescent::create(device, 0.9F, true, descriptor);
}
std::shared_ptr<mps::NNOptimizer> rmsProp(const std::shared_ptr<mtl::Device>& device,
                                          const mps::NNOptimizerDescriptor& descriptor) {
  return mps::NNOptimizerRMSProp::create(device, 0.9, 1e-8F, descriptor);
}
std::shared_ptr<mps::NNOptimizer> adam(const std::shared_ptr<mtl::Device>& device,
                                       const mps::NNOptimizerDescriptor& descriptor) {
  return mps::NNOptimizerAdam::create(device, 0.9, 0.999, 1e-8F, 0, descriptor);
}

using mps::AdamForm;
using Regularization = mps::NNRegularizationType;
constexpr std::array optimizers{
    NamedOptimizer{"sgd", 0.1, 0, Regularization::L2, AdamForm::Adam, sgd},
    NamedOptimizer{"momentum", 0.01, 0, Regularization::L2, AdamForm::Adam, momentum},
    NamedOptimizer{"nesterov", 0.01, 0, Regularization::L2, AdamForm::Adam, nesterov},
    NamedOptimizer{"rmsprop", 0.001, 0, Regularization::L2, AdamForm::Adam, rmsProp},
    NamedOptimizer{"adam", 0.001, 0, Regularization::L2, AdamForm::Adam, adam},
    NamedOptimizer{"amsgrad", 0.001, 0, Regularization::L2, AdamForm::AMSGrad, adam},
    NamedOptimizer{"adamw", 0.001, 0.01, Regularization::Decoupled, AdamForm::Adam, adam}};

const NamedOptimizer& findOptimizer(const std::string& name) {
  for (const NamedOptimizer& optimizer : optimizers)
    if (optimizer.name == name) return optimizer;
  std::string known;
  for (const NamedOptimizer& optimizer : optimizers)
    known += (known.empty() ? "" : ", ") + std::string(optimizer.name);
  throw mps::Error("optimizer \"" + name + "\" is unknown; there are " + known);
}

}  // namespace

std::vector<std::string> optimizerNames() {
  std::vector<std::string> names;
  for (const NamedOptimizer& optimizer : optimizers) names.emplace_back(optimizer.name);
  return names;
}

double defaultLearningRate(const std::string& optimizerName) {
  return findOptimizer(optimizerName).learningRate;
}

double defaultWeightDecay(const std::string& optimizerName) {
  return findOptimizer(optimizerName).weightDecay;
}

mps::AdamForm adamFormOf(const std::string& optimizerName) {
  return findOptimizer(optimizerName).form;
}

std::shared_ptr<mps::NNOptimizer> makeOptimizer(const std::shared_ptr<mtl::Device>& device,
                                                const std::string& name, double learningRate,
                                                double weightDecay) {
  const NamedOptimizer& optimizer = findOptimizer(name);
  const auto kind = weightDecay != 0 ? optimizer.regularization : mps::NNRegularizationType::None;
  const mps::NNOptimizerDescriptor descriptor(static_cast<float>(learningRate), 1.0F, kind,
                                              static_cast<float>(weightDecay));
  return optimizer.make(device, descriptor);
}

}  // namespace unmetal::train
