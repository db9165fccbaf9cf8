#pragma once

#include <any>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "mps/core/kernel/cnn_gradient_kernel.hpp"
#include "mps/core/kernel/cnn_kernel.hpp"
#include "mps/core/kernel/kernel_class.hpp"
#include "mps/core/kernel/kernel_roles.hpp"
#include "mps/core/layer/batch_normalization_data_source.hpp"
#include "mps/core/layer/layer_kernel.hpp"
#include "mps/core/neuron/neuron_descriptor.hpp"
#include "mps/distributed/batch_share.hpp"

/// Batch normalisation (MPSCNNBatchNormalization.h): four kernels, two for each
/// direction, around one CNNBatchNormalizationState for the whole batch. Per feature channel, over all m pixels
/// of all images:
///
///     mean     = 1/m sum x                     variance = 1/m sum (x - mean)^2
///     r        = 1 / sqrt(variance + epsilon)  h = (x - mean) r
///     z        = gamma h + beta                y = f(z), f the fused neuron
///     g        = dy f'(z)
///     dL/dbeta = sum g                         dL/dgamma = sum g h
///     dx       = gamma r (g - 1/m sum g - h 1/m sum(g h))
///
/// With constant statistics (no CNNBatchNormalizationStatistics encoded) dx = gamma r g. A step:
///
///     auto state = normalization->resultState(...);  // or temporaryResultState: a batchState below
///     statistics->encodeBatch(commandBuffer, x, batchState);
///     normalization->encodeBatch(commandBuffer, x, batchState, y);
///     ...                                            // the rest of the network, dy comes back
///     statisticsGradient->encodeBatch(commandBuffer, dy, x, batchState);
///     gradient->encodeBatch(commandBuffer, dy, x, batchState, dx);
///     ...                                            // optimiser, then the reloads
///
/// Each kernel may be encoded in parts of the batch, one after the other; all parts of one before the first of
/// the next. Statistics are float64 sums of differences from a pixel, so a large mean destroys nothing, and
/// parts are joined exactly but for rounding. z is rounded the same way in all kernels and back ends:
/// ((x - mean) * scale) + beta in float32, scale = gamma r rounded to float32.
///
/// Ranks of a Communicator that share a batch join their statistics and their gradients' sums:
///
///     statistics->encodeBatch(commandBuffer, x, batchState);             // x: this rank's images, or none
///     statistics->gatherStatistics(commandBuffer, communicator, elementsOfAllRanks, batchState);
///     normalization->encodeBatch(commandBuffer, x, batchState, y);
///     ...
///     statisticsGradient->encodeBatch(commandBuffer, dy, x, batchState);
///     statisticsGradient->reduceGradients(commandBuffer, communicator, batchState);
///     gradient->encodeBatch(commandBuffer, dy, x, batchState, dx);       // dL/dgamma and dL/dbeta stay this rank's
///
/// Images have exactly the data source's number of feature channels, from sourceFeatureChannelOffset on.
/// Statistics and gradients take whole images: no clip rectangle, no offset. Sources: every format; results:
/// float16, float32.
namespace mps {

namespace detail {
struct BatchNormalizationProblem;
class JointGather;
}  // namespace detail

/// Whether a node computes the statistics of its batch (MPSCNNBatchNormalizationFlags).
enum class CNNBatchNormalizationFlags : std::uint64_t {
  Default = 0,
  /// When a gradient node of the graph reads its state (training); otherwise the data source's are used.
  CalculateStatisticsAutomatic = 0,
  CalculateStatisticsAlways = 1,
  /// The data source's are used, in training too: they are constants.
  CalculateStatisticsNever = 2,
  CalculateStatisticsMask = 3,
};

/// y = f(gamma (x - mean) / sqrt(variance + epsilon) + beta) (MPSCNNBatchNormalization). The destination may be
/// the source.
///
/// Of copy(): the data source's copy(), or the source itself where that is null, is read: what was reloaded from a state stays behind
/// (secure coding carries it). A copy on the same device that shares the source has what this kernel has.
class CNNBatchNormalization
    : public detail::KernelClass<CNNBatchNormalization, CNNKernel, "CNNBatchNormalization">,
      public detail::LayerKernel,
      public detail::SharedBatchKernel,
      public detail::NeuronFusion {
 public:
  /// Reads the data source once. @throws Error when it is null, fails to load, or an array has another length
  /// than numberOfFeatureChannels; for an epsilon that setEpsilon refuses.
  /// @param fusedNeuronDescriptor PReLU: one slope per feature channel
  static std::shared_ptr<CNNBatchNormalization> create(
      const std::shared_ptr<mtl::Device>& device, std::shared_ptr<CNNBatchNormalizationDataSource> dataSource,
      const NNNeuronDescriptor& fusedNeuronDescriptor = {});

  [[nodiscard]] std::size_t numberOfFeatureChannels() const { return channels_; }
  /// Added to the variance. The data source's. A state keeps what its last normalisation used. @throws Error when it is
  /// negative, infinite or not a number
  [[nodiscard]] float epsilon() const { return parameters_->epsilon; }
  void setEpsilon(float epsilon);
  [[nodiscard]] const std::shared_ptr<CNNBatchNormalizationDataSource>& dataSource() const {
    return dataSource_;
  }
  [[nodiscard]] const NNNeuronDescriptor& fusedNeuronDescriptor() const { return neuron_; }
  [[nodiscard]] bool isResultStateReusedAcrossBatch() const override { return true; }

  /// Encodes without a state use the kernel's own statistics (inference); with one those of the batch. A state
  /// without statistics, such as one that the inherited encodes make, holds the kernel's.
  using CNNKernel::encode;
  using CNNKernel::encodeBatch;
  void encodeBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const ImageBatch& sourceImages,
                   const std::shared_ptr<CNNBatchNormalizationState>& batchNormalizationState,
                   const ImageBatch& destinationImages);

