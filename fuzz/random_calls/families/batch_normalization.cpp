#include "mps/batch_normalization/batch_normalization.hpp"

#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "fuzz/random_calls/families.hpp"
#include "fuzz/random_calls/images.hpp"
#include "fuzz/random_calls/kernel_settings.hpp"
#include "fuzz/random_calls/layer_call.hpp"
#include "mps/core/layer/batch_normalization_data_source.hpp"
#include "mps/core/layer/batch_normalization_state.hpp"

namespace unmetal::random_calls {
namespace {

constexpr float kEpsilon =
    0.01F;  // the least variance is 0 where a channel has one pixel: the result stays around 1

class BatchParameters : public mps::CNNBatchNormalizationDataSource {
 public:
  BatchParameters(Call& call, std::size_t channels) : channels_(channels) {
    const auto drawn = [&](Numbers numbers) {
      return call.random.chance(0.8) ? call.vector(channels, numbers) : std::vector<float>{};
    };
    gamma_ = drawn(Numbers::AwayFromZero);
    beta_ = drawn(Numbers::Uniform);
    mean_ = drawn(Numbers::Uniform);
    variance_ = drawn(Numbers::Positive);
  }
  [[nodiscard]] std::size_t numberOfFeatureChannels() const override { return channels_; }
  [[nodiscard]] std::span<const float> gamma() const override { return gamma_; }
  [[nodiscard]] std::span<const float> beta() const override { return beta_; }
  [[nodiscard]] std::span<const float> mean() const override { return mean_; }
  [[nodiscard]] std::span<const float> variance() const override { return variance_; }
  bool load() override { return true; }
  void purge() override {}
  [[nodiscard]] float epsilon() const override { return kEpsilon; }

 private:
  std::size_t channels_;
  std::vector<float> gamma_;
  std::vector<float> beta_;
  std::vector<float> mean_;
  std::vector<float> variance_;
};

/// Training: statistics of the batch or of the data source, the kernel, both gradient kernels; at times of a batch in two
/// parts, and two rounds with one state.
class Training {
 public:
  Training(Call& call, const mps::ImageDescriptor& size, std::shared_ptr<mps::CNNBatchNormalization> kernel,
           mps::NNNeuronDescriptor neuron, bool withStatistics, bool withGradient)
      : call_(call),
        kernel_(std::move(kernel)),
        neuron_(std::move(neuron)),
        withStatistics_(withStatistics),
        count_(call.imageCount()),
        cut_(count_ > 1 && call.random.chance(0.3) ? call.random.size(1, count_ - 1) : count_) {
    call.noted("cut", cut_);
    makeImages(size, withGradient);
  }

  void run() {
    state_ =
        std::dynamic_pointer_cast<mps::CNNBatchNormalizationState>(kernel_->resultState(source_.batch[0]));
    const std::int64_t rounds = call_.noted("rounds", call_.random.chance(0.2) ? 2 : 1);
    for (std::int64_t round = 0; round < rounds; ++round) {
      const CommandBufferPointer commandBuffer = call_.begin();
      encodeForward(commandBuffer);
      if (gradient_) encodeGradient(commandBuffer);
      call_.finish(commandBuffer);
    }
    observeState();
  }

 private:
  void makeImages(const mps::ImageDescriptor& size, bool withGradient) {
    call_.stage = "sources";
    // Numbers around 30, whose variance a sum of squares would lose.
    const double level = call_.noted("level", call_.random.chance(0.2) ? 30 : 0);
    source_ = makeSources(call_, "source", size, count_,
                          [&](std::size_t) { return level + call_.number(Numbers::Uniform); });
    result_ = makeDestinations(call_, "destination", withFormat(size, call_.resultFormat()), count_,
                               {.factor = 4, .jumps = 0.002});
    if (!withGradient) return;
    gradient_ =
        makeSources(call_, "gradient", withFormat(size, call_.floatFormat()), count_, Numbers::Uniform);
    // The gradient subtracts two means, each of which a float32 sum over all pixels gives.
    sourceGradient_ = makeDestinations(call_, "sourceGradient", withFormat(size, call_.floatFormat()), count_,
                                       {.factor = 10, .jumps = 0.003});
  }

