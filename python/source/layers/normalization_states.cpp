#include <memory>
#include <utility>

#include "mps/batch_normalization/batch_normalization.hpp"
#include "mps/core/array/vector.hpp"
#include "mps/core/layer/batch_normalization_state.hpp"
#include "mps/core/layer/image_normalization_state.hpp"
#include "mps/core/layer/normalization_state.hpp"
#include "mps/instance_normalization/group_normalization.hpp"
#include "mps/instance_normalization/instance_normalization.hpp"
#include "mtl/buffer.hpp"
#include "python/source/binding/areas.hpp"
#include "python/source/binding/bind.hpp"

namespace python {
namespace {

using BufferPointer = std::shared_ptr<mtl::Buffer>;

/// The kernel that made a state. Python has no constant objects.
template <class KernelType>
std::shared_ptr<KernelType> mutableKernel(const std::shared_ptr<const KernelType>& kernel) {
  return std::const_pointer_cast<KernelType>(kernel);
}

template <class State>
nb::class_<State, mps::State> bindPair(nb::module_& module, const char* name, const char* first,
                                       const char* second, const char* documentation) {
  nb::class_<State, mps::State> bound(module, name, documentation);
  bound
      .def(nb::new_([](BufferPointer one, BufferPointer other) {
             return State::create(std::move(one), std::move(other));
           }),
           nb::arg(first), nb::arg(second),
           "Around buffers of the caller, of the same length. Raises Error when the lengths differ.")
      .def_static("create_temporary", &State::createTemporary, "command_buffer"_a,
                  "number_of_feature_channels"_a, "Temporary, undefined content.");
  readOnly(bound, "number_of_feature_channels", &State::numberOfFeatureChannels, "Values of each buffer.");
  return bound;
}

void bindPairs(nb::module_& module) {
  using GammaAndBeta = mps::CNNNormalizationGammaAndBetaState;
  auto weights = bindPair<GammaAndBeta>(module, "CNNNormalizationGammaAndBetaState", "gamma", "beta",
                                        "New scale factors and biases of a normalisation on their way into a "
                                        "kernel: what an optimiser writes and a reload "
                                        "reads. float32, one value per feature channel.");
  readOnly(weights, "gamma", &GammaAndBeta::gamma, "The buffer of the scale factors.");
  readOnly(weights, "beta", &GammaAndBeta::beta, "The buffer of the biases.");
  using MeanAndVariance = mps::CNNNormalizationMeanAndVarianceState;
  auto statistics =
      bindPair<MeanAndVariance>(module, "CNNNormalizationMeanAndVarianceState", "mean", "variance",
                                "New running statistics on their way into a kernel. float32, one value per "
                                "feature channel; the variance without "
                                "epsilon.");
  readOnly(statistics, "mean", &MeanAndVariance::mean, "The buffer of the means.");
  readOnly(statistics, "variance", &MeanAndVariance::variance, "The buffer of the variances.");
}

void bindBatchState(nb::module_& module) {
  using State = mps::CNNBatchNormalizationState;
  nb::class_<State, mps::NNGradientState> state(
      module, "CNNBatchNormalizationState",
      "Statistics, weights and weight gradients of one batch normalisation for one batch, made by its "
      "result_state and "
      "temporary_result_state. The four kernels take it, in this order:\n\n"
      "    statistics            accumulate; the first one after anything else begins a new batch\n"
      "    normalisation         uses the batch's statistics; without any, those of the kernel: the state is "
      "frozen\n"
      "    statistics gradient   accumulates; the first one after anything else begins new sums\n"
      "    gradient              needs a statistics gradient of as many elements as the statistics; frozen: "
      "of any\n\n"
      "A temporary one begins with read_count 1; normalisation, statistics gradient, gradient and each "
      "optimiser encode take "
      "one off per call. Buffers are float32, one value per feature channel.");
  readOnly(
      state, "batch_normalization",
      [](const State& self) { return mutableKernel(self.batchNormalization()); },
      "The kernel that made the state.");
  readOnly(state, "number_of_feature_channels", &State::numberOfFeatureChannels, "Values of each buffer.");
  state.def("reset", &State::reset, "Back to how it was made, for the encodes that follow.");
  property(state, "restarts_automatically", &State::restartsAutomatically, &State::setRestartsAutomatically,
           "Whether statistics that are encoded after a normalisation or gradient begin a new batch. True; "
           "False lets them "
           "accumulate until reset().");
  readOnly(state, "gamma", &State::gamma, "The kernel's own buffer: after a reload the new values.");
  readOnly(state, "beta", &State::beta, "The kernel's own buffer: after a reload the new values.");
  readOnly(state, "mean", &State::mean, "Of the batch so far; before, and in a frozen state, the kernel's.");
  readOnly(state, "variance", &State::variance,
           "Likewise; divided by the number of elements (biased), without epsilon.");
  readOnly(
      state, "element_count", &State::elementCount,
      "Values per feature channel that the statistics are of. 0 before the first and in a frozen state.");
  readOnly(state, "gradient_for_gamma", &State::gradientForGamma,
           "dL/dgamma, a sum over the elements of the batch, never divided. None until a statistics gradient "
           "is encoded.");
  readOnly(state, "gradient_for_beta", &State::gradientForBeta, "dL/dbeta, likewise.");
  readOnly(state, "gradient_for_mean", &State::gradientForMean, "dL/dmean, a Vector. None likewise.");
  readOnly(state, "gradient_for_variance", &State::gradientForVariance,
           "dL/dvariance, a Vector. None likewise.");
  readOnly(
      state, "accumulated_statistics", &State::accumulatedStatistics,
      "float64: the mean of each channel, then the sums M2 of squared differences from it. For one batch on "
      "several "
      "devices: n = nA + nB, d = meanB - meanA, mean = meanA + d nB / n, M2 = M2A + M2B + d^2 nA nB / n.");
  readOnly(state, "accumulated_gradients", &State::accumulatedGradients,
           "float64: sum(g) of each channel, then sum(g h); devices add them.");
}

template <class State, class Class>
void bindImageState(Class& state) {
  readOnly(
      state, "number_of_feature_channels", [](const State& self) { return self.numberOfFeatureChannels(); },
      "Values of each buffer.");
  readOnly(
      state, "gamma", [](const State& self) { return self.gamma(); },
      "What the forward pass used; None before it was encoded.");
  readOnly(
      state, "beta", [](const State& self) { return self.beta(); },
      "What the forward pass used; None before it was encoded.");
  readOnly(
      state, "gradient_for_gamma", [](State& self) { return self.gradientForGamma(); },
      "dL/dgamma, a sum over the pixels of the image, never divided. Undefined until the gradient kernel has "
      "run.");
  readOnly(
      state, "gradient_for_beta", [](State& self) { return self.gradientForBeta(); }, "dL/dbeta, likewise.");
}

void bindImageStates(nb::module_& module) {
  using InstanceState = mps::CNNInstanceNormalizationGradientState;
  nb::class_<InstanceState, mps::NNGradientState> instance(
      module, "CNNInstanceNormalizationGradientState",
      "Weight gradients of an instance normalisation for one image, made by its result_state and "
      "temporary_result_state. A "
      "temporary one begins with read_count 1; gradient and optimiser encodes take one off, the forward "
      "encode none. Buffers "
      "are float32, one value per feature channel.");
  bindImageState<InstanceState>(instance);
  readOnly(
      instance, "instance_normalization",
      [](const InstanceState& self) { return mutableKernel(self.instanceNormalization()); },
      "The kernel that made the state.");
  using GroupState = mps::CNNGroupNormalizationGradientState;
  nb::class_<GroupState, mps::NNGradientState> group(
      module, "CNNGroupNormalizationGradientState",
      "Weight gradients of a group normalisation for one image; as CNNInstanceNormalizationGradientState.");
  bindImageState<GroupState>(group);
  readOnly(
      group, "group_normalization",
      [](const GroupState& self) { return mutableKernel(self.groupNormalization()); },
      "The kernel that made the state.");
}

}  // namespace

void bindNormalizationStates(nb::module_& module) {
  bindPairs(module);
  bindBatchState(module);
  bindImageStates(module);
}

}  // namespace python