  /// Reads the data source again, now; encoded work keeps the old values. @throws Error as create does.
  void reloadGammaAndBetaFromDataSource();
  void reloadMeanAndVarianceFromDataSource();
  void reloadFromDataSource() override;
  /// All of another data source (deprecated by Apple). @throws Error also for another number of channels
  void reloadDataSource(std::shared_ptr<CNNBatchNormalizationDataSource> dataSource);
  /// Encodes from now on use the state's values as they are when the recorded copy runs. Takes one read off the
  /// state. @throws Error when its length differs.
  void reloadGammaAndBeta(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                          const std::shared_ptr<CNNNormalizationGammaAndBetaState>& gammaAndBetaState);
  void reloadMeanAndVariance(
      const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
      const std::shared_ptr<CNNNormalizationMeanAndVarianceState>& meanAndVarianceState);

  /// @name The library's own
  /// @{
  /// What encodes use now, and its exchange for what it was earlier.
  [[nodiscard]] const detail::BatchNormalizationParameters& parameters() const { return *parameters_; }
  void useParameters(const detail::BatchNormalizationParameters& parameters);
  /// Of the node, and what the graph makes of it.
  void setFlags(CNNBatchNormalizationFlags flags) { flags_ = flags; }
  [[nodiscard]] bool computesStatistics() const { return computesStatistics_; }
  /// @}

 protected:
  using KernelClass::KernelClass;
  CNNBatchNormalization(std::shared_ptr<mtl::Device> device,
                        std::shared_ptr<CNNBatchNormalizationDataSource> dataSource,
                        const NNNeuronDescriptor& fusedNeuronDescriptor);
  CNNBatchNormalization(const CNNBatchNormalization& other);
  void codeProperties(Coder& coder) override;
  void didCopy(bool hasMoved) override;
  [[nodiscard]] std::size_t producedFeatureChannels(std::size_t sourceFeatureChannels) const override;
  [[nodiscard]] std::shared_ptr<State> makeState(
      const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
      std::span<const std::shared_ptr<State>> sourceStates) const override;
  void describeForward(std::any& family) const override { family = neuron_; }
  void didEncode(const detail::ForwardCall& call) override;
  [[nodiscard]] detail::PreparedCall prepareForward(const detail::ForwardCall& call) const override;
  [[nodiscard]] bool worksInPlace() const override { return true; }
  [[nodiscard]] const void* deviceParameters() const override;
  [[nodiscard]] std::function<void()> parameterKeeper() override;
  [[nodiscard]] std::shared_ptr<detail::LayerUpdate> makeUpdate(
      const std::vector<std::shared_ptr<detail::ImageKernel>>& gradients, NNTrainingStyle style) override;
  [[nodiscard]] detail::KernelRoles roles() override;
  [[nodiscard]] bool repeatsCommands() const override { return !share_.statistics; }
  /// The neuron behind the normalisation is its gradient kernel's, too.
  [[nodiscard]] Answer canFuse(const NNNeuronDescriptor& neuron, bool isDifferentiated) const override;
  void fuse(const NNNeuronDescriptor& neuron) override { neuron_ = neuron; }
  void chooseTraining(bool hasGradient) override;
  void encodeStep(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                  std::span<const ImageBatch> sources, const StateBatch& destinationStates,
                  const ImageBatch& destinationImages) override;
  void setBatchShare(const detail::BatchShare& share) override { share_ = share; }
  void encodeWithoutImages(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                           const ImageDescriptor& source, const StateBatch& states) override;

