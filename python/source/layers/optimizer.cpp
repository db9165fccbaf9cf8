#include "mps/optimizer/optimizer.hpp"

#include <cstddef>
#include <memory>
#include <type_traits>
#include <vector>

#include "mps/core/layer/loss_scale.hpp"
#include "python/source/binding/areas.hpp"
#include "python/source/binding/bind.hpp"

namespace python {
namespace {

using mps::NNOptimizerDescriptor;
using mps::NNRegularizationType;
using Device = std::shared_ptr<mtl::Device>;
using VectorPointer = std::shared_ptr<mps::Vector>;
using Vectors = std::vector<VectorPointer>;
using ConvolutionGradients = std::shared_ptr<mps::CNNConvolutionGradientState>;
using ConvolutionWeights = std::shared_ptr<mps::CNNConvolutionWeightsAndBiasesState>;
using BatchState = std::shared_ptr<mps::CNNBatchNormalizationState>;
using GammaAndBeta = std::shared_ptr<mps::CNNNormalizationGammaAndBetaState>;

void bindLossScale(nb::module_& module) {
  using mps::LossScale;
  using Options = mps::LossScaleOptions;
  nb::class_<Options>(module, "LossScaleOptions", "How a LossScale changes.")
      .def(nb::new_([](float initial, float growth, float backoff, std::size_t interval) {
             return Options{.initialScale = initial,
                            .growthFactor = growth,
                            .backoffFactor = backoff,
                            .growthInterval = interval};
           }),
           "initial_scale"_a = 65536.0F, "growth_factor"_a = 2.0F, "backoff_factor"_a = 0.5F,
           "growth_interval"_a = 2000, "Checked when a LossScale is made.")
      .def_rw("initial_scale", &Options::initialScale,
              "65536; finite and greater than 0, as are the factors.")
      .def_rw("growth_factor", &Options::growthFactor,
              "2: of the scale, after growth_interval finite steps in a row.")
      .def_rw("backoff_factor", &Options::backoffFactor,
              "0.5: of the scale, after a step that overflowed; less than 1.")
      .def_rw("growth_interval", &Options::growthInterval, "2000; at least 1.");
  nb::class_<LossScale, mps::SecureCoding> scale(
      module, "LossScale",
      "A factor that keeps float16 gradients away from underflow, and that follows them down when they "
      "overflow: the gradient of the loss is multiplied by it, gradients of weights are divided before all "
      "else. A step whose gradients of weights hold an infinity or a NaN updates no layer, and the scale "
      "shrinks. All is decided on the device; the host never waits.");
  readOnly(scale, "options", &LossScale::options, "How it changes.");
  scale
      .def(nb::new_(&LossScale::create), "device"_a, "options"_a = Options(),
           "Raises Error for options out of range.")
      .def(
          "inspect",
          [](LossScale& self, const CommandBufferPointer& commandBuffer, const StatePointer& state) {
            self.inspect(commandBuffer, state);
          },
          "command_buffer"_a, "state"_a, Released(),
          "Records a look at all float32 buffers of a state: one value that is not finite, and the updates "
          "up to the next "
          "update() are left out.")
      .def(
          "update",
          [](LossScale& self, const CommandBufferPointer& commandBuffer) { self.update(commandBuffer); },
          "command_buffer"_a, Released(), "Records the end of a step, which changes the scale.")
      .def("synchronize", &LossScale::synchronize, "command_buffer"_a,
           "Records the copy that makes the numbers below readable.")
      .def("set", &LossScale::set, "scale"_a, "finite_steps"_a, "skipped_steps"_a,
           "Sets them, e.g. from a checkpoint. No work may be in flight. Raises Error for a scale out of "
           "range.")
      .def("copy", &LossScale::copy, "device"_a.none() = nb::none(),
           "One of the same options and numbers, as of the last synchronize; None is the same device.")
      .def_static("decode", &LossScale::decode, "coder"_a, "device"_a.none() = nb::none(),
                  "The object that encode(coder) wrote.");
  readOnly(scale, "device", &LossScale::device, "Where it lives.");
  readOnly(scale, "scale", &LossScale::scale, "The factor, as of the last synchronize.");
  readOnly(scale, "finite_steps", &LossScale::finiteSteps,
           "Steps without overflow in a row, as of the last synchronize.");
  readOnly(scale, "skipped_steps", &LossScale::skippedSteps,
           "Steps that overflowed, as of the last synchronize.");
}

void bindDescriptor(nb::module_& module) {
  nb::enum_<NNRegularizationType>(module, "NNRegularizationType",
                                  "The term that is added to the gradient of a value v.")
      .value("None_", NNRegularizationType::None)
      .value("L1", NNRegularizationType::L1, "regularization_scale * sign(v), 0 at v = 0")
      .value("L2", NNRegularizationType::L2, "regularization_scale * v, no factor 2")
      .value("Decoupled", NNRegularizationType::Decoupled,
             "learning_rate * regularization_scale * v is taken off v, as AdamW does");
  using Descriptor = NNOptimizerDescriptor;
  nb::class_<Descriptor> descriptor(
      module, "NNOptimizerDescriptor",
      "What all optimisers do to a gradient before they use it. A value; optimisers read it when they are "
      "made.\n\n"
      "    1. apply_gradient_clipping: g = min(max(g, gradient_clip_min), gradient_clip_max)\n"
      "    2. g = g * gradient_rescale\n"
      "    3. g = g + regularisation term of the value before the update");
  descriptor.def(nb::new_([](float learningRate, float rescale, NNRegularizationType type, float scale,
                             bool clips, float most, float least) {
                   return Descriptor(learningRate, rescale, clips, most, least, type, scale);
                 }),
                 "learning_rate"_a = 0.001F, "gradient_rescale"_a = 1.0F,
                 "regularization_type"_a = NNRegularizationType::None, "regularization_scale"_a = 0.0F,
                 "apply_gradient_clipping"_a = false, "gradient_clip_max"_a = 0.0F,
                 "gradient_clip_min"_a = 0.0F, "Negative learning rates and scales are allowed.");
  property(descriptor, "learning_rate", &Descriptor::learningRate, &Descriptor::setLearningRate,
           "0.001; any sign.");
  property(descriptor, "gradient_rescale", &Descriptor::gradientRescale, &Descriptor::setGradientRescale,
           "1. 1 / N makes the mean of gradients that are sums over a batch of N.");
  property(descriptor, "apply_gradient_clipping", &Descriptor::applyGradientClipping,
           &Descriptor::setApplyGradientClipping, "False: the two limits are not used.");
  property(descriptor, "gradient_clip_max", &Descriptor::gradientClipMax, &Descriptor::setGradientClipMax,
           "0.");
  property(descriptor, "gradient_clip_min", &Descriptor::gradientClipMin, &Descriptor::setGradientClipMin,
           "0.");
  property(descriptor, "regularization_scale", &Descriptor::regularizationScale,
           &Descriptor::setRegularizationScale, "0; any sign.");
  property(descriptor, "regularization_type", &Descriptor::regularizationType,
           &Descriptor::setRegularizationType, "None_.");
  descriptor.def("encode", &Descriptor::encode, "coder"_a, "Writes the fields.")
      .def_static("decode", &Descriptor::decode, "coder"_a, "What encode wrote.");
}

void bindBase(nb::module_& module) {
  using mps::NNOptimizer;
  nb::class_<NNOptimizer, mps::Kernel> optimizer(
      module, "NNOptimizer",
      "Base of the optimisers. Each update works element by element on float32 values v, with the gradient g "
      "prepared as "
      "NNOptimizerDescriptor says; nothing is averaged over a batch. The result may be the values "
      "themselves. Momentum and "
      "other vectors are the caller's: they start at 0 and are read and overwritten.");
  property(optimizer, "learning_rate", &NNOptimizer::learningRate, &NNOptimizer::setLearningRate,
           "For later encodes; any sign.");
  readOnly(optimizer, "gradient_rescale", &NNOptimizer::gradientRescale, "Factor of the gradient.");
  property(optimizer, "apply_gradient_clipping", &NNOptimizer::applyGradientClipping,
           &NNOptimizer::setApplyGradientClipping, "Whether the two limits are used.");
  readOnly(optimizer, "gradient_clip_max", &NNOptimizer::gradientClipMax, "Upper limit of a gradient.");
  readOnly(optimizer, "gradient_clip_min", &NNOptimizer::gradientClipMin, "Lower limit of a gradient.");
  readOnly(optimizer, "regularization_scale", &NNOptimizer::regularizationScale, "Factor of the term.");
  readOnly(optimizer, "regularization_type", &NNOptimizer::regularizationType, "Kind of the term.");
  optimizer.def_prop_rw(
      "loss_scale", &NNOptimizer::lossScale, &NNOptimizer::setLossScale,
      nb::for_setter(nb::arg("loss_scale").none()),
      "Gradients are divided by its scale before all else, and an update whose gradients are not all finite "
      "is left out. None. Raises Error for one of another device.");
}

constexpr const char* vectorDocumentation =
    "Records the update of one vector. Vectors have the same length and number of vectors. Raises Error "
    "before anything is "
    "recorded.";
constexpr const char* convolutionDocumentation =
    "Records the update of weights (vector 0) and biases (vector 1); with one vector the biases are copied "
    "unchanged.";
constexpr const char* normalizationDocumentation =
    "Records the update of gamma (vector 0) and beta (vector 1): gradients of the state, values of the same "
    "or of the source "
    "state.";
constexpr const char* imageNormalizationDocumentation =
    "Records the update of gamma (vector 0) and beta (vector 1) of an instance or group normalisation: the "
    "gradients of the "
    "images are summed first.";

/// The encodes that every optimiser has. @param bind binds one: operator()<Buffer, Result, Read...>(documentation, name
/// of the result, names of what is read)
template <class Bind>
void bindUpdates(const Bind& bind) {
  bind.template operator()<VectorPointer, VectorPointer, VectorPointer, VectorPointer>(
      vectorDocumentation, "result_values_vector"_a, "input_gradient_vector"_a, "input_values_vector"_a);
  bind.template operator()<Vectors, ConvolutionWeights, ConvolutionGradients, ConvolutionWeights>(
      convolutionDocumentation, "result_state"_a, "convolution_gradient_state"_a,
      "convolution_source_state"_a);
  bind.template operator()<Vectors, GammaAndBeta, BatchState>(normalizationDocumentation, "result_state"_a,
                                                              "batch_normalization_state"_a);
  bind.template operator()<Vectors, GammaAndBeta, BatchState, BatchState>(
      normalizationDocumentation, "result_state"_a, "batch_normalization_gradient_state"_a,
      "batch_normalization_source_state"_a);
  bind.template operator()<Vectors, GammaAndBeta, mps::StateBatch>(
      imageNormalizationDocumentation, "result_state"_a, "normalization_states"_a);
}

/// The name of a buffer: where it is one vector, or a list of them.
template <class Buffer, class OneVector, class List>
const auto& nameOf(const OneVector& vector, const List& vectors) {
  if constexpr (std::is_same_v<Buffer, Vectors>) {
    return vectors;
  } else {
    return vector;
  }
}

/// The encodes of the optimisers with one buffer. @param vector,vectors names of it
template <class Class, class OneVector>
void bindOneBuffer(Class& bound, const OneVector& vector, const nb::arg& vectors) {
  using Self = typename Class::Type;
  bindCoding(bound);
  bindUpdates([&]<class Buffer, class Result, class... Read>(const char* documentation, const nb::arg& result,
                                                             const auto&... names) {
    bound.def(
        "encode",
        [](Self& self, const CommandBufferPointer& commandBuffer, const Read&... read, const Buffer& buffer,
           const Result& updated) { self.encode(commandBuffer, read..., buffer, updated); },
        "command_buffer"_a, names..., nameOf<Buffer>(vector, vectors), result, Released(), documentation);
  });
}

void bindOneBufferOptimizers(nb::module_& module) {
  using SGD = mps::NNOptimizerStochasticGradientDescent;
  auto sgd = kernelClass<SGD, mps::NNOptimizer>(
      module, "NNOptimizerStochasticGradientDescent",
      "Stochastic gradient descent:\n\n"
      "    without momentum vector   v = v - lr g\n"
      "    momentum                  m = mu m + lr g;  v = v - m\n"
      "    Nesterov                  m = mu m + g;     v = v - lr (g + mu m)");
  sgd.def(
         nb::new_([](const Device& device, float learningRate) { return SGD::create(device, learningRate); }),
         "device"_a, "learning_rate"_a, "Without momentum.")
      .def(nb::new_([](const Device& device, float momentum, bool nesterov,
                       const NNOptimizerDescriptor& descriptor) {
             return SGD::create(device, momentum, nesterov, descriptor);
           }),
           "device"_a, "momentum_scale"_a, "use_nesterov_momentum"_a, "optimizer_descriptor"_a,
           "`momentum_scale`: mu.");
  readOnly(sgd, "momentum_scale", &SGD::momentumScale, "mu. 0.");
  readOnly(sgd, "use_nesterov_momentum", &SGD::useNesterovMomentum, "Which form.");
  readOnly(sgd, "use_nestrov_momentum", &SGD::useNestrovMomentum, "Apple's first spelling.");
  bindOneBuffer(sgd, "input_momentum_vector"_a.none(), "input_momentum_vectors"_a);

  using RMSProp = mps::NNOptimizerRMSProp;
  auto rmsProp = kernelClass<RMSProp, mps::NNOptimizer>(
      module, "NNOptimizerRMSProp",
      "s = decay s + (1 - decay) g^2;  v = v - lr g / (sqrt(s) + epsilon). The vector of s must be there.");
  rmsProp
      .def(nb::new_([](const Device& device, float learningRate) {
             return RMSProp::create(device, learningRate);
           }),
           "device"_a, "learning_rate"_a, "Decay 0.9, epsilon 1e-8.")
      .def(nb::new_([](const Device& device, double decay, float epsilon,
                       const NNOptimizerDescriptor& descriptor) {
             return RMSProp::create(device, decay, epsilon, descriptor);
           }),
           "device"_a, "decay"_a, "epsilon"_a, "optimizer_descriptor"_a, "All of it.");
  readOnly(rmsProp, "decay", &RMSProp::decay, "0.9.");
  readOnly(rmsProp, "epsilon", &RMSProp::epsilon, "1e-8.");
  bindOneBuffer(rmsProp, "input_sum_of_squares_vector"_a.none(), "input_sum_of_squares_vectors"_a);
}

void bindAdam(nb::module_& module) {
  using Adam = mps::NNOptimizerAdam;
  auto adam = kernelClass<Adam, mps::NNOptimizer>(
      module, "NNOptimizerAdam",
      "Adam, and AMSGrad where maximum velocity vectors are given:\n\n"
      "    t = t + 1;  lr_t = lr sqrt(1 - beta2^t) / (1 - beta1^t)\n"
      "    m = beta1 m + (1 - beta1) g;  u = beta2 u + (1 - beta2) g^2\n"
      "    Adam     v = v - lr_t m / (sqrt(u) + epsilon)\n"
      "    AMSGrad  x = max(x, u);  v = v - lr_t m / (sqrt(x) + epsilon)\n\n"
      "time_step goes up by one with each encode, also when weights and biases are updated together: one "
      "object per layer.");
  adam.def(nb::new_(
               [](const Device& device, float learningRate) { return Adam::create(device, learningRate); }),
           "device"_a, "learning_rate"_a, "beta1 0.9, beta2 0.999, epsilon 1e-8.")
      .def(nb::new_([](const Device& device, double beta1, double beta2, float epsilon, std::size_t timeStep,
                       const NNOptimizerDescriptor& descriptor) {
             return Adam::create(device, beta1, beta2, epsilon, timeStep, descriptor);
           }),
           "device"_a, "beta1"_a, "beta2"_a, "epsilon"_a, "time_step"_a, "optimizer_descriptor"_a,
           "All of it.");
  readOnly(adam, "beta1", &Adam::beta1, "0.9.");
  readOnly(adam, "beta2", &Adam::beta2, "0.999.");
  readOnly(adam, "epsilon", &Adam::epsilon, "1e-8, added to the root of the uncorrected u.");
  property(adam, "time_step", &Adam::timeStep, &Adam::setTimeStep,
           "Updates done so far. 0. Set it to go on from a checkpoint.");
  bindCoding(adam);
  bindUpdates([&]<class Buffer, class Result, class... Read>(const char* documentation, const nb::arg& result,
                                                             const auto&... names) {
    adam.def(
        "encode",
        [](Adam& self, const CommandBufferPointer& commandBuffer, const Read&... read, const Buffer& momentum,
           const Buffer& velocity, const Result& updated,
           const Buffer& most) { self.encode(commandBuffer, read..., momentum, velocity, most, updated); },
        "command_buffer"_a, names..., nameOf<Buffer>("input_momentum_vector"_a, "input_momentum_vectors"_a),
        nameOf<Buffer>("input_velocity_vector"_a, "input_velocity_vectors"_a), result, nb::kw_only(),
        nameOf<Buffer>("maximum_velocity_vector"_a.none() = nb::none(),
                       "maximum_velocity_vectors"_a = Vectors()),
        Released(), documentation);
  });
}

}  // namespace

void bindOptimizer(nb::module_& module) {
  bindLossScale(module);
  bindDescriptor(module);
  bindBase(module);
  bindOneBufferOptimizers(module);
  bindAdam(module);
}

}  // namespace python