  /// Calls encode(images of the batch that start at 0 or `cut_`).
  template <class Encode>
  void forEachPart(Encode encode) const {
    const auto part = [](std::size_t first, std::size_t count) {
      return [first, count](const Images& images) { return partOf(images.batch, first, count); };
    };
    if (cut_ == count_) return encode([](const Images& images) { return images.batch; });
    encode(part(0, cut_));
    encode(part(cut_, count_ - cut_));
  }

  void encodeForward(const CommandBufferPointer& commandBuffer) {
    call_.stage = "forward";
    if (withStatistics_) {
      const auto statistics = mps::CNNBatchNormalizationStatistics::create(call_.device);
      forEachPart([&](const auto& of) { statistics->encodeBatch(commandBuffer, of(source_), state_); });
      if (call_.random.chance(0.1)) statistics->encodeBatch(commandBuffer, mps::ImageBatch(), state_);
    }
    forEachPart(
        [&](const auto& of) { kernel_->encodeBatch(commandBuffer, of(source_), state_, of(result_)); });
  }

  void encodeGradient(const CommandBufferPointer& commandBuffer) {
    call_.stage = "gradient";
    const auto statistics = mps::CNNBatchNormalizationStatisticsGradient::create(call_.device, neuron_);
    forEachPart(
        [&](const auto& of) { statistics->encodeBatch(commandBuffer, of(*gradient_), of(source_), state_); });
    const auto kernel = mps::CNNBatchNormalizationGradient::create(call_.device, neuron_);
    forEachPart([&](const auto& of) {
      kernel->encodeBatch(commandBuffer, of(*gradient_), of(source_), state_, of(sourceGradient_));
    });
  }

  void observeState() {
    call_.observeBuffer("mean", state_->mean(), {});
    call_.observeBuffer("variance", state_->variance(), {});
    if (!gradient_) return;
    // One pixel at a jump of the neuron's derivative changes the sum of its channel.
    const bool mayJump = neuron_.neuronType() != mps::CNNNeuronType::None;
    const Tolerance tolerance{.factor = 10, .jumps = mayJump ? 0.3 : 0};
    call_.observeBuffer("gammaGradient", state_->gradientForGamma(), tolerance);
    call_.observeBuffer("betaGradient", state_->gradientForBeta(), tolerance);
  }

  Call& call_;
  std::shared_ptr<mps::CNNBatchNormalization> kernel_;
  mps::NNNeuronDescriptor neuron_;
  bool withStatistics_;
  std::size_t count_;
  std::size_t cut_;
  Images source_;
  Images result_;
  std::optional<Images> gradient_;
  Images sourceGradient_;
  std::shared_ptr<mps::CNNBatchNormalizationState> state_;
};

}  // namespace

void callBatchNormalization(Call& call) {
  RandomNumbers& random = call.random;
  const mps::ImageDescriptor size = call.imageSizes();
  const auto parameters = std::make_shared<BatchParameters>(call, size.featureChannels());
  const auto neuron =
      random.chance(0.6) ? anyNeuron(call, size.featureChannels()) : mps::NNNeuronDescriptor();
  const auto kernel = mps::CNNBatchNormalization::create(call.device, parameters, neuron);
  const bool withStatistics = call.noted("statistics", random.chance(0.7));
  const bool withGradient = call.noted("gradient", random.chance(0.7));
  if (withStatistics || withGradient)
    return Training(call, size, kernel, neuron, withStatistics, withGradient).run();
  setProperties(call, *kernel, size);
  LayerCall layer;
  layer.mayBeInPlace = true;
  layer.result.jumps = 0.002;
  callLayer(call, *kernel, nullptr, size, layer);
}

}  // namespace unmetal::random_calls