 private:
  friend KernelClass;
  /// Of the images of this rank, and then, where they share statistics, of those of all. @param size of an image
  void encodeStatistics(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                        const ImageBatch& sourceImages, const ImageDescriptor& size,
                        const std::shared_ptr<CNNBatchNormalizationState>& state) const;
  /// @param state null: none
  [[nodiscard]] detail::BatchNormalizationParameters parametersFor(const std::shared_ptr<State>& state) const;
  std::shared_ptr<CNNBatchNormalizationDataSource> dataSource_;
  std::size_t channels_ = 0;
  NNNeuronDescriptor neuron_;
  std::shared_ptr<detail::BatchNormalizationParameters> parameters_ =
      std::make_shared<detail::BatchNormalizationParameters>();
  CNNBatchNormalizationFlags flags_ = CNNBatchNormalizationFlags::Default;
  bool computesStatistics_ = false;  ///< in steps of a graph
  detail::BatchShare share_;
};

/// Adds the mean and variance of images to a state (MPSCNNBatchNormalizationStatistics). The other encodes
/// throw: there is no destination.
class CNNBatchNormalizationStatistics : public detail::KernelClass<CNNBatchNormalizationStatistics, CNNKernel,
                                                                   "CNNBatchNormalizationStatistics"> {
 public:
  static std::shared_ptr<CNNBatchNormalizationStatistics> create(const std::shared_ptr<mtl::Device>& device);
  [[nodiscard]] bool isStateModified() const override { return true; }
  [[nodiscard]] bool isResultStateReusedAcrossBatch() const override { return true; }
  [[nodiscard]] bool appendBatchBarrier() const override { return true; }

  using CNNKernel::encodeBatch;
  /// Images of other sizes go into encodes of their own; each pixel counts once. No images are none: a device without
  /// a part of the batch encodes so, and its sums are zeros.
  void encodeBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const ImageBatch& sourceImages,
                   const std::shared_ptr<CNNBatchNormalizationState>& batchNormalizationState);
  /// Extension: sets the state's statistics to those of a batch on several devices, as they are when the
  /// recorded copy runs. @param accumulatedStatistics as CNNBatchNormalizationState::accumulatedStatistics()
  /// @param elementCount of all devices together, above 0. @throws Error for another length
  void importStatistics(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                        const std::shared_ptr<mtl::Buffer>& accumulatedStatistics, std::uint64_t elementCount,
                        const std::shared_ptr<CNNBatchNormalizationState>& batchNormalizationState);
  /// Extension: sets the state's statistics to those of the batch of all ranks, merged in the order of ranks. Encode this
  /// rank's part first, if only of no images. @param elementCount per feature channel, of all ranks together
  /// @throws Error for fewer elements than this rank has
  void gatherStatistics(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                        const std::shared_ptr<Communicator>& communicator, std::uint64_t elementCount,
                        const std::shared_ptr<CNNBatchNormalizationState>& batchNormalizationState);

  /// @name The library's own
  /// @{
  /// gatherStatistics behind the last gradient of the batch, for running statistics: adds this layer's to those that all ranks
  /// hand to each other.
  void gatherForUpdate(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, detail::JointGather& gather,
                       std::uint64_t elementCount,
                       const std::shared_ptr<CNNBatchNormalizationState>& batchNormalizationState);
  /// @}

 protected:
  using KernelClass::KernelClass;
  CNNBatchNormalizationStatistics(const CNNBatchNormalizationStatistics&) = default;
  [[nodiscard]] bool makesState() const override { return false; }
  [[nodiscard]] detail::PreparedCall prepareForward(const detail::ForwardCall& call) const override;

 private:
  friend KernelClass;
  void encodeNone(mtl::CommandBuffer& commandBuffer, CNNBatchNormalizationState& state) const;
  void addTo(detail::JointGather& gather, const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
             std::uint64_t elementCount, const std::shared_ptr<CNNBatchNormalizationState>& state) const;
  /// What follows from the means and M2 that the state holds.
  void recordStatisticsOf(mtl::CommandBuffer& commandBuffer, std::uint64_t elementCount,
                          CNNBatchNormalizationState& state) const;
};

