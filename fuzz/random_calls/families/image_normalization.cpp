#include <algorithm>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "fuzz/random_calls/families.hpp"
#include "fuzz/random_calls/kernel_settings.hpp"
#include "fuzz/random_calls/layer_call.hpp"
#include "mps/core/image/state.hpp"
#include "mps/core/layer/image_normalization_data_source.hpp"
#include "mps/core/layer/image_normalization_state.hpp"
#include "mps/instance_normalization/group_normalization.hpp"
#include "mps/instance_normalization/instance_normalization.hpp"

namespace unmetal::random_calls {
namespace {

/// Random parameters of either normalisation.
template <class DataSource>
class ImageParameters : public DataSource {
 public:
  ImageParameters(Call& call, std::size_t channels) : channels_(channels) {
    if (call.random.chance(0.8)) gamma_ = call.vector(channels, Numbers::AwayFromZero);
    if (call.random.chance(0.8)) beta_ = call.vector(channels, Numbers::Uniform);
  }
  [[nodiscard]] std::size_t numberOfFeatureChannels() const override { return channels_; }
  [[nodiscard]] std::span<const float> gamma() const override { return gamma_; }
  [[nodiscard]] std::span<const float> beta() const override { return beta_; }
  [[nodiscard]] float epsilon() const override { return 0.01F; }

 private:
  std::size_t channels_;
  std::vector<float> gamma_;
  std::vector<float> beta_;
};

class GroupParameters : public ImageParameters<mps::CNNGroupNormalizationDataSource> {
 public:
  GroupParameters(Call& call, std::size_t channels, std::size_t groups)
      : ImageParameters(call, channels), groups_(groups) {}
  [[nodiscard]] std::size_t numberOfGroups() const override { return groups_; }

 private:
  std::size_t groups_;
};

struct NormalizationKernels {
  std::shared_ptr<mps::CNNKernel> forward;
  std::shared_ptr<mps::CNNGradientKernel> gradient;
};

NormalizationKernels makeInstanceNormalization(Call& call, std::size_t channels) {
  using Parameters = ImageParameters<mps::CNNInstanceNormalizationDataSource>;
  const auto parameters = std::make_shared<Parameters>(call, channels);
  return {mps::CNNInstanceNormalization::create(call.device, parameters),
          mps::CNNInstanceNormalizationGradient::create(call.device)};
}

NormalizationKernels makeGroupNormalization(Call& call, std::size_t channels, std::size_t groups) {
  const auto parameters = std::make_shared<GroupParameters>(call, channels, groups);
  return {mps::CNNGroupNormalization::create(call.device, parameters),
          mps::CNNGroupNormalizationGradient::create(call.device)};
}

template <class State>
void observeParameterGradients(Call& call, const std::shared_ptr<mps::State>& state) {
  const auto normalization = std::dynamic_pointer_cast<State>(state);
  if (!normalization) return;
  const Tolerance tolerance{.factor = 10};
  call.observeBuffer("gammaGradient", normalization->gradientForGamma(), tolerance);
  call.observeBuffer("betaGradient", normalization->gradientForBeta(), tolerance);
}

void observeStates(Call& call, const mps::StateBatch& states) {
  std::set<mps::State*> seen;
  for (std::size_t i = 0; i < states.count(); ++i) {
    if (!seen.insert(states[i].get()).second) continue;
    observeParameterGradients<mps::CNNInstanceNormalizationGradientState>(call, states[i]);
    observeParameterGradients<mps::CNNGroupNormalizationGradientState>(call, states[i]);
  }
}

}  // namespace

void callImageNormalization(Call& call) {
  RandomNumbers& random = call.random;
  mps::ImageDescriptor source = call.imageSizes();
  std::size_t channels = source.featureChannels();
  NormalizationKernels kernels;
  if (call.noted("ofGroups", random.chance(0.5))) {
    std::size_t groups = random.size(1, 8);
    channels = groups * std::max<std::size_t>(1, channels / groups);
    if (random.chance(0.1)) groups = channels;
    kernels = makeGroupNormalization(call, channels, call.noted("groups", groups));
  } else {
    kernels = makeInstanceNormalization(call, channels);
  }
  const bool isWider = random.chance(0.15);
  source.setFeatureChannels(channels + (isWider ? 4 : 0));
  if (isWider)
    kernels.forward->setSourceFeatureChannelOffset(call.noted("sourceChannelOffset", std::size_t{4}));
  if (random.chance(0.2))
    kernels.forward->setDestinationFeatureChannelOffset(
        call.noted("destinationChannelOffset", 4 * random.size(1, 3)));
  if (random.chance(0.05)) setProperties(call, *kernels.forward, source);  // of which the kernels refuse many
  LayerCall layer;
  layer.anySizeOfResult = random.chance(0.05);
  layer.mayBeInPlace = true;
  layer.result = {.factor = 4, .leastScale = 1};
  // Divides by deviations down to 0.1, the root of epsilon, where an image has few pixels; to their third power in the
  // gradient.
  layer.gradient = {.factor = 20, .leastScale = 1};
  layer.observeStates = [&call](const mps::StateBatch& states) { observeStates(call, states); };
  const bool withGradient = random.chance(0.6);
  callLayer(call, *kernels.forward, withGradient ? kernels.gradient.get() : nullptr, source, layer);
}

}  // namespace unmetal::random_calls
