#include "train/optimizers.hpp"

#include <array>
#include <string_view>

#include "mps/core/error.hpp"

namespace unmetal::train {
namespace {

using Make = std::shared_ptr<mps::NNOptimizer> (*)(const std::shared_ptr<mtl::Device>&,
                                                   const mps::NNOptimizerDescriptor&);

struct NamedOptimizer {
  std::string_view name;
  double learningRate;
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

constexpr std::array optimizers{NamedOptimizer{"sgd", 0.1, mps::AdamForm::Adam, sgd},
                                NamedOptimizer{"momentum", 0.01, mps::AdamForm::Adam, momentum},
                                NamedOptimizer{"nesterov", 0.01, mps::AdamForm::Adam, nesterov},
                                NamedOptimizer{"rmsprop", 0.001, mps::AdamForm::Adam, rmsProp},
                                NamedOptimizer{"adam", 0.001, mps::AdamForm::Adam, adam},
                                NamedOptimizer{"amsgrad", 0.001, mps::AdamForm::AMSGrad, adam}};

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

mps::AdamForm adamFormOf(const std::string& optimizerName) {
  return findOptimizer(optimizerName).form;
}

std::shared_ptr<mps::NNOptimizer> makeOptimizer(const std::shared_ptr<mtl::Device>& device,
                                                const std::string& name, double learningRate,
                                                double weightDecay) {
  const auto kind = weightDecay != 0 ? mps::NNRegularizationType::L2 : mps::NNRegularizationType::None;
  const mps::NNOptimizerDescriptor descriptor(static_cast<float>(learningRate), 1.0F, kind,
                                              static_cast<float>(weightDecay));
  return findOptimizer(name).make(device, descriptor);
}

}  // namespace unmetal::train