namespace detail {

/// What a normalisation of whole images leaves for its gradient, but for the neuron.
std::shared_ptr<ForwardRecord> recordOfWholeImages(const ImageDescriptor& sourceImage);
/// Of sums that come from other devices. @throws Error
void checkImport(const Kernel& kernel, const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                 const char* argument, const std::shared_ptr<mtl::Buffer>& accumulated,
                 const std::shared_ptr<CNNBatchNormalizationState>& state);

/// What the two gradient kernels share.
class BatchNormalizationGradientKernel : public CNNGradientKernel, public NeuronFusion {
 public:
  [[nodiscard]] const NNNeuronDescriptor& fusedNeuronDescriptor() const { return neuron_; }

 protected:
  using CNNGradientKernel::CNNGradientKernel;
  BatchNormalizationGradientKernel(std::shared_ptr<mtl::Device> device,
                                   const NNNeuronDescriptor& fusedNeuronDescriptor);
  BatchNormalizationGradientKernel(const BatchNormalizationGradientKernel&) = default;
  void codeProperties(Coder& coder) override;
  void transferOwnProperties(const ForwardRecord& record) override;

  /// The state of a call, checked against its images. @throws Error for another kind, other images than whole
  /// ones of the same size, another number of channels
  [[nodiscard]] CNNBatchNormalizationState& stateOf(const GradientCall& call) const;
  [[nodiscard]] PreparedCall prepareStatistics(const GradientCall& call,
                                               CNNBatchNormalizationState& state) const;
  [[nodiscard]] PreparedCall prepareData(const GradientCall& call, CNNBatchNormalizationState& state) const;
  [[nodiscard]] bool acceptsForward(const std::string& forwardClassName) const override {
    return forwardClassName == "CNNBatchNormalization";
  }
  [[nodiscard]] bool worksInPlace() const override { return true; }
  [[nodiscard]] bool canAccumulate() const override { return true; }
  [[nodiscard]] bool preparesWithoutPixels() const override { return true; }
  /// The neuron is that behind the forward kernel.
  [[nodiscard]] Answer canFuse(const NNNeuronDescriptor& /*neuron*/,
                               bool /*isDifferentiated*/) const override {
    return Answer::GradientIncluded;
  }
  void fuse(const NNNeuronDescriptor& neuron) override { neuron_ = neuron; }
  [[nodiscard]] KernelRoles roles() override;
  /// That of the last forward encode, whatever the size of its images; without one, of whole images.
  [[nodiscard]] BatchRecord forwardRecord(const ImageDescriptor& sourceImage,
                                          const StateBatch& states) const override;

 private:
  [[nodiscard]] BatchNormalizationProblem problemOf(const GradientCall& call,
                                                    const BatchNormalizationParameters& parameters) const;
  NNNeuronDescriptor neuron_;
};

}  // namespace detail

