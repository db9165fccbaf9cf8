#pragma once

#include <memory>
#include <string>
#include <vector>

#include "mps/trainable/trainable_convolution.hpp"

namespace unmetal::train {

/// The optimisers that the program knows by name.
///
/// | name | update | learning rate unless given |
/// |---|---|---|
/// | `sgd` | plain gradient descent | 0.1 |
/// | `momentum`, `nesterov` | with a momentum of 0.9 | 0.01 |
/// | `rmsprop` | decay 0.9 | 0.001 |
/// | `adam`, `amsgrad` | beta 0.9 and 0.999 | 0.001 |
/// | `adamw` | Adam; weight decay is decoupled from the gradient, 0.01 unless given | 0.001 |
std::vector<std::string> optimizerNames();

/// @throws mps::Error for an unknown name. @{
double defaultLearningRate(const std::string& optimizerName);
/// 0 but of AdamW.
double defaultWeightDecay(const std::string& optimizerName);
/// @}

/// Adam or AMSGrad, for the layers.
mps::AdamForm adamFormOf(const std::string& optimizerName);

/// @param weightDecay times the weight is added to each gradient; of AdamW it is decoupled (NNRegularizationType::Decoupled)
/// @throws mps::Error for an unknown name.
std::shared_ptr<mps::NNOptimizer> makeOptimizer(const std::shared_ptr<mtl::Device>& device,
                                                const std::string& name, double learningRate,
                                                double weightDecay);

}  // namespace unmetal::train