/// Adds the gradients of images to a state: dL/dgamma, dL/dbeta, dL/dmean, dL/dvariance
/// (MPSCNNBatchNormalizationStatisticsGradient). The images are those of the statistics; more of them throw.
///
/// The inherited encodes with gradient states compute the data gradient, too, once all elements of the
/// statistics have come (docs/decisions.md, D3); before they throw and say how many elements are missing. They overwrite
/// (or return) the destination as CNNBatchNormalizationGradient does.
///
///     auto statistics = mps::CNNBatchNormalizationStatistics::create(device);
///     auto normalization = mps::CNNBatchNormalization::create(device, dataSource);
///     auto state = std::static_pointer_cast<mps::CNNBatchNormalizationState>(normalization->resultState(x[0]));
///     statistics->encodeBatch(commandBuffer, x, state);
///     normalization->encodeBatch(commandBuffer, x, state, y);
///     auto sums = mps::CNNBatchNormalizationStatisticsGradient::create(device);
///     sums->encodeBatch(commandBuffer, dy, x, state);
///     auto dGamma = state->gradientForGamma();
class CNNBatchNormalizationStatisticsGradient
    : public detail::KernelClass<CNNBatchNormalizationStatisticsGradient,
                                 detail::BatchNormalizationGradientKernel,
                                 "CNNBatchNormalizationStatisticsGradient">,
      public detail::LayerGradientKernel,
      public detail::SharedBatchKernel {
 public:
  /// @param fusedNeuronDescriptor that of the forward kernel, else encodes throw. @throws Error for a type that does not
  /// exist
  static std::shared_ptr<CNNBatchNormalizationStatisticsGradient> create(
      const std::shared_ptr<mtl::Device>& device, const NNNeuronDescriptor& fusedNeuronDescriptor = {});
  [[nodiscard]] bool isStateModified() const override { return true; }
  [[nodiscard]] bool isResultStateReusedAcrossBatch() const override { return true; }
  [[nodiscard]] bool appendBatchBarrier() const override { return true; }

  using CNNGradientKernel::encodeBatch;
  /// The statistics gradient alone. No images: zeros, where there are no sums yet.
  void encodeBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                   const ImageBatch& sourceGradients, const ImageBatch& sourceImages,
                   const std::shared_ptr<CNNBatchNormalizationState>& batchNormalizationState);
  /// Extension: sets the sums that the data gradient uses to those of a batch on several devices. Encode this
  /// device's part first; without one its own gradients are zeros. @param accumulatedGradients as CNNBatchNormalizationState::accumulatedGradients()
  void importGradients(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                       const std::shared_ptr<mtl::Buffer>& accumulatedGradients,
                       const std::shared_ptr<CNNBatchNormalizationState>& batchNormalizationState);
  /// Extension: sets them to the sums over the ranks. @throws Error before this rank's part is encoded
  void reduceGradients(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                       const std::shared_ptr<Communicator>& communicator,
                       const std::shared_ptr<CNNBatchNormalizationState>& batchNormalizationState);

 protected:
  using KernelClass::KernelClass;
  CNNBatchNormalizationStatisticsGradient(const CNNBatchNormalizationStatisticsGradient&) = default;
  void codeProperties(Coder& coder) override;
  void didEncode(const detail::GradientCall& call) override;
  [[nodiscard]] std::vector<detail::PreparedCall> prepareGradient(
      const detail::GradientCall& call) const override;
  [[nodiscard]] detail::KernelRoles roles() override;
  [[nodiscard]] bool repeatsCommands() const override { return !share_.statistics; }
  /// Whether the inherited encodes compute the data gradient. true.
  void chooseGradients(bool ofData, bool /*ofParameters*/) override { computesData_ = ofData; }
  void encodeStep(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                  std::span<const ImageBatch> sources, const StateBatch& gradientStates,
                  const ImageBatch& destinationGradients, bool accumulates) override;
  void setBatchShare(const detail::BatchShare& share) override { share_ = share; }
  void encodeWithoutImages(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                           const ImageDescriptor& source, const StateBatch& states) override;

 private:
  friend KernelClass;
  /// Of no images.
  void encodeNone(mtl::CommandBuffer& commandBuffer, CNNBatchNormalizationState& state) const;
  bool computesData_ = true;
  detail::BatchShare share_;
};

/// dx, from a state whose statistics gradient has seen the whole batch (MPSCNNBatchNormalizationGradient).
///
///     auto statistics = mps::CNNBatchNormalizationStatistics::create(device);
///     auto normalization = mps::CNNBatchNormalization::create(device, dataSource);
///     auto state = std::static_pointer_cast<mps::CNNBatchNormalizationState>(normalization->resultState(x[0]));
///     statistics->encodeBatch(commandBuffer, x, state);
///     normalization->encodeBatch(commandBuffer, x, state, y);
///     mps::CNNBatchNormalizationStatisticsGradient::create(device)->encodeBatch(commandBuffer, dy, x, state);
///     auto gradient = mps::CNNBatchNormalizationGradient::create(device);
///     auto dx = gradient->encodeBatch(commandBuffer, dy, x, state);
class CNNBatchNormalizationGradient
    : public detail::KernelClass<CNNBatchNormalizationGradient, detail::BatchNormalizationGradientKernel,
                                 "CNNBatchNormalizationGradient"> {
 public:
  /// @param fusedNeuronDescriptor that of the forward kernel, else encodes throw. @throws Error for a type that does not
  /// exist
  static std::shared_ptr<CNNBatchNormalizationGradient> create(
      const std::shared_ptr<mtl::Device>& device, const NNNeuronDescriptor& fusedNeuronDescriptor = {});
  [[nodiscard]] bool isResultStateReusedAcrossBatch() const override { return true; }

  using CNNGradientKernel::encodeBatch;
  void encodeBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                   const ImageBatch& sourceGradients, const ImageBatch& sourceImages,
                   const std::shared_ptr<CNNBatchNormalizationState>& batchNormalizationState,
                   const ImageBatch& destinationGradients);
  ImageBatch encodeBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                         const ImageBatch& sourceGradients, const ImageBatch& sourceImages,
                         const std::shared_ptr<CNNBatchNormalizationState>& batchNormalizationState);

 protected:
  using KernelClass::KernelClass;
  CNNBatchNormalizationGradient(const CNNBatchNormalizationGradient&) = default;
  void didEncode(const detail::GradientCall& call) override;
  [[nodiscard]] std::vector<detail::PreparedCall> prepareGradient(
      const detail::GradientCall& call) const override;

 private:
  friend KernelClass;
};

}  // namespace mps
